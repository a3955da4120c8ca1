"""What the soaks have in common: a pipeline on a thread whose last stage notes what comes, and promises in figures."""

import gc
import json
import logging
import os
import platform
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support.datasets import data_folder  # noqa: E402

from streamkit.config.graph import build  # noqa: E402
from streamkit.config.pipeline_config import read_source, read_text  # noqa: E402  the path is set just above
from streamkit.core.data import Frame  # noqa: E402
from streamkit.core.stage import BatchStage, Collecting, Sink, default_registry, stage  # noqa: E402
from streamkit.runtime.execution.device import choose  # noqa: E402
from streamkit.runtime.execution.meters import Histogram  # noqa: E402
from streamkit.runtime.pipeline import PipelineRun  # noqa: E402
from streamkit.runtime.run import RunConfig  # noqa: E402

logging.getLogger("streamkit").addHandler(logging.NullHandler())  # the soaks print their results only

BACK_S = 5.0
"""How soon a camera must be back once its peer is."""

STUCK_S = 60.0
"""What has not come by then never will; generous, as the machine may be busy."""

MIB = 1 << 20


def videos() -> Path:
    """The test data's folder of real videos."""
    data = data_folder()
    if data is None:
        raise SystemExit("no test data: set STREAMKIT_TEST_DATA to the folder with models/ and videos/")
    return data / "videos"


def camera_clip(path: Path, *, codec: str = "libx264", size: str = "480x360", seconds: int = 60) -> Path:
    """What a camera would send: real pictures at 10 a second, a keyframe each second, nothing reordered."""
    extra = ["-x265-params", "log-level=none:bframes=0:pools=1"] if codec == "libx265" else ["-bf", "0"]
    clip = videos() / "vtest_480x360.mp4"
    subprocess.run(
        [
            "ffmpeg",
            "-v",
            "error",
            "-y",
            "-i",
            str(clip),
            "-t",
            str(seconds),
            "-s",
            size,
            "-r",
            "10",
            "-c:v",
            codec,
            "-preset",
            "ultrafast",
            "-g",
            "10",
            "-b:v",
            "300k",
            "-threads",
            "2",
            *extra,
            str(path),
        ],
        check=True,
        capture_output=True,
    )
    return path


def wait_until(true: Callable[[], Any], what: str, timeout_s: float = STUCK_S) -> None:
    """Wait for something to come true.

    Raises:
        AssertionError: it does not.
    """
    until_s = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < until_s, f"stuck: {what} did not come within {timeout_s:g} s"
        time.sleep(0.01)


# ----------------------------------------------------------------------------------------------------- what is noted


@dataclass
class Window:
    """What came of one source in a span of time."""

    start_s: float = field(default_factory=time.monotonic)
    ended_s: float = 0.0
    frames: int = 0
    gap_s: float = 0.0  # the longest time without a frame
    latency: Histogram = field(default_factory=Histogram)
    lags_s: array = field(default_factory=lambda: array("d"))  # arrival by the clock less presentation time

    @property
    def rate(self) -> float:
        """Frames a second."""
        return self.frames / (self.ended_s - self.start_s)

    @property
    def latency_s(self) -> float:
        """The 95th percentile from a frame's arrival, or the time it was due, to its record."""
        return self.latency.quantile(0.95)

    @property
    def lag_s(self) -> float:
        """The 95th percentile of how much later than the promptest frame they came, by their presentation times.

        Unlike the latency it also shows what held up a packet before it was decoded.
        """
        return float(np.percentile(self.lags_s, 95) - np.min(self.lags_s)) if self.lags_s else float("nan")


class Track:
    """All that came of one source, written by the sink's thread."""

    def __init__(self) -> None:
        self.frames = self.holes = 0
        self.last_s = time.monotonic()
        self.rising = True
        self.window = Window()
        self.back_s = 0.0  # the first frame after `waits_since_s`, on the monotonic clock
        self.waits_since_s = 0.0
        self._last = -1, -1.0

    def note(self, frame: Frame) -> None:
        now_s = time.monotonic()
        window = self.window
        self.rising &= frame.index > self._last[0] and frame.pts_s > self._last[1]
        self.holes += frame.index - self._last[0] - 1
        self._last = frame.index, frame.pts_s
        if self.back_s < self.waits_since_s:
            self.back_s = now_s
        self.frames = self.frames + 1
        window.frames = window.frames + 1
        window.gap_s = max(window.gap_s, now_s - max(self.last_s, window.start_s))
        window.lags_s.append(now_s - frame.pts_s)
        if frame.due_s is not None:
            window.latency.add(now_s - frame.due_s)
        self.last_s = now_s

    def ask(self) -> None:
        """From now on it is waited for; see `back`."""
        self.waits_since_s = time.monotonic()

    @property
    def last(self) -> int:
        """The index of the last frame."""
        return self._last[0]

    @property
    def back(self) -> bool:
        """Whether a frame has come since `ask`."""
        return self.back_s >= self.waits_since_s

    def turn(self) -> Window:
        """Close the window and begin another."""
        done = self.window
        self.window = Window()
        done.ended_s = self.window.start_s
        done.gap_s = max(done.gap_s, done.ended_s - max(self.last_s, done.start_s))
        return done


class Rig:
    """A pipeline that runs on a thread; `note` and `slow` are stages that it adds.

    Attributes:
        tracks: what came, by source.
        entered: latency at which frames came into `slow`.
    """

    def __init__(self, pipeline: Mapping[str, Any], device: str = "cpu") -> None:
        tracks: dict[str, Track] = {}
        entered = Histogram()
        registry = default_registry()
        with Collecting(registry):

            @stage("note")
            class Note(Sink):
                """Notes what comes."""

                def write(self, frame: Frame) -> None:
                    track = tracks.get(frame.source)
                    if track is None:
                        track = tracks[frame.source] = Track()
                    track.note(frame)

            @stage("slow", reads="pixels")
            class Slow(BatchStage):
                """Takes its time for each frame, as a detector would."""

                s_per_frame: float = 0.1

                def process(self, batch: Any) -> Any:
                    now_s = time.monotonic()
                    for frame in batch.frames:
                        entered.add(now_s - frame.due_s)
                    time.sleep(self.s_per_frame * len(batch.frames))
                    return batch

        self.tracks = tracks
        self.entered = entered
        config = read_text(json.dumps(pipeline), folder=ROOT, registry=registry)  # JSON is YAML
        self.running = PipelineRun(build(config), choose(device), RunConfig(keep_running=True))
        self.code: int | None = None

    def add(self, id_: str, options: Mapping[str, Any]) -> None:
        """Add a source while it runs."""
        (config,) = read_source(self.running.graph.config, id_, dict(options))
        self.running.add(config)

    @contextmanager
    def going(self) -> Iterator["Rig"]:
        """Run it; stop it at the end, and wait for it."""
        errors: list[BaseException] = []

        def run() -> None:
            try:
                self.code = self.running.run()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="rig", daemon=True)
        thread.start()
        try:
            wait_until(lambda: self.running.ready or not thread.is_alive(), "the pipeline's start", 300)
            yield self
        finally:
            self.running.stop()
            thread.join(STUCK_S)
        assert not errors, f"the run failed: {errors}"
        assert not thread.is_alive(), "stuck: the run does not end"

    def wait_for(self, ids: Any, frames: int = 5) -> None:
        """Wait until so many frames of each of these sources have come."""
        ids = list(ids)
        wait_until(
            lambda: all(i in self.tracks and self.tracks[i].frames >= frames for i in ids),
            f"{frames} frames of each of {len(ids)} sources",
        )

    def window(self, ids: Any, seconds: float) -> dict[str, Window]:
        """What comes of these sources in so many seconds from now on."""
        for id_ in ids:
            self.tracks[id_].turn()
        time.sleep(seconds)
        return {id_: self.tracks[id_].turn() for id_ in ids}

    def unbalanced(self) -> list[str]:
        """Sources, and the sums of those removed, for which in = out + dropped does not hold at the end."""
        bad = [
            f"{id_}: {s.frames} in, {s.out} out, {s.dropped} dropped"
            for id_, s in self.running.states.items()
            if s.frames != s.out + s.dropped
        ]
        removed = self.running.sources.removed
        dropped = removed.drops.values.total()
        return bad + [f"removed: {removed.frames} in, {removed.out} out, {dropped} dropped"] * (
            removed.frames != removed.out + dropped
        )


# ------------------------------------------------------------------------------------------------------ what is held


@dataclass(frozen=True)
class Held:
    """What the process holds: bytes of memory, open files, threads, bytes of device memory."""

    rss: int
    files: int
    threads: int
    device: int

    @staticmethod
    def now(device: str = "cpu") -> "Held":
        gc.collect()
        process = psutil.Process()
        used = 0
        if device.startswith("cuda"):
            import cupy

            free, total = cupy.cuda.runtime.memGetInfo()
            used = total - free
        return Held(process.memory_info().rss, process.num_fds(), threading.active_count(), used)

    @staticmethod
    def median(moments: Sequence["Held"]) -> "Held":
        """The median of each figure. What decoders and heaps hold differs from one moment to the next."""
        return Held(*(round(median(column)) for column in zip(*map(astuple, moments), strict=True)))


class Promises:
    """Promises that hold or not, each with the figure found and its bar; and further figures.

    Args:
        name: of the soak.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks = list[dict[str, Any]]()
        self.figures = dict[str, Any]()
        self._start_s = time.monotonic()

    def limit(self, what: str, figure: float, bar: float, unit: str = "") -> None:
        """Promise that a figure is at most `bar`."""
        self.checks.append(
            {
                "promise": what,
                "found": round(float(figure), 3),
                "bar": round(bar, 3),
                "unit": unit,
                "holds": figure <= bar,
            }
        )

    def none(self, what: str, failures: list[Any]) -> None:
        """Promise that a list of what went wrong is empty."""
        self.limit(what, len(failures), 0)
        if failures:
            self.figures[what] = [str(failure) for failure in failures[:10]]

    def grown(self, before: Held, after: Held, memory: int = 20 * MIB, *, files: int = 2, device: str = "cpu") -> None:
        """Promise that the process holds no more than it did."""
        self.limit("memory grown", (after.rss - before.rss) / MIB, memory / MIB, "MiB")
        self.limit("open files more", after.files - before.files, files)
        self.limit("threads more", after.threads - before.threads, 0)
        if device.startswith("cuda"):
            self.limit("device memory grown", (after.device - before.device) / MIB, 64, "MiB")

    @property
    def hold(self) -> bool:
        """Whether all of them do."""
        return bool(self.checks) and all(promise["holds"] for promise in self.checks)

    def report(self) -> dict[str, Any]:
        """The report of this soak."""
        seconds = round(time.monotonic() - self._start_s, 1)
        return {"name": self.name, "holds": self.hold, "seconds": seconds, "promises": self.checks, **self.figures}

    def __str__(self) -> str:
        lines = [f"{self.name}: {'holds' if self.hold else 'DOES NOT HOLD'}"]
        for promise in self.checks:
            unit = f" {promise['unit']}" if promise["unit"] else ""
            mark = "  " if promise["holds"] else "! "
            lines.append(
                f"  {mark}{promise['promise']:<58} {promise['found']:>10g}{unit}  (bar {promise['bar']:g}{unit})"
            )
        lines += [f"    {name}: {value}" for name, value in self.figures.items()]
        return "\n".join(lines)


def machine() -> dict[str, Any]:
    """Where this was measured."""
    load = os.getloadavg()[0]
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "load_before": round(load, 2),
        "python": platform.python_version(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
    }
