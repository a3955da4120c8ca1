"""Processes parts of one source's work in parallel and returns their results in order.

No deadlock is possible: the first part in order waits only for the reader of the results, and each part taken has its
worker. A later part may hold `depth` results until its turn comes. At most one part more than there are workers is in
progress, which bounds memory.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Generic, TypeVar

from streamkit.core.data import Device
from streamkit.core.tasks import OrderedExecutor
from streamkit.core.tracing import Spans
from streamkit.runtime.execution.channel import Aborted, Channel
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
                results.reverse()
                while results:
                    yield results.pop()
        finally:
            line.close()
            for thread in threads:
                thread.join()


class _Part(Generic[_T]):
    """The results of one part, and its error if it failed."""

    def __init__(self, depth: int) -> None:
        self.results = Channel[_T](depth)
        self.error: BaseException | None = None


class _Line(Generic[_P, _T]):
    """The parts in progress, in order."""

    def __init__(
        self, parts: Iterator[_P], workers: Sequence[Callable[[_P], Iterator[_T]]], depth: int, device: Device,
        spans: Callable[[], Spans],
    ) -> None:  # fmt: skip
        self._given, self._workers, self._depth, self._device, self._spans = parts, workers, depth, device, spans
        self._free = list(range(len(workers)))  # a heap: few parts need few workers
        self._line = Channel[_Part[_T]](len(workers))
        self._first: _Part[_T] | None = None
        self._open: list[_Part[_T]] = []
        self._ended = False
        self._taking, self._lock = threading.Lock(), threading.Lock()

    def work(self) -> None:
        """Take and process parts until there are no more."""
        spans = self._spans()
        take = spans.call("wait for a part", self._take, waiting=True)
        with _current(self._device), closing(spans), contextlib.suppress(Aborted):
            while (taken := take()) is not None:
                part, given, number = taken
                del taken
                self._process(part, given, number, spans)
                del part, given

    def next(self) -> list[_T] | None:
        """Wait for results and return them; None at the end. Raises the error of a part in its turn."""
        while True:
            if self._first is None and (part := self._line.get()) is not None:
                self._first = part
            if self._first is None:
                return None
            if results := self._first.results.get_many(self._depth):
                return results
            done, self._first = self._first, None
            with self._lock:
                self._open.remove(done)
            if done.error is not None:
                raise done.error

    def close(self) -> None:
        """Wake every thread, and drop queued results."""
        self._line.abort()
        with self._lock:
            for part in self._open:
                part.results.abort()

    def _take(self) -> tuple[_Part[_T], _P, int] | None:
        """Take the next part and a worker for it; None if there is no part. Raises Aborted once the line is closed."""
        with self._taking:
            if self._ended:
                return None
            self._line.wait_for_room()
            part, given = _Part[_T](self._depth), None
            try:
                given = self._spans().call("read a part", next)(self._given)
            except StopIteration:
                pass
            except BaseException as error:
                part.error = error
            if given is not None or part.error is not None:
                with self._lock:
                    self._open.append(part)
                self._line.put(part)
            if given is None:
                self._ended = True
                part.results.close()
                self._line.close()
                return None
            with self._lock:
                return part, given, heapq.heappop(self._free)

    def _process(self, part: _Part[_T], given: _P, number: int, spans: Spans) -> None:
        """Process a part; keep its error."""
        put = spans.call("wait for its turn", part.results.put, waiting=True)
        try:
            for result in spans.each("decode", self._workers[number](given)):
                put(result)
                del result  # or this thread would hold it while the next one is made
        except Aborted:
            raise
        except BaseException as error:
            part.error = error
        finally:
            with self._lock:
                heapq.heappush(self._free, number)
            part.results.close()


def _current(device: Device) -> contextlib.AbstractContextManager[object]:
    """Make a GPU current on this thread."""
    return contextlib.nullcontext() if device.kind == "cpu" else device.xp.cuda.Device(device.index)
