# SPDX-License-Identifier: Apache-2.0
"""Selects the frames of a source: a part of it, every n-th, or a maximum number per second."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from streamkit.core.errors import SourceError

T = TypeVar("T")
_SLACK_S = 1e-6
_NEW_CLOCK_S = 1.0
"""A smaller step back is jitter; after a larger one the clock was set, has wrapped or was restarted."""


def check_time_range(start_s: float, end_s: float | None) -> None:
    """Reject an empty part.

    Raises:
        ValueError: the end is not after the start.
    """
    if end_s is not None and end_s <= start_s:
        raise ValueError(f"end must be after start, got start {start_s:g} s and end {end_s:g} s")


def frame_range(count: int | None, rate: float, start_s: float, end_s: float | None) -> range:
    """Frame numbers from start to before end; frame n is shown at n / rate seconds.

    Args:
        count: number of frames; None if there is no end.
        rate: frames per second.
        start_s: seconds after the first frame.
        end_s: likewise, or None.
    """
    last = sys.maxsize if count is None else count
    if end_s is not None:
        last = min(last, math.ceil((end_s - _SLACK_S) * rate))
    return range(max(0, math.ceil((start_s - _SLACK_S) * rate)), last)


class FrameSampler:
    """Takes frames whose index is a multiple of `every`, and of these at most `fps` per second, evenly spaced.

    Presentation times may jump, as they do when a second client joins an RTSP mount. After a jump back, time continues
    from its last value: waiting for the old times to return would stop the source for as long as it has run.
    """

    def __init__(self, every: int, fps: float | None) -> None:
        self._every = every
        self._fps = fps
        self._slot = -1
        self._first_s = 0.0
        self._latest_s = 0.0

    def accepts(self, index: int, pts_s: float) -> bool:
        """Whether to take a frame; call it in presentation order. Frames that are not taken may be omitted."""
        if index % self._every:
            return False
        if self._fps is None:
            return True
        if self._slot < 0:
            self._first_s = self._latest_s = pts_s
        if pts_s < self._latest_s - _NEW_CLOCK_S:
            self._first_s += pts_s - self._latest_s
            self._latest_s = pts_s
        self._latest_s = max(self._latest_s, pts_s)
        due = math.floor((pts_s - self._first_s) * self._fps + 1e-6)
        if due <= self._slot:
            return False
        self._slot = due
        return True


def sample_frames(
    frames: Iterable[tuple[int, T, float]], every: int, fps: float | None
) -> Iterator[tuple[int, T, float]]:
    """Filter (index, frame, seconds) with a `FrameSampler`."""
    sampler = FrameSampler(every, fps)
    return ((index, frame, pts_s) for index, frame, pts_s in frames if sampler.accepts(index, pts_s))


def no_frame_error(
    name: str,
    what: str,
    length_s: float | None,
    start_s: float,
    end_s: float | None,
    every: int,
    *,
    keyframes: bool = False,
) -> SourceError:
    """The error for a source that ended normally without a frame.

    Args:
        name: the source's address, masked.
        what: whose length is given: `the video`.
        length_s: length in seconds, or None if unknown.
        start_s: start of the part.
        end_s: end of the part, or None.
        every: only every n-th frame was wanted.
        keyframes: whether only keyframes were wanted.
    """
    if not start_s and end_s is None and keyframes:
        return SourceError(f"{name}: none of its frames can be decoded independently", cause="codec")
    if not start_s and end_s is None:
        return SourceError(f"{name}: it ended before its first frame")
    end = "end" if end_s is None else f"end {end_s:g} s"
    which = f" whose number is a multiple of every, {every}," if every > 1 else ""
    length = "" if length_s is None else f"; {what} is {round(length_s, 2):g} s long"
    kind = "keyframe" if keyframes else "frame"
    return SourceError(f"{name}: no {kind}{which} between start {start_s:g} s and {end}{length}")


def expected_frames(
    facts: dict[str, Any], start_s: float, end_s: float | None, every: int, fps: float | None, turns: float
) -> int | None:
    """Estimate the number of frames that a file yields.

    Args:
        facts: `frames`, `fps` (frames per second) and `duration_s` of the whole file, each a number or None.
        start_s: earlier frames are skipped, in seconds.
        end_s: later frames are skipped, in seconds; None for none.
        every: only each n-th frame is used.
        fps: maximum number of frames per second; None for all.
        turns: number of passes over the file; `math.inf` for an endless loop.

    Returns:
        The estimate, or None if the length is unknown or infinite.
    """
    frames, rate, length_s = (facts.get(name) for name in ("frames", "fps", "duration_s"))
    if length_s is None and frames and rate:
        length_s = frames / rate
    if math.isinf(turns) or not (length_s and (frames or rate)):
        return None
    span_s = max(0.0, min(length_s, math.inf if end_s is None else end_s) - start_s)
    decoded: float = frames * span_s / length_s if frames else rate * span_s
    taken = math.ceil(round(decoded, 3) / every)
    if fps is not None:
        taken = min(taken, math.ceil(round(span_s * fps, 3)))
    return int(turns * taken)
