"""Which pictures of a source are taken: a part of it, every n-th, or so many a second."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from streamkit.errors import SourceError

T = TypeVar("T")
_SLACK_S = 1e-6


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


def thinned(pictures: Iterable[tuple[int, T, float]], every: int, fps: float | None) -> Iterator[tuple[int, T, float]]:
    """Those of (index, picture, seconds) whose index `every` divides, and of these at most `fps` a second, evenly."""
    slot, first_s = -1, None
    for index, picture, pts_s in pictures:
        if index % every:
            continue
        if fps is not None:
            first_s = pts_s if first_s is None else first_s
            due = math.floor((pts_s - first_s) * fps + 1e-6)
            if due <= slot:
                continue
            slot = due
        yield index, picture, pts_s


def nothing_taken(
    name: str, what: str, length_s: float | None, start_s: float, end_s: float | None, every: int
) -> SourceError:
    """The error of a source that ended well without one picture.

    Args:
        name: the source's address, masked.
        what: what is so long: `the video`.
        length_s: seconds, or None where that is not known.
        start_s: where the part begins.
        end_s: where it ends, or None.
        every: only every so many-th picture was wanted.
    """
    if not start_s and end_s is None:
        return SourceError(f"{name}: it ended before its first picture")
    end = "end" if end_s is None else f"end {end_s:g} s"
    which = f" whose number is a multiple of every, {every}," if every > 1 else ""
    length = "" if length_s is None else f"; {what} is {round(length_s, 2):g} s long"
    return SourceError(f"{name}: no picture{which} between start {start_s:g} s and {end}{length}")
