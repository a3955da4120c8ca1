# SPDX-License-Identifier: Apache-2.0
"""The worker processes of a fleet: how they are started, given their job, and ended."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from streamkit.core.errors import StreamkitError, describe
from streamkit.runtime.execution.future import start
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.children import Child, Supervisor, reap_dying, signals_held_back, wait
from streamkit.runtime.multiprocess.frame_ipc import ParentStages, frame_pipe
from streamkit.runtime.multiprocess.mps import MpsDaemon
from streamkit.runtime.multiprocess.prestart import take_prestarted, take_prestarted_daemon
from streamkit.runtime.multiprocess.source_scheduler import SourceScheduler
from streamkit.runtime.multiprocess.worker import WorkerConfig, work
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle
from streamkit.runtime.multiprocess.worker_link import WorkerLink
from streamkit.runtime.observe import telemetry
from streamkit.runtime.pipeline import QUICK_SOURCES

logger = logging.getLogger(__name__)

_AT_ONCE_S = 0.5
_DYING_S = 5.0


def launch(name: str, job: WorkerConfig, frames: Connection) -> Child:
    """Start a process of this machine for a job, or take one that was started ahead. Raises OSError."""
    return Child(name, work, job, frames, env=telemetry.child_environment(), idle=take_prestarted())


@dataclass(frozen=True, slots=True)
class Machine:
    """What a fleet uses of its machine; a test plays it.

    Attributes:
        clock: monotonic time in seconds.
        launch: starts a process with a name and a job; its frames come through the connection.
        wait: waits until one of several processes sends a message or exits, for at most some seconds.
    """

    clock: Callable[[], float] = time.monotonic
    launch: Callable[[str, WorkerConfig, Connection], WorkerLink] = launch
    wait: Callable[[Sequence[Any], float], None] = wait


THIS_MACHINE = Machine()


class WorkerProcesses:
    """Starts and ends the processes of a fleet, and receives their messages.

    Args:
        devices: the device of each first process, as named in the YAML.
        job: returns what a process is to run.
        receive_frames: passes on the frames of a process, on a thread of its own, until the process has exited.
        changing: held while a job is made: a change of the run comes with the job, or as an order after it.
        machine: what starts processes.

    Attributes:
        workers: all processes, also those that have exited.
        parts: number of shares of the cores.
        starting: held while processes are added.
        closed: whether no process may be added any more.
        mps: lets processes that share a GPU use it at the same time; None if it is not needed.
    """

    def __init__(
        self,
        devices: Sequence[str],
        job: Callable[[WorkerHandle], WorkerConfig],
        receive_frames: Callable[[WorkerHandle], None],
        changing: threading.RLock,
        machine: Machine,
    ) -> None:
        self._clock = machine.clock
        self.workers = [
            WorkerHandle(device=device, number=number, clock=machine.clock) for number, device in enumerate(devices)
        ]
        self.parts = len(devices)
        self.starting = threading.RLock()
        self.closed = False
        self.mps: MpsDaemon | None = None
        self._job = job
        self._receive_frames = receive_frames
        self._changing = changing
        self._launch = machine.launch
        self._supervisor = Supervisor(self._overdue, machine.wait)

    def start_first(self) -> None:
        """Start the first processes; they wait for `begin`. Raises StreamkitError."""
        try:
            for worker in list(self.workers):
                self._start(worker)
        except OSError as error:
            raise not_started(error) from error

    def add(self, device: str, *, additional: bool = False, expected_live: int = 0) -> WorkerHandle:
        """Start a process, without sources, beside others; it waits for `begin`. Raises OSError.

        With `expected_live`, it is a spare one for so many live sources.
        """
        worker = WorkerHandle(
            device=device,
            number=len(self.workers),
            additional=additional,
            spare=expected_live > 0,
            expected_live=expected_live,
            clock=self._clock,
        )
        self._start(worker)
        self.workers.append(worker)
        return worker

    def _start(self, worker: WorkerHandle) -> None:
        """Start a process. Signals are blocked in it from its first moment: the parent handles signals."""
        parts = Counter(worker.part for worker in self._supervisor.workers)
        worker.part = min(range(self.parts), key=lambda part: parts[part])
        with self._changing, signals_held_back():
            worker.frames, frames = frame_pipe()
            worker.child = self._launch(f"worker/{worker.device}/{worker.number}", self._job(worker), frames)
            frames.close()
        worker.receiver = start("receiver", partial(self._receive_frames, worker))
        self._supervisor.workers.append(worker)

    def begin(self, worker: WorkerHandle) -> None:
        """Let a process use its device."""
        worker.send(messages.Begin({} if self.mps is None else self.mps.environment))

    def start_mps(self) -> None:
        """Let processes that share a GPU use it at the same time."""
        self.mps = take_prestarted_daemon()
        if self.mps is None:
            self.mps = MpsDaemon()
            self.mps.start()
        logger.info(f"the pipeline {self.mps.reason}")

    def restart_mps(self) -> None:
        """Start the service again that a fault of a process has ended."""
        if self.mps is not None:
            reap_dying(_DYING_S)  # the daemon waits for its clients
            self.mps.restart()

    def poll(self, timeout_s: float) -> Iterator[tuple[WorkerHandle, Any]]:
        """See `Supervisor.poll`."""
        for worker, message in self._supervisor.poll(timeout_s):
            worker.silent_s = 0.0
            yield worker, message

    def pass_time(self, seconds: float) -> None:
        """Count time without a message of each process."""
        for worker in self._supervisor.workers:
            worker.silent_s += seconds

    def end(self, order: messages.EndingOrder | None) -> None:
        """Send each process an order that ends it, unless it was sent before."""
        for worker in self._supervisor.workers:
            worker.end(order)

    def end_now(self) -> None:
        """End every process that still runs."""
        for worker in self._supervisor.workers:
            worker.send(messages.Now())
        self._supervisor.close(_AT_ONCE_S)

    def close(self) -> None:
        """End every process, and let none be added any more."""
        with self.starting:
            self.closed = True
        self.end_now()

    def close_mps(self) -> None:
        """End what the processes have shared, after them."""
        if self.mps is not None:
            reap_dying(_DYING_S)
            self.mps.close()

    def _overdue(self, worker: WorkerHandle, _: float) -> str | None:
        """The reason to kill a process now; its work on the GPU is then terminated already."""
        reason = worker.overdue(self._clock())
        if reason is not None and self.mps is not None:
            self.mps.terminate_client(worker.link.pid)
        return reason

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids: this process and the workers."""
        children = [worker.child for worker in self.workers]  # a process that dies sets it to None
        return os.getpid(), *(child.pid for child in children if child is not None)


def may_go(workers: Sequence[WorkerHandle], *, files_only: bool) -> bool:
    """Whether frames may be read: by all processes that are ready; those of files do not wait for each other.

    A spare one is awaited where the others tune their networks first, too: beside live sources, tuning it would drop
    their frames.
    """
    awaited = [worker for worker in workers if not worker.spare or worker.expected_live > QUICK_SOURCES]
    opened = [worker.ready or worker.over for worker in awaited]
    return any(opened) if files_only else all(opened)


def receive_frames(
    worker: WorkerHandle, stages: ParentStages, sources: SourceScheduler, fail: Callable[[BaseException], None]
) -> None:
    """Pass the frames of one process to the parent's stages, until the process has closed its pipe or exited."""
    try:
        while True:
            batches = worker.frames.recv()
            stages.put([batch for batch in batches if batch[0]], worker)
            if ended := [source for entry, _, source in batches if not entry]:
                sources.passed_on(worker, ended)
    except (EOFError, OSError):
        pass
    except BaseException as error:
        fail(error)
    finally:
        worker.frames.close()  # its process must not wait for a pipe without a reader


def not_started(error: OSError) -> StreamkitError:
    """The error of a run that cannot start a process."""
    return StreamkitError(f"a process of the run cannot be started: {describe(error)}; check memory and `ulimit -n -u`")
