"""Messages of a worker that others fetch, where a child of this machine has a pipe to its parent."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from streamkit.runtime.background import start
from streamkit.runtime.children import Link


class Mailbox(Link):
    """In a worker: messages to who gives it work, from any thread, and orders from there.

    Nobody listens to it all the time: somebody asks for what there is, again and again. Asking again says that the
    answer before has arrived.
    """

    def __init__(self) -> None:
        self._messages: list[tuple[str, Any]] = []
        self._orders: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._sent = self._answered = self._arrived = 0
        self._changed = threading.Condition()

    def send(self, kind: str, value: Any = None) -> None:
        """Send one message. Where it is an outcome, wait until it has arrived: the process may end behind it."""
        with self._changed:
            self._messages.append((kind, value))
            self._sent += 1
            mine = self._sent
            self._changed.notify_all()
            if kind == "outcome":
                self._changed.wait_for(lambda: self._arrived >= mine)

    def orders(self) -> Iterator[tuple[str, Any]]:
        """What is ordered, without end."""
        while True:
            yield self._orders.get()

    def order(self, kind: str, value: Any) -> None:
        """Called from outside: an order for the worker."""
        self._orders.put((kind, value))

    def fetch(self) -> list[tuple[str, Any]]:
        """Called from outside, by one at a time: what was sent since, waited for."""
        with self._changed:
            self._arrived = self._answered
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._messages)
            found, self._messages = self._messages, []
            self._answered += len(found)
            return found


def live(mailbox: Mailbox, target: Callable[..., None], *args: Any) -> None:
    """Run a worker's life on a thread; what it raises is sent as its last message."""

    def run() -> None:
        try:
            target(mailbox, *args)
        except BaseException as error:
            mailbox.fatal(error)

    start("worker", run)
