# SPDX-License-Identifier: Apache-2.0
"""Measures GPU figures in a running pipeline; later runs choose their processes by them; see `media.gpu_figures`.

A lesson is called about once a second. It measures over a window once the run is steady, and stores the figure only if
the sources share one codec and one size, and the resource in question is at its limit. Otherwise it tries again.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from streamkit.media.gpu_figures import CODECS, FIRST_GUESSES, SESSIONS, store_figure
from streamkit.media.nv_sessions import REFUSED
from streamkit.runtime.execution.future import Stopped, start
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe.gil_sampler import GilSampler
from streamkit.stages.inference.infer import UNTUNED

STEADY_AFTER_S = 20.0
"""From the first frame until a run counts as steady: stages compile, and networks are tuned."""
LOCK_WINDOW_S = 10.0
"""5,000 samples of the lock: the measured share is within 1.4 %."""
DECODER_WINDOW_S = 20.0
"""Processes report their frames every half second: the measured rate is within 2.5 %."""
RETRY_S = 60.0
"""From the end of a window to the next window."""
MAX_WINDOWS = 5
"""Lock windows in a run: sampling costs time, and a run unsuitable for so many windows stays unsuitable."""
MIN_LOCK_SHARE = 0.25
"""Minimum share of the time in which the lock is held: on an idle machine, samples of it are up to 0.3 off."""
MAX_GPU_USE = 0.9
"""Maximum share of the time in which the GPU runs kernels: where networks are the limit, the thread that queues them
holds the lock while it waits for the GPU."""
MIN_DECODER_USE = 0.95
"""Mean utilization of the decoders over a window at which they are the limit."""
IDLE_DECODER_USE = 0.02
"""Maximum utilization of the decoders before the run; above it, another program decodes."""
_SIZE_WH = 1920, 1080
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
        self,
        gpu: str,
        expected_us: Mapping[str, float],
        states: States,
        counts: Callable[[], Mapping[str, int]],
        gpu_use: Callable[[], float | None],
        sampler: Callable[[], LockSampler] = GilSampler,
    ) -> None:
        self._gpu = gpu
        self._expected_us = expected_us
        self._source_states = states
        self._counts = counts
        self._gpu_use = gpu_use
        self._gpu_uses: list[float] = []
        self._new_sampler = sampler
        self._window = _FrameWindow(LOCK_WINDOW_S)
        self._sampler: LockSampler | None = None
        self._untuned_at_start = 0.0
        self._windows_left = MAX_WINDOWS if expected_us else 0

    def __call__(self, now_s: float) -> None:
        """Take a sample at a monotonic time in seconds."""
        if not self._windows_left:
            return
        states = dict(self._source_states())
        if self._window.begins(now_s, states):
            self._untuned_at_start = self._untuned_batches()
            self._gpu_uses.clear()
            self._sampler = self._new_sampler()
            start("lock sampler", self._sample)
            return
        if not self._window.counting:
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
        tuned = self._untuned_batches() == self._untuned_at_start
        gpu_use = sum(self._gpu_uses) / len(self._gpu_uses)
        if free is None or 1 - free < MIN_LOCK_SHARE or not tuned or gpu_use > MAX_GPU_USE or len(fps_by_codec) != 1:
            return False
        ((codec, fps),) = fps_by_codec.items()
        if codec not in self._expected_us:
            return False
        name = f"lock_us_{codec}"
        slowness = (1 - free) / fps * 1e6 / self._expected_us[codec]
        store_figure(self._gpu, name, round(FIRST_GUESSES[name].amount * slowness, 1))
        return True


class GpuLesson:
    """Learns the rate of the decoders of a GPU, and how many NVDEC sessions it opens. No other run uses the GPU.

    Args:
        gpu: the GPU and its versions, see `decoding_versions`.
        states: returns the states of the sources of all processes on the GPU.
        open_sessions: returns the number of NVDEC sessions that all processes have.
        nvml: utilization of the GPU; see `Nvml`.
        sampled: whether sources drop some of the decoded frames.
    """

    def __init__(
        self, gpu: str, states: States, open_sessions: Callable[[], int], nvml: Any, sampled: bool = False
    ) -> None:
        self._gpu = gpu
        self._source_states = states
        self._open_sessions = open_sessions
        self._nvml = nvml
        weakref.finalize(self, nvml.close)
        self._window = _FrameWindow(DECODER_WINDOW_S)
        self._decoder_uses: list[float] = []
        decoder_use = nvml.use().decoder
        self._decoders_done = sampled or decoder_use is None or decoder_use > IDLE_DECODER_USE
        self._refused_s: float | None = None
        self._max_sessions = 0
        self._sessions_done = False
        self._last_sample_s = 0.0

    def __call__(self, now_s: float) -> None:
        """Take a sample at a monotonic time in seconds, at most once a second."""
        if now_s < self._last_sample_s + 0.9:
            return
        self._last_sample_s = now_s
        if not self._decoders_done:
            self._sample_decoders(now_s)
        if not self._sessions_done:
            self._sample_sessions(now_s)

    def _sample_decoders(self, now_s: float) -> None:
        states = dict(self._source_states())
        if self._window.begins(now_s, states):
            self._decoder_uses.clear()
            return
        self._decoder_uses.append(self._nvml.use().decoder or 0.0)
        if not self._window.ends(now_s):
            return
        fps_by_codec = self._window.rates(now_s, states)
        sizes = {(state.facts.get("width"), state.facts.get("height")) for state in states.values() if state.frames}
        decoder_use = round(sum(self._decoder_uses) / len(self._decoder_uses), 3)
        if decoder_use >= MIN_DECODER_USE and sizes == {_SIZE_WH} and len(fps_by_codec) == 1:
            ((codec, fps),) = fps_by_codec.items()
            if codec in CODECS:
                store_figure(self._gpu, f"decoders_fps_{codec}", round(fps))
                self._decoders_done = True
        self._window.restart(now_s)

    def _sample_sessions(self, now_s: float) -> None:
        if self._refused_s is None:
            if any(state.counters.values.get(REFUSED) for state in dict(self._source_states()).values()):
                self._refused_s = now_s
            return
        self._max_sessions = max(self._max_sessions, self._open_sessions())
        if now_s >= self._refused_s + _SESSIONS_SETTLE_S:
            self._sessions_done = True
            if self._max_sessions:
                store_figure(self._gpu, SESSIONS, self._max_sessions)


class _FrameWindow:
    """A time window in which frames are counted, once a run is steady."""

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._earliest_start_s: float | None = None
        self._start_s: float | None = None
        self._frames_before: dict[str, int] = {}

    def begins(self, now_s: float, states: Mapping[str, SourceState]) -> bool:
        """Begin the window if the run is steady and no window is open; return whether it began."""
        if self._start_s is not None or not any(state.frames for state in states.values()):
            return False
        if self._earliest_start_s is None:
            self._earliest_start_s = now_s + STEADY_AFTER_S
        if now_s < self._earliest_start_s:
            return False
        self._start_s = now_s
        self._frames_before = {id_: state.frames for id_, state in states.items()}
        return True

    @property
    def counting(self) -> bool:
        """Whether frames are counted now."""
        return self._start_s is not None

    def ends(self, now_s: float) -> bool:
        """Whether a window is open and long enough."""
        return self._start_s is not None and now_s >= self._start_s + self._length_s

    def rates(self, now_s: float, states: Mapping[str, SourceState]) -> dict[str, float]:
        """Return frames per second by codec; empty if sources were removed meanwhile."""
        if self._start_s is None or self._frames_before.keys() - states.keys():
            return {}
        frames: Counter[str] = Counter()
        for id_, state in states.items():
            frames[str(state.facts.get("codec", ""))] += state.frames - self._frames_before.get(id_, 0)
        seconds = now_s - self._start_s
        return {codec: count / seconds for codec, count in frames.items() if count > 0}

    def restart(self, now_s: float) -> None:
        """Close the window; the next begins `RETRY_S` later."""
        self._start_s = None
        self._earliest_start_s = now_s + RETRY_S
