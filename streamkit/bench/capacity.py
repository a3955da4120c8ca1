# SPDX-License-Identifier: Apache-2.0
"""`streamkit capacity PIPELINE.yaml`: how many streams of a pipeline's kind a device can run, and what limits it.

The number is measured: the pipeline runs with N paced copies of its sources in a separate process, with increasing N,
until copies fall behind or frames come late; a binary search then finds the largest N that works.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamkit.bench import trial
from streamkit.bench.copies import due_fps, multiply
from streamkit.bench.table import utilization
from streamkit.config.checks.stages import check_networks
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.errors import ConfigError, StreamkitError
from streamkit.io.outputs import ReportFile
from streamkit.runtime.execution.cores import cores
from streamkit.runtime.execution.device import choose
from streamkit.runtime.multiprocess.process_count import network_fps, overload_text

_MIN_DELIVERED = 0.97  # share of the due frames; one frame at each end of the measurement may be missing
_SATURATED = 0.85
_PRECISION = 16  # N is found within a sixteenth


@dataclass(slots=True)
class CapacityOptions:
    """How to search.

    Attributes:
        fps: frames per second of a stream; None for the video's own rate.
        max_latency_s: limit of the 95th percentile of the time from when a frame is due until it has passed the graph.
        seconds: how long to measure each N.
        warmup_s: how long to run before that, after every source has started.
        start: the first N.
        max_streams: the largest N.
    """

    fps: float | None = None
    max_latency_s: float = 0.15
    seconds: float = 4.0
    warmup_s: float = 1.5
    start: int = 1
    max_streams: int = 1024


@dataclass(slots=True)
class Attempt:
    """The result for N streams.

    Attributes:
        streams: N.
        problem: why they do not fit; None if they do.
        found: the measurements.
    """

    streams: int
    problem: str | None
    found: trial.TrialResult

    def __str__(self) -> str:
        figures = self.found
        p95 = self.found.latency.get("p95_ms")
        late = "" if p95 is None else f", p95 latency {p95:.0f} ms"
        processes = "" if figures.processes == 1 else f", {figures.processes} processes"
        head = f"{self.streams:>5} streams: {figures.fps:,.0f} frames/s{late}{processes}"
        return f"{head}: fits" if self.problem is None else f"{head}: {self.problem}"


@dataclass(slots=True)
class Capacity:
    """The result of the search.

    Attributes:
        streams: the largest number that fits.
        bottleneck: the bottleneck, in words.
        shares: utilization at the first N that did not fit, 0 to 1, the highest first.
        attempts: every N that was tried.
        overload: by how much the first N that did not fit needs more than the networks serve, in words; empty if it
            does not, or if the networks' rate is unknown.
    """

    streams: int
    bottleneck: str
    shares: dict[str, float]
    attempts: list[Attempt]
    overload: str = ""

    def __str__(self) -> str:
        uses = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        text = f"{self.streams} streams fit; the bottleneck: {self.bottleneck} (used: {uses})"
        return f"{text}; {self.overload}" if self.overload else text


def largest(fits: Callable[[int], bool], start: int, max_number: int) -> int:
    """The largest number that fits, within 1/16: by doubling, then by bisection. 0 if none does.

    Args:
        fits: called once for each number.
        start: the first number; if it does not fit, smaller ones are tried.
        max_number: the largest number to try.
    """
    good = 0
    bad = max_number + 1
    number = min(start, max_number)
    while good < number < bad:
        if fits(number):
            good = number
            number = min(2 * number, max_number)
        else:
            bad = number
    while bad - good > max(1, good // _PRECISION):
        number = (good + bad) // 2
        if fits(number):
            good = number
        else:
            bad = number
    return good


@dataclass
class Search:
    """Searches for the largest number of streams.

    Args:
        pipeline: the YAML file.
        set_: values that replace the file's.
        device: replaces the file's.
        options: how to search.
        rates: frames per second that are due from each of the pipeline's sources; None if unknown.
        folder: for outputs and specifications.
        echo: receives lines of text.
        overload: returns in words by how much N streams, which need so many frames per second, are more than the
            networks serve; see `overload_text`. It is called after the measurements, which tune the networks.
    """

    pipeline: Path
    set_: dict[str, str]
    device: str
    options: CapacityOptions
    rates: Sequence[float | None]
    folder: Path
    echo: Callable[[str], None]
    overload: Callable[[int, float], str] = lambda streams, due_fps: ""
    attempts: list[Attempt] = field(default_factory=list)
    _printed: set[str] = field(default_factory=set)

    def __call__(self) -> Capacity:
        """Search for the largest number.

        Raises:
            StreamkitError: the pipeline does not run with one stream.
        """
        streams = largest(self._fits, self.options.start, self.options.max_streams)
        failed = [attempt for attempt in self.attempts if attempt.problem is not None]
        first = min(failed, key=lambda attempt: attempt.streams, default=self.attempts[-1])
        if first.found.error and streams == 0:
            raise StreamkitError(f"no stream runs: {first.found.error}")
        shares = used(first.found, cores())
        overload = "" if first.problem is None else self.overload(first.streams, self._due_fps(first.streams))
        return Capacity(streams, bottleneck(first, shares, overload), shares, self.attempts, overload)

    def _due_fps(self, streams: int) -> float:
        """Frames per second that are due from N streams, as far as their rates are known."""
        rates = [self.rates[number % len(self.rates)] for number in range(streams)]
        return sum(rate for rate in rates if rate is not None)

    def _fits(self, streams: int) -> bool:
        options = self.options
        outputs = self.folder / f"out-{streams}"
        spec = trial.TrialSpec(
            str(self.pipeline),
            self.set_,
            self.device,
            streams,
            options.fps,
            str(outputs),
            options.seconds,
            options.warmup_s,
            60.0 + streams / 4,
        )
        figures = trial.measure(spec)
        shutil.rmtree(outputs, ignore_errors=True)
        for text in set(figures.messages) - self._printed:
            self.echo(text)
        self._printed |= set(figures.messages)
        attempt = Attempt(streams, self._problem(streams, figures), figures)
        self.attempts.append(attempt)
        self.echo(str(attempt))
        return attempt.problem is None

    def _problem(self, streams: int, figures: trial.TrialResult) -> str | None:
        """Why these streams do not fit; None if they do."""
        if figures.error:
            return figures.error
        if figures.dropped:
            return f"{figures.dropped} frames were dropped"
        p95_ms = figures.latency.get("p95_ms")
        max_ms = self.options.max_latency_s * 1e3
        if p95_ms is None:
            return "no frame passed the graph in time"
        if p95_ms > max_ms:
            return f"frames are late, more than {max_ms:.0f} ms"
        due = self._due_fps(streams)
        if figures.fps < _MIN_DELIVERED * due:
            return f"the streams fall behind, {due:,.0f} frames/s are due"
        return None


def used(figures: trial.TrialResult, cores_there: int) -> dict[str, float]:
    """Utilization by resource, the highest first; only resources that could be measured."""
    shares = {
        "interpreter lock": None if figures.lock_free is None else 1.0 - figures.lock_free,
        "GPU": figures.gpu,
        "decoder": figures.decoder,
        "device memory": figures.device_mb and figures.device_total_mb and figures.device_mb / figures.device_total_mb,
    }
    return utilization(figures, cores_there, shares)


def bottleneck(attempt: Attempt, shares: dict[str, float], overload: str = "") -> str:
    """The bottleneck in words, judged by the first number of streams that did not fit.

    Args:
        attempt: of that number.
        shares: utilization by resource.
        overload: by how much it needs more than the networks serve, in words; empty if it does not.
    """
    if attempt.found.error and "no room" in attempt.found.error:
        return "device memory"
    if attempt.problem is None:
        return f"nothing up to {attempt.streams} streams"
    if attempt.found.error:
        return attempt.found.error
    if overload:
        return "the networks"
    name, share = max(shares.items(), key=lambda item: item[1])
    if share >= _SATURATED:
        return name
    stage, busy = max(attempt.found.stages.items(), key=lambda item: item[1], default=("", 0.0))
    if busy >= _SATURATED:
        return f"the thread of {stage}, busy {busy:.0%} of the time"
    return "latency: no measured resource is saturated; try a lower batch.max_wait or a higher --max-latency"


def capacity(
    pipeline: Path,
    set_: dict[str, str],
    device: str | None,
    options: CapacityOptions,
    out: Path | None,
    echo: Callable[[str], None],
) -> int:
    """Measure how many streams of a pipeline's kind fit.

    Args:
        pipeline: the YAML file; its sources are the kind of stream.
        set_: values that replace the file's.
        device: replaces the file's.
        options: how to search.
        out: a JSON file for the result.
        echo: receives lines of text.

    Returns:
        0, or 1 if not even one stream fits.

    Raises:
        ConfigError: the pipeline is invalid, or its sources cannot be paced.
        DeviceError: the device cannot be used.
        StreamkitError: the pipeline does not run with one stream.
    """
    if options.start > options.max_streams:
        raise ConfigError(f"--start {options.start} is above --max-streams {options.max_streams}")
    config = read(pipeline, set_=set_, device=device)
    graph = build(config)
    check_networks(graph)
    if isinstance(config.device, list) and len(config.device) > 1:
        raise ConfigError("capacity measures one device, but the pipeline has several; select one with --device")
    chosen = choose(config.device)

    def overload(streams: int, needed_fps: float) -> str:
        return overload_text(graph, streams, needed_fps, network_fps(graph, chosen))

    write = None if out is None else ReportFile(out)
    with TemporaryDirectory(prefix="streamkit-capacity-") as name:
        rates = [due_fps(source, options.fps) for source in config.sources]
        multiply(config, 1, options.fps, Path(name))  # reports errors before anything runs
        limit = f"p95 latency at most {options.max_latency_s * 1e3:.0f} ms, nothing dropped"
        echo(f"{pipeline} on {chosen}: {limit}; outputs go to a temporary folder")
        answer = Search(pipeline, set_, str(chosen), options, rates, Path(name), echo, overload)()
    echo(str(answer))
    if write is not None:
        report: dict[str, Any] = {"schema": "streamkit-capacity/1", "device": str(chosen), **asdict(answer)}
        write(json.dumps(report, indent=2) + "\n")
    return 0 if answer.streams else 1
