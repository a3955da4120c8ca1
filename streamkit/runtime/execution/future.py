"""Background work on separate threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from streamkit.core.tasks import Future

_T = TypeVar("_T")

Stopped = Callable[[], bool]
"""Whether the work is to end; the work asks it often."""


@contextmanager
def side_by_side(*works: Callable[[Stopped], None]) -> Iterator[Stopped]:
    """Run each function on its own thread while the block runs; then stop the functions and wait for them.

    The first function that raises stops the others.

    Args:
        works: the functions; each receives a function that returns whether to stop.

    Yields:
        The same function: the block may end early when it returns True.

    Raises:
        BaseException: the first exception of a function, at the end of the block.
    """
    over, errors = threading.Event(), list[BaseException]()

    def run(work: Callable[[Stopped], None]) -> None:
        try:
            work(over.is_set)
        except BaseException as error:
            errors.append(error)
            over.set()

    threads = [
        threading.Thread(target=run, args=(work,), name=f"beside/{n}", daemon=True) for n, work in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    try:
        yield over.is_set
    finally:
        over.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]


class ThreadFuture(Future[_T]):
    """Runs a function on its own thread."""

    at_once = False

    def __init__(self, work: Callable[[Stopped], _T]) -> None:
        self._over = threading.Event()
        self._found: list[_T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(work,), name="beside", daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[Stopped], _T]) -> None:
        try:
            self._found.append(work(self._over.is_set))
        except BaseException as error:
            self._error = error

    @property
    def ready(self) -> bool:  # type: ignore[override]
        """Whether the work is done."""
        return not self._thread.is_alive()

    def result(self) -> _T:
        """See `Future.result`."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found[0]

    def drop(self) -> None:
        """See `Future.drop`."""
        self._over.set()
        self._thread.join()

    def leave(self, within_s: float) -> None:
        """Discard the result; return when the work ends or after the timeout. Hanging work ends with the process.

        Args:
            within_s: timeout in seconds.
        """
        self._over.set()
        self._thread.join(within_s)


def start(name: str, target: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def join(thread: threading.Thread) -> None:
    """Wait for a thread; the calling thread wakes often enough to handle signals."""
    while thread.is_alive():
        thread.join(0.2)
