"""What is promised of cameras, in figures: outages, bad neighbors, coming and going, overload.

usage: python tests/soak/soak.py [NAME ...] [--short] [--runs 1] [--minutes 30] [--device cpu] [--json FILE]

NAME: restarts, neighbors, churn, overload, soak (RTSP servers on loopback, or made-up sources; together the default),
fleet (--device cuda: a hundred paced cameras, one in ten failing). Prints a report and exits 1 where a promise does not
hold. `--short` is what the tests run.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from load import churn, fleet, overload
from neighbors import neighbors
from outages import restarts, soak
from rig import Promises, machine
from support.rtsp import missing

NAMES = ("restarts", "neighbors", "churn", "overload", "soak", "fleet")
SHORT: dict[str, dict[str, Any]] = {
    "restarts": {"outages": 2, "away_s": 1.0, "quiet_s": 4.0},
    "neighbors": {"seconds": 5.0, "rounds": 3},
    "churn": {"times": 200},
    "overload": {"seconds": 6.0},
    "soak": {"minutes": 0.4},
    "fleet": {"cameras": 5, "seconds": 15.0},
}


def run(name: str, folder: Path, **options: Any) -> Promises:
    """Run one by its name, in a folder of its own."""
    call: dict[str, Callable[..., Promises]] = {
        "restarts": restarts,
        "neighbors": neighbors,
        "churn": churn,
        "overload": overload,
        "soak": soak,
        "fleet": fleet,
    }
    run_folder = folder / name
    run_folder.mkdir()
    return call[name](run_folder, **options)


def repeated(name: str, runs: int, **options: Any) -> list[dict[str, Any]]:
    """Run one several times, whatever comes of the first; print and return each run's report."""
    reports = []
    for number in range(1, runs + 1):
        with tempfile.TemporaryDirectory() as folder:
            promises = run(name, Path(folder), **options)
        print(promises if runs == 1 else f"run {number} of {runs}: {promises}", flush=True)
        reports.append({**promises.report(), "run": number})
    return reports


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[*NAMES, []])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--runs", type=int, default=1, help="of each; the worst counts")
    parser.add_argument("--minutes", type=float, help="of soak and overload")
    parser.add_argument("--times", type=int, help="additions and removals")
    parser.add_argument("--outages", type=int)
    parser.add_argument("--cameras", type=int, help="of restarts and fleet")
    parser.add_argument("--seed", type=int, default=0, help="of soak")
    parser.add_argument("--device", default="cpu", help="of churn and fleet")
    parser.add_argument("--clip", type=Path, help="of fleet")
    parser.add_argument("--detect", help="of fleet: a model card, for a detector; none by default")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    cuda = args.device.startswith("cuda")
    names = args.names or (["churn", "fleet"] if cuda else [name for name in NAMES if name != "fleet"])
    reason = missing()
    if reason is not None and {"restarts", "neighbors", "soak"} & set(names):
        sys.exit(reason)
    options_of: dict[str, dict[str, Any]] = {
        "restarts": {"outages": args.outages, "cameras": args.cameras},
        "neighbors": {},
        "churn": {"times": args.times, "device": args.device},
        "overload": {"seconds": args.minutes and args.minutes * 60},
        "soak": {"minutes": args.minutes, "seed": args.seed, "echo": lambda text: print(text, flush=True)},
        "fleet": {"cameras": args.cameras, "device": args.device, "clip": args.clip, "detect": args.detect},
    }
    where = machine()
    reports = []
    for name in names:
        options = {
            **(SHORT[name] if args.short else {}),
            **{k: v for k, v in options_of[name].items() if v is not None},
        }
        reports += repeated(name, args.runs, **options)
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"schema": "streamkit-soak/1", "machine": where, "soaks": reports}, indent=1))
    return 0 if all(report["holds"] for report in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
