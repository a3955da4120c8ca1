# SPDX-License-Identifier: Apache-2.0
"""Spare processes: each is kept ready for the sources of a process of its device that dies."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from streamkit.core.errors import describe
from streamkit.runtime.multiprocess.source_scheduler import SourceScheduler
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle
from streamkit.runtime.multiprocess.worker_processes import WorkerProcesses

logger = logging.getLogger(__name__)

_SPARE_AFTER_S = 10.0
"""Time after sources have moved to a spare process until the next one starts: they run again by then, and it tunes its
networks beside them."""
_MAX_SPARE_DEATHS = 3
"""If so many spare processes of a device have died within ten minutes, no further one starts."""
_SPARE_DEATHS_WITHIN_S = 600.0


class SpareWorkers:
    """Keeps a spare process on each device that may have one, and gives it to sources that need another process.

    Args:
        processes: all processes.
        sources: the sources, which a spare process gets when it is taken.
        limits: how many processes there may be on each device with a spare one among them.
        ending: whether the run is ending.
        changing: the lock of changes to the run.
        clock: monotonic time in seconds.

    Attributes:
        limits: see above; 0 for a device on which none is kept any more.
    """

    def __init__(
        self,
        processes: WorkerProcesses,
        sources: SourceScheduler,
        limits: Mapping[str, int],
        ending: Callable[[], bool],
        changing: threading.RLock,
        clock: Callable[[], float],
    ) -> None:
        self.limits = dict(limits)
        self._processes = processes
        self._sources = sources
        self._ending = ending
        self._changing = changing
        self._clock = clock
        self._due_s = 0.0
        self._deaths: dict[str, list[float]] = {device: [] for device in limits}

    def lacking(self) -> int:
        """Number of devices that lack a spare process."""
        return sum(self._lacks(device) > 0 for device in self.limits)

    def _lacks(self, device: str) -> int:
        """Number of live sources that a spare process on a device must be ready for; 0 if it lacks none."""
        workers = [worker for worker in self._processes.workers if worker.device == device and worker.runs]
        if any(worker.spare for worker in workers) or not 2 <= len(workers) < self.limits[device]:
            return 0
        return max(map(self._sources.live, workers))

    def start(self) -> list[WorkerHandle]:
        """Start a spare process on each device that lacks one; they wait for `WorkerProcesses.begin`."""
        started = []
        with self._changing, self._processes.starting:  # in the order in which a source is added
            for device in self.limits:
                if self._processes.closed or self._ending() or not (live := self._lacks(device)):
                    continue
                try:
                    started.append(self._processes.add(device, additional=True, expected_live=live))
                except OSError as error:  # no memory, or too many files or processes
                    self.keep_none(device, f"it cannot be started: {describe(error)}")
        return started

    def is_due(self) -> bool:
        """Whether a spare process is to start: all others are ready, and sources that have moved run again."""
        if self._clock() < self._due_s or not self.lacking():
            return False
        return all(worker.ready if worker.runs else worker.over for worker in self._processes.workers)

    def postpone(self) -> None:
        """Start the next spare process later: sources have moved."""
        self._due_s = self._clock() + _SPARE_AFTER_S

    def take(self, *devices: str, ready: bool = False) -> WorkerHandle | None:
        """Make a spare process of one of these devices an ordinary one; None if there is none, or none that is `ready`.

        One that is not ready yet will be so sooner than a new one.
        """
        with self._processes.starting:
            spares = [worker for worker in self._processes.workers if worker.spare and worker.runs]
            spares = [spare for spare in spares if spare.device in devices and (spare.ready or not ready)]
            worker = min(spares, key=lambda spare: (not spare.ready, devices.index(spare.device)), default=None)
            if worker is not None:
                self._sources.add_process(worker)
                worker.spare = False
            return worker

    def keep_none(self, device: str, why: str) -> None:
        """Keep no spare process on a device any more."""
        self.limits[device] = 0
        logger.warning(f"no spare process is kept on {device}: {why}")

    def count_death(self, device: str) -> None:
        """Keep no further spare process on a device on which too many have died without any source."""
        now_s = self._clock()
        deaths = [at_s for at_s in self._deaths[device] if now_s - at_s <= _SPARE_DEATHS_WITHIN_S]
        deaths.append(now_s)
        self._deaths[device] = deaths
        if len(deaths) == _MAX_SPARE_DEATHS:
            self.keep_none(device, f"{_MAX_SPARE_DEATHS} have died within ten minutes")
