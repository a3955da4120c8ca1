"""Child processes: start, orders, messages, and termination.

A child is a fresh interpreter with a pipe. Ctrl-C and SIGTERM reach every process of a group; children ignore them, and
the parent decides. A child whose parent is gone exits at once without partial files.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from streamkit.core import errors
from streamkit.core.errors import ConfigError, Problem, StreamkitError, describe
from streamkit.io.outputs import discard_all
from streamkit.runtime.execution.future import start

SPAWN = multiprocessing.get_context("spawn")


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Block Ctrl-C and SIGTERM on this thread and in processes that it starts; deliver them after the block."""
    resource_tracker.ensure_running()  # would let signals through when the first process is started
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """In a child: ignore Ctrl-C and SIGTERM, which were blocked until now; the parent handles them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})


def how_it_died(exit_code: int | None) -> str:
    """Describe how a process exited, as text for the user."""
    if exit_code is None or exit_code >= 0:
        return f"ended early, with exit code {exit_code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"was killed by signal {-exit_code}"


class Child:
    """A child process, as seen by its parent.

    Args:
        name: name of the process.
        target: main function, called with a `ParentConnection` to the parent and `args`; the process exits when it
        returns.
        args: picklable arguments.
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
        """The process id."""
        return self._process.pid

    @property
    def over(self) -> bool:
        """Whether it has exited and all its messages were read."""
        return self._deaf and not self._process.is_alive()

    @property
    def how_it_died(self) -> str:
        """How it exited, as text for the user."""
        return how_it_died(self._process.exitcode)

    def tell(self, kind: str, value: Any = None) -> None:
        """Send an order. Does nothing if the child has exited."""
        with contextlib.suppress(OSError):
            self._control.send((kind, value))

    def hear(self) -> Iterator[tuple[str, Any]]:
        """Yield the messages received since the last call."""
        try:
            while not self._deaf and self._control.poll():
                yield self._control.recv()
        except (EOFError, OSError):
            self._deaf = True

    def kill(self) -> None:
        """Kill it at once."""
        self._process.kill()

    def join(self, within_s: float) -> None:
        """Wait up to `within_s` seconds for it to exit, then kill it."""
        self._process.join(within_s)
        self._process.kill()
        self._process.join()
        self._control.close()
        self._deaf = True


def wait(children: Sequence[Child], timeout_s: float) -> None:
    """Wait until a child sends a message or exits, for at most `timeout_s` seconds."""
    awaited: list[Any] = [child._control for child in children if not child._deaf]
    awaited += [child._process.sentinel for child in children if child._deaf]
    if awaited:
        connection.wait(awaited, timeout_s)
    else:
        time.sleep(timeout_s)


class ParentConnection:
    """In a child: messages to the parent, from any thread, and orders from it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, kind: str, value: Any = None) -> None:
        """Send one message; exit if the parent is gone."""
        try:
            with self._lock:
                self.connection.send((kind, value))
        except OSError:
            os._exit(1)

    def orders(self) -> Iterator[tuple[str, Any]]:
        """Yield the parent's orders; exit at once if the parent is gone."""
        while True:
            try:
                yield self.connection.recv()
            except (EOFError, OSError):
                end_at_once()

    def say(self, text: str) -> None:
        """Send a message for the user."""
        self.send("say", text)

    def fatal(self, error: BaseException) -> None:
        """Report to the parent that `error` ends the run."""
        ours = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == StreamkitError.__module__]
        self.send("fatal", (ours[0], str(error)) if ours else (StreamkitError.__name__, describe(error)))


def error_of(name: str, text: str) -> StreamkitError:
    """Recreate the error that `ParentConnection.fatal` sent: the same class, the same text."""
    kind: type[StreamkitError] = getattr(errors, name)
    made = kind.__new__(kind)
    Exception.__init__(made, text)
    if isinstance(made, ConfigError):
        made.problems = [Problem("", 0, 0, text)]
    return made


def end_at_once() -> None:
    """Exit this process without leaving partial files."""
    discard_all()
    os._exit(1)


def _live(target: Callable[..., None], control: Connection, args: tuple[Any, ...]) -> None:
    """Main function of a child process."""
    ignore_signals()
    link = ParentConnection(control)
    try:
        target(link, *args)
    except BaseException as error:
        link.fatal(error)
    control.close()


class Mailbox(ParentConnection):
    """A worker's messages to its manager, from any thread, and the manager's orders.

    The manager polls for messages. Each poll acknowledges the messages of the previous one.
    """

    def __init__(self) -> None:
        self._messages: list[tuple[str, Any]] = []
        self._orders: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._sent = self._answered = self._arrived = 0
        self._changed = threading.Condition()

    def send(self, kind: str, value: Any = None) -> None:
        """Queue a message. For an outcome, wait until it is acknowledged: the process may exit afterwards."""
        with self._changed:
            self._messages.append((kind, value))
            self._sent += 1
            mine = self._sent
            self._changed.notify_all()
            if kind == "outcome":
                self._changed.wait_for(lambda: self._arrived >= mine)

    def orders(self) -> Iterator[tuple[str, Any]]:
        """Yield orders, without end."""
        while True:
            yield self._orders.get()

    def order(self, kind: str, value: Any) -> None:
        """Add an order for the worker; called by the manager."""
        self._orders.put((kind, value))

    def fetch(self) -> list[tuple[str, Any]]:
        """Wait for messages and return them; called by the manager, by one thread at a time."""
        with self._changed:
            self._arrived = self._answered
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._messages)
            found, self._messages = self._messages, []
            self._answered += len(found)
            return found


def live(mailbox: Mailbox, target: Callable[..., None], *args: Any) -> None:
    """Run a worker's main function on a thread; an exception is sent as its last message."""

    def run() -> None:
        try:
            target(mailbox, *args)
        except BaseException as error:
            mailbox.fatal(error)

    start("worker", run)
