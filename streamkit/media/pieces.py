"""A video's packets cut at keyframes into pieces that can be decoded apart, and the decoding of one piece.

Pictures that follow a keyframe in the file and precede it on the screen (leading pictures, of an open GOP) need the GOP
before. So the piece before decodes them: that keyframe and its leading pictures are appended to it, and of these only
the leading pictures are handed out.

    packets   I0 P4 b2 ... | I16 b14 b15 P20 ...          (numbers: the order shown)
    a piece   I0 P4 b2 ...   I16*b14 b15                  (* hidden: decoded and not handed out)
    the next                 I16 P20 ...
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkit.counters import Counters
from streamkit.errors import SourceError
from streamkit.media.av_decoder import CONCEALED, UNDECODABLE
from streamkit.media.demux import twin
from streamkit.media.frames import Picture
from streamkit.media.keyframes import Keyframes
from streamkit.media.timing import Timing

if TYPE_CHECKING:
    from streamkit.media.decode import Decoder
    from streamkit.media.demux import Demuxer

_SHORTEST = 32  # pictures: a decoder that is emptied at a piece's end fills again at the next one's beginning
_LONGEST = 4096
_LONGEST_BYTES = 64_000_000
_REORDERED = 16  # by so many pictures at most the order shown differs from that of the file


class Given(NamedTuple):
    """A packet for a decoder; the picture of a hidden one is not handed out."""

    packet: Any
    hidden: bool = False


@dataclass(slots=True)
class Piece:
    """Packets that one decoder can take without any other.

    Attributes:
        packets: from a keyframe on.
        begins: the keyframe's ticks: its picture must come first; None where anything may.
        before: the packets of the piece before.
        rest: all packets that follow, where nothing more is cut.
    """

    packets: list[Given]
    begins: int | None = None
    before: list[Given] = field(default_factory=list)
    rest: Iterable[Any] = ()


class Cut:
    """Cuts packets into pieces.

    Where the video is not made for it (pictures without times, parameters that change, keyframes far apart), what is
    left becomes one piece.

    Args:
        packets: all of the video, in the order of the file.
        demuxer: whose they are.
        tell: takes why one decoder has the rest, or all.

    Attributes:
        trouble: what ended the packets, if not the video's end; to be raised when all pieces are through.
    """

    def __init__(self, packets: Iterable[Any], demuxer: Demuxer, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._time = Timing(demuxer).seconds
        self._codec = demuxer.info.codec
        self._keyframes = Keyframes(demuxer.stream, self._codec)
        self._left = iter(packets)
        self._window: deque[Any] = deque()  # read already, to see what follows a keyframe
        self._headers: bytes | None = None
        self.trouble: SourceError | None = None

    def __iter__(self) -> Iterator[Piece]:
        """The pieces in order; the packets are read as pieces are taken."""
        piece, size, entered, why = Piece([]), 0, False, ""
        while (packet := self._next()) is not None:
            if packet.is_keyframe and entered and len(piece.packets) >= _SHORTEST:
                leading = self._leading(packet, piece)
                if leading is not None:
                    yield self._whole(piece, packet, leading)
                    piece = self._opened(packet, leading, piece.packets)
                    size = packet.size
                    continue
            piece.packets.append(Given(packet))
            entered, size = entered or packet.is_keyframe, size + packet.size
            why = self._odd(packet) or _too_long(piece, size)
            if why:
                piece.rest = iter(self._next, None)
                break
        if why and piece.begins is not None:
            self._tell(f"from {self._time(piece.begins):.1f} s on by one decoder: {why}")
        elif why or not piece.before:
            self._tell(f"by one decoder: {why or f'no keyframe to cut at behind its first {_SHORTEST} pictures'}")
        if piece.packets:
            yield piece

    def _next(self) -> Any:
        """The next packet; None at the end."""
        return self._window.popleft() if self._window else self._read()

    def _read(self) -> Any:
        try:
            return next(self._left, None)
        except SourceError as error:
            self.trouble = error
            return None

    def _odd(self, packet: Any) -> str:
        """What about a packet forbids to cut behind it."""
        if packet.pts is None:
            return "its pictures have no times"
        if packet.has_sidedata("new_extradata"):
            return "its parameters change"
        if packet.is_keyframe:
            headers = self._keyframes.headers(packet)
            if self._headers is None:
                self._headers = headers
            elif headers not in (b"", self._headers):
                return "its parameters change"
        return ""

    def _leading(self, keyframe: Any, piece: Piece) -> list[Any] | None:
        """The leading pictures of a keyframe, taken out of the window; None where no cut can be made here."""
        if self._odd(keyframe) or not self._keyframes.enters(keyframe):
            return None
        trailing = 1 + sum(p.pts is None or p.pts > keyframe.pts for p in self._window)
        while trailing <= _REORDERED and (packet := self._read()) is not None:
            self._window.append(packet)
            trailing += packet.pts is None or packet.pts > keyframe.pts
        if any(packet.pts is None for packet in self._window):
            return None
        count = sum(packet.pts < keyframe.pts for packet in self._window)
        if not count:
            return []
        leading = list(itertools.islice(self._window, count))
        shown = [given.packet.pts for given in piece.packets if not given.hidden]
        if (
            self._codec not in ("h264", "hevc")
            or count > _REORDERED
            or any(packet.pts >= keyframe.pts or packet.is_keyframe or self._odd(packet) for packet in leading)
            or max(shown) >= min(packet.pts for packet in leading)  # times that jump
        ):
            return None
        for _ in leading:
            self._window.popleft()
        return leading

    def _whole(self, piece: Piece, keyframe: Any, leading: list[Any]) -> Piece:
        """The piece that ends before `keyframe`, with what its leading pictures need."""
        if not leading:
            return piece
        tail = [Given(_copy(packet), packet is keyframe or packet.is_discard) for packet in (keyframe, *leading)]
        return Piece([*piece.packets, *tail], piece.begins, piece.before)

    def _opened(self, keyframe: Any, leading: list[Any], before: list[Given]) -> Piece:
        """The piece that begins with `keyframe`."""
        packets = [Given(keyframe)]
        if self._codec == "h264":  # others may count on their numbers; HEVC forbids that
            packets += [Given(packet, hidden=True) for packet in leading]
        return Piece(packets, None if keyframe.is_discard else keyframe.pts, before)


class PieceDecoder:
    """Decodes pieces, one after the other, with one decoder that is opened for the first.

    Args:
        open_: makes the demuxer whose stream the decoder is for, and the decoder, with the counters given to it.
        replays: whether a decoder that finds the keyframe damaged may take the piece before as well: FFmpeg patches it
            up with what it has seen, and the pictures behind it likewise. NVDEC takes the packets' bytes away.
    """

    def __init__(self, open_: Callable[[Counters], tuple[Demuxer, Decoder]], *, replays: bool) -> None:
        self._open, self._replays = open_, replays
        self._counters = Counters()
        self._demuxer: Demuxer | None = None
        self._decoder: Decoder | None = None

    def __call__(self, piece: Piece) -> Iterator[tuple[list[Picture], Counter[str]]]:
        """Pictures as they come, and what was counted meanwhile.

        Raises:
            SourceError: the decoder cannot be opened or fails for good.
        """
        if self._decoder is None:
            self._demuxer, self._decoder = self._open(self._counters)
        if piece.begins is None:
            yield from self._decoded(piece.packets, piece.rest)
            return
        drawn: list[Any] = []
        entering = True

        def rest() -> Iterator[Any]:
            for packet in piece.rest:
                if entering:
                    drawn.append(packet)
                yield packet

        results = self._decoded(piece.packets, rest(), entering=True)
        head = next(results, None)
        if self._replays and not self._clean(head, piece.begins):
            hidden = [given._replace(hidden=True) for given in piece.before]
            yield from self._decoded([*hidden, *piece.packets, *map(Given, drawn)], piece.rest)
            return
        entering = False
        drawn.clear()
        if head is not None:
            yield head
            del head
            yield from results

    def close(self) -> None:
        """Close the decoder and its file."""
        if self._decoder is not None and self._demuxer is not None:
            self._decoder.close()
            self._demuxer.close()
            self._decoder = self._demuxer = None

    def _decoded(
        self, packets: Iterable[Given], rest: Iterable[Any], *, entering: bool = False
    ) -> Iterator[tuple[list[Picture], Counter[str]]]:  # fmt: skip
        """Decode from an empty decoder to an empty one; what is said of hidden pictures is not counted."""
        assert self._decoder is not None
        assert self._demuxer is not None
        self._decoder.restart(self._demuxer)
        self._counters.values = Counter()
        for packet, hidden in itertools.chain(packets, map(Given, rest), [Given(None)]):
            pictures = self._decoder.decode(packet, hidden=hidden)
            counts, self._counters.values = self._counters.values, Counter()
            if hidden:
                counts.pop(UNDECODABLE, None)
            if (hidden or entering) and not pictures:
                counts.pop(CONCEALED, None)
            if pictures:
                entering = False
            if pictures or counts:
                yield pictures, counts

    def _clean(self, head: tuple[list[Picture], Counter[str]] | None, begins: int) -> bool:
        """Whether the first result of a piece is its keyframe's picture, and nothing was wrong by then."""
        if head is None or not head[0]:
            return False
        assert self._demuxer is not None
        damaged = head[1][CONCEALED] or head[1][UNDECODABLE]
        return not damaged and head[0][0].pts_s == Timing(self._demuxer).seconds(begins)


def _too_long(piece: Piece, size: int) -> str:
    if len(piece.packets) < _LONGEST and size < _LONGEST_BYTES:
        return ""
    return f"from {len(piece.packets)} pictures on there is no keyframe to cut at"


def _copy(packet: Any) -> Any:
    """The same packet for another decoder."""
    copy = twin(packet)
    copy.is_keyframe = packet.is_keyframe
    return copy
