# SPDX-License-Identifier: Apache-2.0
"""Which preview images are wanted: those of watched sources and of events, at a limited rate."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from streamkit.core.data import Event
from streamkit.runtime.preview.live import LiveReceiver

IMAGES_PER_S = 5.0
EVENT_IMAGES_PER_S = 4.0


Box = tuple[float, float, float, float]
"""x1, y1, x2, y2 as shares of a frame."""


class PreviewReceiver(Protocol):
    """Receives images and events: a `Gallery`, or a `RemoteGallery` in a worker process."""

    @property
    def live(self) -> LiveReceiver:
        """Receives live video and records."""

    @property
    def requested(self) -> Collection[str]:
        """The sources of which images were requested: `wants` may be true for these, and for no other."""

    def wants(self, source: str, now_s: float) -> bool:
        """Whether an image of `source` should be made at this monotonic time."""

    def wants_event(self, source: str, now_s: float) -> bool:
        """Whether an image should be made for an event of `source` now; returning True counts as one made."""

    def put(self, source: str, jpeg: bytes, frame: int, pts_s: float) -> None:
        """Take an image as the newest of `source`."""

    def add_events(
        self, time_s: float, events: Sequence[Event], jpeg: bytes | None, boxes: Sequence[Box | None] = ()
    ) -> None:
        """Take the events of one frame, with its image and the boxes of their objects."""


class PreviewDemand:
    """Which images are wanted.

    Args:
        images_per_s: maximum number of images made of a watched source per second.
        event_images_per_s: maximum number of images made for events of one source per second.
    """

    def __init__(self, images_per_s: float = IMAGES_PER_S, event_images_per_s: float = EVENT_IMAGES_PER_S) -> None:
        self.images_per_s = images_per_s
        self.event_images_per_s = event_images_per_s
        self._requested: dict[str, float] = {}
        self._created_s: dict[str, float] = {}
        self._last_event: dict[str, float] = {}

    @property
    def requested(self) -> Collection[str]:
        """See `PreviewReceiver.requested`."""
        return self._requested

    def watch(self, source: str, until_s: float) -> None:
        """Request images of `source` until a monotonic time."""
        self._requested[source] = until_s

    def wants(self, source: str, now_s: float) -> bool:
        """See `PreviewReceiver.wants`."""
        until_s = self._requested.get(source)
        if until_s is None:
            return False
        if until_s < now_s:
            self._unwatch(source)
            return False
        created_s = self._created_s.get(source)
        return created_s is None or now_s - created_s >= 1 / self.images_per_s

    def wants_event(self, source: str, now_s: float) -> bool:
        """See `PreviewReceiver.wants_event`."""
        last = self._last_event.get(source)
        if last is not None and now_s - last < 1 / self.event_images_per_s:
            return False
        self._last_event[source] = now_s
        return True

    def forget(self, source: str) -> None:
        """Forget a removed source."""
        self._unwatch(source)
        self._last_event.pop(source, None)

    def _unwatch(self, source: str) -> None:
        self._requested.pop(source, None)
        self._created_s.pop(source, None)
