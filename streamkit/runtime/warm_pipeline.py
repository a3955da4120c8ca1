# SPDX-License-Identifier: Apache-2.0
"""A pipeline that stays open while sources are sent through it, each awaited by its caller."""

from __future__ import annotations

import threading
from collections.abc import Callable

from streamkit.config.plan import Graph, SourceConfig
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, StreamkitError
from streamkit.core.tasks import Future
from streamkit.runtime.execution.future import start
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig

_CLOSE_S = 20.0


class WarmPipeline(PipelineRun):
    """A pipeline that keeps running; sources are sent through it one by one.

    On the CPU its batches do not depend on the clock, so the results are the same in every run. On a GPU it starts
    once its networks are fully tuned: frames processed slowly until then would only delay that.

    Args:
        graph: the graph to run, without sources.
        device: the device to run it on.
        slots: number of sources to read at the same time; others wait for a slot.
        reserved_cores: number of CPU cores to use; None for all.
    """

    future_type = Future

    def __init__(self, graph: Graph, device: Device, *, slots: int = 1, reserved_cores: int | None = None) -> None:
        per_source = device.kind == "cpu"
        config = RunConfig(
            keep_running=True, parallel_files=slots, reserved_cores=reserved_cores, per_source=per_source
        )
        super().__init__(graph, device, config)
        if device.kind == "cuda":
            self._sizes = self._sizes[-1:]  # batches of files are full, and each size costs seconds at the start
        self.alarms.disable()  # each source is a job; its outcome is returned to the caller
        self.outputs.by_source = True
        self._opened = threading.Event()
        self._over = threading.Event()
        self._awaited: dict[str, tuple[threading.Event, Callable[[], None]]] = {}
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Open every stage and run on a separate thread. Raises StreamkitError if a stage cannot be opened."""
        start("warm", self._run)
        self._opened.wait()
        if self._over.is_set():
            raise self._ended()

    def send(self, source: SourceConfig, read: Callable[[], None] = lambda: None) -> SourceState:
        """Send a source through and wait until its last frame has reached every end; may be called from any thread.

        Args:
            source: the source; no other source with its id may be in progress.
            read: called after its last frame was read; the next source may then be sent.

        Returns:
            The final state of the source.

        Raises:
            ConfigError: a source with the same id is in progress.
            StreamkitError: the pipeline ended in the meantime; the output of the source may be incomplete.
        """
        out = threading.Event()
        waiter = out, read
        if self._awaited.setdefault(source.id, waiter) is not waiter:
            raise ConfigError(f"there is a source {source.id!r} already; wait for its end, or choose another id")
        try:
            if self._over.is_set():
                raise self._ended()
            self.add(source)
            state = self.states[source.id]
            out.wait()
        finally:
            del self._awaited[source.id]
        if self.fatal is not None or self.stopping:
            self._over.wait()
            raise self._ended()
        self.remove(source.id)
        return state

    def end(self) -> bool:
        """Stop the pipeline; return False if something hangs and is abandoned."""
        self.stop()
        return not self._opened.is_set() or (self._over.wait(_CLOSE_S) and not self.hung_threads)

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error
        self._over.set()
        self._opened.set()
        for out, _ in list(self._awaited.values()):
            out.set()

    def _start_sources(self) -> None:
        super()._start_sources()
        self._opened.set()

    def _ended(self) -> BaseException:
        return self._error or StreamkitError("the pipeline was stopped")

    def _source_read(self, source: str, state: SourceState) -> None:
        if (waiter := self._awaited.get(source)) is not None:
            waiter[1]()

    def _source_complete(self, source: str) -> None:
        if (waiter := self._awaited.get(source)) is not None:
            waiter[0].set()
