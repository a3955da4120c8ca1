# SPDX-License-Identifier: Apache-2.0
"""Threads: background work with a result, works side by side, and periodic calls."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from streamkit.core.tasks import Future
from streamkit.ops.cuda.driver import relax_capture

_T = TypeVar("_T")
_POLL_S = 0.05

Stopped = Callable[[], bool]
"""Returns whether the work is to end; the work polls it."""


class ThreadFuture(Future[_T]):
    """Runs a function on its own thread.

    Args:
        work: the function; it receives a function that returns whether to stop.
        name: name of the thread.
        over: set to stop the work; set if the work raises.
    """

    at_once = False

    def __init__(
        self, work: Callable[[Stopped], _T], name: str = "background", over: threading.Event | None = None
    ) -> None:
        self._over = over or threading.Event()
        self._outcome: list[_T] = []
        self._error: BaseException | None = None
        self._thread = start(name, lambda: self._run(work))

    def _run(self, work: Callable[[Stopped], _T]) -> None:
        try:
            self._outcome.append(work(self._over.is_set))
        except BaseException as error:
            self._error = error
            self._over.set()

    @property
    def ready(self) -> bool:  # type: ignore[override]
        """Whether the work is done."""
        return not self._thread.is_alive()

    def result(self) -> _T:
        """See `Future.result`."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._outcome[0]

    def drop(self) -> None:
        """See `Future.drop`."""
        self.leave(None)

    def leave(self, within_s: float | None) -> None:
        """Discard the result; return when the work ends or after the timeout. Hanging work ends with the process.

        Args:
            within_s: timeout in seconds; None for none.
        """
        self._over.set()
        self._thread.join(within_s)


@contextmanager
def side_by_side(*works: Callable[[Stopped], None]) -> Iterator[Stopped]:
    """Run each function on its own thread while the block runs; then stop the functions and wait for them.

    A function that raises stops the others.

    Args:
        works: the functions; each receives a function that returns whether to stop.

    Yields:
        The same function: the block may end early when it returns True.

    Raises:
        BaseException: an exception of a function, at the end of the block.
    """
    over = threading.Event()
    workers = [ThreadFuture(work, f"beside/{number}", over) for number, work in enumerate(works)]
    try:
        yield over.is_set
    finally:
        for worker in workers:
            worker.drop()
    for worker in workers:
        worker.result()


def held_until(begin: threading.Event) -> type[ThreadFuture[Any]]:
    """A `ThreadFuture` whose work begins once `begin` is set, or not at all if it is dropped before."""

    class HeldFuture(ThreadFuture[_T]):
        held = True

        def _run(self, work: Callable[[Stopped], _T]) -> None:
            while not (begin.wait(_POLL_S) or self._over.is_set()):
                pass
            if not self._over.is_set():
                super()._run(work)

    return HeldFuture


class PeriodicTimer:
    """Calls `tick` every `every_s` seconds on its own thread while the context is open."""

    def __init__(self, every_s: float, tick: Callable[[], None]) -> None:
        self._every_s = every_s
        self._tick = tick
        self._over = threading.Event()

    def _loop(self) -> None:
        while not self._over.wait(self._every_s):
            self._tick()

    def __enter__(self) -> PeriodicTimer:
        self._thread = start("ticker", self._loop)
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


class WorkThread(threading.Thread):
    """A thread of a run, which ends with Python. Its use of the GPU does not break another thread's CUDA graph."""

    def run(self) -> None:
        """Run the target."""
        relax_capture()
        super().run()


def start(name: str, target: Callable[[], None]) -> threading.Thread:
    """Start a daemon thread."""
    thread = WorkThread(target=target, name=name, daemon=True)
    thread.start()
    return thread


def in_program() -> bool:
    """Whether the calling thread is the program's: neither one of a run nor one that Python did not start."""
    thread = threading.current_thread()
    return not isinstance(thread, WorkThread) and thread.name[:6] != "Dummy-"


def join(thread: threading.Thread) -> None:
    """Wait for a thread; the calling thread wakes often enough to handle signals."""
    while thread.is_alive():
        thread.join(0.2)


def on_uncaught(show: Callable[[BaseException], None]) -> None:
    """Pass errors that no code catches, of the main thread and of others, to `show` in place of printing them."""

    def of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            show(args.exc_value)

    sys.excepthook = lambda _, error, __: show(error)
    threading.excepthook = of_thread
