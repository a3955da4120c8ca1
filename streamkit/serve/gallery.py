"""Image store of the preview: the newest small image of each watched source, and the latest events.

The pipeline's threads write, the server's threads read. Every hand-over is one assignment or one append, so no thread
waits; memory is bounded by the number of sources and events.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from streamkit.core.data import Event
from streamkit.serve.api_models import EventView

REQUESTED_FOR_S = 3.0
"""Seconds for which images of a source are still made after the last request."""


@dataclass(frozen=True, slots=True)
class Thumbnail:
    """A small image of one frame.

    Attributes:
        jpeg: the JPEG file.
        number: increases with each image of any source.
        frame: the frame's index in its source.
        pts_s: the frame's PTS, in seconds.
        made_s: monotonic time at which the image was made, in seconds.
    """

    jpeg: bytes
    number: int
    frame: int
    pts_s: float
    made_s: float


@dataclass(frozen=True, slots=True)
class GalleryEvent:
    """An event with its number, time and image.

    Attributes:
        number: increases with each event.
        time_s: wall clock in seconds since 1970: the frame's arrival for a live source, else when it was processed.
        event: the event.
        jpeg: the frame's small image, or None if none was made.
    """

    number: int
    time_s: float
    event: Event
    jpeg: bytes | None

    def view(self) -> EventView:
        """The event as the API returns it."""
        event, pts_s = self.event, round(self.event.pts_s, 6)
        return EventView(
            self.number, self.time_s, event.source, event.frame, pts_s, event.kind, event.stage, event.track_id,
            event.data, self.jpeg is not None,
        )  # fmt: skip


@dataclass(slots=True)
class Gallery:
    """The newest images and events.

    Args:
        images_per_s: maximum number of images made of a watched source per second.
        event_images_per_s: maximum number of images made for events of one source per second.
        keep: maximum number of events stored.
    """

    images_per_s: float = 5.0
    event_images_per_s: float = 4.0
    keep: int = 200
    _requested: dict[str, float] = field(default_factory=dict)
    _newest: dict[str, Thumbnail] = field(default_factory=dict)
    _last_event: dict[str, float] = field(default_factory=dict)
    _events: deque[GalleryEvent] = field(default_factory=deque)
    _images: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def request(self, source: str) -> None:
        """Request images of `source` for the next `REQUESTED_FOR_S` seconds."""
        self._requested[source] = time.monotonic() + REQUESTED_FOR_S

    def wants(self, source: str, now_s: float) -> bool:
        """Whether an image of `source` should be made now; cheap while it is not watched."""
        until = self._requested.get(source)
        if until is None:
            return False
        if until < now_s:
            self._requested.pop(source, None)
            self._newest.pop(source, None)
            return False
        newest = self._newest.get(source)
        return newest is None or now_s - newest.made_s >= 1 / self.images_per_s

    def wants_event(self, source: str, now_s: float) -> bool:
        """Whether an image should be made for an event of `source` now; returning True counts as one made."""
        last = self._last_event.get(source)
        if last is not None and now_s - last < 1 / self.event_images_per_s:
            return False
        self._last_event[source] = now_s
        return True

    def put(self, source: str, jpeg: bytes, frame: int, pts_s: float) -> None:
        """Store an image as the newest of `source`."""
        self._images += 1
        self._newest[source] = Thumbnail(jpeg, self._images, frame, pts_s, time.monotonic())

    def add_events(self, time_s: float, events: Sequence[Event], jpeg: bytes | None) -> None:
        """Store the events of one frame, with its image."""
        for event in events:
            self._events.append(GalleryEvent(next(self._numbers), time_s, event, jpeg))
        while len(self._events) > self.keep:
            self._events.popleft()

    def newest(self, source: str) -> Thumbnail | None:
        """The newest image of `source`; None if there is none, or none was requested lately."""
        return self._newest.get(source)

    def forget(self, source: str) -> None:
        """Discard the images of a removed source; its events are kept."""
        for kept in (self._requested, self._newest, self._last_event):
            kept.pop(source, None)  # type: ignore[attr-defined]

    def events(self, limit: int, source: str | None = None, after: int = 0) -> list[GalleryEvent]:
        """The latest events, newest first: at most `limit`, of one source or all, with a number above `after`."""
        found = [one for one in self._snapshot() if one.number > after and source in (None, one.event.source)]
        return found[::-1][:limit]

    def event(self, number: int) -> GalleryEvent | None:
        """The event with that number, while it is stored."""
        return next((one for one in self._snapshot() if one.number == number), None)

    def _snapshot(self) -> list[GalleryEvent]:
        while True:
            try:
                return list(self._events)
            except RuntimeError:  # the pipeline appended meanwhile
                continue
