# SPDX-License-Identifier: Apache-2.0
"""Executor and future for a stage's work. Without the runtime, both run the work in the calling thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

_P = TypeVar("_P")
_T = TypeVar("_T")


class MessageProcess(Protocol):
    """A generator of messages that runs in another process."""

    @property
    def ended(self) -> str:
        """How the process has ended, as text for the user, once `receive` has returned None."""
        ...

    def send(self, request: bytes) -> None:
        """Send a request, the next item of the generator's argument."""

    def receive(self) -> memoryview | None:
        """Wait for the next message, a writable buffer of its own; None if the process has ended."""

    @property
    def running(self) -> bool:
        """Whether the process takes requests."""
        ...

    def stop(self) -> None:
        """Make `receive` return None, also on another thread that waits in it."""

    def close(self) -> None:
        """End the process."""


class OrderedExecutor:
    """Processes parts one after the other, with the first worker.

    The runtime replaces it by the `ThreadedExecutor` of `runtime/execution/ordered_executor.py`, which uses all workers
    in parallel and returns the same results.

    Attributes:
        cores: number of CPU cores that all sources share.
        sources: number of sources that are read at the same time.
    """

    cores = 1
    sources = 1

    def run(self, parts: Iterator[_P], workers: Sequence[Callable[[_P], Iterator[_T]]], depth: int) -> Iterator[_T]:
        """Yield the workers' results, in the order of the parts.

        Args:
            parts: the work, in order; the next part is read when a worker is free.
            workers: process a part; a worker is never called twice at once, but may change threads.
            depth: maximum number of results of a part that wait for their turn.

        Raises:
            Exception: raised by `parts` or a worker; earlier results are yielded first.
        """
        for part in parts:
            yield from workers[0](part)

    def start_process(self, work: Callable[..., Generator[bytes]], *args: Any) -> MessageProcess | None:
        """Run a generator in another process.

        Args:
            work: a function of an importable module, called with an iterator of requests and `args`; it yields the
                messages.
            args: picklable arguments.

        Returns:
            The process; None if there is none here, so that the caller does the work itself.
        """
        return None


class Future(Generic[_T]):
    """Deferred work. This class runs it in the constructor; the runtime's subclass uses a thread.

    Attributes:
        at_once: whether the work is complete when the constructor returns.
        held: whether the work begins after the first frames.
        ready: whether the work is complete.
    """

    at_once = True
    held = False
    ready = True

    def __init__(self, work: Callable[[Callable[[], bool]], _T]) -> None:
        """Start `work`; its argument is a function that returns whether `drop` was called."""
        self._result = work(lambda: False)

    def result(self) -> _T:
        """Wait for the result.

        Raises:
            Exception: raised by the work.
        """
        return self._result

    def drop(self) -> None:
        """Discard the result: return when the work has ended."""


class Background(Generic[_P, _T]):
    """Bounded queue of work for which the pipeline never waits.

    This class does the work in the calling thread. The runtime replaces it by the `ThreadedBackground` of
    `runtime/execution/background.py`, which has threads.

    Args:
        work: processes an item; its second argument returns whether to end early. It must not raise.
        workers: number of items that are processed at the same time.
        depth: maximum number of items that wait.
        name: the stage's id, for names of threads and for messages.
    """

    def __init__(
        self, work: Callable[[_P, Callable[[], bool]], _T], workers: int = 1, depth: int = 1, name: str = ""
    ) -> None:
        self._work = work
        self._done: list[_T] = []

    def offer(self, item: _P) -> bool:
        """Add an item without waiting; return False if the queue is full."""
        self._done.append(self._work(item, lambda: False))
        return True

    def results(self) -> list[_T]:
        """The results since the last call."""
        done = self._done
        self._done = []
        return done

    def unfinished(self) -> list[_P]:
        """The items that wait or are being processed. From any thread."""
        return []

    def close(self, timeout_s: float) -> None:
        """End the work. Items that wait are discarded; those being processed have the timeout to end early."""
