"""Messages for the user: each text once, however often it is said."""

from __future__ import annotations

import threading
from collections.abc import Callable

from streamkit.messages import printable

_REMEMBERED = 1000


class Messages:
    """Says each text once, from any thread. In a run of months the oldest are forgotten, and may be said again."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: dict[str, None] = {}
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        """Tell the user. Nothing in a text acts on a terminal, and no line but its first looks like a message."""
        text = printable(text).replace("\n", "\n    ")
        with self._lock:
            if text in self._said:
                return
            if len(self._said) >= _REMEMBERED:
                del self._said[next(iter(self._said))]
            self._said[text] = None
        self._say(text)
