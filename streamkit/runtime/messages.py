"""Messages for the user; each text is logged once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from streamkit.core.text import printable

_REMEMBERED = 1000


class Messages:
    """Log each text once, from any thread. Only the last 1,000 texts are remembered, so an older one may repeat."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._said: dict[str, None] = {}
        self._lock = threading.Lock()

    def __call__(self, text: str) -> None:
        """Log a text unless it was logged before.

        Control characters are escaped, and continuation lines are indented, so that a text cannot control the terminal
        or imitate a second message.
        """
        text = printable(text).replace("\n", "\n    ")
        with self._lock:
            if text in self._said:
                return
            if len(self._said) >= _REMEMBERED:
                del self._said[next(iter(self._said))]
            self._said[text] = None
        self._say(text)
