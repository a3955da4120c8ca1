"""Work beside the caller's: functions on threads of their own, for as long as a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from streamkit.ahead import Later

_T = TypeVar("_T")

Stopped = Callable[[], bool]
"""Whether the work is to end; the work asks it often."""


@contextmanager
def side_by_side(*works: Callable[[Stopped], None]) -> Iterator[Stopped]:
    """Run each function on a thread of its own while the block runs; then tell them to stop, and wait for them.

    The first that raises stops the others.

    Args:
        works: each is given a function that says whether to stop.

    Yields:
        The same function: the block may end early where it says so.

    Raises:
        BaseException: what the first of them raised, at the end of the block.
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


class Beside(Later[_T]):
    """Does a piece of work on a thread of its own."""

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
        """Whether it is done."""
        return not self._thread.is_alive()

    def result(self) -> _T:
        """See `Later.result`."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found[0]

    def drop(self) -> None:
        """See `Later.drop`."""
        self._over.set()
        self._thread.join()

    def leave(self, within_s: float) -> None:
        """The result is not wanted: come back when the work has ended, or after so long; it then ends with the process.

        Args:
            within_s: seconds.
        """
        self._over.set()
        self._thread.join(within_s)


def start(name: str, target: Callable[[], None]) -> threading.Thread:
    """Start a thread."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def join(thread: threading.Thread) -> None:
    """Wait for a thread, awake often enough that signals are handled."""
    while thread.is_alive():
        thread.join(0.2)
