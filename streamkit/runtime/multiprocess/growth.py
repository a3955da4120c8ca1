# SPDX-License-Identifier: Apache-2.0
"""Further processes of a fleet, for sources that would overload or endanger the others."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from streamkit.core.errors import StreamkitError, describe
from streamkit.runtime.multiprocess.source_scheduler import SourceScheduler
from streamkit.runtime.multiprocess.spare_workers import SpareWorkers
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle
from streamkit.runtime.multiprocess.worker_processes import WorkerProcesses

logger = logging.getLogger(__name__)


class WorkerGrowth:
    """Adds processes to a fleet, up to a limit for each device.

    Args:
        processes: all processes.
        spares: the spare processes, which are taken first.
        sources: the sources, which the added processes may get.
        limits: how many processes there may be on each device.
        may_grow: whether the run is ready and does not end.

    Attributes:
        limits: see above; lower where a process could not start.
    """

    def __init__(
        self,
        processes: WorkerProcesses,
        spares: SpareWorkers,
        sources: SourceScheduler,
        limits: Counter[str],
        may_grow: Callable[[], bool],
    ) -> None:
        self.limits = limits
        self._processes = processes
        self._spares = spares
        self._sources = sources
        self._may_grow = may_grow

    def start_another(self, beyond: int = 0) -> WorkerHandle | None:
        """Add a process for sources that would overload or endanger the others: a spare one, or a new one.

        Args:
            beyond: how many processes there may be beyond the limit, for sources that would endanger a spare one.

        Returns:
            The process; None if no more may run.
        """
        with self._processes.starting:
            if self._processes.closed or not self._may_grow():
                return None
            running = Counter(worker.device for worker in self._processes.workers if worker.takes_sources)
            free = [device for device, limit in self.limits.items() if running[device] < limit + beyond]
            if not free:
                return None
            device = min(free, key=lambda device: running[device])
            worker = None if beyond else self._spares.take(device)
            how = "starts" if worker is None else "was kept ready"
            if worker is None:
                worker = self._start_new(device, running[device])
            if worker is None:
                return None
            self._spares.postpone()
        reason = "sources may have ended two processes" if beyond else "a source would overload the processes"
        logger.info(f"{reason}: process {running.total() + 1} {how} on {device}")
        return worker

    def _start_new(self, device: str, running: int) -> WorkerHandle | None:
        try:
            worker = self._processes.add(device, additional=True)
        except OSError as error:  # no memory, or too many files or processes
            self.limits[device] = max(1, running)
            logger.warning(f"another process on {device} cannot be started: {describe(error)}")
            return None
        self._sources.add_process(worker)
        self._processes.begin(worker)
        return worker

    def give_up(self, worker: WorkerHandle, error: StreamkitError) -> None:
        """Go on without an additional process that could not start: others take its sources."""
        which = "a spare" if worker.spare else "another"
        worker.failure = f"{which} process on {worker.device} could not start: {error}"
        running = sum(other.takes_sources for other in self._processes.workers if other.device == worker.device)
        self.limits[worker.device] = max(1, running)
        if self._spares.limits.get(worker.device):
            self._spares.keep_none(worker.device, "a process could not start")
