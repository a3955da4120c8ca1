"""How much time reading fewer frames of a file saves: `keyframes`, `every`, `fps`, `start` and `end`.

    python benchmarks/selective_decode.py VIDEO... [--device cuda:0] [--threads 1] [--rounds 3]

Decoding alone, with one reader; the median of the rounds. On the CPU it is CPU time, which depends little on other
load of the machine; on a GPU it is wall time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamkit.core.counters import Counters
from streamkit.core.data import Device

HEAD = f"{'video':<34} {'selection':<14} {'frames':>8} {'decoded':>8} {'seconds':>8} {'times':>6}"


@dataclass(frozen=True, slots=True)
class DecodeMeasurement:
    """The result for one selection of one video.

    Attributes:
        video: its name.
        way: `all`, or the option.
        frames: number of selected frames.
        decoded: number of decoded frames, selected ones included.
        seconds: how long it took.
        times: speed relative to `all`.
    """

    video: str
    way: str
    frames: int
    decoded: int
    seconds: float
    times: float

    def __str__(self) -> str:
        return (
            f"{self.video[-34:]:<34} {self.way:<14} {self.frames:>8,} {self.decoded:>8,} {self.seconds:>8.3f} "
            f"{self.times:>6.1f}"
        )


def rows(path: str, device: Device, *, threads: int = 1, rounds: int = 3) -> Iterator[DecodeMeasurement]:
    """Read a video with every selection.

    Args:
        path: the video.
        device: what decodes it.
        threads: for decoding on the CPU.
        rounds: how often.

    Raises:
        SourceError: it cannot be read.
    """
    from streamkit.media.demux import Demuxer

    with closing(Demuxer(path)) as demuxer:
        info = demuxer.info
    length_s = info.duration_s or 10.0
    middle: dict[str, Any] = {"start_s": 0.5 * length_s, "end_s": 0.5 * length_s + 0.1 * length_s}
    ways: list[tuple[str, dict[str, Any]]] = [
        ("all", {}),
        ("keyframes", {"keyframes": True}),
        ("every: 2", {"every": 2}),
        ("every: 5", {"every": 5}),
        ("every: 25", {"every": 25}),
        ("every: 100", {"every": 100}),
        ("fps: 1", {"fps": 1.0}),
        ("a tenth", middle),
    ]
    whole_s = 0.0
    for way, part in ways:
        reads = [_read(path, device, threads, **part) for _ in range(rounds)]
        seconds = statistics.median(read[2] for read in reads)
        whole_s = whole_s or seconds
        frames, decoded, _ = reads[0]
        yield DecodeMeasurement(Path(path).name, way, frames, decoded, seconds, whole_s / seconds)


def _read(
    path: str, device: Device, threads: int, *, every: int = 1, fps: float | None = None, **part: Any
) -> tuple[int, int, float]:
    """The number of selected and of decoded frames, and the seconds it took."""
    from streamkit.media.frame_sampling import FrameSampler
    from streamkit.media.reader import VideoReader
    from streamkit.media.selective_decode import UNWANTED
    from streamkit.media.surfaces import shared_pool

    clock = time.process_time if device.kind == "cpu" else time.perf_counter
    counters = Counters()
    sampler = FrameSampler(every, fps) if every > 1 or fps is not None else None
    taken = FrameSampler(every, fps)
    start_s = clock()
    with closing(VideoReader(path, device, shared_pool(device), counters, threads=threads)) as reader:
        seen = frames = 0
        for number, frame in reader.frames(sampler=sampler, **part):
            seen = seen + 1
            frames = frames + taken.accepts(number, frame.pts_s)
    return frames, seen + counters[UNWANTED], clock() - start_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each selection of each video."""
    from streamkit.runtime.execution.device import choose

    parser = argparse.ArgumentParser(prog="python benchmarks/selective_decode.py", description=__doc__)
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    device = choose(options.device)
    print(HEAD)
    for path in options.videos:
        for row in rows(path, device, threads=options.threads, rounds=options.rounds):
            print(row, flush=True)


if __name__ == "__main__":
    main()
