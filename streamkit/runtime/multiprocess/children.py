# SPDX-License-Identifier: Apache-2.0
"""Child processes: start, orders, messages, supervision, and termination.

A child is a fresh interpreter with a pipe, started with `python -m streamkit.runtime.multiprocess.child`: it does not
import the user's `__main__`. Ctrl-C, SIGTERM and SIGHUP may reach every process of a group; children ignore them, and
the parent decides. A child whose parent is gone exits at once without partial files.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import pickle
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import connection, reduction
from multiprocessing.connection import Connection, Pipe
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from streamkit.core import errors
from streamkit.core.errors import ConfigError, Problem, StreamkitError, describe
from streamkit.core.logs import inherited_levels, logs_json, messages_to, portable
from streamkit.core.text import text_of
from streamkit.io.outputs import discard_all
from streamkit.runtime.execution.channel import Channel
from streamkit.runtime.execution.future import on_uncaught, start
from streamkit.runtime.multiprocess.messages import Exited, Fatal, Killed, Logged
from streamkit.runtime.multiprocess.worker_link import WorkerLink

logger = logging.getLogger(__name__)

CHILD_MODULE = "streamkit.runtime.multiprocess.child"
"""The main module of a child."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that stop a run: Ctrl-C, a service manager's, and that of a terminal that is closed."""
_MAILBOX = 1000
_DYING_AFTER_S = 0.3
_EXITING_S = 0.01
_AHEAD_S = 0.2  # time after which a child that is not ready for its job looks whether its parent is gone


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Block the signals that stop a run on this thread and in processes that it starts; deliver them afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """In a child: ignore the signals that stop a run, which were blocked until now; the parent handles them."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


def exit_text(exit_code: int | None) -> str:
    """Describe how a process exited, as text for the user."""
    if exit_code is None or exit_code >= 0:
        return f"ended early, with exit code {exit_code}"
    with contextlib.suppress(ValueError):
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"was killed by signal {-exit_code}"


def _do_ahead(module: str, function: str, args: tuple[Any, ...]) -> None:
    with contextlib.suppress(Exception):  # the job meets the same error, and reports it
        getattr(importlib.import_module(module), function)(*args)


@dataclass(frozen=True, slots=True)
class ChildSetup:
    """What a child is to run, and the state of the parent's interpreter.

    Attributes:
        name: the name of the process.
        folder: the working folder.
        path: `sys.path`.
        argv: `sys.argv`.
        variables: all environment variables.
        job: the main function and its arguments, pickled; `read_job` reads it.
        connections: number of connections among the arguments; their descriptors follow this message.
    """

    name: str
    folder: str
    path: list[str]
    argv: list[str]
    variables: dict[str, str]
    job: bytes
    connections: int


class _JobPickler(pickle.Pickler):
    """Pickles a job; its connections become indices of `descriptors`, which are sent to the child."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.descriptors: list[int] = []

    def persistent_id(self, value: Any) -> tuple[int, bool, bool] | None:
        if not isinstance(value, Connection):
            return None
        self.descriptors.append(value.fileno())
        return len(self.descriptors) - 1, value.readable, value.writable


class _JobUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, descriptors: Sequence[int]) -> None:
        super().__init__(file)
        self._descriptors = descriptors

    def persistent_load(self, identifier: tuple[int, bool, bool]) -> Connection:
        index, readable, writable = identifier
        return Connection(self._descriptors[index], readable, writable)


def read_job(job: bytes, descriptors: Sequence[int]) -> tuple[Callable[..., None], tuple[Any, ...]]:
    """In a child: the main function and its arguments, whose connections have these descriptors."""
    target, args = _JobUnpickler(io.BytesIO(job), descriptors).load()
    return target, args


def receive_setup(connection: Connection) -> tuple[ChildSetup, list[int]]:
    """In a child: the setup, and the descriptors of its connections. What comes before it is done meanwhile.

    Raises:
        EOFError, OSError: the parent is gone.
    """
    threads = []
    while not isinstance(message := connection.recv(), ChildSetup):
        threads.append(start("ahead", partial(_do_ahead, *message)))
    hang_up = select.poll()
    hang_up.register(connection, 0)  # a hang-up is always reported
    for thread in threads:
        while thread.is_alive():
            thread.join(_AHEAD_S)
            if hang_up.poll(0):
                raise EOFError
    descriptors = [reduction.recv_handle(connection) for _ in range(message.connections)]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    return message, descriptors


def _interpreter() -> list[str]:
    """Command line of an interpreter with the flags of this one; it finds packages in `PYTHONPATH` only.

    `-P` keeps modules of the working folder from replacing others. `-E` and `-I` would make it ignore `PYTHONPATH`.
    """
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    without = {"-E": [], "-I": ["-s"]}
    return [sys.executable, *(part for flag in flags for part in without.get(flag, [flag])), "-P"]


def _environment(wanted: Mapping[str, str]) -> dict[str, str]:
    """Environment variables to start a child with, which then sets those that are `wanted`."""
    keep = not sys.flags.ignore_environment
    variables = {name: value for name, value in wanted.items() if keep or not name.startswith("PYTHON")}
    return {**variables, "PYTHONPATH": os.pathsep.join(os.path.abspath(part) for part in sys.path)}


class _Process(subprocess.Popen[bytes]):
    """A process whose methods take no lock, unlike `Popen`'s: a signal handler may call one while another runs."""

    def poll(self) -> int | None:
        self.reap(os.WNOHANG)
        return self.returncode

    def reap(self, options: int = 0) -> None:
        """Wait until it has exited; with `os.WNOHANG`, only look."""
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):  # the call that this one interrupts has its exit code
                pid, status = os.waitpid(self.pid, options)
                if pid:
                    self.returncode = os.waitstatus_to_exitcode(status)


_children: WeakSet[Child] = WeakSet()
_dying: list[_Process] = []


def reap_dying(within_s: float = 0.0) -> None:
    """Let the system forget children that were left while dying and have exited; wait so long for the others."""
    until_s = time.monotonic() + within_s
    while True:
        for process in [dying for dying in list(_dying) if dying.poll() is not None]:
            with contextlib.suppress(ValueError):  # another thread removed it
                _dying.remove(process)
        if not _dying or time.monotonic() >= until_s:
            return
        time.sleep(0.05)


def kill_all() -> None:
    """Kill all children that this process has started, for a process that is about to exit at once."""
    for child in list(_children):
        child.kill()


class _Interpreter:
    """A child process without a job.

    Args:
        name: the last part of its command line.
        variables: its environment variables.
        stdout: descriptor of its standard output; None for this process's.

    Attributes:
        control: the connection for orders and messages.
        sentinel: a connection that ends when the process exits.
        process: the process.
    """

    def __init__(self, name: str, variables: Mapping[str, str], stdout: int | None = None) -> None:
        self.control, theirs = Pipe()
        self.sentinel, alive = Pipe(duplex=False)  # the child never closes its end, so this one ends when it exits
        with signals_held_back(), theirs, alive:
            ends = theirs.fileno(), alive.fileno()
            self.process = _Process(
                [*_interpreter(), "-m", CHILD_MODULE, *map(str, ends), name],
                env=_environment(variables),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                pass_fds=ends,
            )


class IdleChild:
    """A process that was started ahead and waits to become a `Child`; it exits if this process does.

    Its standard output is this process's standard error.

    Args:
        name: the last part of its command line.
    """

    def __init__(self, name: str) -> None:
        self.interpreter = _Interpreter(name, os.environ, stdout=2)

    def do_ahead(self, module: str, function: str, *args: Any) -> None:
        """Let it call a function of a module, on a thread of its own; the job waits for it, but not for its errors."""
        with contextlib.suppress(OSError):
            self.interpreter.control.send((module, function, args))

    @property
    def waits(self) -> bool:
        """Whether it has not exited."""
        return self.interpreter.process.poll() is None

    def kill(self) -> None:
        """Kill it; it has no job. `end` must follow."""
        self.interpreter.process.kill()

    def end(self) -> None:
        """Kill it, and wait until it has exited."""
        self.kill()
        self.interpreter.process.reap()
        self.interpreter.control.close()
        self.interpreter.sentinel.close()


class Child:
    """A child process, as seen by its parent.

    The child has the working folder, `sys.path` and environment variables of its parent. The last part of its command
    line is its name, unless it was started ahead.

    Args:
        name: name of the process.
        target: main function of an importable module, called with a `ParentConnection` to the parent and `args`; the
            process exits when it returns.
        args: picklable arguments. The child gets a `Connection` too; the parent may close its own afterwards.
        env: environment variables to add.
        idle: a process that was started ahead and becomes this one.
    """

    def __init__(
        self,
        name: str,
        target: Callable[..., None],
        *args: Any,
        env: Mapping[str, str] | None = None,
        idle: IdleChild | None = None,
    ) -> None:
        job = io.BytesIO()
        pickler = _JobPickler(job)
        pickler.dump((target, args))
        variables = {**os.environ, **(env or {})}
        setup = ChildSetup(
            name, os.getcwd(), list(sys.path), list(sys.argv), variables, job.getvalue(), len(pickler.descriptors)
        )
        with signals_held_back():
            interpreter = _Interpreter(name, variables) if idle is None else idle.interpreter
            self._control = interpreter.control
            self._sentinel = interpreter.sentinel
            self._process = interpreter.process
            self._closed = False
            self._closed_s = 0.0
            _children.add(self)
            with contextlib.suppress(OSError):
                self._control.send(setup)
                for descriptor in pickler.descriptors:
                    reduction.send_handle(self._control, descriptor, self._process.pid)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def fileno(self) -> int:
        """The descriptor of its messages, for `connection.wait`."""
        return self._control.fileno()

    @property
    def closed(self) -> bool:
        """Whether it sends no more messages: it exits, or has exited."""
        return self._closed

    @property
    def exited(self) -> bool:
        """Whether it has exited and all its messages were received."""
        return self._closed and self._process.poll() is not None

    @property
    def dying(self) -> bool:
        """Whether it has closed its messages some time ago and has not exited.

        It was killed or has crashed: the system closes its files first, then frees its memory on a GPU, for seconds.
        """
        return self._closed and time.monotonic() > self._closed_s + _DYING_AFTER_S and self._process.poll() is None

    @property
    def exit_text(self) -> str:
        """How it exited, as text for the user."""
        code = self._process.poll()
        return "died, and the system is still freeing its memory" if code is None else exit_text(code)

    def abandon(self) -> None:
        """Give up a child that is dying; `reap_dying` looks later whether it has exited.

        One that has only closed its messages would run on unnoticed, so it is killed.
        """
        self._process.kill()
        _dying.append(self._process)
        self._control.close()

    def send(self, order: Any) -> None:
        """Send an order. Does nothing if the child has exited."""
        with contextlib.suppress(OSError):
            self._control.send(order)

    def receive(self) -> Iterator[Any]:
        """Yield the messages that have arrived since the last call."""
        try:
            while not self._closed and self._control.poll():
                yield self._control.recv()
        except (EOFError, OSError):
            self._closed = True
            self._closed_s = time.monotonic()

    def kill(self) -> None:
        """Kill it at once."""
        self._process.kill()

    def join(self, within_s: float) -> None:
        """Wait up to `within_s` seconds for it to exit, then kill it."""
        self._sentinel.poll(within_s)
        self._process.kill()
        self._process.reap()
        self._control.close()
        self._closed = True


def wait(children: Sequence[Child], timeout_s: float) -> None:
    """Wait until a child sends a message or exits, for at most `timeout_s` seconds."""
    awaited: dict[Any, Child] = {child._sentinel if child._closed else child._control: child for child in children}
    if not awaited:
        time.sleep(timeout_s)
        return
    ready = connection.wait(list(awaited), timeout_s)
    if ready and all(awaited[handle]._closed for handle in ready):  # the system frees their memory, maybe for seconds
        time.sleep(min(_EXITING_S, timeout_s))


@dataclass(slots=True, eq=False, kw_only=True)
class SupervisedWorker:
    """What a `Supervisor` knows of a worker; its owner adds fields of its own.

    Attributes:
        child: its process; None until it is started.
        ready: whether its pipeline is open; the owner sets it.
        killed: why the supervisor has killed it; None if it has not.
    """

    child: WorkerLink | None = None
    ready: bool = False
    killed: str | None = None

    @property
    def link(self) -> WorkerLink:
        """Its process, which was started."""
        assert self.child is not None
        return self.child

    @property
    def unexpected(self) -> bool:
        """Whether its exit now would be a death, to be reported even before the system has freed its memory."""
        return False


_W = TypeVar("_W", bound=SupervisedWorker)


class Supervisor(Generic[_W]):
    """Receives the messages of worker processes, kills those that are overdue, and reports those that have exited.

    The owner handles the messages, decides when a worker is overdue, and replaces workers by adding new ones to
    `workers`. `WorkerFleet` replaces them if all have died. A pool of batch workers

    - derives its state of a worker from `SupervisedWorker`, and has a `Supervisor` with the function that returns
      `no frame of clip.mp4 for 600 s: its worker was stopped` for a worker with a stuck file;
    - calls `poll` in place of waiting for, receiving from and killing workers itself: at `Exited` it takes back the
      worker's files (`worker.killed is not None` if a file was stuck), and appends a new worker;
    - calls `close` after it has sent the workers their last order. A pool of remote actors passes a `wait` of its own.

    All methods are called from one thread.

    Args:
        overdue: why a worker must be killed at a monotonic time in seconds, as text for the user; None if it may run.
        wait: waits for messages of several children, like `children.wait`.

    Attributes:
        workers: the workers that have been started and have not exited.
    """

    def __init__(
        self, overdue: Callable[[_W, float], str | None], wait: Callable[[Sequence[Any], float], None] = wait
    ) -> None:
        self.workers: list[_W] = []
        self._overdue = overdue
        self._wait = wait

    def poll(self, timeout_s: float) -> Iterator[tuple[_W, Any]]:
        """Wait up to `timeout_s` seconds; yield the messages, each with its worker.

        The supervisor adds two, each with a text for the user. `Killed` comes when it kills a worker, with the reason.
        `Exited` is the last message of every worker, with the manner of its exit; the worker is then no longer in
        `workers`. A worker is checked for being overdue only after its messages have been handled.
        """
        self._wait([worker.link for worker in self.workers], timeout_s)
        reap_dying()
        for worker in list(self.workers):
            for message in worker.link.receive():
                yield worker, message
            if worker.link.exited:
                worker.link.join(0.0)
                self.workers.remove(worker)
                yield worker, Exited(worker.link.exit_text)
            elif worker.unexpected and worker.link.dying:
                self.workers.remove(worker)
                how = worker.link.exit_text
                worker.link.abandon()
                yield worker, Exited(how)
            elif worker.killed is None:
                worker.killed = self._overdue(worker, time.monotonic())
                if worker.killed is not None:
                    worker.link.kill()
                    yield worker, Killed(worker.killed)

    def close(self, within_s: float) -> None:
        """Wait up to `within_s` seconds for all workers to exit, and kill the rest. A later `poll` reports them."""
        until_s = time.monotonic() + within_s
        for worker in self.workers:
            worker.link.join(max(0.0, until_s - time.monotonic()))


class ParentConnection:
    """In a child: messages to the parent, from any thread, and orders from it."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._lock = threading.Lock()

    def send(self, message: Any) -> None:
        """Send one message; exit if the parent is gone."""
        try:
            with self._lock:
                self.connection.send(message)
        except OSError:
            os._exit(1)

    def deliver(self, message: Any) -> None:
        """Send a message after which the process may exit: return once it cannot be lost."""
        self.send(message)

    def orders(self) -> Iterator[Any]:
        """Yield the parent's orders; exit at once if the parent is gone."""
        while True:
            try:
                yield self.connection.recv()
            except (EOFError, OSError):
                end_at_once()

    def run(self, target: Callable[..., None], *args: Any) -> None:
        """Call a worker's main function; an exception is sent as its last message."""
        try:
            with messages_to(self.log, inherited_levels(), libraries=True):
                if logs_json():
                    logging.captureWarnings(True)
                    on_uncaught(lambda error: logger.critical("uncaught exception", exc_info=error))
                target(self, *args)
        except BaseException as error:
            self.fatal(error)

    def log(self, record: logging.LogRecord) -> None:
        """Send a message for the user; the parent passes it to a `worker_log`."""
        self.send(Logged(portable(record)))

    def fatal(self, error: BaseException) -> None:
        """Report to the parent that `error` ends the run."""
        ours = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == StreamkitError.__module__]
        self.send(Fatal(ours[0], text_of(error)) if ours else Fatal(StreamkitError.__name__, describe(error)))


def error_of(name: str, text: str) -> StreamkitError:
    """Recreate the error that `ParentConnection.fatal` sent: the same class, the same text."""
    kind: type[StreamkitError] = getattr(errors, name)
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    if isinstance(error, ConfigError):
        error.problems = [Problem("", 0, 0, text)]
    return error


def end_at_once() -> None:
    """Exit this process without leaving partial files."""
    discard_all()
    os._exit(1)


class Mailbox(ParentConnection):
    """A worker's messages to its manager, from any thread, and the manager's orders.

    The manager polls for messages. Each poll acknowledges the messages of the previous one.
    """

    def __init__(self) -> None:
        self._messages = Channel[tuple[Any, threading.Event]](_MAILBOX)
        self._orders: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._fetched: list[threading.Event] = []

    def send(self, message: Any) -> None:
        """Queue a message."""
        self._messages.put((message, threading.Event()))

    def deliver(self, message: Any) -> None:
        """Queue a message, and wait until it is acknowledged: the process may exit afterwards."""
        received = threading.Event()
        self._messages.put((message, received))
        received.wait()

    def orders(self) -> Iterator[Any]:
        """Yield orders, without end."""
        while True:
            yield self._orders.get()

    def order(self, order: Any) -> None:
        """Add an order for the worker; called by the manager."""
        self._orders.put(order)

    def fetch(self) -> list[Any]:
        """Wait for messages and return them; called by the manager, by one thread at a time."""
        for received in self._fetched:
            received.set()
        messages = self._messages.get_many(_MAILBOX)
        self._fetched = [received for _, received in messages]
        return [message for message, _ in messages]
