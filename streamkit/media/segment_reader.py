# SPDX-License-Identifier: Apache-2.0
"""Reads the fragments of a recording's files, also of one that is being written or that a crash left."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from streamkit.core.errors import SourceError
from streamkit.io.outputs import open_locked
from streamkit.io.segment_files import complete_name
from streamkit.media.fragments import codecs_of
from streamkit.media.mp4_boxes import Box, boxes

_NON_SYNC = 0x10000  # ISO/IEC 14496-12, 8.8.3.1: sample_is_non_sync_sample
_CODECS = {b"avc1": "h264", b"hvc1": "hevc", b"hev1": "hevc", b"av01": "av1", b"vp09": "vp9", b"mp4v": "mpeg4"}


class Fragment(NamedTuple):
    """A piece of a file that is decodable from its first frame if it is a keyframe.

    Attributes:
        start: position of its first byte.
        end: position after its last byte.
        time: decoding time of its first frame, in ticks of the file's time scale.
        duration: its duration in ticks.
        keyframe: whether its first frame is a keyframe.
    """

    start: int
    end: int
    time: int
    duration: int
    keyframe: bool


@dataclass(frozen=True, slots=True)
class SegmentContent:
    """What is in a file.

    Attributes:
        init_bytes: size of the initialization segment, at the start of the file.
        scale: ticks per second.
        shift: time from decoding to presentation of the first frame, in ticks.
        codec: FFmpeg's name of the codec.
        codecs: the codec with profile and level by RFC 6381; empty if browsers do not play it in pieces.
        width: width of a frame in pixels.
        height: its height.
        cause: why the file does not continue the one before; empty if it does.
        fragments: the whole fragments.
    """

    init_bytes: int
    scale: int
    shift: int
    codec: str
    codecs: str
    width: int
    height: int
    cause: str
    fragments: tuple[Fragment, ...]

    @property
    def duration_ms(self) -> int:
        """Duration of the whole fragments, in milliseconds."""
        if not self.fragments:
            return 0
        last = self.fragments[-1]
        return round((last.time + last.duration) * 1000 / self.scale)


def read_content(path: Path) -> SegmentContent:
    """Read the headers of a file; the video itself is not read.

    Raises:
        SourceError: it is no file of a recording, or cannot be read; FileNotFoundError if it is not there.
    """
    with path.open("rb", buffering=0) as file:
        handle = file.fileno()

        def read(start: int, end: int) -> bytes:
            return os.pread(handle, end - start, start)

        try:
            return _content(read, os.fstat(handle).st_size)
        except (ValueError, struct.error, IndexError) as error:
            raise SourceError(f"{path} is no file of a recording: {error}") from None


def _content(read: Callable[[int, int], bytes], size: int) -> SegmentContent:
    init_bytes = 0
    init = b""
    moof: Box | None = None
    scale = 0
    shift = 0
    fragments: list[Fragment] = []
    for box in boxes(read, size):
        if box.end > size:
            break
        if box.kind == b"moov":
            init_bytes = box.end
            init = read(0, box.end)
            scale = _time_scale(init)
        elif box.kind == b"moof":
            moof = box
        elif box.kind == b"mdat" and moof is not None and scale:
            header = read(moof.start, moof.end)
            shift = shift if fragments else _first_shift(header)
            fragments.append(_fragment(header, moof.start, box.end))
            moof = None
    if not scale:
        raise ValueError("it has no header")
    kind, width, height = _sample_entry(init)
    codecs = ""
    with contextlib.suppress(ValueError):
        codecs = codecs_of(init)
    codec = _CODECS.get(kind, kind.decode("latin-1").strip())
    return SegmentContent(init_bytes, scale, shift, codec, codecs, width, height, _cause(init), tuple(fragments))


def _after(data: bytes, kind: bytes) -> int:
    """The position of a box's content. Raises ValueError if there is none."""
    return data.index(kind) + 4


def _time_scale(init: bytes) -> int:
    at = _after(init, b"mdhd")
    return int(struct.unpack_from(">I", init, at + (20 if init[at] else 12))[0])


def _sample_entry(init: bytes) -> tuple[bytes, int, int]:
    """The kind, width and height of the video."""
    at = _after(init, b"stsd") + 8
    width, height = struct.unpack_from(">HH", init, at + 32)
    return init[at + 4 : at + 8], width, height


def sample_description(init: bytes) -> bytes:
    """The parameters of the codec in an initialization segment: files with the same ones can be joined."""
    at = _after(init, b"stsd")
    return init[at : at - 8 + int(struct.unpack_from(">I", init, at - 8)[0])]


CAUSE_TAG = "comment"
"""The tag of a file that says why it does not continue the one before."""


def _cause(init: bytes) -> str:
    at = init.find(b"\xa9cmt")
    if at < 0:
        return ""
    # FFmpeg writes iTunes metadata: a box `data` with type and locale before the text
    size, kind = struct.unpack_from(">I4s", init, at + 4)
    return init[at + 20 : at + 4 + size].decode("utf-8", "replace") if kind == b"data" else ""


def _fragment(moof: bytes, start: int, end: int) -> Fragment:
    """Read the track's header of a fragment (ISO/IEC 14496-12, 8.8.7, 8.8.8, 8.8.12)."""
    default_duration = default_flags = 0
    at = _after(moof, b"tfhd")
    flags = int.from_bytes(moof[at + 1 : at + 4])
    at += 8
    for bit, size in ((0x1, 8), (0x2, 4)):
        at += size if flags & bit else 0
    if flags & 0x8:
        default_duration = struct.unpack_from(">I", moof, at)[0]
        at += 4
    at += 4 if flags & 0x10 else 0
    if flags & 0x20:
        default_flags = struct.unpack_from(">I", moof, at)[0]
    at = _after(moof, b"tfdt")
    time = struct.unpack_from(">Q" if moof[at] else ">I", moof, at + 4)[0]
    return Fragment(start, end, time, *_run(moof, default_duration, default_flags))


class _Run(NamedTuple):
    """The table of a fragment's frames: position of its first word, the fields of a row, and the number of rows."""

    at: int
    fields: list[int]
    rows: int
    first_flags: int | None

    def column(self, moof: bytes, field: int) -> tuple[int, ...]:
        """The values of a field; empty if there are none."""
        if field not in self.fields:
            return ()
        words = struct.unpack_from(f">{self.rows * len(self.fields)}I", moof, self.at)
        return words[self.fields.index(field) :: len(self.fields)]


_DURATION = 0x100
_FLAGS = 0x400
_SHIFT = 0x800


def _run_of(moof: bytes) -> _Run:
    at = _after(moof, b"trun")
    flags = int.from_bytes(moof[at + 1 : at + 4])
    count = struct.unpack_from(">I", moof, at + 4)[0]
    at += 8 + (4 if flags & 0x1 else 0)
    first_flags = None
    if flags & 0x4:
        first_flags = struct.unpack_from(">I", moof, at)[0]
        at += 4
    return _Run(at, [bit for bit in (_DURATION, 0x200, _FLAGS, _SHIFT) if flags & bit], count, first_flags)


def _run(moof: bytes, default_duration: int, default_flags: int) -> tuple[int, bool]:
    """The duration of a fragment in ticks, and whether it begins with a keyframe."""
    run = _run_of(moof)
    first_flags = default_flags if run.first_flags is None else run.first_flags
    if flags := run.column(moof, _FLAGS):
        first_flags = flags[0]
    duration = sum(run.column(moof, _DURATION)) if _DURATION in run.fields else run.rows * default_duration
    return duration, not first_flags & _NON_SYNC


def _first_shift(moof: bytes) -> int:
    shifts = _run_of(moof).column(moof, _SHIFT)
    return shifts[0] if shifts else 0


def rebased(fragment: bytes, time: int, shift: int, number: int) -> bytes:
    """A fragment that is decoded from another time on.

    Args:
        fragment: its bytes.
        time: the time in ticks.
        shift: the `shift` of its file, by which every frame is shown earlier.
        number: its number in its video, from 1.
    """
    moved = bytearray(fragment)
    struct.pack_into(">I", moved, _after(fragment, b"mfhd") + 4, number)
    at = _after(fragment, b"tfdt")
    struct.pack_into(">Q" if fragment[at] else ">I", moved, at + 4, time)
    run = _run_of(fragment)
    if shift and _SHIFT in run.fields:
        moved[_after(fragment, b"trun")] = 1  # the version with signed values
        step = 4 * len(run.fields)
        at = run.at + 4 * run.fields.index(_SHIFT)
        for row, value in enumerate(run.column(fragment, _SHIFT)):
            struct.pack_into(">i", moved, at + row * step, value - shift)
    return bytes(moved)


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What was made of a file that a crash left.

    Attributes:
        path: the complete file; None if it had no whole fragment, and was removed.
        duration_ms: how much of it is readable, in milliseconds.
        lost_bytes: bytes after its last whole fragment, which were cut off.
    """

    path: Path | None
    duration_ms: int
    lost_bytes: int


def salvage(part: Path) -> Salvaged | None:
    """Complete a file that a crash left with its whole fragments; None if a process is writing it.

    Raises:
        OSError: it cannot be read, cut or renamed.
    """
    with contextlib.suppress(BlockingIOError, FileNotFoundError):
        handle = open_locked(part, os.O_RDWR)
        try:
            return _complete(part, handle)
        finally:
            os.close(handle)
    return None


def _complete(part: Path, handle: int) -> Salvaged:
    size = os.fstat(handle).st_size
    try:
        content = read_content(part)
        end = content.fragments[-1].end
    except (SourceError, IndexError):
        part.unlink()
        return Salvaged(None, 0, size)
    os.ftruncate(handle, end)
    os.fsync(handle)
    final = part.with_name(part.name.removeprefix(".").removesuffix(".part"))
    path = final.with_name(complete_name(final, content.duration_ms, event=False))
    os.replace(part, path)
    return Salvaged(path, content.duration_ms, size - end)


def keyframe_at(content: SegmentContent, time: int) -> int | None:
    """The place of the last fragment that begins with a keyframe by a time in ticks; None if there is none."""
    places = (place for place, fragment in enumerate(content.fragments) if fragment.keyframe and fragment.time <= time)
    return max(places, default=None)


def read_pieces(path: Path, content: SegmentContent, first: int, last: int) -> Iterator[tuple[Fragment, bytes]]:
    """Read the fragments from place `first` to `last`, both included. Raises OSError."""
    with path.open("rb") as file:
        for fragment in content.fragments[first : last + 1]:
            file.seek(fragment.start)
            yield fragment, file.read(fragment.end - fragment.start)


def read_init(path: Path, content: SegmentContent) -> bytes:
    """Read the initialization segment. Raises OSError."""
    with path.open("rb") as file:
        return file.read(content.init_bytes)
