"""Calls a function periodically on its own thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class PeriodicTimer:
    """Calls `tick` every `every_s` seconds while the context is open."""

    def __init__(self, every_s: float, tick: Callable[[], None]) -> None:
        self._every_s, self._tick = every_s, tick
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="ticker", daemon=True)

    def _loop(self) -> None:
        while not self._over.wait(self._every_s):
            self._tick()

    def __enter__(self) -> PeriodicTimer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
