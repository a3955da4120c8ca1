"""Processes parts of one source's work in parallel and returns their results in order.

No deadlock is possible: the first part in order waits only for the reader of the results, and each part taken has its
worker. A later part may hold `depth` results until its turn comes. At most one part more than there are workers is in
progress, which bounds memory.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Generic, TypeVar

from streamkit.core.data import Device
from streamkit.core.tasks import OrderedExecutor
from streamkit.core.tracing import Spans
from streamkit.runtime.execution.future import start
from streamkit.runtime.execution.sizes import cores, files_at_once

_P = TypeVar("_P")
_T = TypeVar("_T")


class ThreadedExecutor(OrderedExecutor):
    """Processes parts of a source's work on threads that live while the results are read.

    Args:
        device: made current on each thread.
        sources: number of sources in the pipeline.
        spans: returns the calling thread's track in the timeline of the run.
    """

    def __init__(self, device: Device, sources: int, spans: Callable[[], Spans] = Spans) -> None:
        self._device, self._spans = device, spans
        self.cores, self.sources = cores(), min(sources, files_at_once(device))

    def run(
        self, parts: Iterator[_P], workers: Sequence[Callable[[_P], Iterator[_T]]], depth: int
    ) -> Iterator[_T]:  # fmt: skip
        """See `OrderedExecutor.run`. Closing the iterator ends the threads and drops their results."""
        line = _Line(parts, workers, depth, self._device, self._spans)
        take = self._spans().call("wait for decoding", line.next, waiting=True)
        threads = [start(f"ahead/{number}", line.work) for number in range(len(workers))]
        try:
            while (results := take()) is not None:
                while results:
                    yield results.popleft()
        finally:
            line.close()
            for thread in threads:
                thread.join()


class _Part(Generic[_T]):
    """Queued results of one part, and its error if it failed."""

    def __init__(self, lock: threading.Lock) -> None:
        self.results: deque[_T] = deque()
        self.done = False
        self.error: BaseException | None = None
        self.space = threading.Condition(lock)


class _Line(Generic[_P, _T]):
    """The parts in progress, in order."""

    def __init__(
        self, parts: Iterator[_P], workers: Sequence[Callable[[_P], Iterator[_T]]], depth: int, device: Device,
        spans: Callable[[], Spans],
    ) -> None:  # fmt: skip
        self._given, self._workers, self._depth, self._device, self._spans = parts, workers, depth, device, spans
        self._free = list(range(len(workers)))  # a heap: few parts need few workers
        self._most = len(workers) + 1
        self._line: deque[_Part[_T]] = deque()
        self._closed = self._ended = False
        self._lock = threading.Lock()
        self._changed, self._room = threading.Condition(self._lock), threading.Condition(self._lock)
        self._taking = threading.Lock()

    def work(self) -> None:
        """Take and process parts until there are no more."""
        spans = self._spans()
        take = spans.call("wait for a part", self._take, waiting=True)
        with _current(self._device), closing(spans):
            while (taken := take()) is not None:
                part, given, number = taken
                del taken
                error = self._worked(part, given, number, spans)
                del given
                with self._changed:
                    part.error, part.done = error, True
                    heapq.heappush(self._free, number)
                    self._changed.notify()
                del part, error

    def next(self) -> deque[_T] | None:
        """Wait for results and return them; None at the end. Raises the error of a part in its turn."""
        while True:
            with self._changed:
                while not self._line or not (self._line[0].results or self._line[0].done):
                    if self._ended and not self._line:
                        return None
                    self._changed.wait()
                first = self._line[0]
                if first.results:
                    results, first.results = first.results, deque()
                    first.space.notify()
                    return results
                self._line.popleft()
                self._room.notify()
            if first.error is not None:
                raise first.error

    def close(self) -> None:
        """Wake every thread, and drop queued results."""
        with self._changed:
            self._closed = True
            self._room.notify_all()
            for part in self._line:
                part.results.clear()
                part.space.notify_all()

    def _take(self) -> tuple[_Part[_T], _P, int] | None:
        """Take the next part and a worker for it; None if there is no part or the line is closed."""
        with self._taking:
            with self._changed:
                while len(self._line) >= self._most and not self._closed:
                    self._room.wait()
                if self._closed or self._ended:
                    return None
            error: BaseException | None = None
            given: _P | None = None
            try:
                given = self._spans().call("read a part", next)(self._given)
            except StopIteration:
                pass
            except BaseException as raised:
                error = raised
            with self._changed:
                part: _Part[_T] = _Part(self._lock)
                part.error, part.done = error, given is None
                if given is not None or error is not None:
                    self._line.append(part)
                if given is None:
                    self._ended = True
                    self._changed.notify()
                    return None
                return part, given, heapq.heappop(self._free)

    def _worked(self, part: _Part[_T], given: _P, number: int, spans: Spans) -> BaseException | None:
        """Process a part; return its error."""
        wait = spans.call("wait for its turn", part.space.wait, waiting=True)
        try:
            for result in spans.each("decode", self._workers[number](given)):
                with self._changed:
                    while len(part.results) >= self._depth and not self._closed:
                        wait()
                    if self._closed:
                        return None
                    part.results.append(result)
                    if part is self._line[0]:
                        self._changed.notify()
                del result  # or this thread would hold it while the next one is made
        except BaseException as error:
            return error
        return None


def _current(device: Device) -> contextlib.AbstractContextManager[object]:
    """Make a GPU current on this thread."""
    return contextlib.nullcontext() if device.kind == "cpu" else device.xp.cuda.Device(device.index)
