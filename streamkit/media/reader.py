"""One video from its first picture to its last: demuxer and decoder together, and what was wrong at the end."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

from streamkit.ahead import Ahead
from streamkit.counters import Counters
from streamkit.data import Device
from streamkit.errors import SourceError
from streamkit.media.av_decoder import CONCEALED, UNDECODABLE
from streamkit.media.decode import Decoder, Picture, open_decoder
from streamkit.media.demux import Demuxer
from streamkit.media.link import Link
from streamkit.media.ring import Ring
from streamkit.media.split import Decoders, Split, how_many
from streamkit.media.surfaces import SurfacePool
from streamkit.media.uris import mask
from streamkit.spans import Spans

LOST = "pictures lost in decoding"
# codecs whose every packet shows one picture
_ONE_EACH = frozenset({"h264", "hevc", "av1", "vp9"})
_SLACK_S = 1e-6
_GOP_S = 60.0  # no camera is longer without a keyframe
_MANY = 30  # packets without a picture: more than any decoder holds back


class Reader:
    """Reads one video, maybe several times, with one decoder or several.

    Args:
        uri: a path or an address.
        device: where surfaces are wanted.
        pool: that device's surfaces.
        counters: takes what went wrong with single pictures.
        say: reports to the user.
        threads: for decoding on the CPU.
        low_delay: pictures as soon as they are whole; for live sources and those that play at their own pace.
        link: how an address is opened.
        spans: the thread's place in a run's timeline; waiting for a live source's packets is shown.
        on_packet: called with each `av.Packet` before it is decoded; may change its bytes in place.
        decoders: how many decode a file at once, or `auto`; what comes out is the same.
        ahead: does that.
        ring: keeps the packets, as they came.

    Raises:
        SourceError: it cannot be opened.
    """

    def __init__(
        self, uri: str, device: Device, pool: SurfacePool, counters: Counters, say: Callable[[str], None], *,
        threads: int = 1, low_delay: bool = False, link: Link | None = None,
        spans: Spans | None = None, on_packet: Callable[[Any], None] | None = None,
        decoders: Decoders = 1, ahead: Ahead | None = None, ring: Ring | None = None,
    ) -> None:  # fmt: skip
        self._uri, self._link, self._counters, self._on_packet = uri, link or Link(), counters, on_packet
        self._spans = spans or Spans()
        self._demuxer = Demuxer(uri, self._link)
        self.info, self._ring = self._demuxer.info, ring
        self._begin_ring()
        self.step_s = 1.0 / (self.info.average_rate or 25.0)
        self._used = False
        self._shown = 0
        self._last_s: float | None = None
        # live only: packets since the last picture, when it was taken, and whether a keyframe has come since
        self._unseen, self._seen_s, self._keyframe = 0, 0.0, False
        self._arrived: dict[int | None, float] = {}  # packets by their presentation time, in ticks; None the newest
        self._counts: dict[float, tuple[int, float]] = {}
        self._decoder: Decoder | None = None
        self._split: Split | None = None
        ahead = ahead or Ahead()
        count = how_many(decoders, self.info, device, ahead)
        if count == 1:
            if decoders not in (1, "auto"):
                say(f"{mask(uri)} is decoded by one decoder: a {self.info.codec} video cannot be cut at its keyframes")
            self._decoder = open_decoder(
                self._demuxer, device, pool, counters, say, threads=threads, low_delay=low_delay or self.info.live
            )
            return

        def another(counts: Counters) -> tuple[Demuxer, Decoder]:
            demuxer = Demuxer(uri, self._link)
            return demuxer, open_decoder(demuxer, device, pool, counts, say)

        self._split = Split(uri, count, another, pool, counters, ahead, say if decoders != "auto" else _quiet)

    def pictures(self, start_s: float = 0.0, end_s: float | None = None) -> Iterator[tuple[int, Picture]]:
        """The pictures and their numbers in the video, from 0, in the order shown.

        Args:
            start_s: seconds after the video's first picture; earlier ones are left out, but count.
            end_s: likewise; this picture and later ones are left out.

        Raises:
            SourceError: reading failed, or the video ends early or is damaged; raised after the last good picture.
        """
        if self._used:
            self._reopen()
        self._used = True
        damage = self._damage()
        begin = self.info.start_s + start_s - _SLACK_S
        until = None if end_s is None else self.info.start_s + end_s - _SLACK_S
        self._shown, self._last_s = 0, None
        for number, picture in self._from(begin) if start_s > 0 else enumerate(self._decoded()):
            if until is not None and picture.pts_s >= until:
                return
            yield number, picture
        self._check(whole=not start_s, damage=self._damage() - damage)

    def sender_time_s(self, pts_s: float) -> float | None:
        """A presentation time by the sender's own clock, in seconds since 1970; None where it has not told."""
        shift_s = self._demuxer.sender_shift_s
        return None if shift_s is None else pts_s + shift_s

    def arrived_s(self, pts_s: float) -> float:
        """When a live source's picture came, as a packet, on the monotonic clock; the newest one's where none fits."""
        ticks = round(pts_s / self._demuxer.stream.time_base)
        return self._arrived.pop(ticks, self._arrived[None])

    def close(self) -> None:
        """Close the decoders and the file."""
        for one in (self._decoder, self._split):
            if one is not None:
                one.close()
        self._demuxer.close()

    def _decoded(self) -> Generator[Picture]:
        """What is left of the video; what was decoded before reading failed comes out before the error."""
        packets = self._packets()
        pictures = self._one_by_one(packets) if self._split is None else self._split.pictures(packets, self._demuxer)
        with closing(pictures):
            for picture in pictures:
                self._shown, self._last_s = self._shown + 1, picture.pts_s
                yield picture
                if self.info.live:
                    self._seen()

    def _packets(self) -> Iterator[Any]:
        packets: Iterable[Any] = self._demuxer.packets()
        if self.info.live:
            packets = self._spans.each("wait for packets", packets, waiting=True)
            self._seen()
        for packet in packets:
            if self.info.live:
                self._arrive(packet.pts)
                self._check_seen(packet.is_keyframe)
            if self._ring is not None:
                self._ring.put(packet)
            if self._on_packet is not None:
                self._on_packet(packet)
            yield packet

    def _arrive(self, pts: int | None) -> None:
        """Note when a packet came; of pictures that nobody asks for only the last few are kept."""
        self._arrived[None] = self._arrived[pts] = time.monotonic()
        if len(self._arrived) > _MANY:
            del self._arrived[next(pts for pts in self._arrived if pts is not None)]

    def _seen(self) -> None:
        self._unseen, self._seen_s, self._keyframe = 0, time.monotonic(), False

    def _check_seen(self, keyframe: bool) -> None:
        """Raise SourceError where packets come from a live source, and no picture comes out of them."""
        now_s = time.monotonic()
        if keyframe and not self._keyframe:
            self._unseen, self._seen_s, self._keyframe = 0, now_s, True
        self._unseen += 1
        # who joins between two keyframes has to wait for the next
        allowed_s = self._link.timeout_s if self._keyframe else max(self._link.timeout_s, _GOP_S)
        if self._unseen > _MANY and now_s - self._seen_s > allowed_s:
            raise SourceError(
                f"{mask(self._uri)}: packets come, but no picture could be decoded in {allowed_s:g} s", cause="codec"
            )

    def _one_by_one(self, packets: Iterable[Any]) -> Generator[Picture]:
        """The pictures of these packets, from one decoder."""
        assert self._decoder is not None
        trouble = None
        try:
            for packet in packets:
                yield from self._decoder.decode(packet)
        except SourceError as error:
            trouble = error
        yield from self._decoder.decode(None)
        if trouble is not None:
            raise trouble

    def _from(self, begin: float) -> Iterator[tuple[int, Picture]]:
        """The pictures from a time on, with their numbers: by a seek, or by reading through where that fails."""
        found = self._count_before(begin)
        if found is not None and self._demuxer.seek(begin):
            if self._decoder is not None:
                self._decoder.restart(self._demuxer)
            with closing(self._decoded()) as decoded:
                first = next(decoded, None)
                if first is not None and first.pts_s <= found[1] + _SLACK_S:
                    rest = itertools.chain([first], decoded)
                    del first
                    yield from enumerate((p for p in rest if p.pts_s >= begin), found[0])
                    return
        self._reopen()
        for number, picture in enumerate(self._decoded()):
            if picture.pts_s >= begin:
                yield number, picture

    def _count_before(self, begin: float) -> tuple[int, float] | None:
        """How many pictures come before a time, and the time of the first that does not; None where packets have none.

        Packets are read, not decoded: tens of thousands a second.
        """
        if begin not in self._counts:
            count, first = 0, math.inf
            base = self._demuxer.stream.time_base
            tick = base.numerator / base.denominator
            for packet in self._demuxer.packets():
                if packet.pts is None or packet.dts is None:
                    return None
                if packet.dts * tick > max(first, begin):
                    break
                if packet.is_discard:
                    continue
                pts_s = packet.pts * tick
                if pts_s < begin:
                    count += 1
                else:
                    first = min(first, pts_s)
            self._counts[begin] = count, first
        return self._counts[begin]

    def _reopen(self) -> None:
        self._demuxer.close()
        self._demuxer = Demuxer(self._uri, self._link)
        self._begin_ring()
        if self._decoder is not None:
            self._decoder.restart(self._demuxer)

    def _begin_ring(self) -> None:
        if self._ring is not None:
            self._ring.begin(self._demuxer.stream, live=self.info.live)

    def _damage(self) -> int:
        return sum(self._counters[name] for name in (CONCEALED, UNDECODABLE))

    def _check(self, *, whole: bool, damage: int) -> None:
        """Raise SourceError where the video that has just ended is not all there, or not all right."""
        info, demuxer = self.info, self._demuxer
        if info.live:
            return
        name = mask(self._uri)
        if self._last_s is None:
            if whole:
                raise SourceError(f"{name}: no picture could be decoded")
            return
        seconds = self._last_s - info.start_s + self.step_s
        short = info.duration_s is not None and seconds < info.duration_s - max(0.5, 3 * self.step_s)
        if short and not (whole and info.frames and demuxer.packets_read >= info.frames):
            pictures = f"{self._shown} of {info.frames} pictures, " if whole and info.frames else ""
            raise SourceError(
                f"{name} ends early: {pictures}{seconds:.1f} of {info.duration_s:.1f} s could be read; "
                "the file was cut short"
            )
        if whole and info.codec in _ONE_EACH and info.frames and demuxer.packets_read == info.frames:
            lost = demuxer.packets_read - demuxer.discarded - self._shown
            if lost > 0:
                self._counters.add(LOST, lost)
                damage = max(damage, lost)
        if damage or demuxer.damaged:
            raise SourceError(
                f"{name} is damaged: {max(damage, demuxer.damaged)} of its pictures were lost or patched up"
            )


def _quiet(text: str) -> None:
    """Nobody asked for more than one decoder."""
