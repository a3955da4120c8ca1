# SPDX-License-Identifier: Apache-2.0
"""`python -m streamkit.engine.build_plans FOLDER DEVICE`: build the plans of convolutions that are read as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamkit.core.errors import OutputError
from streamkit.engine.convolutions import Signature
from streamkit.engine.frontend import import_cudnn
from streamkit.engine.plans import CANDIDATES, PlanError, SerializedPlan, build, save


def main(folder: str, device: str) -> None:
    """Build plans and write them into a folder; one that cannot be built is left out."""
    signatures = [read_signature(fields) for fields in json.load(sys.stdin)]
    os.nice(10)  # decoders and sources go first
    import cupy

    cudnn = import_cudnn()
    with cupy.cuda.Device(int(device)):
        handle = cudnn.create_handle()
        for about in signatures:
            with contextlib.suppress(PlanError):
                plans = [SerializedPlan(data) for data in build(about, handle, CANDIDATES)]
                try:
                    save(Path(folder), about, plans)
                except OutputError as error:
                    sys.exit(str(error))


def read_signature(fields: Mapping[str, Any]) -> Signature:
    """Return a signature from its JSON fields, whose tuples have become lists."""
    return Signature(**{name: _tuples(values) for name, values in fields.items()})


def _tuples(values: Any) -> Any:
    return tuple(_tuples(part) for part in values) if isinstance(values, list) else values


if __name__ == "__main__":
    main(*sys.argv[1:])
