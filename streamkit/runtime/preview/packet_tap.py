# SPDX-License-Identifier: Apache-2.0
"""Takes a source's packets as they are read, and keeps them until live video is made of them for viewers.

The source's thread only copies a packet: making video of it at once would cost several times as much, because all
sources' threads would do so in turns. Without a viewer a packet costs a few comparisons. Only the packets of a source
whose keyframes come seldom are kept then, so that the next viewer does not wait for one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from streamkit.media.ring import PacketRef, PacketRing
from streamkit.runtime.preview.live import MAX_WAITING, FragmentQueue, LiveMessage, LiveReceiver
from streamkit.runtime.preview.live_video import LiveVideo, Shift, SourceStream, TappedPacket

_SAME_S = 0.001
_SELDOM_S = 3.0  # between two keyframes: a viewer waits for the next one of others
_MAX_QUEUED = MAX_WAITING - 4  # room for what comes before the first viewer takes them
_MAX_QUEUED_BYTES = 4_000_000
_MAX_NOTES = 2 * MAX_WAITING  # shifts are not dropped with packets: they are not added to a queue as long as this


class PacketTap:
    """The packets of one source, on the source's thread: for viewers, and for a ring that stages read.

    Args:
        source: the source's id.
        live: makes video of the packets on its own thread, by `make_video`.
        ring: receives the packets as well; None for none.
        clock: monotonic time in seconds.
    """

    def __init__(
        self,
        source: str,
        live: LiveReceiver,
        ring: PacketRing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._live = live
        self._ring = ring
        self._clock = clock
        self._keyframe_s: float | None = None  # when the last keyframe came
        self._seldom = False  # whether keyframes are far apart
        self._since_keyframe: list[TappedPacket] = []
        self._lock = threading.Lock()  # of the queue
        self._making = threading.Lock()  # of the video
        self._waiting: FragmentQueue[TappedPacket | Shift] = FragmentQueue(TappedPacket)
        self._video = LiveVideo(source)
        self._viewed = 0  # the generation of the wish for video
        self._stream: SourceStream | None = None
        self._decoded_s = 0.0  # the container's time of the frame that was last decoded
        self._shift_s: float | None = None  # what this connection adds to the container's times of frames
        self._video_shift_s: float | None = None  # the shift that the video knows
        live.attach(source, self)

    def begin(self, stream: Any, *, live: bool = False) -> None:
        """See `PacketBuffer.begin`."""
        if self._ring is not None:
            self._ring.begin(stream, live=live)
        self._stream = SourceStream.of(stream, live=live)
        self._shift_s = self._video_shift_s = self._keyframe_s = None
        self._seldom = False
        self._since_keyframe.clear()

    def put(self, packet: Any) -> None:
        """See `PacketBuffer.put`."""
        if self._ring is not None:
            self._ring.put(packet)
        generation = self._live.viewed(self._source)
        if not generation and self._viewed:
            self._clear()
        if packet.is_keyframe:
            self._begin_keyframe()
        keep = self._seldom and (packet.is_keyframe or bool(self._since_keyframe))
        if not generation and not keep:
            return
        assert self._stream is not None, "begin comes first"
        taken = TappedPacket(
            bytes(packet),
            bool(packet.is_keyframe),
            packet.pts,
            packet.dts,
            self._clock(),
            generation,
            self._stream,
            self._shift_s,
        )
        if generation:
            starts = generation != self._viewed
            self._viewed = generation
            earlier = [tapped._replace(generation=generation) for tapped in self._since_keyframe] if starts else []
            with self._lock:
                for each in (*earlier, taken):
                    self._waiting.put(each)
        if keep:
            self._keep(taken)

    def _begin_keyframe(self) -> None:
        now_s = self._clock()
        self._seldom = self._keyframe_s is not None and now_s - self._keyframe_s > _SELDOM_S
        self._keyframe_s = now_s
        self._since_keyframe.clear()

    def _keep(self, taken: TappedPacket) -> None:
        """Keep a packet for the next viewer; too many or too large ones are not kept, up to the next keyframe."""
        self._since_keyframe.append(taken)
        size_bytes = sum(len(packet.data) for packet in self._since_keyframe)
        if len(self._since_keyframe) > _MAX_QUEUED or size_bytes > _MAX_QUEUED_BYTES:
            self._since_keyframe.clear()

    def packet_ref(self, pts_s: float) -> PacketRef | None:
        """See `PacketBuffer.packet_ref`."""
        self._decoded_s = pts_s
        return None if self._ring is None else self._ring.packet_ref(pts_s)

    def passed(self, pts_s: float) -> None:
        """See `PacketBuffer.passed`."""
        shift_s = self._shift_s = pts_s - self._decoded_s
        if not self._viewed or (self._video_shift_s is not None and abs(shift_s - self._video_shift_s) <= _SAME_S):
            return
        with self._lock:
            if len(self._waiting) < _MAX_NOTES:
                self._waiting.put(Shift(self._decoded_s, shift_s))
                self._video_shift_s = shift_s

    def make_video(self) -> tuple[list[LiveMessage], int]:
        """Make video of the packets that have come; return it, and how many packets were dropped, as too many waited.

        Any thread may call it.
        """
        with self._making:
            with self._lock:
                waiting = self._waiting.take()
                lost = self._waiting.lost
                self._waiting.lost = 0
            return self._video.make(waiting), lost

    def _clear(self) -> None:
        """Keep nothing, as the last viewer has left."""
        self._viewed = 0
        self._video_shift_s = None
        with self._making, self._lock:
            self._waiting.take()
            self._video = LiveVideo(self._source)
