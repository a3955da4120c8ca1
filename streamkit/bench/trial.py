# SPDX-License-Identifier: Apache-2.0
"""Runs a pipeline in a separate process and measures it in steady state; `measure` is the parent's side.

The process waits until every source has delivered a frame, the first records are written, and `warmup_s` more; then it
measures for `seconds`, stops the sources, and lets decoded frames be processed. Start and end are not part of any rate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from streamkit.bench.child import main, results
from streamkit.bench.copies import read_copies
from streamkit.bench.load import resident_mb, snapshot
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.data import Device
from streamkit.core.errors import StreamkitError
from streamkit.core.logs import messages_to, text_lines
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.future import Stopped, side_by_side
from streamkit.runtime.multiprocess.prestart import prestart_workers
from streamkit.runtime.observe.gil_sampler import GilSampler
from streamkit.runtime.observe.nvml import Nvml
from streamkit.runtime.prepare import prepare
from streamkit.stages.inference.infer import UNTUNED

_POLL_S = 0.1
_UNTUNED_S = 1.0  # longer than a batch takes then


@dataclass(slots=True)
class TrialSpec:
    """What to run, and how to measure it.

    Attributes:
        pipeline: a YAML file.
        set_: values that replace the file's, as with `--set`.
        device: replaces the file's; several, separated by commas, get a process each.
        streams: run this many paced copies of its sources, with outputs to `outputs`; None runs the file unchanged.
        pace: frames per second of a copy; None for the video's own timestamps.
        outputs: the folder for the copies' outputs.
        seconds: duration of the measurement.
        warmup_s: how long to run before the measurement.
        start_s: time limit for the start.
        launched_s: when the parent started the process, in monotonic seconds; set by `measure`.
    """

    pipeline: str
    set_: dict[str, str] = field(default_factory=dict)
    device: str | None = None
    streams: int | None = None
    pace: float | None = None
    outputs: str = ""
    seconds: float = 3.0
    warmup_s: float = 0.5
    start_s: float = 90.0
    launched_s: float = 0.0


@dataclass(slots=True)
class TrialResult:
    """The result of a trial. All values but the times of the start and `frames_in_all` are of the measured time.

    Attributes:
        error: why there are no measurements, or None.
        fps: frames per second that reached the end of the graph.
        seconds: duration of the measurement.
        start_s: seconds from the start of the process to the first record.
        all_sources_s: the same to the first frame of the last source, within half a second for several processes.
        frames_in_all: frames of the whole run, which should equal its records.
        dropped: number of dropped frames.
        processes: number of processes that ran the graph.
        latency: p50_ms, p95_ms and p99_ms from when a frame was due, at the slowest end; paced sources only.
        lock_free: share of samples at which the GIL was free; None for several processes, each of which
            has its own.
        cores_used: CPU seconds per second, of all threads.
        cores_busy: share of the cores' time, 0 to 1, in which any process used them; None if unknown.
        gpu: share of time in which the GPU ran kernels, from NVML; `decoder` likewise.
        to_device: bytes per frame from host to device, except for packets, which NVDEC's driver copies.
        to_host: bytes per frame from device to host.
        host_mb: resident memory of the process at the end, in MB.
        device_mb: device memory in use by all processes at the end, in MB; `device_total_mb` is the total.
        stages: by stage, the share of its threads' time in which they were busy.
        counts: the run's counters.
        messages: the run's messages to the user.
    """

    error: str | None = None
    fps: float = 0.0
    seconds: float = 0.0
    start_s: float = 0.0
    all_sources_s: float = 0.0
    frames_in_all: int = 0
    dropped: int = 0
    processes: int = 1
    latency: dict[str, float] = field(default_factory=dict)
    lock_free: float | None = None
    cores_used: float = 0.0
    cores_busy: float | None = None
    gpu: float | None = None
    decoder: float | None = None
    to_device: float = 0.0
    to_host: float = 0.0
    host_mb: float = 0.0
    device_mb: float | None = None
    device_total_mb: float | None = None
    stages: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)


def measure(spec: TrialSpec, until_s: float | None = None) -> TrialResult:
    """Run a trial in a separate process; its errors are returned in `TrialResult.error`.

    Args:
        spec: what to run.
        until_s: when to kill it, in monotonic seconds; None for no limit.

    Raises:
        TimeoutError: it was killed at `until_s`.
    """
    spec.launched_s = time.monotonic()
    try:
        return TrialResult(**list(results(spec, until_s))[-1])
    except (RuntimeError, IndexError) as error:  # it died: out of memory, a driver
        return TrialResult(error=str(error))


def run(spec: TrialSpec) -> TrialResult:
    """Run a trial in this process."""
    figures = TrialResult()
    try:
        path = Path(spec.pipeline)
        set_ = spec.set_
        if spec.streams is None:
            prestart_workers(path, set_, spec.device)
            config = read(path, set_=set_, device=spec.device)
        else:
            config, removed = read_copies(path, set_, spec.device, spec.streams, spec.pace, Path(spec.outputs))
            figures.messages += removed
            set_ = {}  # the text of the copies contains them
        first = config.device[0] if isinstance(config.device, list) else config.device
        with messages_to(lambda record: figures.messages.append(text_lines(record))):
            device = choose(first)
            pipeline = prepare(build(config), path, set_)
            with side_by_side(_Observer(spec, pipeline, device, figures)):
                code = pipeline.run()
    except StreamkitError as error:
        figures.error = str(error)
        return figures
    figures.frames_in_all = pipeline.frames
    figures.counts = pipeline.report(code)["counts"]
    failed = [f"{name}: {state.error}" for name, state in pipeline.states.items() if state.error]
    if failed:
        figures.error = "; ".join(failed[:3])
    elif not figures.seconds and figures.error is None:
        figures.error = f"it ended after {pipeline.frames} frames, before it could be measured"
    return figures


class _Observer:
    """Measures a run on a thread of its own, and then stops the run."""

    def __init__(self, spec: TrialSpec, pipeline: Any, device: Device, figures: TrialResult) -> None:
        self._spec = spec
        self._pipeline = pipeline
        self._device = device
        self._figures = figures

    def __call__(self, stopped: Stopped) -> None:
        try:
            if self._started(stopped):
                self._measure(stopped)
        finally:
            self._pipeline.stop()

    def _started(self, stopped: Stopped) -> bool:
        """Wait for every source and the first records; False if they do not arrive."""
        spec = self._spec
        pipeline = self._pipeline
        until = time.monotonic() + spec.start_s
        while not stopped() and time.monotonic() < until:
            states = pipeline.states  # with several processes, each report replaces it
            if pipeline.frames and not self._figures.start_s:
                self._figures.start_s = round(time.monotonic() - spec.launched_s, 3)
            if any(state.done for state in states.values()):
                return False
            if self._figures.start_s and all(state.frames for state in states.values()):
                self._figures.all_sources_s = round(time.monotonic() - spec.launched_s, 3)
                return self._tuned(until, stopped) and _sleep(spec.warmup_s, stopped)
            time.sleep(0.005)
        if not stopped():
            states = pipeline.states
            late = sum(not state.frames for state in states.values())
            what = f"{late} of {len(states)} sources delivered no frame" if late else "no frame passed the graph"
            self._figures.error = f"{what} within {spec.start_s:g} s"
        return False

    def _tuned(self, until: float, stopped: Stopped) -> bool:
        """Wait until the networks are tuned: until the count of untuned batches stops growing."""
        seen = -1
        while (now := self._pipeline.report(0)["counts"].get(UNTUNED, 0)) != seen and time.monotonic() < until:
            seen = now
            if not _sleep(_UNTUNED_S, stopped):
                return False
        return True

    def _measure(self, stopped: Stopped) -> None:
        device = self._device
        alone = self._pipeline.pids == (os.getpid(),)
        devices = self._pipeline.report(0).get("devices", ())
        self._figures.processes = max(1, sum("spare" not in worker for worker in devices))
        nvml = Nvml(device.index) if device.kind == "cuda" else None
        uses = []
        watch = GilSampler()
        before = snapshot(self._pipeline)
        with side_by_side(watch):
            until = before.at_s + self._spec.seconds
            while not stopped() and (left := until - time.monotonic()) > 0:
                time.sleep(min(left, _POLL_S))
                if nvml is not None:
                    uses.append(nvml.use())
        after = snapshot(self._pipeline)
        if stopped():
            self._figures.error = "a source ended while it was measured"
            return
        figures = self._figures
        seconds = after.at_s - before.at_s
        frames = sum(after.frames) - sum(before.frames)
        figures.seconds = round(seconds, 3)
        figures.fps = round(after.rate_since(before), 2)
        figures.dropped = after.dropped - before.dropped
        figures.latency = after.latency_since(before)
        figures.lock_free = round(watch.free, 4) if alone and watch.free is not None else None
        figures.cores_used = round((after.cpu_s - before.cpu_s) / seconds, 2)
        figures.to_device, figures.to_host = (
            round((new - old) / max(1, frames), 1) for new, old in zip(after.traffic, before.traffic, strict=True)
        )
        if before.cores is not None and after.cores is not None:
            busy_s, whole_s = (new - old for new, old in zip(after.cores, before.cores, strict=True))
            figures.cores_busy = round(busy_s / whole_s, 3) if whole_s else None
        figures.host_mb = round(sum(map(resident_mb, self._pipeline.pids)), 1)
        figures.stages = {
            name: round((busy_s - before.busy_s.get(name, 0.0)) / seconds, 3) for name, busy_s in after.busy_s.items()
        }
        if nvml is not None:
            figures.gpu = _mean([use.gpu for use in uses])
            figures.decoder = _mean([use.decoder for use in uses])
            # not from CUDA: with several processes, this one has no context
            used = nvml.used_bytes()
            total = nvml.total_bytes()
            nvml.close()
            figures.device_mb, figures.device_total_mb = (
                None if n is None else round(n / 1e6, 1) for n in (used, total)
            )


def _sleep(seconds: float, stopped: Stopped) -> bool:
    """Sleep; False if it was interrupted."""
    until = time.monotonic() + seconds
    while not stopped() and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _POLL_S))
    return not stopped()


def _mean(values: Sequence[float | None]) -> float | None:
    measured = [value for value in values if value is not None]
    return round(sum(measured) / len(measured), 3) if measured else None


def _result(spec: TrialSpec) -> Iterator[dict[str, Any]]:
    yield asdict(run(spec))


if __name__ == "__main__":
    main(TrialSpec, _result)
