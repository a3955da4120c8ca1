# SPDX-License-Identifier: Apache-2.0
"""Takes a source's packets as they are read, and makes live video of them while it is viewed.

Without a viewer it costs one comparison per packet, and nothing is kept. A video begins with the first keyframe after
its first viewer has come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from streamkit.core.errors import describe
from streamkit.media.fragments import FragmentMuxer
from streamkit.media.monotonic_timestamps import TICKS_PER_S, MonotonicTimestamps
from streamkit.media.ring import PacketRef, PacketRing, StreamFormat
from streamkit.runtime.preview.live import LiveFragment, LiveOffset, LiveReceiver, LiveStart

logger = logging.getLogger(__name__)

_KEPT = 256  # packets whose times are kept: more than a decoder holds
_MOST_EARLY = 32
_SAME_S = 0.001


class _Given(NamedTuple):
    """A packet with the container's times, in the stream's ticks; None if there are none."""

    data: bytes
    pts: int | None
    dts: int | None
    keyframe: bool


class PacketTap:
    """The packets of one source, on the source's thread: for viewers, and for a ring that stages read.

    Args:
        source: the source's id.
        live: receives the video.
        ring: receives the packets as well; None for none.
    """

    def __init__(self, source: str, live: LiveReceiver, ring: PacketRing | None = None) -> None:
        self._source, self._live, self._ring = source, live, ring
        self._form: StreamFormat | None = None
        self._begin_clock: Callable[[MonotonicTimestamps], None] = lambda clock: None
        self._base = Fraction(1, 1000)
        self._ticks_per_s = 1000.0
        self._generation = 0  # that of the video that is made, or of the attempt that failed
        self._waits = True  # for a keyframe, the first of a connection that can be decoded
        self._muxer: FragmentMuxer | None = None
        self._clock = MonotonicTimestamps()
        self._zero: int | None = None  # decoding time of the first packet, which players see as 0
        self._early: list[_Given] = []  # packets that wait for times
        self._media: dict[int, int] = {}  # media times in ticks, by the container's PTS
        self._decoded_s = 0.0  # the container's time of the frame that was last decoded
        self._shift_s: float | None = None  # what this connection adds to the container's times of frames
        self._offset_s: float | None = None  # as viewers know it

    def begin(self, stream: Any, *, live: bool = False) -> None:
        """See `PacketBuffer.begin`."""
        if self._ring is not None:
            self._ring.begin(stream, live=live)
        form, rate = StreamFormat(stream), stream.average_rate
        self._base, self._shift_s = Fraction(stream.time_base or Fraction(1, 1000)), None
        base, self._ticks_per_s = self._base, float(1 / self._base)
        self._begin_clock = lambda clock: clock.begin(base, rate, live=live)
        self._media.clear()
        self._early.clear()
        self._waits = True
        if self._form != form:
            self._form = form
            self._generation, self._muxer = 0, None
        elif self._muxer is not None:
            self._begin_clock(self._clock)

    def put(self, packet: Any) -> None:
        """See `PacketBuffer.put`."""
        if self._ring is not None:
            self._ring.put(packet)
        generation = self._live.viewed(self._source)
        if not generation:
            self._generation, self._muxer = 0, None
            return
        try:
            self._show(packet, generation)
        except Exception as error:  # the pipeline itself does not need the video
            self._muxer = None
            text = str(error) if isinstance(error, ValueError) else describe(error)
            logger.warning(f"source {self._source} cannot be shown as video: {text}", extra={"source": self._source})
            self._live.put(self._source, LiveStart(generation, error=text))

    def packet_ref(self, pts_s: float) -> PacketRef | None:
        """See `PacketBuffer.packet_ref`."""
        self._decoded_s = pts_s
        return None if self._ring is None else self._ring.packet_ref(pts_s)

    def passed(self, pts_s: float) -> None:
        """See `PacketBuffer.passed`."""
        self._shift_s = pts_s - self._decoded_s
        if self._muxer is None:
            return
        media = self._media.get(round(self._decoded_s * self._ticks_per_s))
        if media is None:
            return
        from_s = media / TICKS_PER_S
        offset_s = pts_s - from_s
        if self._offset_s is None or abs(offset_s - self._offset_s) > _SAME_S:
            begin_s = 0.0 if self._offset_s is None else round(from_s, 6)  # no frame has been decoded before it
            self._offset_s = offset_s
            self._live.put(self._source, LiveOffset(begin_s, round(offset_s, 6)))

    def _show(self, packet: Any, generation: int) -> None:
        starts = generation != self._generation
        if (starts or self._waits) and not packet.is_keyframe:
            return
        self._waits = False
        if starts:
            assert self._form is not None, "begin comes first"
            self._generation, self._muxer, self._zero = generation, None, None
            self._media.clear()
            self._early.clear()
            self._muxer, self._clock = FragmentMuxer(self._form), MonotonicTimestamps()
            self._begin_clock(self._clock)
        if self._muxer is None:  # it failed
            return
        self._early.append(_Given(bytes(packet), packet.pts, packet.dts, bool(packet.is_keyframe)))
        if packet.pts is None and self._clock.restarted and len(self._early) < _MOST_EARLY:
            return
        early, self._early = self._early, []
        for one in early if len(early) == 1 else self._with_times(early):
            self._mux(self._muxer, one)

    def _with_times(self, early: list[_Given]) -> list[_Given]:
        """Give a camera's first packets, which have no times, those before the first packet that has."""
        last, step = early[-1], round(self._clock.step / self._clock.base)

        def before(ticks: int | None, steps: int) -> int | None:
            return None if ticks is None else ticks - steps * step

        return [
            one if one.pts is not None else one._replace(pts=before(last.pts, steps), dts=before(last.dts, steps))
            for steps, one in zip(range(len(early) - 1, -1, -1), early, strict=True)
        ]

    def _mux(self, muxer: FragmentMuxer, one: _Given) -> None:
        pts, dts = self._clock.times(one.pts, one.dts, keyframe=one.keyframe)
        starts = self._zero is None
        zero = self._zero = dts if self._zero is None else self._zero
        if one.pts is not None:
            self._media[one.pts] = pts - zero
            if len(self._media) > _KEPT:
                del self._media[next(iter(self._media))]
        if starts:
            self._start(muxer, one.pts, pts - zero)
        done = muxer.put(one.data, pts - zero, dts - zero, keyframe=one.keyframe)
        if done is not None:
            self._live.put(self._source, LiveFragment(*done))

    def _start(self, muxer: FragmentMuxer, container_pts: int | None, pts: int) -> None:
        """Announce the video, with the times of records if a frame of this connection has been decoded."""
        assert self._form is not None
        self._offset_s = None
        if self._shift_s is not None and container_pts is not None:
            self._offset_s = round(float(container_pts * self._base) + self._shift_s - pts / TICKS_PER_S, 6)
        form = self._form
        start = LiveStart(self._generation, muxer.codecs, form.width, form.height, muxer.init, self._offset_s)
        self._live.put(self._source, start)
