# SPDX-License-Identifier: Apache-2.0
"""Processes parts of one source's work in parallel and returns their results in order.

No deadlock is possible: the first part in order waits only for the reader of the results, and each part taken has its
worker. A later part may hold `depth` results until its turn comes. At most one part more than there are workers is in
progress, which bounds memory.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Generic, TypeVar

from streamkit.core.data import Device
from streamkit.core.errors import describe
from streamkit.core.tasks import MessageProcess, OrderedExecutor
from streamkit.core.tracing import Spans
from streamkit.runtime.execution.channel import Aborted, Channel
from streamkit.runtime.execution.cores import cores
from streamkit.runtime.execution.future import start
from streamkit.runtime.execution.sizes import files_at_once

logger = logging.getLogger(__name__)

_P = TypeVar("_P")
_T = TypeVar("_T")


class ThreadedExecutor(OrderedExecutor):
    """Processes parts of a source's work on threads that live while the results are read.

    Args:
        device: made current on each thread.
        sources: number of sources in the pipeline.
        spans: returns the calling thread's track in the timeline of the run.
        process: starts a process, see `OrderedExecutor.start_process`; None if there are none.
    """

    def __init__(
        self,
        device: Device,
        sources: int,
        spans: Callable[[], Spans] = Spans,
        process: Callable[..., MessageProcess] | None = None,
    ) -> None:
        self._device = device
        self._spans = spans
        self._process = process
        self.cores = cores()
        self.sources = min(sources, files_at_once(device))

    def run(self, parts: Iterator[_P], workers: Sequence[Callable[[_P], Iterator[_T]]], depth: int) -> Iterator[_T]:
        """See `OrderedExecutor.run`. Closing the iterator ends the threads and drops their results."""
        line = _PartQueue(parts, workers, depth, self._device, self._spans)
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

    def start_process(self, work: Callable[..., Generator[bytes]], *args: Any) -> MessageProcess | None:
        """See `OrderedExecutor.start_process`."""
        if self._process is None:
            return None
        try:
            return self._process(work, *args)
        except OSError as error:
            logger.warning(f"no process can be started to work ahead ({describe(error)}); this one does its work")
            return None


class _PartQueue(Generic[_P, _T]):
    """The results of the parts in progress, in order, a channel for each part."""

    def __init__(
        self,
        parts: Iterator[_P],
        workers: Sequence[Callable[[_P], Iterator[_T]]],
        depth: int,
        device: Device,
        spans: Callable[[], Spans],
    ) -> None:
        self._parts = parts
        self._workers = workers
        self._depth = depth
        self._device = device
        self._spans = spans
        self._free = list(range(len(workers)))  # a heap: few parts need few workers
        self._parts_in_order = Channel[Channel[_T]](len(workers))
        self._first: Channel[_T] | None = None
        self._open: list[Channel[_T]] = []
        self._ended = False
        self._take_lock = threading.Lock()
        self._lock = threading.Lock()

    def work(self) -> None:
        """Take and process parts until there are no more."""
        spans = self._spans()
        take = spans.call("wait for a part", self._take, waiting=True)
        with _current(self._device), closing(spans), contextlib.suppress(Aborted):
            while (taken := take()) is not None:
                results, part, number = taken
                del taken
                self._process(results, part, number, spans)
                del results, part

    def next(self) -> list[_T] | None:
        """Wait for results and return them; None at the end. Raises the error of a part in its turn."""
        while True:
            if self._first is None:
                self._first = self._parts_in_order.get()
            if self._first is None:
                return None
            if results := self._first.get_many(self._depth):
                return results
            with self._lock:
                self._open.remove(self._first)
            self._first = None

    def close(self) -> None:
        """Wake every thread, and drop queued results."""
        self._parts_in_order.abort()
        with self._lock:
            for results in self._open:
                results.abort()

    def _take(self) -> tuple[Channel[_T], _P, int] | None:
        """Take the next part, a channel for its results, and a worker for it; None if there is no part.

        Raises Aborted once the line is closed.
        """
        with self._take_lock:
            if self._ended:
                return None
            self._parts_in_order.wait_for_room()
            results = Channel[_T](self._depth)
            error: BaseException | None = None
            try:
                part = self._spans().call("read a part", next)(self._parts)
            except StopIteration:
                self._ended = True
            except BaseException as raised:
                self._ended = True
                error = raised
            if not self._ended or error is not None:
                with self._lock:
                    self._open.append(results)
                self._parts_in_order.put(results)
            if self._ended:
                results.close(error)
                self._parts_in_order.close()
                return None
            with self._lock:
                return results, part, heapq.heappop(self._free)

    def _process(self, results: Channel[_T], part: _P, number: int, spans: Spans) -> None:
        """Process a part; the reader of the results gets its error."""
        put = spans.call("wait for its turn", results.put, waiting=True)
        error: BaseException | None = None
        try:
            for result in spans.each("decode", self._workers[number](part)):
                put(result)
                del result  # or this thread would hold it while the next one is made
        except Aborted:
            raise
        except BaseException as raised:
            error = raised
        finally:
            with self._lock:
                heapq.heappush(self._free, number)
            results.close(error)


def _current(device: Device) -> contextlib.AbstractContextManager[object]:
    """Make a GPU current on this thread."""
    return contextlib.nullcontext() if device.kind == "cpu" else device.xp.cuda.Device(device.index)
