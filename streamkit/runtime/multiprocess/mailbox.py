"""A worker's mailbox, for workers whose messages are fetched by polling instead of through a pipe."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from streamkit.runtime.execution.future import start
from streamkit.runtime.multiprocess.children import ParentConnection


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
