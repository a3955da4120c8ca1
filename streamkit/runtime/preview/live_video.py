# SPDX-License-Identifier: Apache-2.0
"""Makes live video of a source's packets. A video begins with the first keyframe after its first viewer connects."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Self

from streamkit.core.errors import describe
from streamkit.media.fragments import FragmentMuxer
from streamkit.media.monotonic_timestamps import TICKS_PER_S, MonotonicTimestamps
from streamkit.media.ring import StreamFormat
from streamkit.runtime.preview.live import LiveFragment, LiveMessage, LiveOffset, LiveStart

logger = logging.getLogger(__name__)

_MAX_MEDIA_TIMES = 256  # more than a decoder holds
_MAX_UNTIMED = 32
_OFFSET_TOLERANCE_S = 0.001


@dataclass(frozen=True, slots=True, eq=False)
class SourceStream:
    """A connection of a source, or a file from its beginning.

    Attributes:
        form: the stream's parameters.
        time_base: seconds per tick of its times.
        ticks_per_s: the reciprocal.
        rate: frames per second, if known.
        live: whether the time between two connections counts as time of the video.
    """

    form: StreamFormat
    time_base: Fraction
    ticks_per_s: float
    rate: Fraction | None
    live: bool

    @classmethod
    def of(cls, stream: Any, *, live: bool) -> Self:
        """Describe an `av.VideoStream`, which may be closed later."""
        time_base = Fraction(stream.time_base or Fraction(1, 1000))
        return cls(StreamFormat(stream), time_base, float(1 / time_base), stream.average_rate, live)


class TappedPacket(NamedTuple):
    """A packet with the container's times.

    Attributes:
        data: its bytes, as received.
        keyframe: whether decoding can start with it.
        pts: presentation time in the stream's ticks; None if there is none.
        dts: decoding time, likewise.
        arrived_s: monotonic time of its arrival in seconds.
        generation: that of the viewers' demand for video when the packet arrived.
        stream: its connection.
        shift_s: what the connection adds to the container's times of frames, in seconds; None if not yet known.
    """

    data: bytes
    keyframe: bool
    pts: int | None
    dts: int | None
    arrived_s: float
    generation: int
    stream: SourceStream
    shift_s: float | None


class Shift(NamedTuple):
    """What a connection adds to the container's times from a decoded frame on.

    Attributes:
        decoded_s: the frame's time in the container, in seconds.
        shift_s: what is added to it, in seconds.
    """

    decoded_s: float
    shift_s: float


class LiveVideo:
    """The video of one source.

    Args:
        source: the source's id, for messages.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._stream: SourceStream | None = None
        self._generation = 0  # that of the current video, or of the attempt that failed
        self._waits_for_keyframe = True
        self._muxer: FragmentMuxer | None = None
        self._clock = MonotonicTimestamps()
        self._first_dts: int | None = None  # players see it as 0
        self._untimed_packets: list[TappedPacket] = []
        self._media_ticks_by_pts: dict[int, int] = {}  # by the container's PTS
        self._shift_s: float | None = None
        self._offset_s: float | None = None  # the last that was sent to viewers
        self._messages: list[LiveMessage] = []

    def make(self, packets: Sequence[TappedPacket | Shift]) -> list[LiveMessage]:
        """Make video of the next packets of the source."""
        for packet in packets:
            if isinstance(packet, Shift):
                self._change_shift(packet)
                continue
            try:
                self._add(packet)
            except Exception as error:  # the pipeline itself does not need the video
                self._muxer = None
                text = str(error) if isinstance(error, ValueError) else describe(error)
                logger.warning(
                    f"source {self._source} cannot be shown as video: {text}", extra={"source": self._source}
                )
                self._messages.append(LiveStart(packet.generation, error=text))
        messages = self._messages
        self._messages = []
        return messages

    def _add(self, packet: TappedPacket) -> None:
        if packet.stream is not self._stream:
            self._connect(packet.stream)
        starts = packet.generation != self._generation
        if (starts or self._waits_for_keyframe) and not packet.keyframe:
            return
        if starts or self._waits_for_keyframe:
            self._shift_s = packet.shift_s
        self._waits_for_keyframe = False
        if starts:
            self._generation = packet.generation
            self._first_dts = None
            self._media_ticks_by_pts.clear()
            self._untimed_packets.clear()
            self._muxer = None  # if creating it fails
            self._muxer = FragmentMuxer(packet.stream.form)
            self._clock = MonotonicTimestamps()
            self._begin_clock(packet.stream)
        if self._muxer is None:  # it failed
            return
        self._untimed_packets.append(packet)
        if packet.pts is None and self._clock.restarted and len(self._untimed_packets) < _MAX_UNTIMED:
            return
        packets = self._untimed_packets
        self._untimed_packets = []
        for timed_packet in packets if len(packets) == 1 else self._with_times(packets):
            self._mux(self._muxer, timed_packet)

    def _connect(self, stream: SourceStream) -> None:
        before = self._stream
        self._stream = stream
        self._waits_for_keyframe = True
        self._shift_s = None
        self._media_ticks_by_pts.clear()
        self._untimed_packets.clear()
        if before is None or before.form != stream.form:
            self._generation = 0
            self._muxer = None
        elif self._muxer is not None:
            self._begin_clock(stream)

    def _begin_clock(self, stream: SourceStream) -> None:
        self._clock.begin(stream.time_base, stream.rate, live=stream.live)

    def _with_times(self, packets: list[TappedPacket]) -> list[TappedPacket]:
        """Give a camera's first packets, which have no times, times counted back from the last packet."""
        last = packets[-1]
        step = round(self._clock.step / self._clock.base)

        def before(ticks: int | None, steps: int) -> int | None:
            return None if ticks is None else ticks - steps * step

        return [
            packet
            if packet.pts is not None
            else packet._replace(pts=before(last.pts, steps), dts=before(last.dts, steps))
            for steps, packet in zip(range(len(packets) - 1, -1, -1), packets, strict=True)
        ]

    def _mux(self, muxer: FragmentMuxer, packet: TappedPacket) -> None:
        pts, dts = self._clock.times(packet.pts, packet.dts, keyframe=packet.keyframe, now_s=packet.arrived_s)
        starts = self._first_dts is None
        first_dts = dts if self._first_dts is None else self._first_dts
        self._first_dts = first_dts
        if packet.pts is not None:
            self._media_ticks_by_pts[packet.pts] = pts - first_dts
            if len(self._media_ticks_by_pts) > _MAX_MEDIA_TIMES:
                del self._media_ticks_by_pts[next(iter(self._media_ticks_by_pts))]
        if starts:
            self._start(muxer, packet, pts - first_dts)
        elif self._shift_s is not None and packet.pts is not None:  # the camera may have set its clock
            self._change_offset(packet.pts / packet.stream.ticks_per_s + self._shift_s, pts - first_dts)
        fragment = muxer.put(packet.data, pts - first_dts, dts - first_dts, keyframe=packet.keyframe)
        if fragment is not None:
            self._messages.append(LiveFragment(*fragment))

    def _start(self, muxer: FragmentMuxer, packet: TappedPacket, media_ticks: int) -> None:
        """Announce the video, with the times of records if a frame of this connection has been decoded."""
        self._offset_s = None
        if self._shift_s is not None and packet.pts is not None:
            self._offset_s = round(
                float(packet.pts * packet.stream.time_base) + self._shift_s - media_ticks / TICKS_PER_S, 6
            )
        form = packet.stream.form
        self._messages.append(
            LiveStart(self._generation, muxer.codecs, form.width, form.height, muxer.init, self._offset_s)
        )

    def _change_shift(self, changed: Shift) -> None:
        if self._muxer is None or self._stream is None:
            return
        self._shift_s = changed.shift_s
        media_ticks = self._media_ticks_by_pts.get(round(changed.decoded_s * self._stream.ticks_per_s))
        if media_ticks is not None:
            self._change_offset(changed.decoded_s + changed.shift_s, media_ticks)

    def _change_offset(self, pts_s: float, media_ticks: int) -> None:
        """Tell viewers the offset from media times to PTS if it has changed at this frame."""
        from_s = media_ticks / TICKS_PER_S
        offset_s = pts_s - from_s
        if self._offset_s is None or abs(offset_s - self._offset_s) > _OFFSET_TOLERANCE_S:
            begin_s = 0.0 if self._offset_s is None else round(from_s, 6)  # 0 at the first decoded frame
            self._offset_s = offset_s
            self._messages.append(LiveOffset(begin_s, round(offset_s, 6)))
