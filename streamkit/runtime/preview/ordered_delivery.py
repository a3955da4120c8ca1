# SPDX-License-Identifier: Apache-2.0
"""Passes what viewers see of the batches to a gallery, in the order of the batches, although images come later."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from streamkit.core.data import Detections, Event
from streamkit.runtime.preview.demand import Box, PreviewReceiver

_LATE_S = 1.0
"""How long the events of a batch, and of those behind it, wait for its images."""


@dataclass(frozen=True, slots=True)
class SmallImages:
    """Small images that are being copied to the host.

    Attributes:
        rows: the frame of each.
        read: waits for the copies and returns them, (1, h, w, 3) uint8 RGB each.
        tables: the objects to draw on each.
        sizes: width and height of each frame.
    """

    rows: list[int]
    read: Callable[[], list[np.ndarray]]
    tables: list[list[Detections]]
    sizes: list[tuple[int, int]]


@dataclass(slots=True, eq=False)
class ShownBatch:
    """What viewers see of one batch.

    Attributes:
        watched: row, source, index and PTS in seconds of each watched frame.
        events: row, time in seconds since 1970, events and the boxes of their objects, of each frame with events; the
            row of a failed one is None.
        images: the images of some of the rows.
        jpegs: JPEG files by row, once they are made; None while they are awaited.
        added_s: when it was added, in monotonic seconds.
    """

    watched: list[tuple[int, str, int, float]] = field(default_factory=list)
    events: list[tuple[int | None, float, list[Event], list[Box | None]]] = field(default_factory=list)
    images: SmallImages | None = None
    jpegs: dict[int, bytes] | None = None
    added_s: float = 0.0


class OrderedDelivery:
    """Delivers batches in the order in which they were added. Thread-safe.

    Args:
        gallery: receives images and events.

    Attributes:
        under_way: the sources of which an image is being made.
    """

    def __init__(self, gallery: PreviewReceiver) -> None:
        self._gallery = gallery
        self._waiting: deque[ShownBatch] = deque()
        self._lock = threading.Lock()
        self.under_way: set[str] = set()

    def add(self, shown: ShownBatch) -> None:
        """Add the next batch."""
        shown.added_s = time.monotonic()
        with self._lock:
            self.under_way.update(source for _, source, *_ in shown.watched)
            self._waiting.append(shown)

    def deliver(self, late_s: float = _LATE_S) -> None:
        """Deliver the batches at the front whose images are made, or have been awaited for longer than `late_s`."""
        with self._lock:
            while self._waiting:
                shown = self._waiting[0]
                if shown.jpegs is None and time.monotonic() < shown.added_s + late_s:
                    break
                self._pass_on(self._waiting.popleft())

    def _pass_on(self, shown: ShownBatch) -> None:
        jpegs = shown.jpegs or {}
        for row, source, index, pts_s in shown.watched:
            self.under_way.discard(source)
            if row in jpegs and source in self._gallery.requested:  # or it was removed meanwhile
                self._gallery.put(source, jpegs[row], index, pts_s)
        for event_row, time_s, events, boxes in shown.events:
            self._gallery.add_events(time_s, events, None if event_row is None else jpegs.get(event_row), boxes)
