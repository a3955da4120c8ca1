# SPDX-License-Identifier: Apache-2.0
"""Measures, while a pipeline runs, what later runs choose their processes by; see `media.gpu_figures`.

A lesson is called about once a second. It measures only once the run is steady, for long enough, and only where the
result follows from one thing: one codec, one size, and the resource in question at its limit. Otherwise it tries again.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from streamkit.media.gpu_figures import CODECS, FIRST_GUESSES, SESSIONS, keep_figure
from streamkit.media.nv_sessions import REFUSED
from streamkit.runtime.execution.future import Stopped, start
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe.gil_sampler import GilSampler
from streamkit.stages.inference.infer import UNTUNED

STEADY_AFTER_S = 20.0
"""From the first frame until a run is taken as steady: stages compile, and networks are tuned."""
LOCK_WINDOW_S = 10.0
"""5,000 samples of the lock: its share is within 1.4 %."""
DECODER_WINDOW_S = 20.0
"""Processes report their frames every half second: the rate is within 2.5 %."""
RETRY_S = 60.0
"""From a window in which nothing could be learned to the next one."""
MAX_WINDOWS = 5
"""Windows of the lock in a run: sampling it costs, and a run in which nothing could be learned so often stays so."""
LEAST_HELD = 0.25
"""Share of the time that the lock must be held: on an idle machine, samples of it are up to 0.3 off."""
MOST_GPU_USE = 0.9
"""Share of the time in which the GPU runs kernels: where networks are the limit, what queues them waits for the GPU
and holds the lock meanwhile."""
LEAST_DECODING = 0.95
"""Utilization of the decoders, a mean over a window, from which on they are the limit."""
IDLE_DECODING = 0.02
"""Utilization of the decoders before the run; above it, another program decodes."""
_SIZE = 1920, 1080
_SESSIONS_SETTLE_S = 5.0
"""From a refused session until all processes have reported theirs."""

States = Callable[[], Mapping[str, SourceState]]


class LockSampler(Protocol):
    """See `GilSampler`."""

    def __call__(self, stopped: Stopped) -> None:
        """Sample until `stopped()`."""

    @property
    def free(self) -> float | None:
        """The share of the time at which the lock was free."""


class LockLesson:
    """Learns the lock time of a frame in this process.

    Args:
        gpu: the GPU and its versions, see `decoding_versions`.
        expected_us: first guess of the pipeline's lock time per frame, by codec; see `frame_lock_us`.
        states: returns the states of the sources of this process.
        counts: returns the counts of the run.
        gpu_use: returns the share of the time in which the GPU runs kernels; None if it is not known.
        sampler: creates what samples the lock.
    """

    def __init__(
        self, gpu: str, expected_us: Mapping[str, float], states: States, counts: Callable[[], Mapping[str, int]],
        gpu_use: Callable[[], float | None],
        sampler: Callable[[], LockSampler] = GilSampler,
    ) -> None:  # fmt: skip
        self._gpu = gpu
        self._expected_us = expected_us
        self._states = states
        self._counts = counts
        self._gpu_use = gpu_use
        self._gpu_uses: list[float] = []
        self._new_sampler = sampler
        self._window = _FrameWindow(LOCK_WINDOW_S)
        self._sampler: LockSampler | None = None
        self._untuned = 0.0
        self._windows_left = MAX_WINDOWS if expected_us else 0

    def __call__(self, now_s: float) -> None:
        """Go on, at a monotonic time in seconds."""
        if not self._windows_left:
            return
        states = dict(self._states())
        if self._window.begins(now_s, states):
            self._untuned = self._untuned_batches()
            self._gpu_uses.clear()
            self._sampler = self._new_sampler()
            start("lock sampler", self._sample)
            return
        if not self._window.begun:
            return
        use = self._gpu_use()
        self._gpu_uses.append(1.0 if use is None else use)
        if self._window.ends(now_s):
            self._windows_left -= 1
            if self._learn(now_s, states):
                self._windows_left = 0
            self._window.restart(now_s)

    def _sample(self) -> None:
        until_s = time.monotonic() + LOCK_WINDOW_S
        if self._sampler is not None:
            self._sampler(lambda: time.monotonic() >= until_s)

    def _untuned_batches(self) -> float:
        try:
            return self._counts().get(UNTUNED, 0)
        except RuntimeError:  # a counter was added while they were summed up
            return math.nan

    def _learn(self, now_s: float, states: Mapping[str, SourceState]) -> bool:
        fps_by_codec = self._window.rates(now_s, states)
        free = None if self._sampler is None else self._sampler.free
        tuned = self._untuned_batches() == self._untuned
        gpu_use = sum(self._gpu_uses) / len(self._gpu_uses)
        if free is None or 1 - free < LEAST_HELD or not tuned or gpu_use > MOST_GPU_USE or len(fps_by_codec) != 1:
            return False
        ((codec, fps),) = fps_by_codec.items()
        if codec not in self._expected_us:
            return False
        name = f"lock_us_{codec}"
        slowness = (1 - free) / fps * 1e6 / self._expected_us[codec]
        keep_figure(self._gpu, name, round(FIRST_GUESSES[name].amount * slowness, 1))
        return True


class GpuLesson:
    """Learns what the decoders of a GPU reach, and how many NVDEC sessions it opens. The run has the GPU to itself.

    Args:
        gpu: the GPU and its versions, see `decoding_versions`.
        states: returns the states of the sources of all processes on the GPU.
        open_sessions: returns the number of NVDEC sessions that all processes have.
        nvml: utilization of the GPU; see `Nvml`.
        sampled: whether sources leave out frames that the decoders give.
    """

    def __init__(
        self, gpu: str, states: States, open_sessions: Callable[[], int], nvml: Any, sampled: bool = False
    ) -> None:
        self._gpu = gpu
        self._states = states
        self._open_sessions = open_sessions
        self._nvml = nvml
        weakref.finalize(self, nvml.close)
        self._window = _FrameWindow(DECODER_WINDOW_S)
        self._shares: list[float] = []
        share = nvml.use().decoder
        self._decoders_over = sampled or share is None or share > IDLE_DECODING
        self._refused_s: float | None = None
        self._max_sessions = 0
        self._sessions_over = False
        self._sampled_s = 0.0

    def __call__(self, now_s: float) -> None:
        """Go on, at a monotonic time in seconds; more than once a second, nothing is done."""
        if now_s < self._sampled_s + 0.9:
            return
        self._sampled_s = now_s
        if not self._decoders_over:
            self._sample_decoders(now_s)
        if not self._sessions_over:
            self._sample_sessions(now_s)

    def _sample_decoders(self, now_s: float) -> None:
        states = dict(self._states())
        if self._window.begins(now_s, states):
            self._shares.clear()
            return
        self._shares.append(self._nvml.use().decoder or 0.0)
        if not self._window.ends(now_s):
            return
        fps_by_codec = self._window.rates(now_s, states)
        sizes = {(state.facts.get("width"), state.facts.get("height")) for state in states.values() if state.frames}
        share = round(sum(self._shares) / len(self._shares), 3)
        if share >= LEAST_DECODING and sizes == {_SIZE} and len(fps_by_codec) == 1:
            ((codec, fps),) = fps_by_codec.items()
            if codec in CODECS:
                keep_figure(self._gpu, f"decoders_fps_{codec}", round(fps))
                self._decoders_over = True
        self._window.restart(now_s)

    def _sample_sessions(self, now_s: float) -> None:
        if self._refused_s is None:
            if any(state.counters.values.get(REFUSED) for state in dict(self._states()).values()):
                self._refused_s = now_s
            return
        self._max_sessions = max(self._max_sessions, self._open_sessions())
        if now_s >= self._refused_s + _SESSIONS_SETTLE_S:
            self._sessions_over = True
            if self._max_sessions:
                keep_figure(self._gpu, SESSIONS, self._max_sessions)


class _FrameWindow:
    """A time in which frames are counted, once a run is steady."""

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._from_s: float | None = None
        self._start_s: float | None = None
        self._before: dict[str, int] = {}

    def begins(self, now_s: float, states: Mapping[str, SourceState]) -> bool:
        """Whether it begins now, with the frames of these sources."""
        if self._start_s is not None or not any(state.frames for state in states.values()):
            return False
        if self._from_s is None:
            self._from_s = now_s + STEADY_AFTER_S
        if now_s < self._from_s:
            return False
        self._start_s = now_s
        self._before = {id_: state.frames for id_, state in states.items()}
        return True

    @property
    def begun(self) -> bool:
        """Whether frames are counted now."""
        return self._start_s is not None

    def ends(self, now_s: float) -> bool:
        """Whether it has begun and is long enough."""
        return self._start_s is not None and now_s >= self._start_s + self._length_s

    def rates(self, now_s: float, states: Mapping[str, SourceState]) -> dict[str, float]:
        """Return frames per second by codec; empty if sources were removed meanwhile."""
        if self._start_s is None or self._before.keys() - states.keys():
            return {}
        frames: Counter[str] = Counter()
        for id_, state in states.items():
            frames[str(state.facts.get("codec", ""))] += state.frames - self._before.get(id_, 0)
        seconds = now_s - self._start_s
        return {codec: count / seconds for codec, count in frames.items() if count > 0}

    def restart(self, now_s: float) -> None:
        """Begin another one some time later."""
        self._start_s = None
        self._from_s = now_s + RETRY_S
