"""Runs a sink that may drop frames: one thread per source, which never blocks the pipeline."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from streamkit.config.plan import Node
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.errors import StreamkitError
from streamkit.core.stage import Sink, Stage
from streamkit.io.outputs import fill_path
from streamkit.runtime.execution.device import lane_device
from streamkit.runtime.execution.future import start
from streamkit.runtime.execution.stage_runner import MakeContext, Runner
from streamkit.runtime.execution.tables import split

DROPPED = "frames dropped: stage busy"
_DEPTH = 8
_GRACE_S = 4.0


class LossySinkThread:
    """One source's instance of a sink, on its own thread, with a short queue of the newest frames.

    Args:
        sink: the instance, not yet open.
        device: the pipeline's device.
        name: name of the thread.
        failed: receives what the sink raises, with the frame, or None if the sink could not be opened or closed.
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
        """Add a frame; drop the oldest if the queue is full."""
        with self._changed:
            if len(self._frames) >= _DEPTH:
                self._frames.popleft()
                self.sink.context.counters.add(DROPPED)
            self._frames.append(frame)
            self._changed.notify_all()

    def end(self) -> None:
        """End the thread once the queued frames are written."""
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


class LossySinkRunner(Runner):
    """Runs a sink with `may_drop`: one instance per source.

    An exception of such a sink is logged and counted; the run continues.

    Args:
        sources: ids of the sources known before the start.
    """

    def __init__(
        self, node: Node, context: MakeContext, fail: Callable[[BaseException], None], sources: Sequence[str]
    ) -> None:
        super().__init__(node, context, fail)
        self._first = next(iter(sources), "none")
        self._asides: dict[str, LossySinkThread] = {}
        self._leaving: list[LossySinkThread] = []

    def instances(self) -> Iterable[Stage]:
        """The instances of sources that have had a frame."""
        return [one.sink for one in self._asides.values()]

    def open(self) -> None:
        """Check the sink's options before the first frame."""
        self._sink(self._first).probe()

    def process(self, batch: Batch) -> Batch:
        """Queue every frame for its source's thread."""
        split(batch)
        for frame in batch.frames:
            aside = self._asides.get(frame.source)
            if aside is None:
                sink = self._sink(frame.source)
                name = f"{self.node.id}/{frame.source}"
                aside = self._asides[frame.source] = LossySinkThread(sink, sink.context.device, name, self._own_failure)
            aside.put(replace(frame, tables=dict(frame.tables), events=list(frame.events)))
        return batch

    def end(self, source: str) -> None:
        """Let the source's thread finish."""
        aside = self._asides.pop(source, None)
        self._leaving = [one for one in self._leaving if one.thread.is_alive()]
        if aside is not None:
            aside.end()
            self._leaving.append(aside)

    def close(self) -> None:
        """Wait a few seconds for the threads; log each one that hangs and abandon it."""
        for source in list(self._asides):
            self.end(source)
        until_s = time.monotonic() + _GRACE_S
        for one in self._leaving:
            one.thread.join(max(0.0, until_s - time.monotonic()))
            if one.thread.is_alive():
                self._context(self.node.id).log(f"{one.thread.name} does not end; it is left behind")

    def _sink(self, source: str) -> Sink:
        target = self.node.type.spec.target  # type: ignore[attr-defined]
        where = self.node.options.get(target)
        made = self.make(**({target: fill_path(where, source)} if isinstance(where, str) else {}))
        assert isinstance(made, Sink)
        return made

    def _own_failure(self, frame: Frame | None, error: Exception) -> None:
        if frame is not None:
            self._tell(frame, error)
            return
        self.counters.add("instances failed")
        self._context(self.node.id).log(f"{self.node.id} failed: {error}")
