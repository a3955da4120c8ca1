# SPDX-License-Identifier: Apache-2.0
"""A run of a graph on its own thread, for programs that go on meanwhile."""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from streamkit.config.plan import Graph
from streamkit.core.data import Device
from streamkit.core.errors import PipelineEnded, SourceError
from streamkit.runtime.execution.future import in_program, start
from streamkit.runtime.frame_queue import FrameQueue, with_frame_queue
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig

_POLL_S = 0.2


class LoopRun(PipelineRun):
    """A run whose frames may go to a Python loop.

    Args:
        graph: the graph to run.
        device: the device to run it on.
        queue: receives the frames at the end of the graph; None if no loop reads them.
        config: how to run it.
    """

    def __init__(self, graph: Graph, device: Device, queue: FrameQueue | None, config: RunConfig) -> None:
        whole = graph if queue is None else with_frame_queue(graph, queue)
        super().__init__(whole, device, config)
        self.queue = queue

    def abort(self) -> None:
        """Drop the frames in flight; every output is closed."""
        self._abort()

    def _abort(self) -> None:
        if self.queue is not None:  # a loop that reads no more must not hold up the end of the run
            self.queue.refuse()
        super()._abort()


@dataclass(slots=True)
class RunOutcome:
    """How far a run is.

    Attributes:
        thread: its thread, once it has started.
        closed: whether it is stopped, or will never begin.
        over: set at its end; to be waited for, as Ctrl-C in a `join` marks a thread as ended that is not.
        code: its exit code, once it is known.
        error: the error that ended it.
    """

    thread: threading.Thread | None = None
    closed: bool = False
    over: threading.Event = field(default_factory=threading.Event)
    code: int | None = None
    error: BaseException | None = None


class RunThread:
    """Runs a pipeline on a thread. The run is stopped when this object is deleted, or Python exits.

    Args:
        run: the run, not yet started.
    """

    def __init__(self, run: LoopRun) -> None:
        self.run = run
        self._outcome = RunOutcome()
        self._finalizer = weakref.finalize(self, _abandon, run, self._outcome)

    @property
    def started(self) -> bool:
        """Whether the run has started."""
        return self._outcome.thread is not None

    @property
    def ended(self) -> bool:
        """Whether the run is over, or will never begin."""
        thread = self._outcome.thread
        return self._outcome.closed if thread is None else self._outcome.over.is_set()

    def begin(self) -> None:
        """Begin the run.

        Raises:
            PipelineEnded: it was closed before.
        """
        outcome = self._outcome
        if outcome.closed and outcome.thread is None:
            raise PipelineEnded("the pipeline was closed before its run began; create another one")
        if outcome.thread is None:  # not self in the thread: it must not keep this object alive
            outcome.thread = start("run", partial(_work, self.run, outcome))

    def wait(self) -> dict[str, Any]:
        """Wait until the run has ended; return its report. Raises the run's error."""
        if self.started:
            _await(self._outcome.over)
        if self._outcome.error is not None:
            raise self._outcome.error
        return self.report

    def close(self) -> None:
        """Stop the run, and wait until its threads have ended and its files are closed.

        Ctrl-C meanwhile drops the frames in flight; once more, it leaves the threads to end on their own.
        """
        _close(self.run, self._outcome)

    @property
    def error(self) -> BaseException | None:
        """The error that ended the run."""
        return self._outcome.error

    @property
    def errors(self) -> dict[str, SourceError]:
        """The sources that have failed, by id, each with its error."""
        return source_errors(self.run.states)

    @property
    def report(self) -> dict[str, Any]:
        """The report, as `run --report` writes it; until the end, that of the run so far."""
        return self.run.report(self._outcome.code or 0)


def source_errors(states: dict[str, SourceState]) -> dict[str, SourceError]:
    """The errors of the sources that have failed, by id."""
    errors = {}
    for id_, state in states.items():
        if state.error is not None:
            errors[id_] = SourceError(state.error, cause=state.cause)
            errors[id_].__cause__ = state.raised
    return errors


def _work(run: LoopRun, outcome: RunOutcome) -> None:
    try:
        outcome.code = run.run()
        if not run.stopping and (error := _all_failed(run)) is not None:
            raise error
    except BaseException as error:
        outcome.code = outcome.code or 1
        outcome.error = error
    if run.queue is not None:
        run.queue.close(outcome.error)
    outcome.over.set()


def _all_failed(run: PipelineRun) -> SourceError | None:
    """The error of a run of which every source has failed."""
    errors = source_errors(run.states)
    removed = run.sources.removed
    if not errors or len(errors) < len(run.states) or removed.sources > removed.failed_sources:
        return None
    lines = [f"source {id_} failed: {error}" for id_, error in errors.items()]
    causes = {error.cause for error in errors.values()}
    combined = SourceError("\n".join(lines), cause=causes.pop() if len(causes) == 1 else None)
    combined.__cause__ = next(iter(errors.values())).__cause__
    return combined


def _abandon(run: LoopRun, outcome: RunOutcome) -> None:
    """Stop a run without references. The garbage collector may run in a thread that the run waits for."""
    _close(run, outcome, wait=in_program())


def _close(run: LoopRun, outcome: RunOutcome, wait: bool = True) -> None:
    """See `RunThread.close`."""
    interrupted = False
    while True:
        try:
            _end(run, outcome, wait)
            break
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            run.abort()
    if interrupted:
        raise KeyboardInterrupt


def _end(run: LoopRun, outcome: RunOutcome, wait: bool) -> None:
    """Stop a run; wait for its end unless the calling thread is the run's."""
    if run.queue is not None:
        run.queue.abort()
    outcome.closed = True
    thread = outcome.thread
    if thread is not None and not outcome.over.is_set():
        if outcome.code is None and not run.stopping:
            run.stop()
        if wait and thread is not threading.current_thread():
            _await(outcome.over)


def _await(over: threading.Event) -> None:
    """Wait for the end of a run; the calling thread wakes often enough to handle signals."""
    while not over.wait(_POLL_S):
        pass
