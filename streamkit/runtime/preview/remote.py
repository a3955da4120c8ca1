# SPDX-License-Identifier: Apache-2.0
"""Passes images and events of a worker process to the gallery of its parent, and viewers' requests to the worker.

The rates are limited in the worker: an image that no viewer would see is neither encoded nor sent. A slow parent delays
no frame. Monotonic clocks agree in all processes of one machine.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamkit.core.data import Event
from streamkit.core.errors import describe
from streamkit.core.logs import LogOnce
from streamkit.runtime.execution.future import start
from streamkit.runtime.multiprocess.frame_ipc import portable
from streamkit.runtime.multiprocess.messages import GalleryEvents, PreviewImage
from streamkit.runtime.preview.demand import EVENT_IMAGES_PER_S, IMAGES_PER_S, Box, PreviewDemand
from streamkit.runtime.preview.gallery import KEEP, Gallery
from streamkit.runtime.preview.remote_live import RemoteLive

logger = logging.getLogger(__name__)

_SEND_EVERY_S = 0.05
_ORDER_EVERY_S = _DISCARD_EVERY_S = 1.0


class RemoteGallery(PreviewDemand):
    """The gallery of a worker process: it sends images and events to the parent, from its own thread.

    While the parent receives nothing, only the newest image of each source and the latest events are kept.

    Args:
        send: sends a message to the parent, such as `ParentConnection.send`; it may wait.
        images_per_s: maximum number of images made of a watched source per second.
        event_images_per_s: maximum number of images made for events of one source per second.
        keep: maximum number of events that wait to be sent.

    Attributes:
        live: live video and records.
    """

    def __init__(
        self,
        send: Callable[[Any], None],
        *,
        images_per_s: float = IMAGES_PER_S,
        event_images_per_s: float = EVENT_IMAGES_PER_S,
        keep: int = KEEP,
    ) -> None:
        super().__init__(images_per_s, event_images_per_s)
        self._send = send
        self.live = RemoteLive(send)
        self._images: dict[str, tuple[bytes, int, float]] = {}
        self._events: deque[tuple[float, Event, bytes | None, Box | None]] = deque(maxlen=keep)
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._warn = LogOnce(logger.warning)
        self._thread = start("preview", self._deliver)

    def request(self, sources: Mapping[str, float]) -> None:
        """Request images of sources, each until a monotonic time in seconds; an order of the parent."""
        for source, until_s in sources.items():
            self.watch(source, until_s)

    def put(self, source: str, jpeg: bytes, frame: int, pts_s: float) -> None:
        """Send an image as the newest of `source`."""
        self._created_s[source] = time.monotonic()
        with self._changed:
            self._images[source] = (jpeg, frame, pts_s)
            self._changed.notify()

    def add_events(
        self, time_s: float, events: Sequence[Event], jpeg: bytes | None, boxes: Sequence[Box | None] = ()
    ) -> None:
        """Send the events of one frame, with its image and the boxes of their objects."""
        event_boxes = itertools.zip_longest(events, boxes)
        sent = [(time_s, self._plain(event), jpeg, box) for event, box in event_boxes]
        with self._changed:
            self._events.extend(sent)
            self._changed.notify()

    def forget(self, source: str) -> None:
        """Forget a removed source."""
        super().forget(source)
        self.live.forget(source)

    def close(self) -> None:
        """Send what waits, and end the threads; call it before the last message to the parent."""
        self.live.close()
        with self._changed:
            self._closed.set()
            self._changed.notify()
        self._thread.join()

    def _plain(self, event: Event) -> Event:
        """The event with data that another process can read."""
        try:
            kind = portable(event.kind)
            track_id = portable(event.track_id)
            data = portable(event.data)
        except Exception as error:  # a plugin's object that has no text
            self._warn(f"preview: the data of an event of {event.stage} cannot be shown: {describe(error)}")
            kind = str(event.kind)
            track_id = None
            data = {}
        return replace(event, kind=kind, track_id=track_id, data=data, key=None)

    def _deliver(self) -> None:
        ending = False
        while not ending:
            with self._changed:
                self._changed.wait_for(lambda: self._images or self._events or self._closed.is_set())
                ending = self._closed.is_set()
                images = self._images
                self._images = {}
                events = list(self._events)
                self._events.clear()
            for source, image in images.items():
                self._send(PreviewImage(source, *image))
            if events:
                self._send(GalleryEvents(events))
            self._closed.wait(_SEND_EVERY_S)  # many events make one message


class GalleryRelay:
    """The parent's end: puts what workers send into a gallery, and passes viewers' requests to workers.

    Args:
        gallery: the gallery that viewers read.
        order: passes a source and the monotonic time until which it is watched to the worker that has the source, which
            calls `RemoteGallery.request`. It is called on the viewers' threads, at most once per second and source.
    """

    def __init__(self, gallery: Gallery, order: Callable[[str, float], None]) -> None:
        self._gallery = gallery
        self._order = order
        self._ordered_s: dict[str, float] = {}  # the oldest first
        self._lock = threading.Lock()
        self._discarded_s = 0.0
        gallery.on_request = self._pass_on

    def handle(self, message: Any) -> bool:
        """Process a message of a worker if it is of a gallery; return whether it is.

        Call it with every message, by one thread: it also discards the images of sources that are not watched any more.
        """
        now_s = time.monotonic()
        match message:
            case PreviewImage(source, jpeg, frame, pts_s):
                if self._gallery.watched(source, now_s):  # it may be late, or of a source that was removed
                    self._gallery.put(source, jpeg, frame, pts_s)
            case GalleryEvents(events):
                for time_s, event, image, box in events:
                    self._gallery.add_events(time_s, [event], image, [box])
        if now_s >= self._discarded_s + _DISCARD_EVERY_S:
            self._discarded_s = now_s
            self._gallery.discard_unwatched(now_s)
        return isinstance(message, PreviewImage | GalleryEvents)

    def _pass_on(self, source: str, until_s: float) -> None:
        now_s = time.monotonic()
        with self._lock:
            while self._ordered_s and now_s >= next(iter(self._ordered_s.values())) + _ORDER_EVERY_S:
                del self._ordered_s[next(iter(self._ordered_s))]
            if source in self._ordered_s:
                return
            self._ordered_s[source] = now_s
        self._order(source, until_s)
