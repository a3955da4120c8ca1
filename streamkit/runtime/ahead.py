"""Parts of one source's work done side by side, with their results in order.

Nobody can wait for ever: the part whose turn it is waits for nothing but the reader of the results, and each part taken
has its worker. A later part may wait with `depth` results until its turn comes; at most one part more than there are
workers is under way, which bounds what is held.
"""

from __future__ import annotations

import contextlib
import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Generic, TypeVar

from streamkit.ahead import Ahead
from streamkit.data import Device
from streamkit.runtime.sizes import cores, files_at_once
from streamkit.spans import Spans

_P = TypeVar("_P")
_T = TypeVar("_T")


class Threads(Ahead):
    """Does parts of a source's work on threads, which last as long as the results are read.

    Args:
        device: made the current one of each thread.
        sources: how many sources the pipeline has.
        spans: gives the calling thread's place in the run's timeline.
    """

    def __init__(self, device: Device, sources: int, spans: Callable[[], Spans] = Spans) -> None:
        self._device, self._spans = device, spans
        self.cores, self.sources = cores(), min(sources, files_at_once(device))

    def run(
        self, parts: Iterator[_P], workers: Sequence[Callable[[_P], Iterator[_T]]], depth: int
    ) -> Iterator[_T]:  # fmt: skip
        """See `Ahead.run`. Closing the iterator ends the threads and drops what they hold."""
        line = _Line(parts, workers, depth, self._device, self._spans)
        take = self._spans().call("wait for decoding", line.next, waiting=True)
        threads = [threading.Thread(target=line.work, name=f"ahead/{n}", daemon=True) for n in range(len(workers))]
        for thread in threads:
            thread.start()
        try:
            while (results := take()) is not None:
                while results:
                    yield results.popleft()
        finally:
            line.close()
            for thread in threads:
                thread.join()


class _Closed(Exception):
    """Nobody wants the results any more."""


class _Part(Generic[_T]):
    """The results of one part that wait, and how it ended."""

    def __init__(self, lock: threading.Lock) -> None:
        self.results: deque[_T] = deque()
        self.done = False
        self.error: BaseException | None = None
        self.space = threading.Condition(lock)


class _Line(Generic[_P, _T]):
    """The parts under way, the one whose turn it is first."""

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
        """Take parts and work on them until there are no more."""
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
        """The results there are, waited for; None at the end. Raises what a part raised, in its turn."""
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
        """Wake every thread, and drop what waits."""
        with self._changed:
            self._closed = True
            self._room.notify_all()
            for part in self._line:
                part.results.clear()
                part.space.notify_all()

    def _take(self) -> tuple[_Part[_T], _P, int] | None:
        """The next part and a worker for it; None where there is none, or nobody wants it."""
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
        """Work on a part; what it raised."""
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
    """Make a GPU the current one of this thread."""
    return contextlib.nullcontext() if device.kind == "cpu" else device.xp.cuda.Device(device.index)
