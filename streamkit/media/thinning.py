"""Which pictures of a source are taken: a part of it, every n-th, or so many a second."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from streamkit.errors import SourceError

T = TypeVar("T")
_SLACK_S = 1e-6
_NEW_CLOCK_S = 1.0
"""A time that falls back by less is jitter; by more, the clock was set, has wrapped or has begun again."""


def check_part(start_s: float, end_s: float | None) -> None:
    """Refuse a part that holds nothing.

    Raises:
        ValueError: the end is not after the start.
    """
    if end_s is not None and end_s <= start_s:
        raise ValueError(f"end must be after start, got start {start_s:g} s and end {end_s:g} s")


def numbers(count: int | None, rate: float, start_s: float, end_s: float | None) -> range:
    """The numbers of the pictures from start to before end, where picture n is shown at n / rate seconds.

    Args:
        count: as many as there are; None where there is no end.
        rate: pictures a second.
        start_s: seconds after the first picture.
        end_s: likewise, or None.
    """
    last = sys.maxsize if count is None else count
    if end_s is not None:
        last = min(last, math.ceil((end_s - _SLACK_S) * rate))
    return range(max(0, math.ceil((start_s - _SLACK_S) * rate)), last)


class Thinning:
    """Takes pictures whose index `every` divides, and of these at most `fps` a second, evenly.

    Presentation times may jump, as they do when a second client joins an RTSP mount. Behind a jump back, time goes on
    from where it was: waiting for the old times to come again would stop the source for as long as it has run.
    """

    def __init__(self, every: int, fps: float | None) -> None:
        self._every, self._fps = every, fps
        self._slot, self._first_s, self._latest_s = -1, 0.0, 0.0

    def takes(self, index: int, pts_s: float) -> bool:
        """Whether a picture is taken; to be asked in the order shown. Those not taken may as well not be asked for."""
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


def thinned(pictures: Iterable[tuple[int, T, float]], every: int, fps: float | None) -> Iterator[tuple[int, T, float]]:
    """Those of (index, picture, seconds) that a `Thinning` takes."""
    thinning = Thinning(every, fps)
    return ((index, picture, pts_s) for index, picture, pts_s in pictures if thinning.takes(index, pts_s))


def nothing_taken(
    name: str, what: str, length_s: float | None, start_s: float, end_s: float | None, every: int, *,
    keyframes: bool = False,
) -> SourceError:  # fmt: skip
    """The error of a source that ended well without one picture.

    Args:
        name: the source's address, masked.
        what: what is so long: `the video`.
        length_s: seconds, or None where that is not known.
        start_s: where the part begins.
        end_s: where it ends, or None.
        every: only every so many-th picture was wanted.
        keyframes: only keyframes were.
    """
    if not start_s and end_s is None and keyframes:
        return SourceError(f"{name}: none of its pictures can be decoded without others", cause="codec")
    if not start_s and end_s is None:
        return SourceError(f"{name}: it ended before its first picture")
    end = "end" if end_s is None else f"end {end_s:g} s"
    which = f" whose number is a multiple of every, {every}," if every > 1 else ""
    length = "" if length_s is None else f"; {what} is {round(length_s, 2):g} s long"
    kind = "keyframe" if keyframes else "picture"
    return SourceError(f"{name}: no {kind}{which} between start {start_s:g} s and {end}{length}")
