# SPDX-License-Identifier: Apache-2.0
"""Image store of the preview: the newest small image of each watched source, and the latest events.

The pipeline's threads write, or the thread that receives from worker processes; the server's threads read. Every
hand-over is one assignment or one append, so no thread waits; memory is bounded by the number of sources and events.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from streamkit.core.data import Event
from streamkit.runtime.preview.demand import EVENT_IMAGES_PER_S, IMAGES_PER_S, Box, PreviewDemand
from streamkit.runtime.preview.live import LiveHub

REQUESTED_FOR_S = 3.0
"""Seconds for which images of a source are still made after the last request."""
KEEP = 200
"""Number of events that are stored."""


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small image of one frame.

    Attributes:
        jpeg: the JPEG file.
        number: increases with each image of any source.
        frame: the frame's index in its source.
        pts_s: the frame's PTS, in seconds.
        created_s: monotonic time at which the image was created, in seconds.
    """

    jpeg: bytes
    number: int
    frame: int
    pts_s: float
    created_s: float


@dataclass(frozen=True, slots=True)
class GalleryEvent:
    """An event with its number, time and image.

    Attributes:
        number: increases with each event.
        time_s: wall clock in seconds since 1970: the frame's arrival for a live source, else when it was processed.
        event: the event.
        jpeg: the frame's small image, or None if none was made.
        box: the object's x1, y1, x2, y2 as shares of the frame; None if the event has no object in the frame.
    """

    number: int
    time_s: float
    event: Event
    jpeg: bytes | None
    box: Box | None = None


class Gallery(PreviewDemand):
    """The newest images and events.

    Args:
        images_per_s: maximum number of images made of a watched source per second.
        event_images_per_s: maximum number of images made for events of one source per second.
        keep: maximum number of events stored.

    Attributes:
        on_request: called for each request with the source and the monotonic time until which it is watched.
        on_events: called with the new events, on the pipeline's threads; it must be quick.
        live: live video and records.
    """

    def __init__(
        self, images_per_s: float = IMAGES_PER_S, event_images_per_s: float = EVENT_IMAGES_PER_S, keep: int = KEEP
    ) -> None:
        super().__init__(images_per_s, event_images_per_s)
        self.keep = keep
        self.live = LiveHub()
        self.on_request: Callable[[str, float], None] | None = None
        self.on_events: Callable[[Sequence[GalleryEvent]], None] | None = None
        self._newest: dict[str, Thumbnail] = {}
        self._events: deque[GalleryEvent] = deque()
        self._images = 0
        self._numbers = itertools.count(1)

    def continue_from(self, first: int, on_events: Callable[[Sequence[GalleryEvent]], None]) -> None:
        """Give the next event the number `first`, and pass new events on; call it before the first event."""
        self._numbers = itertools.count(first)
        self.on_events = on_events

    def request(self, source: str) -> None:
        """Request images of `source` for the next `REQUESTED_FOR_S` seconds."""
        until_s = time.monotonic() + REQUESTED_FOR_S
        self.watch(source, until_s)
        if self.on_request is not None:
            self.on_request(source, until_s)

    def watched(self, source: str, now_s: float) -> bool:
        """Whether images of `source` are requested at this monotonic time."""
        return self._requested.get(source, -math.inf) >= now_s

    def discard_unwatched(self, now_s: float) -> None:
        """Discard the images of all sources that are not watched at this monotonic time.

        `wants` does so for its source. If the stages run in other processes, call this periodically instead.
        """
        for source in list(self._newest):
            if not self.watched(source, now_s):
                self._unwatch(source)

    def put(self, source: str, jpeg: bytes, frame: int, pts_s: float) -> None:
        """Store an image as the newest of `source`."""
        self._images += 1
        now_s = self._created_s[source] = time.monotonic()
        self._newest[source] = Thumbnail(jpeg, self._images, frame, pts_s, now_s)

    def add_events(
        self, time_s: float, events: Sequence[Event], jpeg: bytes | None, boxes: Sequence[Box | None] = ()
    ) -> None:
        """Store the events of one frame, with its image and the boxes of their objects."""
        event_boxes = itertools.zip_longest(events, boxes)
        new = [GalleryEvent(next(self._numbers), time_s, event, jpeg, box) for event, box in event_boxes]
        self._events.extend(new)
        if self.on_events is not None:
            self.on_events(new)
        while len(self._events) > self.keep:
            self._events.popleft()

    @property
    def last_event(self) -> int:
        """Number of the newest event; 0 if there is none."""
        try:
            return self._events[-1].number
        except IndexError:
            return 0

    def newest(self, source: str) -> Thumbnail | None:
        """The newest image of `source`; None if there is none, or none was requested lately."""
        return self._newest.get(source)

    def _unwatch(self, source: str) -> None:
        super()._unwatch(source)
        self._newest.pop(source, None)

    def events(self, limit: int, source: str | None = None, after: int = 0) -> list[GalleryEvent]:
        """The latest events, newest first: at most `limit`, of one source or all, with a number above `after`."""
        entries = [entry for entry in self._snapshot() if entry.number > after and source in (None, entry.event.source)]
        return entries[::-1][:limit]

    def event(self, number: int) -> GalleryEvent | None:
        """The event with that number, while it is stored."""
        return next((entry for entry in self._snapshot() if entry.number == number), None)

    def _snapshot(self) -> list[GalleryEvent]:
        while True:
            try:
                return list(self._events)
            except RuntimeError:  # the pipeline appended meanwhile
                continue
