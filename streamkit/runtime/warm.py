"""A pipeline that stays open while sources go through it, each with somebody who waits for its end."""

from __future__ import annotations

import threading
from collections.abc import Callable

from streamkit.ahead import Later
from streamkit.data import Device
from streamkit.errors import ConfigError, StreamkitError
from streamkit.plan import Graph, SourceConfig
from streamkit.runtime.background import start
from streamkit.runtime.run import Pipeline
from streamkit.runtime.states import SourceState

_CLOSE_S = 20.0


class Warm(Pipeline):
    """A pipeline that is kept running, through which sources are sent one by one.

    On the CPU its batches depend on no clock, so that what comes out is the same in every run. On a GPU it begins when
    its networks are ready as they are fastest: what is done slowly until then only delays that.

    Args:
        graph: what to run; without sources.
        device: where.
        slots: how many sources are read at once; others wait for their turn.
        own_cores: how many CPU cores it is to use; None for all.
        say: takes messages for the user.
    """

    later = Later

    def __init__(
        self, graph: Graph, device: Device, *, slots: int = 1, own_cores: int | None = None, say: Callable[[str], None]
    ) -> None:
        super().__init__(
            graph, device, say=say, keep_running=True, at_once=slots, own_cores=own_cores, apart=device.kind == "cpu"
        )
        if device.kind == "cuda":
            self._sizes = self._sizes[
                -1:
            ]  # files do not wait, so batches are full; each size costs seconds at the start
        self.alarms.off()  # each source is a piece of work, and what becomes of it is told to who sent it
        self.ends.by_source = True
        self._opened, self._over = threading.Event(), threading.Event()
        self._under_way: dict[str, tuple[threading.Event, Callable[[], None]]] = {}
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Open every stage, and go on on a thread. Raises StreamkitError where one cannot be opened."""
        self._thread = start("warm", self._run)
        self._opened.wait()
        if self._over.is_set():
            raise self._ended()

    def send(self, source: SourceConfig, read: Callable[[], None] = lambda: None) -> SourceState:
        """Send a source through, and wait until its last frame has come out of every end; from any thread.

        Args:
            source: no other of its id may be under way.
            read: called when it has given its last frame: another may be read now.

        Returns:
            What became of it.

        Raises:
            ConfigError: one of its id is under way.
            StreamkitError: the pipeline has ended meanwhile, and what came out of it may not be whole.
        """
        out = threading.Event()
        mine = out, read
        if self._under_way.setdefault(source.id, mine) is not mine:
            raise ConfigError(f"there is a source {source.id!r} already; wait for its end, or give this another id")
        try:
            if self._over.is_set():
                raise self._ended()
            self.add(source)
            state = self.states[source.id]
            out.wait()
        finally:
            del self._under_way[source.id]
        if self.fatal is not None or self.stopping:
            self._over.wait()
            raise self._ended()
        self.remove(source.id)
        return state

    def end(self) -> bool:
        """End it; False where something hangs and is left behind."""
        self.stop()
        return self._thread is None or (self._over.wait(_CLOSE_S) and not self.left_behind)

    def _run(self) -> None:
        try:
            self.run()
        except BaseException as error:
            self._error = error
        self._over.set()
        self._opened.set()
        for out, _ in list(self._under_way.values()):
            out.set()

    def _start_sources(self) -> None:
        super()._start_sources()
        self._opened.set()

    def _ended(self) -> BaseException:
        return self._error or StreamkitError("the pipeline was stopped")

    def _read(self, source: str, state: SourceState) -> None:
        if (known := self._under_way.get(source)) is not None:
            known[1]()

    def _whole(self, source: str) -> None:
        if (known := self._under_way.get(source)) is not None:
            known[0].set()
