"""Checks at the end of a video whether it was complete and undamaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.core.errors import SourceError
from streamkit.media.uris import is_path, mask

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer

# codecs whose every packet shows one frame
_ONE_EACH = frozenset({"h264", "hevc", "av1", "vp9"})
_MISSING = 0.02
"""Of the frames that a header promises, so many may be missing: it may have been written before the last ones."""


def lost(demuxer: Demuxer, shown: int) -> int:
    """Number of missing frames of a video that was read completely."""
    info = demuxer.info
    if info.codec not in _ONE_EACH or not info.frames or demuxer.packets_read != info.frames:
        return 0
    return max(0, demuxer.packets_read - demuxer.discarded - shown)


def check(demuxer: Demuxer, last_s: float | None, shown: int, damage: int, *, whole: bool, step_s: float) -> None:
    """Raise if a part of a file is missing or damaged.

    Args:
        demuxer: the demuxer at the end of the file.
        last_s: time of the last frame; None if there was none.
        shown: number of frames.
        damage: number of frames that were lost or concealed.
        whole: whether the file was read from its start.
        step_s: duration of a frame.

    Raises:
        SourceError: the file is incomplete or damaged.
    """
    info, name = demuxer.info, mask(demuxer.uri)
    if info.live:
        return
    promised = (info.frames or 0) if whole else 0
    if last_s is None:
        if whole:
            raise SourceError(f"{name}: no frame could be decoded", cause=_nothing(demuxer))
        return
    seconds = last_s - info.start_s + step_s
    short = info.duration_s is not None and seconds < info.duration_s - max(0.5, 3 * step_s)
    read = demuxer.packets_read
    # AVI counts places for frames, of which any may be empty
    few = read < (1 - _MISSING) * promised - 3 and demuxer.container.format.name != "avi"
    if few or (short and (read < promised or not promised)):
        frames = f"{shown} of {info.frames} frames, " if promised else ""
        length = f"{seconds:.1f} s" if info.duration_s is None else f"{seconds:.1f} of {info.duration_s:.1f} s"
        raise SourceError(
            f"{name} ends early: {frames}{length} could be read; the file was cut short", cause="truncated"
        )
    if bad := max(damage, demuxer.damaged):
        were = "frame was" if bad == 1 else "frames were"
        raise SourceError(f"{name} is damaged: {bad:,} {were} lost or concealed", cause="damaged", damaged=bad)


def _nothing(demuxer: Demuxer) -> str | None:
    """Cause for a video without a single frame, in one word."""
    if not is_path(demuxer.uri):
        return None
    if demuxer.packets_read:
        return "damaged"
    return "truncated" if demuxer.info.frames or demuxer.info.duration_s else "empty"
