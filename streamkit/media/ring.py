"""The latest packets of a source, as they came, for stages that write them out without decoding.

The source puts packets in while it decodes; each of its frames carries the `Place` of its own packet, so that a stage
that sees the frame, however much later, finds the packets around it. A reader says how far back it still needs them,
and what no reader needs goes. So a stage may be behind by any time without losing a packet, and there is nothing to
tune but the memory that this may take.
"""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Any, NamedTuple

from streamkit.media.rising import TICKS_PER_S, Rising

__all__ = ["TICKS_PER_S", "Form", "Kept", "Place", "Ring"]

_MOST_EARLY = 32
"""Packets of a new connection that may wait for the first one with a decoding time: more than any reordering needs."""


class Form:
    """What a player must know of a stream before its first packet.

    Args:
        stream: an `av.VideoStream` that is being read; its parameters are copied, so that it may be closed.

    Attributes:
        template: an `av.VideoStream` with the same parameters, which lives as long as this.
    """

    def __init__(self, stream: Any) -> None:
        import av

        self._holder: Any = av.open(io.BytesIO(), "w", format="matroska")  # never written to
        self.template: Any = self._holder.add_stream_from_template(stream, opaque=True)
        context = stream.codec_context
        self._key = (context.codec.canonical_name, context.width, context.height, bytes(context.extradata or b""))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Form) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


@dataclass(frozen=True, slots=True)
class Kept:
    """One packet.

    Attributes:
        number: its place among the source's packets, from 0.
        data: its bytes, as they came.
        pts: when its picture is shown, in ticks of `TIME_BASE`, on a clock that only rises: loops and reconnections
            go on where the former turn ended.
        dts: when it is to be decoded, likewise; rises from packet to packet.
        duration: how long its picture is shown, in ticks; 0 where that is not known.
        keyframe: whether decoding can begin with it.
        form: what a player must know.
    """

    number: int
    data: bytes
    pts: int
    dts: int
    duration: int
    keyframe: bool
    form: Form


@dataclass(slots=True)
class _Given:
    """A packet with the times that the container gives, in its own ticks; None where it gives none."""

    data: bytes
    pts: int | None
    dts: int | None
    duration: int
    keyframe: bool


class Place(NamedTuple):
    """The packet that a frame was decoded from: `ring` may still have it under `number`."""

    ring: Ring
    number: int


class Ring:
    """A source's packets, numbered. One thread puts, others read.

    Args:
        readers: names of those that read. Nothing goes before each has said, by `release`, that it may.
        limit_bytes: packets beyond this go all the same, the oldest first, counted in `lost`.
        guard: a lock that is held while packets are put or taken.

    Attributes:
        lost: packets that went before every reader had released them.
    """

    def __init__(
        self, readers: tuple[Hashable, ...], *, limit_bytes: int, guard: AbstractContextManager[Any] | None = None
    ) -> None:
        self._limit, self._guard = limit_bytes, guard or nullcontext()
        self._needed: dict[Hashable, int] = dict.fromkeys(readers, 0)
        self._kept: deque[Kept] = deque()
        self._keyframes: deque[tuple[int, int]] = deque()  # number and pts of each kept
        self._numbers: dict[int, int] = {}  # by the pts that the container gives, of the present opening
        self._early: list[_Given] = []
        self._next = self._bytes = self.lost = 0
        self._form: Form | None = None
        self._clock = Rising()

    # -------------------------------------------------------------------------------------------------- the source

    def begin(self, stream: Any, *, live: bool = False) -> None:
        """The source has been opened, maybe once more: what is put from now on is of this stream.

        Args:
            stream: an `av.VideoStream` being read.
            live: whether the time that passes between two openings is time of the video.
        """
        form = Form(stream)
        with self._guard:
            if self._form != form:
                self._form = form
            self._clock.begin(Fraction(stream.time_base or Fraction(1, 1000)), stream.average_rate, live=live)
            self._early.clear()
            self._numbers.clear()

    def put(self, packet: Any) -> None:
        """Take in an `av.Packet` with data; its bytes are copied."""
        data = bytes(packet)
        with self._guard:
            assert self._form is not None, "begin comes first"
            self._add(packet, data)
            while self._bytes > self._limit and len(self._kept) > 1:
                self.lost += self._drop_first()

    def place(self, pts_s: float) -> Place:
        """The place of the newest packet of that time; of the newest of all where none has it.

        Args:
            pts_s: in seconds, as the container has it.
        """
        with self._guard:
            ticks = round(pts_s * TICKS_PER_S / self._clock.base)
            return Place(self, self._numbers.get(ticks, max(0, self._next + len(self._early) - 1)))

    # ------------------------------------------------------------------------------------------------ the readers

    def get(self, number: int) -> Kept | None:
        """The packet of that number; None where it is gone, or has not come."""
        with self._guard:
            return self._get(number)

    def keyframe(self, number: int, before: int = 0) -> int | None:
        """The number of the last keyframe shown `before` ticks or more ahead of the packet `number`.

        The first one that is kept where there is none so early, and None where there is none up to `number`.
        """
        with self._guard:
            kept = self._get(number)
            if kept is None:
                return None
            found = None
            for one, pts in self._keyframes:
                if one > number or (found is not None and pts > kept.pts - before):
                    break
                found = one
            return found

    def take(self, first: int, last: int) -> list[Kept]:
        """The packets from number `first` to number `last`, both included, as far as they are kept."""
        with self._guard:
            if not self._kept:
                return []
            begin = max(0, first - self._kept[0].number)
            return list(islice(self._kept, begin, max(begin, last + 1 - self._kept[0].number)))

    def release(self, reader: Hashable, number: int) -> None:
        """`reader` needs no packet before `number` any more."""
        with self._guard:
            if reader in self._needed:
                self._needed[reader] = max(number, self._needed[reader])
            self._drop_released()

    def leave(self, reader: Hashable) -> None:
        """`reader` needs none at all any more."""
        with self._guard:
            self._needed.pop(reader, None)
            self._drop_released()

    @property
    def size_bytes(self) -> int:
        """How many bytes are kept."""
        return self._bytes

    # --------------------------------------------------------------------------------------------------- inside

    def _add(self, packet: Any, data: bytes) -> None:
        one = _Given(data, packet.pts, packet.dts, packet.duration or 0, bool(packet.is_keyframe))
        if one.pts is not None:
            self._numbers[one.pts] = self._next + len(self._early)
        self._early.append(one)
        if one.dts is None and self._clock.anew and len(self._early) < _MOST_EARLY:
            return
        early, self._early = self._early, []
        if self._clock.anew:
            self._date(early)
        for given in early:
            self._keep(given)
        if self._kept and len(self._numbers) > 2 * len(self._kept) + 64:
            oldest = self._kept[0].number
            self._numbers = {pts: number for pts, number in self._numbers.items() if number >= oldest}

    def _date(self, early: list[_Given]) -> None:
        """Give times to the first packets of a camera, which have none, by the first that has."""
        step = round(self._clock.step / self._clock.base)
        lowest = min((one.pts for one in early if one.pts is not None), default=0)
        known = lowest if early[-1].dts is None else early[-1].dts
        blank = sum(one.pts is None for one in early)
        for place, one in enumerate(early):
            if one.dts is None:
                one.dts = known - (len(early) - 1 - place) * step
            if one.pts is None:
                one.pts = max(one.dts, lowest - blank * step)
                blank -= 1

    def _keep(self, given: _Given) -> None:
        assert self._form is not None
        pts, dts = self._clock.times(given.pts, given.dts, keyframe=given.keyframe)
        lasts = round(given.duration * self._clock.base)
        kept = Kept(self._next, given.data, pts, dts, lasts, given.keyframe, self._form)
        self._next += 1
        if not self._needed:  # nobody will ever take it
            return
        self._kept.append(kept)
        self._bytes += len(given.data)
        if kept.keyframe:
            self._keyframes.append((kept.number, kept.pts))

    def _get(self, number: int) -> Kept | None:
        index = number - self._kept[0].number if self._kept else -1
        return self._kept[index] if 0 <= index < len(self._kept) else None

    def _drop_released(self) -> None:
        needed = min(self._needed.values(), default=self._next)
        while self._kept and self._kept[0].number < needed:
            self._drop_first()

    def _drop_first(self) -> int:
        gone = self._kept.popleft()
        self._bytes -= len(gone.data)
        if gone.keyframe:
            self._keyframes.popleft()
        return 1
