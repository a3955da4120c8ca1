# SPDX-License-Identifier: Apache-2.0
"""NVDEC sessions that spare processes make ahead, so that the sources of a process that dies need not wait for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from streamkit.core.errors import DeviceError
from streamkit.media.gpu_figures import SESSIONS
from streamkit.media.nv_sessions import SessionKey, SessionSample
from streamkit.runtime.execution.device import choose
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.process_count import figures_of
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle

_FREE_SESSIONS = 16
"""Number of NVDEC sessions that are left to sources: none are made ahead beyond the others."""
_SESSIONS_AFTER_S = 5.0
"""Time without a change of the sessions in use until others are made ahead: they would delay sources that start."""
_SESSIONS_LATEST_S = 60.0
"""Time after the first change until others are made ahead anyway: among many cameras, some always reconnect."""


class SpareSessions:
    """Lets spare processes make the NVDEC sessions that sources of another process would need.

    Otherwise 67 sources wait up to 17 s: the driver makes sessions one after the other, 0.1 to 0.3 s each beside others
    that decode.

    Args:
        workers: all processes; more may be added.
        clock: monotonic time in seconds.
    """

    def __init__(self, workers: Sequence[WorkerHandle], clock: Callable[[], float]) -> None:
        self._workers = workers
        self._clock = clock
        self._due_s = math.inf
        self._latest_s = math.inf

    def update(self, worker: WorkerHandle, samples: Sequence[SessionSample]) -> None:
        """Take the sessions that a process uses; a packet that was sent before is remembered."""
        packets = {key: session.packet for key, session in worker.sessions.items()}
        worker.sessions = {
            sample.key: sample._replace(packet=sample.packet or packets[sample.key]) for sample in samples
        }
        self.postpone()

    def postpone(self) -> None:
        """Let spare processes make sessions later: they would delay sources that start."""
        now_s = self._clock()
        if self._due_s == math.inf:
            self._latest_s = now_s + _SESSIONS_LATEST_S
        self._due_s = min(now_s + _SESSIONS_AFTER_S, self._latest_s)

    def keep_ready(self) -> None:
        """Order the sessions that are needed, once those in use do not change any more."""
        if self._clock() < self._due_s:
            return
        self._due_s = math.inf
        for spare in [worker for worker in self._workers if worker.spare and worker.ready and worker.runs]:
            others = [worker for worker in self._workers if worker.device == spare.device and worker.takes_sources]
            try:
                figures = figures_of(choose(spare.device))
            except DeviceError:  # the driver does not answer, which the workers notice, too
                continue
            limit = int(figures[SESSIONS].amount) - _FREE_SESSIONS
            free = limit - sum(session.number for worker in others for session in worker.sessions.values())
            demand = peak_session_demand([worker.sessions for worker in others], min(spare.expected_live, free))
            spare.send(messages.MakeSessions(demand))

    @property
    def open_sessions(self) -> int:
        """Number of NVDEC sessions that all processes have, used and idle, as they last reported."""
        used = sum(sample.number for worker in self._workers if worker.runs for sample in worker.sessions.values())
        return used + self.ahead

    @property
    def ahead(self) -> int:
        """Number of NVDEC sessions that spare processes have made for sources that they may get."""
        return sum(worker.sessions_ahead for worker in self._workers if worker.spare and worker.runs)


def peak_session_demand(
    sessions_by_worker: Sequence[Mapping[SessionKey, SessionSample]], limit: int
) -> list[SessionSample]:
    """What the sources of any one of these processes need, `limit` sessions at most, the most frequent kind first."""
    peaks: dict[SessionKey, SessionSample] = {}
    for sessions in sessions_by_worker:
        for key, session in sessions.items():
            peaks[key] = max(peaks.get(key, session), session, key=lambda sample: sample.number)
    demand = []
    for peak in sorted(peaks.values(), key=lambda sample: (-sample.number, sample.key)):
        number = min(peak.number, limit)
        limit -= number
        if number > 0:
            demand.append(peak._replace(number=number))
    return demand
