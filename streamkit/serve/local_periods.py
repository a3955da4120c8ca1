# SPDX-License-Identifier: Apache-2.0
"""Hours, days and weeks by the clock of a time zone, with changes to and from daylight saving time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal
from zoneinfo import ZoneInfo

Step = Literal["hour", "day", "week"]

MAX_PERIODS = 2000
_STEPS: dict[Step, timedelta] = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}


def time_zone(name: str) -> tzinfo:
    """The time zone of a name such as Europe/Berlin.

    Raises:
        ValueError: there is none of that name.
    """
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"zone must be a time zone such as Europe/Berlin, got {name!r}") from None


def period_edges(from_s: float, to_s: float, step: Step, zone: tzinfo) -> list[float]:
    """The edges of the periods that cover a time span: each period begins at a full hour, day or Monday there.

    Args:
        from_s: start in seconds since 1970; the first period contains it.
        to_s: end in seconds since 1970, later than `from_s`; the last period contains the moment before.
        step: the length of a period; a day has 23 or 25 hours when the clocks change.
        zone: the time zone.

    Returns:
        Seconds since 1970, ascending, one more than there are periods.

    Raises:
        ValueError: there are more than 2,000 periods, or the span is outside of the years 1 to 9999.
    """
    if (to_s - from_s) / _STEPS[step].total_seconds() > MAX_PERIODS:
        raise ValueError(f"the time from `from` to `to` has more than {MAX_PERIODS} periods; choose a longer step")
    try:
        start = _floor(datetime.fromtimestamp(from_s, zone), step)
        edges_s = [start.timestamp()]
        while edges_s[-1] < to_s:
            edges_s.append(_next_edge_s(edges_s[-1], step, zone))
    except (OverflowError, OSError, ValueError):
        raise ValueError("from and to must be times of the years 1970 to 9999") from None
    return edges_s


def week_before(edges_s: list[float], zone: tzinfo) -> list[float]:
    """The edges of the same periods a week earlier, by the local clock."""
    week = timedelta(days=7)
    return [(datetime.fromtimestamp(edge_s, zone) - week).timestamp() for edge_s in edges_s]


def _floor(moment: datetime, step: Step) -> datetime:
    if step == "hour":
        return moment.replace(minute=0, second=0, microsecond=0)
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    return midnight - timedelta(days=midnight.weekday()) if step == "week" else midnight


def _next_edge_s(edge_s: float, step: Step, zone: tzinfo) -> float:
    if step == "hour":  # an hour that is repeated when the clocks change is a period of its own
        return edge_s + 3600.0
    # made from the date again: where the clocks change at midnight, a day begins at 01:00 and the next one at 00:00
    following = datetime.fromtimestamp(edge_s, zone) + _STEPS[step]
    return _floor(following, step).timestamp()
