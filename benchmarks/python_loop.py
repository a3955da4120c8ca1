"""Speed of a Python loop over a pipeline's frames, against the same pipeline that writes `jsonl`.

    python benchmarks/python_loop.py [VIDEO...] [--model CARD] [--device cuda:0] [--limit 400] [--pairs 5]

Each pair runs three forms one after the other: without a loop and with `jsonl`, a loop in place of `jsonl`, and a loop
beside it. The loop reads the detections of every frame. The figures are medians; the ratios those of the pairs. CPU
time depends little on other load of the machine.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamkit

HEAD = f"{'form':<24} {'frames':>8} {'frames/s':>9} {'ratio':>6} {'CPU ms/frame':>13}"


@dataclass(frozen=True, slots=True)
class LoopMeasurement:
    """The result for one form.

    Attributes:
        form: what reads the frames.
        frames: frames of one run.
        fps: frames per second, from the first frame to the last.
        ratio: speed relative to the pipeline without a loop, the median of the pairs.
        cpu_ms: CPU time of all threads per frame, in milliseconds.
    """

    form: str
    frames: int
    fps: float
    ratio: float
    cpu_ms: float

    def __str__(self) -> str:
        return f"{self.form:<24} {self.frames:>8,} {self.fps:>9.1f} {self.ratio:>6.3f} {self.cpu_ms:>13.2f}"


def measure(
    videos: Sequence[str], *, model: str = "demo", device: str = "cpu", limit: int = 400, pairs: int = 5
) -> list[LoopMeasurement]:
    """Run all forms in turn.

    Args:
        videos: the sources.
        model: the detector's card.
        device: as in a pipeline.
        limit: frames per source and run.
        pairs: how often.
    """
    detect: dict[str, Any] = {"detect": {"model": model}, "track": {}}
    sources = {f"s{number}": video for number, video in enumerate(videos)}
    with tempfile.TemporaryDirectory() as folder:
        written = {**detect, "jsonl": {"path": f"{folder}/{{source}}.jsonl"}}
        forms = {
            "jsonl": lambda: _without({"sources": sources, "stages": written}, device, limit),
            "loop in place of jsonl": lambda: _loop({"sources": sources, "stages": detect}, device, limit),
            "loop beside jsonl": lambda: _loop({"sources": sources, "stages": written}, device, limit),
        }
        forms["jsonl"]()  # libraries are loaded, the file is in memory
        runs = [{form: _timed(run) for form, run in forms.items()} for _ in range(pairs)]
    return [
        LoopMeasurement(
            form,
            runs[0][form][0],
            statistics.median(run[form][1] for run in runs),
            statistics.median(run[form][1] / run["jsonl"][1] for run in runs),
            statistics.median(run[form][2] for run in runs),
        )
        for form in forms
    ]


def _timed(run: Callable[[], tuple[int, float]]) -> tuple[int, float, float]:
    """The frames of a run, its frames per second, and its milliseconds of CPU time per frame."""
    start_s = time.process_time()
    frames, fps = run()
    return frames, fps, (time.process_time() - start_s) * 1e3 / frames


def _without(pipeline: dict[str, Any], device: str, limit: int) -> tuple[int, float]:
    done = streamkit.Pipeline(pipeline, device=device, limit=limit)
    done.run()
    return done.stats.frames, done.stats.fps


def _loop(pipeline: dict[str, Any], device: str, limit: int) -> tuple[int, float]:
    frames = streamkit.run(pipeline, device=device, limit=limit)
    objects = 0
    for frame in frames:
        objects += len(frame.detections)
    assert objects
    return frames.stats.frames, frames.stats.fps


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("videos", nargs="*", default=[str(Path(__file__).parents[1] / "samples" / "street.mp4")])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--limit", type=int, default=400)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args(arguments)
    print(HEAD)
    for row in measure(
        options.videos, model=options.model, device=options.device, limit=options.limit, pairs=options.pairs
    ):
        print(row)


if __name__ == "__main__":
    main()
