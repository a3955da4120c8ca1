# SPDX-License-Identifier: Apache-2.0
"""`streamkit bench cpu`: streamkit against a plain loop, and the cost of streamkit itself.

Both sides run alternately, each in its own process, and medians are compared; so other load on the machine affects
both. The thresholds are set for two cores.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.bench.child import results
from streamkit.bench.graph_cost import ProbeSpec
from streamkit.bench.inputs import CARDS, VIDEO, data_folder
from streamkit.core.child_environment import child_environment
from streamkit.models.card import sample_video, shipped_models
from streamkit.ops.boxes import intersection_and_union

_MIN_SCORE = 0.3
_MIN_IOU = 0.9
_SCORE_WITHIN = 0.05
_RUNS = 3  # of each side
_PROBE_FRAMES = 20_000
_ROOT = Path(__file__).resolve().parents[2]
_COMMAND = (sys.executable, "-c", "from streamkit.cli import main; main()")
_IMPORT = "import numpy, time; t = time.perf_counter(); import streamkit; print(time.perf_counter() - t)"
SHIPPED = "demo"
"""The network that ships, which is measured on its own video."""

THRESHOLDS = {SHIPPED: 1.0, "yolox-nano": 1.25, "yolov8n": 1.1}
"""How many times as fast as the plain loop. On two quiet cores YOLOv8n ends at 1.24 times even if everything but the
network's own arithmetic were free; see docs/performance.md."""
_GRAPH_IN_CALLS = 4.0
"""CPU time of the graph for a frame, in times of 100 plain Python calls: 1.8 to 2.1 measured, 3.0 beside other work."""


@dataclass(slots=True)
class Figure:
    """One measured value, with its threshold if there is one."""

    name: str
    value: float
    unit: str
    least: float | None = None
    most: float | None = None
    detail: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the value meets its threshold."""
        return (self.least is None or self.value >= self.least) and (self.most is None or self.value <= self.most)

    def __str__(self) -> str:
        limits = f" (at least {self.least:g})" if self.least is not None else ""
        limits += f" (at most {self.most:g})" if self.most is not None else ""
        return f"{self.name}: {self.value:.4g} {self.unit}{limits}{'' if self.holds else '  <-- MISSED'}"


@dataclass(slots=True)
class CpuBenchmark:
    """Runs the measurements.

    Args:
        data: a folder with `models/` and `videos/`; None to measure what ships.
        folder: where to write cards, pipelines and outputs.
        echo: receives lines of text for the user.
        frames: number of frames of the video that each side reads.
    """

    data: Path | None
    folder: Path
    echo: Callable[[str], None]
    frames: int = 300

    def all(self) -> list[Figure]:
        """Run all measurements, and report each value as it is found."""
        figures: list[Figure] = []
        networks = [name for name in THRESHOLDS if name == SHIPPED or self.data is not None]
        for figure in chain(*map(self.speed, networks), self.graph_cost(), self.memory(), self.start()):
            self.echo(str(figure))
            figures.append(figure)
        return figures

    def output(self, name: str, side: str) -> Path:
        """The JSON Lines file of a network's objects, of the side `streamkit` or `plain`."""
        return self.folder / f"{name}-{side}.jsonl"

    def card(self, name: str) -> Path:
        """The card of the shipped network; or write that of a network of the data folder, and return its path."""
        if self.data is None or name == SHIPPED:
            return shipped_models() / f"{name}.yaml"
        path = self.folder / f"{name}.yaml"
        path.write_text(CARDS[name].replace("FOLDER", str((self.data / "models").resolve())), encoding="utf-8")
        return path

    def video(self, name: str) -> Path:
        """The video that a network reads."""
        return sample_video() if self.data is None or name == SHIPPED else (self.data / VIDEO).resolve()

    def pipeline(self, name: str) -> Path:
        """Write a pipeline of decode, detector and jsonl; return its path."""
        path = self.folder / f"{name}-pipeline.yaml"
        out = self.output(name, "streamkit")
        plan = {
            "device": "cpu",
            "sources": {"video": str(self.video(name))},
            "stages": {"detect": {"model": str(self.card(name))}, "jsonl": {"path": str(out)}},
        }
        path.write_text(json.dumps(plan, indent=2), encoding="utf-8")
        return path

    def streamkit_side(self, name: str) -> dict[str, Any]:
        """Run the pipeline once: frames, seconds from the first frame to the last, start-up seconds, memory."""
        path = self.pipeline(name)
        report = self.folder / f"{name}-report.json"
        whole_s, memory_mb, _ = _measured(
            [*_COMMAND, "run", str(path), "--report", str(report), "--limit", str(self.frames)]
        )
        return _side(json.loads(report.read_text(encoding="utf-8")), whole_s, memory_mb)

    def plain_side(self, name: str) -> dict[str, Any]:
        """Run the plain loop once; returns the same values as `streamkit_side`."""
        arguments = self.video(name), self.card(name), self.output(name, "plain"), self.frames
        whole_s, memory_mb, output = _measured(
            [sys.executable, "-m", "streamkit.bench.plain_loop", *map(str, arguments)]
        )
        return _side(json.loads(output.splitlines()[-1]), whole_s, memory_mb)

    def speed(self, name: str) -> Iterator[Figure]:
        """Frames per second of both sides, and whether they find the same objects."""
        sides: dict[str, list[dict[str, Any]]] = {"plain": [], "streamkit": []}
        for _ in range(_RUNS):
            sides["plain"].append(self.plain_side(name))
            sides["streamkit"].append(self.streamkit_side(name))
        rates = {side: [run["frames"] / run["seconds"] for run in runs] for side, runs in sides.items()}
        ratios = [streamkit / plain for streamkit, plain in zip(rates["streamkit"], rates["plain"], strict=True)]
        for side, runs in sides.items():
            start_s = _median(runs, "start_s")
            memory_mb = _median(runs, "memory_mb")
            fps = statistics.median(rates[side])
            self.echo(f"{name}, {side}: {fps:.1f} frames per second, start {start_s:.1f} s, {memory_mb:.0f} MB")
        same = agreement(*(objects_by_frame(self.output(name, side)) for side in ("streamkit", "plain")))
        self.echo(f"{name}, objects of score 0.3 or more: {same}")
        detail = {"fps": rates, "ratios": ratios, **sides}
        yield Figure(
            f"{name}, speed", statistics.median(ratios), "times the plain loop", THRESHOLDS[name], detail=detail
        )
        yield Figure(f"{name}, objects in common", min(same.first_share, same.second_share) * 100, "%", 95)

    def graph_cost(self) -> Iterator[Figure]:
        """The graph's own time per frame, and whether memory stays constant."""
        runs = [_probe(ProbeSpec(_PROBE_FRAMES)) for _ in range(_RUNS)]
        yield Figure("graph alone", _median(runs, "us_per_frame"), "µs per frame")
        yield Figure("graph alone, CPU time", _median(runs, "cpu_us_per_frame"), "µs per frame")
        in_calls = statistics.median(run["cpu_us_per_frame"] / run["calls_us"] for run in runs)
        title = "graph alone, CPU time of a frame over that of 100 Python calls"
        yield Figure(title, in_calls, "times", most=_GRAPH_IN_CALLS, detail={"runs": runs})
        yield _growth("graph alone", runs[0])

    def memory(self) -> Iterator[Figure]:
        """Whether memory stays constant with real frames and a network that is small enough for many of them."""
        name, stage = ("color", "classify") if self.data is None else ("yunet-64", "detect")
        spec = ProbeSpec(_PROBE_FRAMES, str(self.video(name)), str(self.card(name)), stage)
        yield _growth("decode, network, jsonl", _probe(spec))

    def start(self) -> Iterator[Figure]:
        """The time to import streamkit, and to check a pipeline, with modules that are compiled as pip leaves them."""
        with tempfile.TemporaryDirectory(prefix="streamkit-bench-") as cache:
            import_line = [sys.executable, "-c", _IMPORT]
            imports = [float(_measured(import_line, cache)[2]) for _ in range(2 * _RUNS + 1)]
            yield Figure("import streamkit, after numpy", statistics.median(imports), "s", most=0.1)
            shipped = _ROOT / "pipeline.yaml"
            check_line = [*_COMMAND, "check", str(shipped if shipped.is_file() else self.pipeline(SHIPPED))]
            _measured(check_line, cache)  # compiles the modules
            checks = [_measured(check_line, cache)[0] for _ in range(_RUNS)]
            yield Figure("check pipeline.yaml", statistics.median(checks), "s", most=1.5)


def _side(report: dict[str, Any], whole_s: float, memory_mb: float) -> dict[str, Any]:
    """The figures of a run, of its own report, the seconds of its process, and its peak memory."""
    seconds = report["seconds"]
    return {"frames": report["frames"], "seconds": seconds, "start_s": whole_s - seconds, "memory_mb": memory_mb}


def bench(data: Path | None, out: Path | None, echo: Callable[[str], None]) -> int:
    """Measure this machine's CPU.

    Args:
        data: a folder with `models/` and `videos/`; by default $STREAMKIT_TEST_DATA. Without one, only what ships
            is measured.
        out: a JSON file for the values.
        echo: receives lines of text for the user.

    Returns:
        0 if every threshold holds, else 1.

    Raises:
        ConfigError: the folder is named and incomplete.
    """
    folder = data_folder(data)
    cores = len(os.sched_getaffinity(0))
    echo(f"{_processor()}, {cores} cores, load {os.getloadavg()[0]:.1f}; the thresholds are for two")
    if folder is None:
        echo(f"the network {SHIPPED} and its video are measured; --data FOLDER adds others")
    with tempfile.TemporaryDirectory(prefix="streamkit-bench-") as scratch:
        figures = CpuBenchmark(folder, Path(scratch), echo).all()
    if out is not None:
        report = {"processor": _processor(), "cores": cores, "figures": [*map(asdict, figures)]}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    missed = [figure.name for figure in figures if not figure.holds]
    echo(f"missed: {', '.join(missed)}" if missed else "every threshold is met")
    return 1 if missed else 0


def _measured(command: Sequence[str], cache: str | None = None) -> tuple[float, float, str]:
    """Run a command; return its seconds, its peak memory in MB, and its standard output.

    Args:
        command: the command.
        cache: a folder for compiled modules; by default they are where Python looks for them, if they are anywhere.
    """
    env = child_environment()
    if cache is not None:
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        env["PYTHONPYCACHEPREFIX"] = cache
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        start_s = time.perf_counter()
        process = subprocess.Popen(command, stdout=output, stderr=errors, env=env)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - start_s
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        if process.returncode:
            text = errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{text}")
        return seconds, usage.ru_maxrss * 1024 / 1e6, output.read().decode()


def _probe(spec: ProbeSpec) -> dict[str, Any]:
    """Run a probe. Raises RuntimeError."""
    (figures,) = results(spec)
    if "error" in figures:
        raise RuntimeError(figures["error"])
    return figures


def _growth(name: str, run: dict[str, Any]) -> Figure:
    """Growth of memory between the first tenth and the end of a probe."""
    seen = {int(frame): value for frame, value in run["memory_mb"].items()}
    last = max(seen)
    first = max((frame for frame in seen if frame <= last // 10), default=min(seen))
    # the allocator fills its pools for some 20,000 frames and then stops: 4 % here, and no more up to frame 60,000
    title = f"{name}, memory at frame {last:,} over that at {first:,}"
    return Figure(title, seen[last] / seen[first], "times", most=1.05, detail={"memory_mb": seen})


def _median(runs: Sequence[dict[str, Any]], name: str) -> float:
    return float(statistics.median(run[name] for run in runs))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown processor"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown processor")


# ------------------------------------------------------------------------------------- the objects of both sides


@dataclass(frozen=True, slots=True)
class Agreement:
    """The share of each side's objects that the other side found too, and the number of objects."""

    first_share: float
    second_share: float
    objects: tuple[int, int]

    def __str__(self) -> str:
        first, second = self.objects
        this_side = f"{self.first_share:.2%} of {first}"
        other_side = f"{self.second_share:.2%} of its {second}"
        return f"{this_side} objects are on the other side too, {other_side} on this side"


Objects = Sequence[list[dict[str, Any]]]
"""Each frame's objects, as in a record."""


def objects_by_frame(path: Path) -> Objects:
    """The objects of each record of a JSON Lines file, in file order."""
    return [json.loads(line)["objects"] for line in path.read_text(encoding="utf-8").splitlines()]


def agreement(first: Objects, second: Objects) -> Agreement:
    """Compare the objects of two runs, frame by frame.

    An object with a score of 0.3 or more counts as found if the other side has an object of its class, with
    any score, with an IoU of at least 0.9 and a score within 0.05.

    Args:
        first: one side's objects.
        second: the other side's.

    Raises:
        ValueError: the sides have different numbers of frames.
    """
    if len(first) != len(second):
        raise ValueError(f"the sides must have the same frames, got {len(first)} and {len(second)}")
    first_matched, first_total = _count_matched(first, second)
    second_matched, second_total = _count_matched(second, first)
    return Agreement(
        first_matched / first_total if first_total else 1.0,
        second_matched / second_total if second_total else 1.0,
        (first_total, second_total),
    )


def _count_matched(these: Objects, others: Objects) -> tuple[int, int]:
    """How many of these objects the others have, and how many these are."""
    matched = total = 0
    for objects, candidates in zip(these, others, strict=True):
        objects = [detection for detection in objects if detection["score"] >= _MIN_SCORE]
        total += len(objects)
        if objects and candidates:
            both, union = intersection_and_union(_column(objects, "box"), _column(candidates, "box"))
            same = both >= _MIN_IOU * union
            same &= _column(objects, "class_id")[:, None] == _column(candidates, "class_id")
            same &= np.abs(_column(objects, "score")[:, None] - _column(candidates, "score")) <= _SCORE_WITHIN
            matched += int(same.any(axis=1).sum())
    return matched, total


def _column(objects: list[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([detection[name] for detection in objects], np.float32)
