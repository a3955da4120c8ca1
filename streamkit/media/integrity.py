# SPDX-License-Identifier: Apache-2.0
"""Checks whether a video was complete and undamaged at its end, and whether a live stream can be decoded."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from streamkit.core.errors import SourceError
from streamkit.media.encryption import SEARCHED_BYTES, encryption_error, is_scrambled
from streamkit.media.mp4_boxes import is_whole
from streamkit.media.uris import is_path, mask

if TYPE_CHECKING:
    from streamkit.media.demux import Demuxer


# codecs with one shown frame per packet
_FRAME_PER_PACKET = frozenset({"h264", "hevc", "av1", "vp9"})
_MISSING = 0.02
"""Share of a header's frames that may be missing: it may have been written before the last frames."""


def lost_frames(demuxer: Demuxer, shown: int) -> int:
    """Number of missing frames of a video that was read completely."""
    info = demuxer.info
    if info.codec not in _FRAME_PER_PACKET or not info.frames or demuxer.packets_read != info.frames:
        return 0
    return max(0, demuxer.packets_read - demuxer.discarded - shown)


def check_integrity(
    demuxer: Demuxer, last_s: float | None, shown: int, damage: int, *, whole: bool, step_s: float
) -> None:
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
    info = demuxer.info
    name = mask(demuxer.uri)
    if info.live:
        return
    promised = (info.frames or 0) if whole else 0
    if last_s is None:
        if whole and not demuxer.packets_read and _is_scrambled(demuxer):
            raise encryption_error(demuxer.uri)
        if whole:
            raise SourceError(f"{name}: no frame could be decoded", cause=_no_frame_cause(demuxer))
        return
    seconds = max(last_s, _covered_s(demuxer)) - info.start_s + step_s
    short = info.duration_s is not None and seconds < info.duration_s - max(0.5, 3 * step_s)
    if short and _states_other_files(demuxer):
        short = False
    read = demuxer.packets_read
    # AVI counts frame slots, and any of them may be empty
    few = read < (1 - _MISSING) * promised - 3 and demuxer.container.format.name != "avi"
    if few or (short and (read < promised or not promised)):
        frames = f"{shown} of {info.frames} frames, " if promised else ""
        length = f"{seconds:.1f} s" if info.duration_s is None else f"{seconds:.1f} of {info.duration_s:.1f} s"
        raise SourceError(
            f"{name} ends early: {frames}{length} could be read; the file is truncated", cause="truncated"
        )
    if bad := max(damage, demuxer.damaged):
        were = "frame was" if bad == 1 else "frames were"
        raise SourceError(f"{name} is damaged: {bad:,} {were} lost or concealed", cause="damaged", damaged=bad)


def _covered_s(demuxer: Demuxer) -> float:
    """Decoding time of the last packet in seconds if the clock had not restarted; minus infinity if unknown."""
    ticks = demuxer.covered_ticks
    return -math.inf if ticks is None else float(ticks * demuxer.stream.time_base)


def _states_other_files(demuxer: Demuxer) -> bool:
    """Whether the duration in a header may be that of a whole presentation, of which a complete file is a part.

    Only a fragmented MP4 is such a part. It is complete if it ends with the end of a box.
    """
    container = demuxer.container
    if not container.format.name.startswith("mov") or demuxer.info.frames:
        return False
    return not demuxer.is_file or is_whole(demuxer.read_bytes, container.size)


def _is_scrambled(demuxer: Demuxer) -> bool:
    """Whether the demuxer's file is a transport stream whose video is scrambled."""
    if demuxer.container.format.name != "mpegts" or not demuxer.is_file:
        return False
    return is_scrambled(demuxer.read_bytes(0, SEARCHED_BYTES), demuxer.stream.id)


def _no_frame_cause(demuxer: Demuxer) -> str | None:
    """Cause for a video without a single frame, in one word."""
    if not is_path(demuxer.uri):
        return None
    if demuxer.packets_read:
        return "damaged"
    return "truncated" if demuxer.info.frames or demuxer.info.duration_s else "empty"


_GOP_S = 60.0  # longest keyframe interval of cameras
_MAX_BUFFERED = 30  # packets without a frame: more than any decoder buffers


class ArrivalMonitor:
    """Monitors one connection.

    Args:
        uri: its address.
        timeout_s: maximum time without a decoded frame, in seconds.
    """

    def __init__(self, uri: str, timeout_s: float) -> None:
        self._uri = uri
        self._timeout_s = timeout_s
        self._arrivals_s: dict[int | None, float] = {}  # packets by their presentation time, in ticks; None the newest
        self.frame_decoded()

    def frame_decoded(self) -> None:
        """Note that a frame was taken, or that the packets begin."""
        # packets since the last frame, when it was taken, and whether a keyframe has come since
        self._packets_since_frame = 0
        self._frame_s = time.monotonic()
        self._keyframe = False

    def packet(self, pts: int | None, keyframe: bool) -> None:
        """Note a packet; arrival times are kept for the last few packets only.

        Raises:
            SourceError: packets arrive, but no frame can be decoded from them.
        """
        now_s = time.monotonic()
        self._arrivals_s[None] = self._arrivals_s[pts] = now_s
        if len(self._arrivals_s) > _MAX_BUFFERED:
            del self._arrivals_s[next(pts for pts in self._arrivals_s if pts is not None)]
        if keyframe and not self._keyframe:
            self._packets_since_frame = 0
            self._frame_s = now_s
            self._keyframe = True
        self._packets_since_frame += 1
        # after joining between two keyframes, decoding starts at the next one
        allowed_s = self._timeout_s if self._keyframe else max(self._timeout_s, _GOP_S)
        if self._packets_since_frame > _MAX_BUFFERED and now_s - self._frame_s > allowed_s:
            raise SourceError(
                f"{mask(self._uri)}: packets arrive, but no frame could be decoded in {allowed_s:g} s", cause="codec"
            )

    def arrival_s(self, pts: int) -> float:
        """Arrival of a frame's packet on the monotonic clock, in seconds; of the newest packet if none matches."""
        return self._arrivals_s.pop(pts, self._arrivals_s[None])
