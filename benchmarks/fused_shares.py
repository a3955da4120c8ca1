"""Lists which share of the multiply-adds of networks the fused engine runs. Needs no GPU.

    python benchmarks/fused_shares.py NETWORK.onnx ... --out shares.json

`export_networks.py` makes networks. docs/networks-on-a-gpu.md has the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from streamkit.core.errors import ModelError
from streamkit.engine.errors import EngineError
from streamkit.models.fused import share_that_can_be_fused
from streamkit.models.network_file import inspect

SCHEMA = "streamkit-fused-shares/1"
_SIZE = 640, 640


def share_of(file: Path) -> float | str:
    """Return the share of a network, 0 to 1, or why the engine cannot run it."""
    try:
        info = inspect(file)
        return round(share_that_can_be_fused(info, info.size or _SIZE), 4)
    except (EngineError, ModelError) as error:
        return str(error)


def main(arguments: list[str] | None = None) -> None:
    """Print a line for each network, and write all to a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("networks", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    shares = {file.stem: share_of(file) for file in options.networks}
    for name, share in shares.items():
        print(f"{name:32} {share:.1%}" if isinstance(share, float) else f"{name:32} {share}")
    if options.out is not None:
        options.out.write_text(json.dumps({"schema": SCHEMA, "shares": shares}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
