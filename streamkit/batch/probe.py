"""What a file's header says, before anything is decoded; and what went wrong with a file, in a word to count by."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.batch import remote
from streamkit.errors import DeviceError, OutputError, SourceError, StreamkitError, describe
from streamkit.media.trouble import check_file
from streamkit.media.uris import is_path, local_path, mask

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer

_BLOCK_BYTES = 1 << 18  # what is read at a time of a remote file, whose header is small
# of SourceError.CAUSES, those that have another name among files; the others keep theirs
_KINDS = {"auth": "permission", "not_found": "missing", "refused": "lost", "frozen": "lost"}
_PASSING = frozenset({"lost", "timeout", "memory", "output", "device"})


@dataclass(frozen=True, slots=True)
class Probe:
    """What a header says of a video; None and "" where it does not say.

    Attributes:
        duration_s: as long as it lasts.
        codec: FFmpeg's name of it: `h264`, `hevc`, `av1`.
        width: of the coded picture in pixels, before rotation.
        height: likewise.
        fps: frames a second, on average.
        frames: how many.
        problem: why it cannot be decoded, in one line; None where nothing is seen to be wrong.
        kind: the same in a word to count by.
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
    """What the header of a file says; whatever is wrong with it is in `problem`, and nothing is raised.

    Args:
        uri: a path, or an address that fsspec knows, of which only the header is read; nothing where the server does
            not tell its size, for then its middle cannot be asked for.
    """
    from streamkit.media.demux import Demuxer

    try:
        if is_path(uri):
            check_file(local_path(uri))
            with closing(Demuxer(uri)) as demuxer:
                return _said(demuxer)
        with remote.told_as_source(uri):
            system, path = remote.open_system(uri)
            with system.open(path, "rb", block_size=_BLOCK_BYTES) as file:
                if getattr(file, "size", 0) is None:  # it can be read from its beginning to its end and not otherwise
                    return Probe()
                with closing(Demuxer(uri, file=file)) as demuxer:
                    return _said(demuxer)
    except (StreamkitError, OSError) as error:
        # who shows it says which file it is
        words = describe(error).removeprefix(mask(uri)).removeprefix(":").strip()
        return Probe(problem=words, kind=cause(error)[0])


def cause(error: BaseException) -> tuple[str, bool]:
    """Why a file failed, in a word to count by, and whether another try may help.

    The word is one of damaged, empty, no_video, codec, truncated, missing, permission, memory, timeout, lost (the
    connection, or a disk that cannot be read), device, output, stage.
    """
    if isinstance(error, SourceError):
        kind = _KINDS.get(error.cause or "", error.cause or "damaged")
    elif isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        kind = "memory"
    elif isinstance(error, OutputError):
        kind = "output"
    elif isinstance(error, DeviceError):
        kind = "device"
    elif isinstance(error, TimeoutError):
        kind = "timeout"
    elif isinstance(error, PermissionError):
        kind = "permission"
    elif isinstance(error, FileNotFoundError):
        kind = "missing"
    elif isinstance(error, OSError):
        kind = "lost"
    else:
        kind = "stage"
    return kind, kind in _PASSING


def _said(demuxer: Demuxer) -> Probe:
    info = demuxer.info
    frames, problem, kind = info.frames, None, ""
    if not info.width or not info.height:
        problem, kind = "its pictures have no size: the header is damaged, or it holds no pictures", "damaged"
    elif demuxer.stream.duration == 0 or (info.duration_s == 0 and not frames):
        problem, kind = "it holds no pictures", "empty"
    if frames is None and info.duration_s and info.average_rate:
        frames = round(info.duration_s * info.average_rate)
    return Probe(info.duration_s, info.codec, info.width, info.height, info.average_rate, frames, problem, kind)
