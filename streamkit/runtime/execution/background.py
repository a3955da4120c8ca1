# SPDX-License-Identifier: Apache-2.0
"""Threads for work beside the pipeline, with a bounded queue that never blocks the stage."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from streamkit.core.errors import describe
from streamkit.core.logs import STAGE
from streamkit.core.tasks import Background
from streamkit.runtime.execution.channel import Channel
from streamkit.runtime.execution.future import Stopped, start

logger = logging.getLogger(__name__)

_P = TypeVar("_P")
_T = TypeVar("_T")


class ThreadedBackground(Background[_P, _T]):
    """Processes items on its own threads; see `Background`. One thread offers items and takes results."""

    def __init__(self, work: Callable[[_P, Stopped], _T], workers: int = 1, depth: int = 1, name: str = "") -> None:
        super().__init__(work, workers, depth, name)
        self._name = name
        self._depth = depth
        self._queue = Channel[_P](depth, sole=True)
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._open: dict[int, _P] = {}  # by identity
        self._threads = [start(f"{name}/background-{number}", self._run) for number in range(workers)]

    def offer(self, item: _P) -> bool:
        """See `Background.offer`."""
        if self._queue.waiting >= self._depth:
            return False
        with self._lock:
            self._open[id(item)] = item
        self._queue.put(item)
        return True

    def results(self) -> list[_T]:
        """See `Background.results`."""
        with self._lock:
            return super().results()

    def unfinished(self) -> list[_P]:
        """See `Background.unfinished`."""
        with self._lock:
            return list(self._open.values())

    def close(self, timeout_s: float) -> None:
        """See `Background.close`. A thread that does not end in time ends with the process."""
        self._over.set()
        self._queue.close()
        until_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, until_s - time.monotonic()))

    def _run(self) -> None:
        STAGE.set(self._name)
        while (item := self._queue.get()) is not None:
            if not self._over.is_set():
                self._process(item)

    def _process(self, item: _P) -> None:
        try:
            results = [self._work(item, self._over.is_set)]
        except Exception as error:  # a mistake of the stage must not end the thread
            logger.error(f"{self._name} failed in the background: {describe(error)}")
            results = []
        with self._lock:
            self._done += results
            del self._open[id(item)]
