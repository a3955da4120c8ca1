# SPDX-License-Identifier: Apache-2.0
"""Live video and records for viewers: which are wanted, and the queues in which they wait for each viewer.

A source's own packets wait where they are read (`packet_tap.py`), and results where the preview gets them
(`record_queue.py`). The server's coroutines make video and records of them, which all viewers share. Doing so for all
sources at once costs a fraction of what it costs frame by frame. A slow viewer loses what waits for it, and delays no
other one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary, ref

WANTED_FOR_S = 3.0
"""Seconds for which video and records of a source are still made after the last request."""

MAX_WAITING = 64
MAX_WAITING_BYTES = 8_000_000
"""Maximum number and size of the fragments that wait for one viewer."""

_MAX_RECORDS = 1000  # that wait for one viewer
_MAX_GOP_BYTES = 16_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LiveStart:
    """The start of a video; its media time begins at 0.

    Attributes:
        generation: that of the wish that it answers.
        codecs: the codec by RFC 6381.
        width: width of a frame in pixels.
        height: its height.
        init: the initialization segment.
        offset_s: the PTS of a frame in its record minus its media time, in seconds; None if not yet known.
        error: why there is no video; empty if there is.
    """

    generation: int
    codecs: str = ""
    width: int = 0
    height: int = 0
    init: bytes = b""
    offset_s: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class LiveFragment:
    """A fragment of one frame."""

    data: bytes
    keyframe: bool


@dataclass(frozen=True, slots=True)
class LiveOffset:
    """From the media time `from_s` on, the PTS of a frame's record is its media time plus `offset_s`, in seconds."""

    from_s: float
    offset_s: float


LiveMessage = LiveStart | LiveFragment | LiveOffset


class LiveWish(NamedTuple):
    """What viewers want of a source.

    Attributes:
        generation: number of the first request; another number starts the video again.
        video_until_s: monotonic time until which its video is wanted, in seconds.
        records_until_s: the same for its records.
    """

    generation: int = 0
    video_until_s: float = 0.0
    records_until_s: float = 0.0


class PacketQueue(Protocol):
    """The packets of a source that wait until video is made of them: a `PacketTap`."""

    def make_video(self) -> tuple[list[LiveMessage], int]:
        """Make video of the packets that have come; return it, and how many were dropped as too many waited."""


class ResultQueue(Protocol):
    """The results of frames that wait until records are made of them: a `RecordQueue`."""

    def make_records(self) -> tuple[list[tuple[str, bytes]], int]:
        """Make records of the results that have come, as JSON, each with its source; and how many are lost."""


class LiveReceiver(Protocol):
    """Makes video and records for viewers: a `LiveHub`, or a `RemoteLive` in a worker process."""

    def attach(self, source: str, packets: PacketQueue) -> None:
        """Make the video of `source` of these packets from now on; the caller keeps them alive."""

    def attach_records(self, results: ResultQueue) -> None:
        """Make records of these results too; the caller keeps them alive."""

    def viewed(self, source: str) -> int:
        """The generation of the wish for video of `source`; 0 while there is none. Cheap."""

    def heard(self) -> Collection[str]:
        """The sources whose records are wanted."""


class LiveDemand:
    """What is wanted of each source, as last ordered, and the packets and results that it is made of."""

    def __init__(self) -> None:
        self._wishes: dict[str, LiveWish] = {}
        self._packets: WeakValueDictionary[str, PacketQueue] = WeakValueDictionary()
        self._results: tuple[ref[ResultQueue], ...] = ()

    def attach(self, source: str, packets: PacketQueue) -> None:
        """See `LiveReceiver.attach`."""
        self._packets[source] = packets

    def make_video(self, source: str) -> tuple[list[LiveMessage], int]:
        """See `PacketQueue.make_video`."""
        packets = self._packets.get(source)
        return ([], 0) if packets is None else packets.make_video()

    def attach_records(self, results: ResultQueue) -> None:
        """See `LiveReceiver.attach_records`."""
        self._results = (*(queue for queue in self._results if queue() is not None), ref(results))

    def make_records(self) -> tuple[list[tuple[str, bytes]], int]:
        """See `ResultQueue.make_records`."""
        records: list[tuple[str, bytes]] = []
        lost = 0
        for results in filter(None, [queue() for queue in self._results]):
            more, more_lost = results.make_records()
            records = records + more
            lost = lost + more_lost
        return records, lost

    def order(self, source: str, wish: LiveWish) -> None:
        """Set what is wanted of a source."""
        self._wishes[source] = wish

    def viewed(self, source: str) -> int:
        """See `LiveReceiver.viewed`."""
        wish = self._wishes.get(source)
        return wish.generation if wish is not None and time.monotonic() < wish.video_until_s else 0

    def heard(self) -> Collection[str]:
        """See `LiveReceiver.heard`."""
        now_s = time.monotonic()
        return {source for source, wish in list(self._wishes.items()) if now_s < wish.records_until_s}

    def forget(self, source: str) -> None:
        """Forget a removed source."""
        self._wishes.pop(source, None)


class FragmentQueue(Generic[T]):
    """Messages of a video that wait for one reader. When there are too many, those before the newest keyframe go.

    Args:
        kind: the class of messages that are dropped, with `data` and `keyframe`; all others are kept.

    Attributes:
        lost: number of messages that were dropped.
    """

    def __init__(self, kind: type[Any] = LiveFragment) -> None:
        self._kind = kind
        self._waiting: deque[T] = deque()
        self._fragments = self._bytes = self.lost = 0
        self._skipping = False

    def put(self, message: T) -> None:
        """Add a message."""
        if isinstance(message, self._kind):
            if self._fragments >= MAX_WAITING or self._bytes > MAX_WAITING_BYTES:
                self._shorten()
            self._skipping &= not message.keyframe
            if self._skipping:
                self.lost += 1
                return
            self._fragments += 1
            self._bytes += len(message.data)
        elif isinstance(message, LiveStart):
            self._skipping = False
            self._waiting.clear()  # a player starts again with it
            self._fragments = self._bytes = 0
        self._waiting.append(message)

    def _shorten(self) -> None:
        """Drop the fragments before the newest keyframe; if that is the first of them, drop all until the next."""
        fragments: list[Any] = [message for message in self._waiting if isinstance(message, self._kind)]
        newest = max((place for place, fragment in enumerate(fragments) if fragment.keyframe), default=0)
        self._skipping = newest == 0
        dropped = newest or len(fragments)
        dropped_ids = set(map(id, fragments[:dropped]))
        self._waiting = deque(message for message in self._waiting if id(message) not in dropped_ids)
        self.lost += dropped
        self._fragments = len(fragments) - dropped
        self._bytes = sum(len(fragment.data) for fragment in fragments[dropped:])

    def take(self) -> list[T]:
        """Remove and return all messages."""
        taken = list(self._waiting)
        self._waiting = deque()
        self._fragments = self._bytes = 0
        return taken

    def __len__(self) -> int:
        return len(self._waiting)


class Viewer:
    """What waits for one client: it takes everything at a steady pace, so no thread that puts has to wake it.

    Args:
        sources: the sources whose records it gets; None for all.

    Attributes:
        lost: number of fragments or records that were dropped because it was slow.
    """

    def __init__(self, sources: frozenset[str] | None = None) -> None:
        self.sources = sources
        self._lock = threading.Lock()
        self._video: FragmentQueue[LiveMessage] = FragmentQueue()
        self._records: deque[bytes] = deque(maxlen=_MAX_RECORDS)
        self._lost_records = 0

    @property
    def lost(self) -> int:
        """See the class."""
        return self._video.lost + self._lost_records

    def put(self, *messages: LiveMessage) -> None:
        """Add messages of a video, from any thread."""
        with self._lock:
            for message in messages:
                self._video.put(message)

    def put_records(self, records: Sequence[bytes]) -> None:
        """Add records, from any thread."""
        with self._lock:
            self._lost_records += max(0, len(self._records) + len(records) - _MAX_RECORDS)
            self._records.extend(records)

    def take(self) -> tuple[list[LiveMessage], list[bytes]]:
        """Remove and return all messages and records."""
        with self._lock:
            records = list(self._records)
            self._records = deque(maxlen=_MAX_RECORDS)
            return self._video.take(), records


@dataclass(slots=True)
class _Channel:
    """The video of a source that is viewed: its viewers, and what a new viewer begins with."""

    generation: int
    viewers: tuple[Viewer, ...] = ()
    start: LiveStart | None = None
    since_keyframe: list[LiveMessage] = field(default_factory=list)
    size_bytes: int = 0

    def put(self, message: LiveMessage) -> bool:
        """Keep a message for new viewers; return whether it is of this generation."""
        if isinstance(message, LiveStart):
            if message.generation != self.generation:
                return False
            self.start = message
            self.since_keyframe = []
            self.size_bytes = 0
            return True
        if self.start is None:
            return False
        if isinstance(message, LiveFragment):
            if message.keyframe:
                offsets = [earlier.offset_s for earlier in self.since_keyframe if isinstance(earlier, LiveOffset)]
                if offsets:
                    self.start = replace(self.start, offset_s=offsets[-1])
                self.since_keyframe = []
                self.size_bytes = 0
            elif not self.size_bytes:
                return True  # its keyframe was left out
            self.size_bytes += len(message.data)
            if self.size_bytes > _MAX_GOP_BYTES:
                self.since_keyframe = []
                self.size_bytes = 0
                return True
        self.since_keyframe.append(message)
        return True

    def beginning(self) -> list[LiveMessage]:
        """What a new viewer begins with: the start, and one fragment of all frames since the last keyframe."""
        if self.start is None:
            return []
        offsets = [message for message in self.since_keyframe if isinstance(message, LiveOffset)]
        frames = b"".join(message.data for message in self.since_keyframe if isinstance(message, LiveFragment))
        return [self.start, *offsets, *([LiveFragment(frames, keyframe=True)] if frames else [])]


class LiveHub(LiveDemand):
    """Passes the video and the records of sources to their viewers.

    Attributes:
        on_request: called with each source and what is wanted of it, for the process that reads it.
        lost: packets and results that the server was too slow to make video and records of, and fragments and records
            that viewers who have left lost because they were slow.
    """

    def __init__(self) -> None:
        super().__init__()
        self.on_request: Callable[[str, LiveWish], None] | None = None
        self._lock = threading.Lock()
        self._channels: dict[str, _Channel] = {}
        self._listeners: tuple[Viewer, ...] = ()
        self._generations = 0
        self.lost = 0

    @property
    def viewers(self) -> int:
        """Number of viewers of a video or of records."""
        with self._lock:
            return len(self._listeners) + sum(len(channel.viewers) for channel in self._channels.values())

    @contextmanager
    def view(self, source: str) -> Iterator[Viewer]:
        """A viewer of a source's video while the block runs; call `request` once a second meanwhile."""
        viewer = Viewer()
        with self._lock:
            channel = self._channels.get(source)
            if channel is None:
                self._generations += 1
                channel = self._channels[source] = _Channel(self._generations)
            viewer.put(*channel.beginning())
            channel.viewers = (*channel.viewers, viewer)
        try:
            self.request(source)
            yield viewer
        finally:
            with self._lock:
                self.lost += viewer.lost
                channel.viewers = tuple(other for other in channel.viewers if other is not viewer)
                if not channel.viewers:
                    self._channels.pop(source, None)

    @contextmanager
    def listen(self, sources: frozenset[str] | None) -> Iterator[Viewer]:
        """A viewer of the records of these sources, or of all; call `request_records` once a second meanwhile."""
        viewer = Viewer(sources)
        with self._lock:
            self._listeners = (*self._listeners, viewer)
        try:
            yield viewer
        finally:
            with self._lock:
                self.lost += viewer.lost
                self._listeners = tuple(other for other in self._listeners if other is not viewer)

    def request(self, source: str) -> None:
        """Request video of `source` for the next `WANTED_FOR_S` seconds."""
        with self._lock:
            channel = self._channels.get(source)
            generation = 0 if channel is None else channel.generation
            self._wish(source, generation=generation, video_until_s=time.monotonic() + WANTED_FOR_S)

    def request_records(self, source: str) -> None:
        """Request records of `source` for the next `WANTED_FOR_S` seconds."""
        with self._lock:
            self._wish(source, records_until_s=time.monotonic() + WANTED_FOR_S)

    def gather(self, source: str) -> None:
        """Make video of the packets of `source` that have come, for all its viewers; call it before they take."""
        messages, lost = self.make_video(source)
        if messages or lost:
            self.put(source, messages, lost)

    def put(self, source: str, messages: Sequence[LiveMessage], lost: int = 0) -> None:
        """Add the next messages of a source's video, and to the number of lost packets."""
        with self._lock:
            self.lost += lost
            channel = self._channels.get(source)
            if channel is None:
                return
            accepted = [message for message in messages if channel.put(message)]
            for viewer in channel.viewers:
                viewer.put(*accepted)

    def gather_records(self) -> None:
        """Make records of the results that have come, for all listeners; call it before they take."""
        records, lost = self.make_records()
        if records or lost:
            self.put_records(records, lost)

    def put_records(self, records: Sequence[tuple[str, bytes]], lost: int = 0) -> None:
        """Add the next records, as JSON, each with its source, and to the number of lost ones."""
        with self._lock:
            self.lost += lost
        for viewer in self._listeners:
            if wanted := [record for source, record in records if viewer.sources is None or source in viewer.sources]:
                viewer.put_records(wanted)

    def _wish(self, source: str, **changes: Any) -> None:
        wish = self._wishes.get(source, LiveWish())._replace(**changes)
        self.order(source, wish)
        if self.on_request is not None:
            self.on_request(source, wish)
