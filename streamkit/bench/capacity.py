"""`run.py capacity PIPELINE.yaml`: how many streams of a pipeline's kind a device can run, and what limits it.

The number is measured: the pipeline runs with N paced copies of its sources in a process of its own, with increasing N,
until copies fall behind or frames come late; a binary search then finds the largest N that works.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamkit.bench import trial
from streamkit.core.errors import ConfigError, StreamkitError
from streamkit.runtime.execution.sizes import cores

_KEPT = 0.97  # of the frames that are due in the time measured; one frame at each end is chance
_FULL = 0.85
_FINE = 16  # N is found within a sixteenth


@dataclass(slots=True)
class CapacityOptions:
    """How to search.

    Attributes:
        fps: frames per second of a stream; None for the video's own rate.
        max_latency_s: limit of the 95th percentile of the time from when a frame is due until it has passed the graph.
        seconds: how long to measure each N.
        settle_s: how long to run before that, after every source has started.
        start: the first N.
        max_streams: the largest N.
    """

    fps: float | None = None
    max_latency_s: float = 0.15
    seconds: float = 4.0
    settle_s: float = 1.5
    start: int = 1
    max_streams: int = 1024


@dataclass(slots=True)
class Attempt:
    """The result for N streams.

    Attributes:
        streams: N.
        trouble: why they do not fit; None if they do.
        found: the measurements.
    """

    streams: int
    trouble: str | None
    found: trial.Found

    def __str__(self) -> str:
        found, p95 = self.found, self.found.latency.get("p95_ms")
        late = "" if p95 is None else f", p95 latency {p95:.0f} ms"
        head = f"{self.streams:>5} streams: {found.fps:,.0f} frames/s{late}"
        return f"{head}: fits" if self.trouble is None else f"{head}: {self.trouble}"


@dataclass(slots=True)
class Capacity:
    """The result of the search.

    Attributes:
        streams: the largest number that fits.
        gives_out: the bottleneck, in words.
        shares: utilization at the first N that did not fit, 0 to 1, the highest first.
        attempts: every N that was tried.
    """

    streams: int
    gives_out: str
    shares: dict[str, float]
    attempts: list[Attempt]

    def __str__(self) -> str:
        uses = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
        return f"{self.streams} streams fit; what gives out first: {self.gives_out} (used: {uses})"


def largest(fits: Callable[[int], bool], start: int, most: int) -> int:
    """The largest number that fits, within 1/16: by doubling, then by bisection. 0 if none does.

    Args:
        fits: called once for each number.
        start: the first number; if it does not fit, smaller ones are tried.
        most: the largest number to try.
    """
    good, bad, number = 0, most + 1, min(start, most)
    while good < number < bad:
        if fits(number):
            good, number = number, min(2 * number, most)
        else:
            bad = number
    while bad - good > max(1, good // _FINE):
        number = (good + bad) // 2
        if fits(number):
            good = number
        else:
            bad = number
    return good


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
    """

    def __init__(
        self,
        pipeline: Path,
        set_: dict[str, str],
        device: str,
        options: CapacityOptions,
        rates: Sequence[float | None],
        folder: Path,
        echo: Callable[[str], None],
    ) -> None:
        self._pipeline, self._set, self._device, self._options = pipeline, set_, device, options
        self._folder, self._echo = folder, echo
        self._rates = rates
        self._said: set[str] = set()
        self.attempts: list[Attempt] = []

    def __call__(self) -> Capacity:
        """Search for the largest number.

        Raises:
            StreamkitError: the pipeline does not run with one stream.
        """
        streams = largest(self._fits, self._options.start, self._options.max_streams)
        failed = [attempt for attempt in self.attempts if attempt.trouble is not None]
        told = min(failed, key=lambda one: one.streams, default=self.attempts[-1])
        if told.found.error and streams == 0:
            raise StreamkitError(f"not one stream runs: {told.found.error}")
        shares = used(told.found, cores())
        return Capacity(streams, gives_out(told, shares), shares, self.attempts)

    def _fits(self, streams: int) -> bool:
        options, outputs = self._options, self._folder / f"out-{streams}"
        spec = trial.TrialSpec(
            str(self._pipeline), self._set, self._device, streams, options.fps, str(outputs), options.seconds,
            options.settle_s, 60.0 + streams / 4,
        )  # fmt: skip
        found = trial.measure(spec, self._folder)
        shutil.rmtree(outputs, ignore_errors=True)
        for text in set(found.said) - self._said:
            self._echo(text)
        self._said |= set(found.said)
        attempt = Attempt(streams, self._trouble(streams, found), found)
        self.attempts.append(attempt)
        self._echo(str(attempt))
        return attempt.trouble is None

    def _trouble(self, streams: int, found: trial.Found) -> str | None:
        """Why these streams do not fit; None if they do."""
        if found.error:
            return found.error
        if found.dropped:
            return f"{found.dropped} frames were dropped"
        p95_ms, most_ms = found.latency.get("p95_ms"), self._options.max_latency_s * 1e3
        if p95_ms is None:
            return "no frame came through in time"
        if p95_ms > most_ms:
            return f"frames are late, more than {most_ms:.0f} ms"
        rates = [self._rates[number % len(self._rates)] for number in range(streams)]
        due = sum(rate for rate in rates if rate is not None)
        if found.fps < _KEPT * due:
            return f"the streams fall behind, {due:,.0f} frames/s are due"
        return None


def used(found: trial.Found, cores_there: int) -> dict[str, float]:
    """Utilization by resource, the highest first; only resources that could be measured."""
    shares = {"cores": max(found.cores_used / cores_there, found.cores_busy or 0.0)}
    if found.lock_free is not None:
        shares["interpreter lock"] = 1.0 - found.lock_free
    if found.gpu is not None:
        shares["GPU"] = found.gpu
    if found.decoder is not None:
        shares["decoder"] = found.decoder
    if found.device_mb is not None and found.device_total_mb:
        shares["device memory"] = found.device_mb / found.device_total_mb
    return {name: round(share, 3) for name, share in sorted(shares.items(), key=lambda item: -item[1])}


def gives_out(attempt: Attempt, shares: dict[str, float]) -> str:
    """The bottleneck in words, judged by the first number of streams that did not fit."""
    if attempt.found.error and "no room" in attempt.found.error:
        return "device memory"
    first = next(iter(shares.items()), None)
    if attempt.trouble is None:
        return f"nothing up to {attempt.streams} streams"
    if attempt.found.error:
        return attempt.found.error
    if first is not None and first[1] >= _FULL:
        return first[0]
    busy = max(attempt.found.stages.items(), key=lambda item: item[1], default=None)
    if busy is not None and busy[1] >= _FULL:
        return f"the thread of {busy[0]}, at work {busy[1]:.0%} of the time"
    return "latency: nothing that is measured is used up; a lower batch.max_wait or a higher --max-latency may help"


def capacity(
    pipeline: Path, set_: dict[str, str], device: str | None, options: CapacityOptions, out: Path | None,
    echo: Callable[[str], None],
) -> int:  # fmt: skip
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
    from streamkit.bench.copies import due_a_second, multiply
    from streamkit.config.checks.stages import check_networks
    from streamkit.config.graph import build
    from streamkit.config.pipeline_config import read
    from streamkit.io.outputs import report_file
    from streamkit.runtime.execution.device import choose

    if options.start > options.max_streams:
        raise ConfigError(f"--start {options.start} is above --max-streams {options.max_streams}")
    config = read(pipeline, set_=set_, device=device)
    check_networks(build(config))
    if isinstance(config.device, list) and len(config.device) > 1:
        raise ConfigError("capacity measures one device, and the pipeline names several; name it with --device")
    chosen = choose(config.device, echo)
    write = None if out is None else report_file(out)
    with TemporaryDirectory(prefix="streamkit-capacity-") as name:
        rates = [due_a_second(source, options.fps) for source in config.sources]
        multiply(config, 1, options.fps, Path(name), _silent)  # reports errors before anything runs
        limit = f"p95 latency at most {options.max_latency_s * 1e3:.0f} ms, nothing dropped"
        echo(f"{pipeline} on {chosen}: {limit}; outputs go to a folder of their own and are removed")
        answer = Search(pipeline, set_, str(chosen), options, rates, Path(name), echo)()
    echo(str(answer))
    if write is not None:
        found: dict[str, Any] = {"schema": "streamkit-capacity/1", "device": str(chosen), **asdict(answer)}
        write(json.dumps(found, indent=2) + "\n")
    return 0 if answer.streams else 1


def _silent(text: str) -> None:
    return
