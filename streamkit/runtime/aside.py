"""Runs a sink that may drop frames: a thread for each source, for which nobody waits."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from streamkit.data import Batch, Device, Frame
from streamkit.errors import StreamkitError
from streamkit.outputs import fill_path
from streamkit.plan import Node
from streamkit.runtime.background import start
from streamkit.runtime.device import lane_device
from streamkit.runtime.nodes import MakeContext, Runner
from streamkit.runtime.tables import split
from streamkit.stage import Sink, Stage

DROPPED = "frames dropped: the stage was busy"
_DEPTH = 8
_GRACE_S = 4.0


class Aside:
    """One source's instance of a sink, on a thread of its own, with the newest frames that wait for it.

    Args:
        sink: the instance, not opened.
        device: the pipeline's.
        name: of the thread.
        failed: takes what the sink raises, with the frame it raised on, or None where it could not be opened or closed.
    """

    def __init__(
        self, sink: Sink, device: Device, name: str, failed: Callable[[Frame | None, Exception], None]
    ) -> None:
        self.sink, self._device, self._failed = sink, device, failed
        self._frames: deque[Frame] = deque()
        self._changed = threading.Condition()
        self._over = False
        self.thread = start(name, self._run)

    def put(self, frame: Frame) -> None:
        """Add a frame; the oldest goes where too many wait."""
        with self._changed:
            if len(self._frames) >= _DEPTH:
                self._frames.popleft()
                self.sink.context.counters.add(DROPPED)
            self._frames.append(frame)
            self._changed.notify_all()

    def end(self) -> None:
        """No frame will come any more; those that wait are still written."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _run(self) -> None:
        try:
            with lane_device(self._device, False).enter():
                self.sink.open()
                try:
                    while (frame := self._next()) is not None:
                        self._write(frame)
                        del frame  # or this thread would hold the picture while it waits for the next
                finally:
                    self.sink.close()
        except Exception as error:
            self._failed(None, error)

    def _write(self, frame: Frame) -> None:
        try:
            self.sink.write(frame)
        except StreamkitError:
            raise
        except Exception as error:
            self._failed(frame, error)

    def _next(self) -> Frame | None:
        with self._changed:
            while not self._frames and not self._over:
                self._changed.wait()
            return self._frames.popleft() if self._frames else None


class AsideRunner(Runner):
    """Runs a sink that `may_drop`: one instance for each source.

    What such a sink raises is its own failure: it is told and counted, and the run goes on.

    Args:
        sources: the ids of the sources that are known before the start.
    """

    def __init__(
        self, node: Node, context: MakeContext, fail: Callable[[BaseException], None], sources: Sequence[str]
    ) -> None:
        super().__init__(node, context, fail)
        self._first = next(iter(sources), "none")
        self._asides: dict[str, Aside] = {}
        self._leaving: list[Aside] = []

    def instances(self) -> Iterable[Stage]:
        """Those of the sources that have had a frame."""
        return [one.sink for one in self._asides.values()]

    def open(self) -> None:
        """Refuse what cannot work, before the first frame."""
        self._sink(self._first).probe()

    def process(self, batch: Batch) -> Batch:
        """Hand every frame on to its source's thread."""
        split(batch)
        for frame in batch.frames:
            aside = self._asides.get(frame.source)
            if aside is None:
                sink = self._sink(frame.source)
                name = f"{self.node.id}/{frame.source}"
                aside = self._asides[frame.source] = Aside(sink, sink.context.device, name, self._own_failure)
            aside.put(replace(frame, tables=dict(frame.tables), events=list(frame.events)))
        return batch

    def end(self, source: str) -> None:
        """Let the source's thread come to its end."""
        aside = self._asides.pop(source, None)
        self._leaving = [one for one in self._leaving if one.thread.is_alive()]
        if aside is not None:
            aside.end()
            self._leaving.append(aside)

    def close(self) -> None:
        """Wait a little for the threads; one that hangs is left behind, and that is said."""
        for source in list(self._asides):
            self.end(source)
        until_s = time.monotonic() + _GRACE_S
        for one in self._leaving:
            one.thread.join(max(0.0, until_s - time.monotonic()))
            if one.thread.is_alive():
                self._context(self.node.id).say(f"{one.thread.name} does not end; it is left behind")

    def _sink(self, source: str) -> Sink:
        target = self.node.type.target  # type: ignore[attr-defined]
        where = self.node.options.get(target)
        made = self.make(**({target: fill_path(where, source)} if isinstance(where, str) else {}))
        assert isinstance(made, Sink)
        return made

    def _own_failure(self, frame: Frame | None, error: Exception) -> None:
        if frame is not None:
            self._tell(frame, error)
            return
        self.counters.add("instances failed")
        self._context(self.node.id).say(f"{self.node.id} failed: {error}")
