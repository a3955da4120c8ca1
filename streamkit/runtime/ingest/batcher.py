# SPDX-License-Identifier: Apache-2.0
"""Collects frames of all sources into batches. A batch leaves when it is full or its oldest frame has waited enough.

The batcher never waits for all sources. It is the only place that drops frames, and only those of live sources: a
camera does not wait.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Event, Frame
from streamkit.runtime.execution.channel import Aborted, AwaitedCondition
from streamkit.runtime.execution.tables import new_batch

TOO_OLD = "frames dropped: over age"
QUEUE_FULL = "frames dropped: queue full"
LIVE_LATENCY_S = 1.0
"""Default maximum age of a live frame when it leaves in a batch."""

_MIN_SHARE = 0.1  # minimum share of the allowed latency for waiting here, however long the graph takes
_UNDER_WAY = 1000  # batches in the graph whose time is measured
_FIRST_BATCHES = 2
_LIVE_QUEUE = 4
_MAX_LIVE_QUEUE = 16
"""Frames of a live source that may wait: 4, or up to 16 for a stall, so that it drops none. A pipeline that is always
too slow would only delay its frames with the longer queue, so after a drop the queue is short for a while."""
_SHORT_FOR_S = 10.0
_DROPS_AT_ONCE = 2  # a long queue becomes short by one frame with each new one


class Inlet:
    """Queue for the frames of one source; `Batcher.begin` creates it.

    Attributes:
        source: the source's id.
        drops: dropped frames by cause; the batcher's lock guards it and `events`.
        events: events of dropped frames; the source's next frame that is kept takes them.
        taken: number of its frames that went into batches.
        live: whether its last frame had a due time.
        flushing: whether its frames leave in batches of one source that are not full.
        dropped_s: monotonic time in seconds of its last dropped frame.
    """

    __slots__ = (
        "_batcher",
        "dropped_s",
        "drops",
        "ended",
        "events",
        "flushing",
        "live",
        "room",
        "source",
        "taken",
        "waiting",
    )

    def __init__(self, batcher: Batcher, source: str, room: AwaitedCondition, drops: Counters) -> None:
        self._batcher = batcher
        self.source = source
        self.room = room
        self.drops = drops
        self.waiting: deque[tuple[float, Frame]] = deque()
        self.ended = self.live = self.flushing = False
        self.events: list[Event] = []
        self.taken = 0
        self.dropped_s = -math.inf

    def put(self, frame: Frame) -> None:
        """Add a frame. If the queue is full, a frame without a due time waits; any other replaces the oldest, or two.

        Raises:
            Aborted: the run was aborted, or the source was ended by another thread.
        """
        batcher = self._batcher
        waiting = self.waiting
        live = frame.due_s is not None
        with batcher._lock:
            if live is not self.live and not self.ended:
                self.live = live
                batcher._live_inlets += 1 if live else -1
            while not live and len(waiting) >= batcher._share and not batcher._aborted and not self.ended:
                self.room.wait()
            if batcher._aborted or self.ended:
                raise Aborted
            if live and len(waiting) >= _LIVE_QUEUE:
                surplus = len(waiting) + 1 - max(batcher._share, self._max_waiting(frame))
                for _ in range(min(surplus, _DROPS_AT_ONCE)):
                    batcher._drop(self, QUEUE_FULL)
            waiting.append((time.monotonic(), frame))
            if len(waiting) == 1:
                batcher._enqueue(self)
            batcher._queued += 1
            if batcher._changed.awaited and (
                batcher._queued == 1 or batcher._queued >= batcher._size or len(waiting) >= batcher._share
            ):
                batcher._changed.notify_all()

    def _max_waiting(self, frame: Frame) -> int:
        """How many live frames of this size may wait, unless the source's fair share is larger."""
        if time.monotonic() - self.dropped_s < _SHORT_FOR_S:
            return _LIVE_QUEUE
        each = self._batcher._live_bytes() // max(1, self._batcher._live_inlets)
        return max(_LIVE_QUEUE, min(_MAX_LIVE_QUEUE, each * 2 // max(1, frame.width * frame.height * 3)))

    @property
    def accepted(self) -> int:
        """How many of its frames went into batches or wait for one: all but the dropped ones."""
        with self._batcher._lock:
            return self.taken + len(self.waiting)

    def wait_until_empty(self) -> int:
        """Wait until each of its frames went into a batch or was dropped; return how many went into batches.

        Raises:
            Aborted: the run was aborted, or the source was ended by another thread.
        """
        batcher = self._batcher
        with batcher._lock:
            self.flushing = True
            batcher._changed.notify_all()
            while self.waiting and not batcher._aborted and not self.ended:
                self.room.wait()
            self.flushing = False
            if batcher._aborted or self.ended:
                raise Aborted
            return self.taken

    def flush(self) -> None:
        """Do not let queued and further frames wait for others of the source; it has few more."""
        with self._batcher._lock:
            self.flushing = True
            self._batcher._changed.notify_all()

    def end(self) -> None:
        """End the source: queued frames still leave in batches. Later calls have no effect."""
        batcher = self._batcher
        with batcher._lock:
            if not self.ended:
                self.ended = True
                batcher._running -= 1
                batcher._share = batcher._fair_share()
                batcher._ended.append(self)
                batcher._wake_all()  # the share of the other sources may be larger now


class Batcher:
    """Collects frames from the source threads into batches, live sources first, as cameras do not wait; then files.

    Within each kind the sources take turns, one frame each. A batch leaves when `size` frames are queued, when its
    oldest frame has waited `max_wait_s`, when the queue of every running source is full, or when all sources are done.

    A frame with a due time (live and paced sources) is dropped and counted if a newer one needs its place, or if it
    would be older than `max_latency_s` at the end of the graph. The time through the graph is measured: the end of the
    graph calls `batch_done`. A frame without a due time is never dropped; its source waits.

    Args:
        size: maximum number of frames in a batch.
        max_wait_s: how long a frame waits for others, in seconds.
        xp: the array module of the pipeline's device.
        ahead: number of batches that may be queued before sources have to wait.
        max_latency_s: maximum age in seconds of a frame with a due time at the end of the graph.
        per_source: make batches of one source each, all full but the last of a source, however long that takes; batches
            then do not depend on the clock. Only for sources that end.
        live_bytes: returns how much memory the waiting frames of all live sources may take, beyond 4 frames each.
        first_size: the same as `size` for the first two batches, whose records would otherwise wait for two full
            batches of a network that is still being tuned; by default, `size`.

    Attributes:
        inlets: the sources that still have frames to come, by id.
        first_done: set when the first batch has reached the end of the graph.
    """

    def __init__(
        self,
        size: int,
        max_wait_s: float,
        xp: Any,
        ahead: int = 2,
        max_latency_s: float = LIVE_LATENCY_S,
        per_source: bool = False,
        first_size: int | None = None,
        live_bytes: Callable[[], int] = lambda: 1 << 30,
    ) -> None:
        self._size = size
        self._max_wait_s = max_wait_s
        self._xp = xp
        self._ahead = ahead
        self._wanted = size if first_size is None else first_size
        self._max_latency_s = max_latency_s
        self._per_source = per_source
        self._live_bytes = live_bytes
        self.inlets: dict[str, Inlet] = {}
        self.first_done = threading.Event()
        self._live: deque[Inlet] = deque()  # live sources with frames that wait, in turn
        self._files: deque[Inlet] = deque()  # likewise sources without due times
        self._ended: list[Inlet] = []
        self._running = self._queued = self._expected = self._sequence = self._live_inlets = 0
        self._share = self._fair_share()
        self._aborted = self._over = False
        self._sent_s: dict[int, float] = {}
        self._transit_s = 0.0
        self._changed = AwaitedCondition()  # for `next`, and for a source that waits for an id
        self._lock = self._changed.lock

    def expect(self, sources: int) -> bool:
        """Announce `sources` more (or fewer) sources; `next` waits for them. Returns False if it has already ended."""
        with self._lock:
            if self._over:
                return False
            self._expected += sources
            self._changed.notify_all()
            return True

    def begin(self, source: str, drops: Counters | None = None) -> Inlet:
        """Register one of the expected sources; wait until an earlier source with its id has ended.

        Each inlet has its own condition for free space: waking all sources at every batch would cost more than their
        frames.

        Raises:
            Aborted: the run was aborted.
        """
        with self._lock:
            while source in self.inlets and not self._aborted:
                self._changed.wait()
            if self._aborted:
                raise Aborted
            self._running += 1
            self._expected -= 1
            self._share = self._fair_share()
            inlet = Inlet(self, source, AwaitedCondition(self._lock), Counters() if drops is None else drops)
            self.inlets[source] = inlet
            return inlet

    def next(self) -> Batch | None:
        """Wait for the next batch and return it; None when all sources have ended. Raises Aborted."""
        with self._lock:
            while True:
                while not self._due():
                    self._changed.wait(self._patience())
                if self._aborted:
                    raise Aborted
                frames = self._take()
                ended = self._take_ended() if self._ended else ()
                if frames or ended:
                    break
                if self._idle() and not self._queued:
                    self._over = True
                    return None
        batch = new_batch(frames, self._xp, sequence=self._sequence, ended=ended)
        if len(self._sent_s) < _UNDER_WAY:
            self._sent_s[batch.sequence] = time.monotonic()
        self._sequence += 1
        if self._sequence == _FIRST_BATCHES:
            self._wanted = self._size
        return batch

    def batch_done(self, sequence: int) -> None:
        """Update the time through the graph from a batch that reached its end: rises at once, falls slowly."""
        left_s = self._sent_s.pop(sequence, None)
        if left_s is not None:
            took_s = time.monotonic() - left_s
            if not self._transit_s:
                self.first_done.set()
            self._transit_s = max(took_s, 0.9 * self._transit_s + 0.1 * took_s)

    @property
    def live(self) -> bool:
        """Whether a live source sends frames: a batch is then made only when it can leave at once."""
        return self._live_inlets > 0

    @property
    def waiting(self) -> int:
        """Number of queued frames."""
        return self._queued

    def abort(self) -> None:
        """Raise Aborted in every thread that waits here."""
        with self._lock:
            self._aborted = True
            self._wake_all()

    def _wake_all(self) -> None:
        self._changed.notify_all()
        for inlet in self.inlets.values():
            inlet.room.notify_all()

    def _take_ended(self) -> tuple[str, ...]:
        """Remove the sources that have ended and have no frame left; return their ids."""
        ended = [inlet for inlet in self._ended if not inlet.waiting]
        for inlet in ended:
            self._ended.remove(inlet)
            del self.inlets[inlet.source]
            self._live_inlets -= inlet.live
        if ended:
            self._changed.notify_all()
        return tuple(inlet.source for inlet in ended)

    def _fair_share(self) -> int:
        """Maximum number of queued frames of one source."""
        minimum = self._size if self._per_source else 2
        return max(minimum, -(-self._ahead * self._size // max(1, self._running)))

    def _take(self) -> list[Frame]:
        """Take up to one batch of frames that are young enough: live sources first, one frame of each ready source."""
        if self._per_source:
            return self._take_source_batch()
        frames: list[Frame] = []
        allowed_s = max(self._max_latency_s - self._transit_s, _MIN_SHARE * self._max_latency_s)
        oldest = time.monotonic() - allowed_s
        for ready in (self._live, self._files):
            while ready and len(frames) < self._wanted:
                inlet = ready.popleft()
                waiting = inlet.waiting
                while waiting and (due_s := waiting[0][1].due_s) is not None and due_s < oldest:
                    self._drop(inlet, TOO_OLD)
                if waiting:
                    frames.append(self._take_frame(inlet))
                if waiting:
                    self._enqueue(inlet)
                if inlet.room.awaited:
                    inlet.room.notify_all()
        return frames

    def _enqueue(self, inlet: Inlet) -> None:
        """Queue a source after the others of its kind, live or file."""
        (self._files if inlet.waiting[0][1].due_s is None else self._live).append(inlet)

    def _take_source_batch(self) -> list[Frame]:
        """Take a batch of one source: the first that has a full batch or has ended."""
        choice = next(
            ((ready, inlet) for ready in (self._live, self._files) for inlet in ready if self._full(inlet)), None
        )
        if choice is None:
            return []
        ready, inlet = choice
        ready.remove(inlet)
        frames = [self._take_frame(inlet) for _ in range(min(self._size, len(inlet.waiting)))]
        if inlet.waiting:
            self._enqueue(inlet)
        inlet.room.notify_all()
        return frames

    def _take_frame(self, inlet: Inlet) -> Frame:
        frame = inlet.waiting.popleft()[1]
        self._queued -= 1
        if inlet.events:
            frame.events[:0] = inlet.events
            inlet.events = []
        frame._state.ordinal = inlet.taken
        inlet.taken += 1
        return frame

    def _full(self, inlet: Inlet) -> bool:
        return inlet.ended or inlet.flushing or len(inlet.waiting) >= self._size

    def _drop(self, inlet: Inlet, cause: str) -> None:
        """Drop the oldest frame; its events move to the next one."""
        inlet.events += inlet.waiting.popleft()[1].events
        inlet.dropped_s = time.monotonic()
        self._queued -= 1
        inlet.drops.add(cause)

    def _idle(self) -> bool:
        """Whether no source runs or is expected."""
        return not self._running and self._expected <= 0

    def _oldest(self) -> float:
        return min(inlet.waiting[0][0] for ready in (self._live, self._files) for inlet in ready)

    def _due(self) -> bool:
        if self._aborted or self._idle() or (self._queued >= self._wanted and not self._per_source):
            return True
        if self._queued == 0:
            return bool(self._ended)
        if self._per_source:
            return any(map(self._full, (*self._live, *self._files))) or any(not inlet.waiting for inlet in self._ended)
        if self._running and all(inlet.ended or len(inlet.waiting) >= self._share for inlet in self.inlets.values()):
            return True
        return time.monotonic() - self._oldest() >= self._max_wait_s

    def _patience(self) -> float | None:
        """How long to wait before checking again, in seconds; None to wait for a change."""
        if self._queued == 0 or self._per_source:
            return None
        return max(0.0, self._max_wait_s - (time.monotonic() - self._oldest()))
