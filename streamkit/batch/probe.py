# SPDX-License-Identifier: Apache-2.0
"""Reads a file's header without decoding, and classifies why a file failed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.batch.remote import open_ranges, raised_as
from streamkit.core.errors import DeviceError, OutputError, SourceError, StreamkitError, describe
from streamkit.media.source_errors import check_file
from streamkit.media.uris import is_path, local_path, mask

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer

_BLOCK_BYTES = 1 << 18  # read at a time of a remote file, whose header is small
# those of SourceError.CAUSES that have another name for files
_KINDS = {"auth": "permission", "not_found": "missing", "refused": "lost", "frozen": "lost"}
_KIND_OF: dict[type[BaseException], str] = {  # the first that fits
    MemoryError: "memory",
    OutputError: "output",
    DeviceError: "device",
    TimeoutError: "timeout",
    PermissionError: "permission",
    FileNotFoundError: "missing",
    OSError: "lost",
}
_RETRIED = frozenset({"lost", "timeout", "memory", "device"})


@dataclass(frozen=True, slots=True)
class Probe:
    """The header of a video; None and "" for unknown values.

    Attributes:
        duration_s: duration in seconds.
        codec: FFmpeg's codec name: `h264`, `hevc`, `av1`.
        width: of the coded frame in pixels, before rotation.
        height: likewise.
        fps: average frames per second.
        frames: number of frames.
        problem: why it cannot be decoded, in one line; None if the header shows no problem.
        kind: the category of the problem, for counts.
    """

    duration_s: float | None = None
    codec: str = ""
    width: int = 0
    height: int = 0
    fps: float | None = None
    frames: int | None = None
    problem: str | None = None
    kind: str = ""


def probe(uri: str) -> Probe:
    """Read the header of a file; problems are returned in `problem`, nothing is raised.

    Args:
        uri: a path, or an address for fsspec, of which only the header is read. If the server does not report the
            file's size, the result is empty, because ranges of it cannot be requested.
    """
    from streamkit.media.demux import Demuxer

    try:
        if is_path(uri):
            check_file(local_path(uri))
            with closing(Demuxer(uri)) as demuxer:
                return _read_header(demuxer)
        with raised_as(SourceError, uri), open_ranges(uri, _BLOCK_BYTES) as file:
            if getattr(file, "size", 0) is None:  # the server sends no ranges of it
                return Probe()
            with closing(Demuxer(uri, file=file)) as demuxer:
                return _read_header(demuxer)
    except (StreamkitError, OSError) as error:
        text = describe(error).removeprefix(mask(uri)).removeprefix(":").strip()
        return Probe(problem=text, kind=cause(error)[0])


def cause(error: BaseException) -> tuple[str, bool]:
    """The category of a failure, and whether a retry may help.

    One of damaged, empty, no_video, codec, truncated, missing, permission, memory, timeout, lost (the connection, or an
    unreadable disk), device, output, stage.
    """
    if isinstance(error, SourceError):
        kind = _KINDS.get(error.cause or "", error.cause or "damaged")
    elif "out of memory" in str(error).lower():
        kind = "memory"
    else:
        kind = next((kind for type_, kind in _KIND_OF.items() if isinstance(error, type_)), "stage")
    return kind, kind in _RETRIED


def _read_header(demuxer: Demuxer) -> Probe:
    info = demuxer.info
    frames = info.frames
    problem = None
    kind = ""
    if not info.width or not info.height:
        problem = "its frames have no size: the header is damaged, or it has no frames"
        kind = "damaged"
    elif demuxer.stream.duration == 0 or (info.duration_s == 0 and not frames):
        problem = "it has no frames"
        kind = "empty"
    if frames is None and info.duration_s and info.average_rate:
        frames = round(info.duration_s * info.average_rate)
    return Probe(info.duration_s, info.codec, info.width, info.height, info.average_rate, frames, problem, kind)
