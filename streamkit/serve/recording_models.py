# SPDX-License-Identifier: Apache-2.0
"""Response bodies of recordings around the clock. All times are in seconds since 1970, so UTC."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RecordedDayView:
    """A day in UTC of which something is recorded, and how many seconds of it."""

    day: str
    recorded_s: float


@dataclass(slots=True)
class RecordingView:
    """What is recorded of a source: from `first_s` to `last_s`, with gaps."""

    source: str
    first_s: float
    last_s: float
    bytes: int
    days: list[RecordedDayView]


@dataclass(slots=True)
class SegmentView:
    """A time without gaps in which the camera's video was the same. `id` is that of its first file.

    `event` is true if all of it is kept as a time around events.
    """

    id: int
    from_s: float
    to_s: float
    width: int
    height: int
    codec: str
    bytes: int
    event: bool


@dataclass(slots=True)
class GapView:
    """A time that is not recorded, and why.

    `cause` is "camera away", "restart", "disk full", "clock changed", or "not recorded" for any other reason, such as
    files that were removed.
    """

    from_s: float
    to_s: float
    cause: str


@dataclass(slots=True)
class RecordingTimeline:
    """What is recorded of a source in a period.

    `motion` has a number for each of the equal parts of the period: by `motion_by` "bytes", the bytes of video per
    second, of which a camera sends more when there is motion. `events` has the numbers of events. Both are empty unless
    the request has `bins`.
    """

    segments: list[SegmentView]
    gaps: list[GapView]
    motion: list[float]
    motion_by: str
    events: list[int]
