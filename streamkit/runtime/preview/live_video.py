# SPDX-License-Identifier: Apache-2.0
"""Makes live video of a source's packets. A video begins with the first keyframe after its first viewer has come."""

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

_MAX_TIMES = 256  # packets whose times are kept: more than a decoder holds
_MAX_EARLY = 32
_SAME_S = 0.001


@dataclass(frozen=True, slots=True, eq=False)
class SourceStream:
    """A connection of a source, or a file from its beginning.

    Attributes:
        form: the stream's parameters.
        base: seconds per tick of its times.
        ticks_per_s: the reverse.
        rate: frames per second, if known.
        live: whether the time between two connections counts as time of the video.
    """

    form: StreamFormat
    base: Fraction
    ticks_per_s: float
    rate: Fraction | None
    live: bool

    @classmethod
    def of(cls, stream: Any, *, live: bool) -> Self:
        """That of an `av.VideoStream`, which may be closed later."""
        base = Fraction(stream.time_base or Fraction(1, 1000))
        return cls(StreamFormat(stream), base, float(1 / base), stream.average_rate, live)


class TappedPacket(NamedTuple):
    """A packet with the container's times.

    Attributes:
        data: its bytes, as received.
        keyframe: whether decoding can start with it.
        pts: presentation time in the stream's ticks; None if there is none.
        dts: decoding time, likewise.
        arrived_s: monotonic time of its arrival in seconds.
        generation: that of the wish for video, when it arrived.
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
    """What a connection adds to the container's times, from a frame that has been decoded on; both in seconds."""

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
        self._generation = 0  # that of the video that is made, or of the attempt that failed
        self._waits = True  # for a keyframe, the first of a connection that can be decoded
        self._muxer: FragmentMuxer | None = None
        self._clock = MonotonicTimestamps()
        self._zero: int | None = None  # decoding time of the first packet, which players see as 0
        self._early: list[TappedPacket] = []  # packets that wait for times
        self._media: dict[int, int] = {}  # media times in ticks, by the container's PTS
        self._shift_s: float | None = None
        self._offset_s: float | None = None  # as viewers know it
        self._messages: list[LiveMessage] = []

    def make(self, waiting: Sequence[TappedPacket | Shift]) -> list[LiveMessage]:
        """Make video of the next packets of the source."""
        for packet in waiting:
            if isinstance(packet, Shift):
                self._change_shift(packet)
                continue
            try:
                self._show(packet)
            except Exception as error:  # the pipeline itself does not need the video
                self._muxer = None
                text = str(error) if isinstance(error, ValueError) else describe(error)
                logger.warning(
                    f"source {self._source} cannot be shown as video: {text}", extra={"source": self._source}
                )
                self._messages.append(LiveStart(packet.generation, error=text))
        messages, self._messages = self._messages, []
        return messages

    def _show(self, packet: TappedPacket) -> None:
        if packet.stream is not self._stream:
            self._connect(packet.stream)
        starts = packet.generation != self._generation
        if (starts or self._waits) and not packet.keyframe:
            return
        if starts or self._waits:
            self._shift_s = packet.shift_s
        self._waits = False
        if starts:
            self._generation, self._muxer, self._zero = packet.generation, None, None
            self._media.clear()
            self._early.clear()
            self._muxer, self._clock = FragmentMuxer(packet.stream.form), MonotonicTimestamps()
            self._begin_clock(packet.stream)
        if self._muxer is None:  # it failed
            return
        self._early.append(packet)
        if packet.pts is None and self._clock.restarted and len(self._early) < _MAX_EARLY:
            return
        early, self._early = self._early, []
        for timed in early if len(early) == 1 else self._with_times(early):
            self._mux(self._muxer, timed)

    def _connect(self, stream: SourceStream) -> None:
        before, self._stream = self._stream, stream
        self._waits, self._shift_s = True, None
        self._media.clear()
        self._early.clear()
        if before is None or before.form != stream.form:
            self._generation, self._muxer = 0, None
        elif self._muxer is not None:
            self._begin_clock(stream)

    def _begin_clock(self, stream: SourceStream) -> None:
        self._clock.begin(stream.base, stream.rate, live=stream.live)

    def _with_times(self, early: list[TappedPacket]) -> list[TappedPacket]:
        """Give a camera's first packets, which have no times, those before the first packet that has."""
        last, step = early[-1], round(self._clock.step / self._clock.base)

        def before(ticks: int | None, steps: int) -> int | None:
            return None if ticks is None else ticks - steps * step

        return [
            packet
            if packet.pts is not None
            else packet._replace(pts=before(last.pts, steps), dts=before(last.dts, steps))
            for steps, packet in zip(range(len(early) - 1, -1, -1), early, strict=True)
        ]

    def _mux(self, muxer: FragmentMuxer, packet: TappedPacket) -> None:
        pts, dts = self._clock.times(packet.pts, packet.dts, keyframe=packet.keyframe, now_s=packet.arrived_s)
        starts = self._zero is None
        zero = self._zero = dts if self._zero is None else self._zero
        if packet.pts is not None:
            self._media[packet.pts] = pts - zero
            if len(self._media) > _MAX_TIMES:
                del self._media[next(iter(self._media))]
        if starts:
            self._start(muxer, packet, pts - zero)
        elif self._shift_s is not None and packet.pts is not None:  # the camera may have set its clock
            self._change_offset(packet.pts / packet.stream.ticks_per_s + self._shift_s, pts - zero)
        done = muxer.put(packet.data, pts - zero, dts - zero, keyframe=packet.keyframe)
        if done is not None:
            self._messages.append(LiveFragment(*done))

    def _start(self, muxer: FragmentMuxer, packet: TappedPacket, media: int) -> None:
        """Announce the video, with the times of records if a frame of this connection has been decoded."""
        self._offset_s = None
        if self._shift_s is not None and packet.pts is not None:
            self._offset_s = round(float(packet.pts * packet.stream.base) + self._shift_s - media / TICKS_PER_S, 6)
        form = packet.stream.form
        self._messages.append(
            LiveStart(self._generation, muxer.codecs, form.width, form.height, muxer.init, self._offset_s)
        )

    def _change_shift(self, changed: Shift) -> None:
        if self._muxer is None or self._stream is None:
            return
        self._shift_s = changed.shift_s
        media = self._media.get(round(changed.decoded_s * self._stream.ticks_per_s))
        if media is not None:
            self._change_offset(changed.decoded_s + changed.shift_s, media)

    def _change_offset(self, pts_s: float, media: int) -> None:
        """Tell viewers if the record of the frame with this media time, in ticks, has another PTS than they think."""
        from_s = media / TICKS_PER_S
        offset_s = pts_s - from_s
        if self._offset_s is None or abs(offset_s - self._offset_s) > _SAME_S:
            begin_s = 0.0 if self._offset_s is None else round(from_s, 6)  # no frame has been decoded before it
            self._offset_s = offset_s
            self._messages.append(LiveOffset(begin_s, round(offset_s, 6)))
