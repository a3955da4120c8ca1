# SPDX-License-Identifier: Apache-2.0
"""Runs a generator of messages in a child process; the messages come through a socket, without pickling."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from streamkit.core.logs import worker_log
from streamkit.runtime.execution.cores import process_cores
from streamkit.runtime.multiprocess.children import Child, ParentConnection, wait
from streamkit.runtime.multiprocess.messages import Fatal, Logged

_SIZE = struct.Struct("<Q")
_EXIT_S = 2.0


class ChildGenerator:
    """See `core.tasks.MessageProcess`; all methods but `close` are called by one thread at a time.

    The child runs on all cores that this process may use, although the thread that starts it may be pinned.

    Args:
        work: see `OrderedExecutor.start_process`.
        args: likewise.
    """

    def __init__(self, work: Callable[..., Generator[bytes]], *args: Any) -> None:
        self._socket, theirs = socket.socketpair()
        try:
            with Connection(theirs.detach()) as end:
                self._child = Child(work.__name__, _run, end, process_cores(), work, args)
        except OSError:
            self._socket.close()
            raise
        self._fatal = ""
        self._log = worker_log()
        self._stopped = False

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._child.pid

    @property
    def ended(self) -> str:
        """How the child has ended, as text for the user."""
        until_s = time.monotonic() + _EXIT_S
        while not self._child.exited and time.monotonic() < until_s:
            wait([self._child], _EXIT_S)
            self._pass_on()
        self._child.join(0.0)
        return f"failed: {self._fatal}" if self._fatal else self._child.exit_text

    def send(self, request: bytes) -> None:
        """Send a request; does nothing if the child has ended."""
        with suppress(OSError):
            self._socket.sendall(_SIZE.pack(len(request)) + request)

    def receive(self) -> memoryview | None:
        """Wait for the next message; None if the child has ended."""
        waited: list[Any] = [self._socket, self._child]
        while self._socket not in connection.wait(waited):
            self._pass_on()  # a child whose messages were not received would wait to send more
            waited = waited[: 1 + (not self._child.closed)]
        return _receive(self._socket)

    @property
    def running(self) -> bool:
        """Whether the child takes requests."""
        self._pass_on()
        return not self._stopped and not self._child.closed

    def stop(self) -> None:
        """Make `receive` return None, also on another thread that waits in it."""
        self._stopped = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the child at once: it writes nothing."""
        self._pass_on()
        self._socket.close()
        self._child.join(0.0)

    def _pass_on(self) -> None:
        """Log what the child has logged."""
        for message in self._child.receive():
            match message:
                case Logged(record):
                    self._log(*record)
                case Fatal(_, text):
                    self._fatal = text


def _run(
    _: ParentConnection, end: Connection, cores: Sequence[int], work: Callable[..., Generator[bytes]], args: Any
) -> None:
    """In the child: send the messages; end when the parent closes the socket."""
    if cores:
        os.sched_setaffinity(0, cores)
    with socket.socket(fileno=os.dup(end.fileno())) as ours, suppress(BrokenPipeError, ConnectionResetError):
        end.close()
        with closing(work(_requests(ours), *args)) as messages:
            for message in messages:
                ours.sendall(_SIZE.pack(len(message)))
                ours.sendall(message)


def _requests(ours: socket.socket) -> Iterator[bytes]:
    while (request := _receive(ours)) is not None:
        yield bytes(request)


def _receive(ours: socket.socket) -> memoryview | None:
    """Receive one message; None if the other side has closed the socket."""
    head = _read(ours, _SIZE.size)
    return None if head is None else _read(ours, _SIZE.unpack(head)[0])


def _read(ours: socket.socket, size: int) -> memoryview | None:
    """Read so many bytes in one call, which releases the GIL once."""
    whole = memoryview(np.empty(size, np.uint8))  # type: ignore[arg-type]
    left = whole
    while left:
        try:
            got = ours.recv_into(left, len(left), socket.MSG_WAITALL)
        except OSError:  # closed here
            return None
        if not got:
            return None
        left = left[got:]
    return whole
