"""How much faster an int8 network is on this CPU: the network alone, and a pipeline against the plain loop.

    python benchmarks/int8.py CARD INT8_CARD VIDEO [--frames 120] [--rounds 4]

All sides run in turn, in each round; ratios are of the same round. The network alone runs on one worker per core, each
with a thread. Pipeline and plain loop run in processes of their own; their start is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from streamkit.core.data import Device
from streamkit.media.spread_frames import spread_frames
from streamkit.models.card import Card, load_card
from streamkit.models.card_comparison import calibration_feeds
from streamkit.models.network import check_model
from streamkit.models.session import Session

SIDES = ("network, f32", "network, int8", "plain loop, f32", "pipeline, f32", "pipeline, int8")
RATIOS = {
    "network, int8 to f32": ("network, int8", "network, f32"),
    "pipeline, int8 to f32": ("pipeline, int8", "pipeline, f32"),
    "pipeline int8 to plain loop f32": ("pipeline, int8", "plain loop, f32"),
}
_ROOT = Path(__file__).resolve().parents[1]


def rates(card: Path, int8_card: Path, video: Path, *, frames: int, rounds: int) -> dict[str, list[float]]:
    """Frames per second of each of `SIDES`, a number for each round."""
    cards = [check_model(load_card(path.resolve())) for path in (card, int8_card)]
    frame_rates: dict[str, list[float]] = {side: [] for side in SIDES}
    with tempfile.TemporaryDirectory(prefix="streamkit-int8-") as folder:
        for _ in range(rounds):
            sides = (
                *(_network(model, video, frames) for model in cards),
                _plain(card, video, frames, Path(folder)),
                *(_pipeline(path, video, frames, Path(folder)) for path in (card, int8_card)),
            )
            for side, rate in zip(SIDES, sides, strict=True):
                frame_rates[side].append(rate)
    return frame_rates


def ratios(frame_rates: dict[str, list[float]]) -> dict[str, list[float]]:
    """The ratios of `RATIOS`, a number for each round."""
    return {
        name: [a / b for a, b in zip(frame_rates[first], frame_rates[other], strict=True)]
        for name, (first, other) in RATIOS.items()
    }


def _network(card: Card, video: Path, frames: int) -> float:
    feeds = list(calibration_feeds(card, spread_frames([], [video], 8)))
    cores = len(os.sched_getaffinity(0))
    sessions = [Session(card.file, Device(), threads=1) for _ in range(cores)]
    for session in sessions:
        session.run(feeds[0])  # allocates

    def work(session: Session) -> None:
        for number in range(frames // cores):
            session.run(feeds[number % len(feeds)])

    start_s = time.perf_counter()
    with ThreadPoolExecutor(cores) as pool:
        list(pool.map(work, sessions))
    return frames // cores * cores / (time.perf_counter() - start_s)


def _plain(card: Path, video: Path, frames: int, folder: Path) -> float:
    words = [str(video.resolve()), str(card.resolve()), str(folder / "plain.jsonl"), str(frames)]
    report = json.loads(_output([sys.executable, "-m", "streamkit.bench.plain_loop", *words]).splitlines()[-1])
    return float(report["frames"] / report["seconds"])


def _pipeline(card: Path, video: Path, frames: int, folder: Path) -> float:
    stages = {"detect": {"model": str(card.resolve())}, "jsonl": {"path": str(folder / "out.jsonl")}}
    plan = {"device": "cpu", "sources": {"video": str(video.resolve())}, "stages": stages}
    (folder / "p.yaml").write_text(json.dumps(plan))
    report = folder / "report.json"
    words = ["run", str(folder / "p.yaml"), "--limit", str(frames), "--report", str(report)]
    _output([sys.executable, str(_ROOT / "run.py"), *words])
    totals = json.loads(report.read_text())
    return float(totals["frames"] / totals["seconds"])


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=_ROOT).stdout


def main() -> None:
    """Print the medians of all sides, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("card", type=Path)
    parser.add_argument("int8_card", type=Path)
    parser.add_argument("video", type=Path)
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    frame_rates = rates(
        arguments.card, arguments.int8_card, arguments.video, frames=arguments.frames, rounds=arguments.rounds
    )
    for side, values in frame_rates.items():
        print(f"{side:<32} {statistics.median(values):6.1f} frames/s ({min(values):.1f} to {max(values):.1f})")
    for name, values in ratios(frame_rates).items():
        print(f"{name:<32} {statistics.median(values):6.2f} times ({min(values):.2f} to {max(values):.2f})")


if __name__ == "__main__":
    main()
