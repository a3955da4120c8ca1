"""What the page shows of the pictures: each source's newest small picture while somebody looks, and the latest events.

The pipeline's threads put, the server's threads take. Every hand-over is one assignment or one append, so nobody waits
for anybody; memory is bounded by the number of sources and of events.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamkit.data import Event

ASKED_FOR_S = 3.0
"""How long after the last look pictures of a source are still made."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A small picture of one frame.

    Attributes:
        jpeg: the file's bytes.
        number: rises with each picture of any source.
        frame: the frame's index in its source.
        pts_s: its time in the source, in seconds.
        made_s: when the picture was made, on the monotonic clock in seconds.
    """

    jpeg: bytes
    number: int
    frame: int
    pts_s: float
    made_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    """An event as the API tells it.

    Attributes:
        number: rises with each event.
        time_s: wall clock in seconds since 1970: the frame's arrival for a live source, else when it was processed.
        event: what happened.
        jpeg: the frame's small picture, or None where none was made.
    """

    number: int
    time_s: float
    event: Event
    jpeg: bytes | None


@dataclass(slots=True)
class Gallery:
    """The newest pictures and events.

    Args:
        pictures_per_s: pictures made of one source at most, while somebody looks.
        event_pictures_per_s: pictures made for events of one source at most.
        keep: events kept.
    """

    pictures_per_s: float = 5.0
    event_pictures_per_s: float = 4.0
    keep: int = 200
    _asked: dict[str, float] = field(default_factory=dict)
    _newest: dict[str, Picture] = field(default_factory=dict)
    _last_event: dict[str, float] = field(default_factory=dict)
    _events: deque[Seen] = field(default_factory=deque)
    _pictures: int = 0
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def ask(self, source: str) -> None:
        """Somebody looks at `source`: pictures of it are made for the next `ASKED_FOR_S` seconds."""
        self._asked[source] = time.monotonic() + ASKED_FOR_S

    def wants(self, source: str, now_s: float) -> bool:
        """Whether a picture of `source` should be made now. A handful of operations where nobody looks."""
        until = self._asked.get(source)
        if until is None:
            return False
        if until < now_s:
            self._asked.pop(source, None)
            self._newest.pop(source, None)
            return False
        newest = self._newest.get(source)
        return newest is None or now_s - newest.made_s >= 1 / self.pictures_per_s

    def wants_event(self, source: str, now_s: float) -> bool:
        """Whether a picture should be made for an event of `source` now; a yes counts as made."""
        last = self._last_event.get(source)
        if last is not None and now_s - last < 1 / self.event_pictures_per_s:
            return False
        self._last_event[source] = now_s
        return True

    def put(self, source: str, jpeg: bytes, frame: int, pts_s: float) -> None:
        """Keep a picture as the newest of `source`."""
        self._pictures += 1
        self._newest[source] = Picture(jpeg, self._pictures, frame, pts_s, time.monotonic())

    def tell(self, time_s: float, events: Sequence[Event], jpeg: bytes | None) -> None:
        """Keep the events of one frame, with its picture."""
        for event in events:
            self._events.append(Seen(next(self._numbers), time_s, event, jpeg))
        while len(self._events) > self.keep:
            self._events.popleft()

    def newest(self, source: str) -> Picture | None:
        """The newest picture of `source`; None where there is none, or none was asked for lately."""
        return self._newest.get(source)

    def forget(self, source: str) -> None:
        """The source is gone: let its picture go. Its events stay."""
        for kept in (self._asked, self._newest, self._last_event):
            kept.pop(source, None)  # type: ignore[attr-defined]

    def events(self, limit: int, source: str | None = None, after: int = 0) -> list[Seen]:
        """The latest events, newest first: at most `limit`, of one source or all, with a number above `after`."""
        found = [one for one in self._copied() if one.number > after and source in (None, one.event.source)]
        return found[::-1][:limit]

    def event(self, number: int) -> Seen | None:
        """The event of that number, while it is kept."""
        return next((one for one in self._copied() if one.number == number), None)

    def _copied(self) -> list[Seen]:
        while True:
            try:
                return list(self._events)
            except RuntimeError:  # the pipeline appended meanwhile
                continue


def told(seen: Seen) -> dict[str, Any]:
    """An event as a plain dict; `picture` says whether `/events/{number}/picture.jpg` has one."""
    event = seen.event
    return {
        "number": seen.number, "time_s": seen.time_s, "source": event.source, "frame": event.frame,
        "pts_s": round(event.pts_s, 6), "kind": event.kind, "stage": event.stage, "track_id": event.track_id,
        "data": event.data, "picture": seen.jpeg is not None,
    }  # fmt: skip
