# SPDX-License-Identifier: Apache-2.0
"""What happens to the sources of a process that dies: others restart them, or they fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from streamkit.core.errors import StreamkitError
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.frame_ipc import ParentStages
from streamkit.runtime.multiprocess.placement_policy import RestartedSource
from streamkit.runtime.multiprocess.source_scheduler import SourceScheduler
from streamkit.runtime.multiprocess.spare_workers import SpareWorkers
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle
from streamkit.runtime.multiprocess.worker_processes import WorkerProcesses, not_started
from streamkit.runtime.observe.alarms import Alarms

logger = logging.getLogger(__name__)

_INCIDENT_S = 0.5
_GPU_INCIDENT_S = 1.5
"""Time after the death of a process in which others may die of the same cause: of any, and of one that has lost its
GPU. A fault under MPS ends all its clients; an idle one checks its GPU every 0.5 s."""


class RecoveringRun(Protocol):
    """The run whose processes may die."""

    fatal: BaseException | None
    alarms: Alarms

    def fail(self, error: BaseException) -> None:
        """End the run because of an error."""


class Recovery:
    """Restarts the sources of processes that have died, once others have had time to die of the same cause.

    Args:
        run: the run, which publishes the restarts.
        processes: all processes.
        sources: their sources.
        spares: the spare processes.
        stages: the stages of the parent, which count what a process has passed on.
        changing: the lock of changes to the run.
        keep_running: whether the run goes on without sources.
        clock: monotonic time in seconds.

    Attributes:
        dead: the processes that have died and whose sources were not restarted yet.
        restarted: number of sources that were restarted.
    """

    def __init__(
        self,
        run: RecoveringRun,
        processes: WorkerProcesses,
        sources: SourceScheduler,
        spares: SpareWorkers,
        stages: ParentStages,
        *,
        changing: threading.RLock,
        keep_running: bool,
        clock: Callable[[], float],
    ) -> None:
        self.dead: list[WorkerHandle] = []
        self.restarted = 0
        self._run = run
        self._processes = processes
        self._sources = sources
        self._spares = spares
        self._stages = stages
        self._changing = changing
        self._keep_running = keep_running
        self._clock = clock
        self._died_at_s = 0.0

    def finish(self, worker: WorkerHandle) -> None:
        """Mark a process that has exited as over; if it died, its unfinished sources are restarted soon."""
        worker.over = True
        worker.sessions = {}
        if worker.failure is not None:
            with worker.guard:
                worker.child = worker.receiver = None  # releases the process's handles
            if not self.dead:
                self._died_at_s = self._clock()
            self.dead.append(worker)

    def is_due(self) -> bool:
        """Whether others had time to die of the same cause."""
        wait_s = _GPU_INCIDENT_S if any(worker.lost for worker in self.dead) else _INCIDENT_S
        return self._clock() >= self._died_at_s + wait_s

    def recover(self, ending: bool) -> None:
        """Restart the sources of the processes that have died.

        The sources of a process go to a spare one. Without one, a source goes to another process with room for it, else
        to a new one. If no process is left, as many new ones are started. In a run that is `ending`, the sources fail.
        """
        restarted: list[tuple[str, list[RestartedSource]]] = []
        self._spares.postpone()
        with self._changing:
            spares = [worker for worker in self.dead if worker.spare]
            dead = [worker for worker in self.dead if not worker.spare]
            self.dead = []
            self._lose_spares([] if ending else spares, alone=not dead)
            lost = [(worker, self._sources.remove_process(worker)) for worker in dead]
            if lost and not ending and self._none_left():
                self._replace(worker for worker, ids in lost if ids or (self._keep_running and worker.ready))
            for worker, ids in lost:
                of_source = len(dead) + len(spares) == 1 and worker.ready
                sources = self._restart(worker, ids, ending, of_source)
                if sources:
                    restarted.append((str(worker.failure), sources))
        for failure, sources in restarted:
            self._report(failure, sources)

    def _lose_spares(self, spares: Sequence[WorkerHandle], *, alone: bool) -> None:
        """Log the death of spare processes, and count it if no other process died with them."""
        for worker in [spare for spare in spares if not spare.order]:
            logger.error(str(worker.failure))
            if alone:  # it died of itself
                self._spares.count_death(worker.device)

    def _none_left(self) -> bool:
        """Whether no process is left for sources; one that is kept ready is taken."""
        if any(worker.takes_sources for worker in self._processes.workers):
            return False
        return self._spares.take(*self._spares.limits, ready=True) is None

    def _restart(
        self, worker: WorkerHandle, ids: Sequence[str], ending: bool, of_source: bool
    ) -> list[RestartedSource]:
        """Restart the sources of one process; those that cannot be restarted fail."""
        if not ids and not ending:
            logger.error(str(worker.failure))
        take_spare = partial(self._spares.take, worker.device, *self._spares.limits)
        restarted = (
            [] if ending else self._sources.restart(ids, self._stages, of_source=of_source, take_spare=take_spare)
        )
        again = {source.id for source in restarted}
        self._give_up(worker, [id_ for id_ in ids if id_ not in again])
        self._stages.forget_process(worker)
        worker.latest = replace(worker.latest, states={}, counts=replace(worker.latest.counts, queues={}))
        return restarted

    def _replace(self, dead: Iterable[WorkerHandle]) -> None:
        """Start a new process, without sources, for each of `dead`, which were all; end a spare one that still starts.

        If they lost their GPU, so does that one.
        """
        for worker in self._processes.workers:
            if worker.spare and worker.runs:
                worker.order = messages.Now()
                worker.link.kill()
        added: list[WorkerHandle] = []
        try:
            for worker in dead:
                added.append(self._processes.add(worker.device))
                self._sources.add_process(added[-1])
        except OSError as error:
            self._run.fail(not_started(error))
        self._processes.restart_mps()  # while the new processes import packages
        for worker in added:
            self._processes.begin(worker)

    def _give_up(self, worker: WorkerHandle, ids: Iterable[str]) -> None:
        """Mark sources of a process that has died as failed."""
        for id_ in ids:
            again = self._sources.restarts_of(id_)
            reason = f"{worker.failure}" + (f"; it was restarted {again} times within ten minutes" if again else "")
            self._sources.give_up(id_, reason)
            if self._run.fatal is None:
                logger.error(f"source {id_} failed: {reason}", extra={"source": id_})

    def _report(self, failure: str, restarted: Sequence[RestartedSource]) -> None:
        """Log the restart of sources, and emit the event `restarted` of each."""
        self.restarted += len(restarted)
        names = ", ".join(source.id for source in restarted)
        lost = sum(source.frames_lost for source in restarted)
        logger.warning(f"{failure}: its sources restart in another process ({names}); {lost} frames are lost")
        for source in restarted:
            try:
                self._run.alarms.publish(source.event(failure))
            except StreamkitError as error:  # a spool that is full, or cannot be written
                self._run.fail(error)
