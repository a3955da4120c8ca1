"""Makes batches of the frames of all sources: full, or as old as a frame may wait; never waiting for all sources."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

from streamkit.data import Batch, Frame
from streamkit.runtime.channel import Aborted


class Batcher:
    """Collects frames from the sources' threads, fairly: one of each ready source in turn.

    A batch leaves when `size` frames are there, when its oldest has waited `max_wait_s`, when every source that still
    runs has as many waiting as it may, or when all sources have ended. Nothing is dropped: a source waits.

    Args:
        size: frames in a batch at most.
        max_wait_s: how long a frame waits for others, in seconds.
        xp: the array module of the pipeline's device.
        ahead: batches that may wait here before sources are made to wait.
    """

    def __init__(self, size: int, max_wait_s: float, xp: Any, ahead: int = 2) -> None:
        self._size, self._max_wait_s, self._xp, self._ahead = size, max_wait_s, xp, ahead
        self._waiting: dict[str, deque[tuple[float, Frame]]] = {}
        self._ready: deque[str] = deque()
        self._running: set[str] = set()
        self._ended: list[str] = []
        self._queued = 0
        self._expected = 0
        self._sequence = 0
        self._aborted = False
        self._changed = threading.Condition()

    def expect(self, sources: int) -> None:
        """`sources` more will begin; `next` does not end before all of them have."""
        with self._changed:
            self._expected += sources

    def begin(self, source: str) -> None:
        """A source will put frames."""
        with self._changed:
            self._running.add(source)
            self._expected -= 1
            self._waiting[source] = deque()

    def put(self, source: str, frame: Frame) -> None:
        """Add a frame; wait while too many of this source wait already. Raises Aborted."""
        with self._changed:
            waiting = self._waiting[source]
            while len(waiting) >= self._share() and not self._aborted:
                self._changed.wait()
            if self._aborted:
                raise Aborted
            if not waiting:
                self._ready.append(source)
            waiting.append((time.monotonic(), frame))
            self._queued += 1
            if self._queued == 1 or self._queued >= self._size or len(waiting) >= self._share():
                self._changed.notify_all()

    def end(self, source: str) -> None:
        """No frame of `source` will come any more."""
        with self._changed:
            self._running.discard(source)
            self._ended.append(source)
            self._changed.notify_all()

    def next(self) -> Batch | None:
        """The next batch, waited for; None when all sources have ended. Raises Aborted."""
        with self._changed:
            while not self._due():
                self._changed.wait(self._patience())
            if self._aborted:
                raise Aborted
            frames = [self._take() for _ in range(min(self._size, self._queued))]
            ended = [source for source in self._ended if not self._waiting[source]]
            for source in ended:
                self._ended.remove(source)
                del self._waiting[source]
            self._changed.notify_all()
            if not frames and not ended and not self._running and not self._expected:
                return None
        for position, frame in enumerate(frames):
            frame.position = position
        well = [frame for frame in frames if frame.error is None]
        failed = [frame for frame in frames if frame.error is not None]
        batch = Batch(well, self._xp, sequence=self._sequence, failed=failed, ended=tuple(ended))
        self._sequence += 1
        return batch

    def abort(self) -> None:
        """Wake every thread that waits here with Aborted."""
        with self._changed:
            self._aborted = True
            self._changed.notify_all()

    def _share(self) -> int:
        """How many frames of one source may wait."""
        return max(2, -(-self._ahead * self._size // max(1, len(self._running))))

    def _take(self) -> Frame:
        source = self._ready.popleft()
        waiting = self._waiting[source]
        frame = waiting.popleft()[1]
        if waiting:
            self._ready.append(source)
        self._queued -= 1
        return frame

    def _oldest(self) -> float:
        return min(self._waiting[source][0][0] for source in self._ready)

    def _due(self) -> bool:
        if self._aborted or self._queued >= self._size:
            return True
        if self._queued == 0:
            return bool(self._ended) or (not self._running and not self._expected)
        if not self._running and not self._expected:
            return True
        if self._running and all(len(self._waiting[source]) >= self._share() for source in self._running):
            return True
        return time.monotonic() - self._oldest() >= self._max_wait_s

    def _patience(self) -> float | None:
        """How long to wait before looking again; None until something changes."""
        return None if self._queued == 0 else max(0.0, self._max_wait_s - (time.monotonic() - self._oldest()))
