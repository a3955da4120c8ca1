"""Processes that this one starts, gives orders to and hears from, and leaves none of behind.

A child is a fresh interpreter with a pipe. Ctrl-C and SIGTERM reach all processes of a group, and are the parent's
business alone; a child whose parent is gone ends at once, without half files.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from streamkit import errors
from streamkit.errors import ConfigError, Problem, StreamkitError, describe
from streamkit.outputs import discard_all

SPAWN = multiprocessing.get_context("spawn")


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM on this thread, and in processes that it starts; what came meanwhile comes after."""
    resource_tracker.ensure_running()  # would let signals through when the first process is started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """In a child: leave Ctrl-C and SIGTERM to the parent. Until here they were held back."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def how_it_died(exit_code: int | None) -> str:
    """How a process ended, as a user says it."""
    if exit_code is None or exit_code >= 0:
        return f"ended early, with exit code {exit_code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"was killed by signal {-exit_code}"


class Child:
    """A process as its parent has it.

    Args:
        name: the process's.
        target: called in it with a `Link` to this one, and with `args`; the process ends when it returns.
        args: must be picklable.
    """

    def __init__(self, name: str, target: Callable[..., None], *args: Any) -> None:
        self._control, theirs = SPAWN.Pipe()
        self._deaf = False
        with signals_held_back():
            self._process = SPAWN.Process(target=_live, args=(target, theirs, args), name=name)
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int | None:
        """The process's id."""
        return self._process.pid

    @property
    def over(self) -> bool:
        """Whether it has ended, and all that it said was heard."""
        return self._deaf and not self._process.is_alive()

    @property
    def how_it_died(self) -> str:
        """How it ended."""
        return how_it_died(self._process.exitcode)

    def tell(self, kind: str, value: Any = None) -> None:
        """Give it an order. One that has ended needs none."""
        with contextlib.suppress(OSError):
            self._control.send((kind, value))

    def hear(self) -> Iterator[tuple[str, Any]]:
        """What it has said since."""
        try:
            while not self._deaf and self._control.poll():
                yield self._control.recv()
        except (EOFError, OSError):
            self._deaf = True

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def join(self, within_s: float) -> None:
        """Wait for its end, and bring it about after so many seconds."""
        self._process.join(within_s)
        self._process.kill()
        self._process.join()
        self._control.close()
        self._deaf = True


def wait(children: Sequence[Child], timeout_s: float) -> None:
    """Wait until a child says something or ends, for so many seconds at most."""
    awaited: list[Any] = [child._control for child in children if not child._deaf]
    awaited += [child._process.sentinel for child in children if child._deaf]
    if awaited:
        connection.wait(awaited, timeout_s)
    else:
        time.sleep(timeout_s)


class Link:
    """In a child: messages to the parent, from any thread, and orders from it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, kind: str, value: Any = None) -> None:
        """Send one message; end the process where nobody is there to read it."""
        try:
            with self._lock:
                self.connection.send((kind, value))
        except OSError:
            os._exit(1)

    def orders(self) -> Iterator[tuple[str, Any]]:
        """What the parent orders; the process ends at once where that is gone."""
        while True:
            try:
                yield self.connection.recv()
            except (EOFError, OSError):
                end_at_once()

    def say(self, text: str) -> None:
        """Tell the user."""
        self.send("say", text)

    def fatal(self, error: BaseException) -> None:
        """Tell the parent that `error` ends the run."""
        ours = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == StreamkitError.__module__]
        self.send("fatal", (ours[0], str(error)) if ours else (StreamkitError.__name__, describe(error)))


def error_of(name: str, text: str) -> StreamkitError:
    """The error that `Link.fatal` told of: of the same class, with the same text."""
    kind: type[StreamkitError] = getattr(errors, name)
    made = kind.__new__(kind)
    Exception.__init__(made, text)
    if isinstance(made, ConfigError):
        made.problems = [Problem("", 0, 0, text)]
    return made


def end_at_once() -> None:
    """End this process without half files."""
    discard_all()
    os._exit(1)


def _live(target: Callable[..., None], control: Connection, args: tuple[Any, ...]) -> None:
    """The whole life of a child."""
    ignore_signals()
    link = Link(control)
    try:
        target(link, *args)
    except BaseException as error:
        link.fatal(error)
    control.close()
