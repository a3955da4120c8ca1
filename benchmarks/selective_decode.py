"""What looking at fewer pictures of a file saves: `keyframes`, `every`, `fps`, `start` and `end` against all of them.

    python benchmarks/selective_decode.py VIDEO... [--device cuda:0] [--threads 1] [--rounds 3]

Decoding alone, one reader. The middle one of so many rounds counts. On the CPU this is the time of the process, so that
others on the machine disturb it little; on a GPU it is the clock's.
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

HEAD = f"{'video':<34} {'looked at':<14} {'pictures':>8} {'decoded':>8} {'seconds':>8} {'times':>6}"


@dataclass(frozen=True, slots=True)
class DecodeMeasurement:
    """One way to look at one video.

    Attributes:
        video: its name.
        way: `all`, or the option.
        pictures: how many were taken.
        decoded: how many were decoded, those included.
        seconds: how long it took.
        times: as fast as all of them.
    """

    video: str
    way: str
    pictures: int
    decoded: int
    seconds: float
    times: float

    def __str__(self) -> str:
        return (
            f"{self.video[-34:]:<34} {self.way:<14} {self.pictures:>8,} {self.decoded:>8,} {self.seconds:>8.3f} "
            f"{self.times:>6.1f}"
        )


def rows(path: str, device: Device, *, threads: int = 1, rounds: int = 3) -> Iterator[DecodeMeasurement]:
    """Look at a video in every way.

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
        ("all", {}), ("keyframes", {"keyframes": True}), ("every: 2", {"every": 2}), ("every: 5", {"every": 5}),
        ("every: 25", {"every": 25}), ("every: 100", {"every": 100}), ("fps: 1", {"fps": 1.0}), ("a tenth", middle),
    ]  # fmt: skip
    whole_s = 0.0
    for way, part in ways:
        looks = [_look(path, device, threads, **part) for _ in range(rounds)]
        seconds = statistics.median(look[2] for look in looks)
        whole_s = whole_s or seconds
        pictures, decoded, _ = looks[0]
        yield DecodeMeasurement(Path(path).name, way, pictures, decoded, seconds, whole_s / seconds)


def _look(
    path: str, device: Device, threads: int, *, every: int = 1, fps: float | None = None, **part: Any
) -> tuple[int, int, float]:  # fmt: skip
    """How many pictures were taken and decoded, and the seconds that it took."""
    from streamkit.media.frame_sampling import FrameSampler
    from streamkit.media.reader import VideoReader
    from streamkit.media.selective_decode import UNWANTED
    from streamkit.media.surfaces import shared_pool

    clock = time.process_time if device.kind == "cpu" else time.perf_counter
    counters = Counters()
    sampler = FrameSampler(every, fps) if every > 1 or fps is not None else None
    taken = FrameSampler(every, fps)
    begun_s = clock()
    with closing(VideoReader(path, device, shared_pool(device), counters, print, threads=threads)) as reader:
        seen = pictures = 0
        for number, picture in reader.frames(sampler=sampler, **part):
            seen, pictures = seen + 1, pictures + taken.takes(number, picture.pts_s)
    return pictures, seen + counters[UNWANTED], clock() - begun_s


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a row for each way to look at each video."""
    from streamkit.runtime.execution.device import choose

    parser = argparse.ArgumentParser(prog="python benchmarks/selective_decode.py", description=__doc__)
    parser.add_argument("videos", nargs="+")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    device = choose(given.device, print)
    print(HEAD)
    for path in given.videos:
        for row in rows(path, device, threads=given.threads, rounds=given.rounds):
            print(row, flush=True)


if __name__ == "__main__":
    main()
