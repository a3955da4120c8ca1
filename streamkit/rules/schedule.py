# SPDX-License-Identifier: Apache-2.0
"""Schedules of rules: weekdays and hours of the day in a time zone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, tzinfo
from functools import lru_cache
from typing import Any

from streamkit.core.text import nearest

_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAYS = tuple(name[:3] for name in _NAMES)
_HOURS = re.compile(r"\s*(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s*")
_DAY = 24 * 60


@dataclass(frozen=True, slots=True)
class Schedule:
    """Weekdays and hours. A YAML writes `{days: [mon-fri], hours: "22:00-06:00", zone: Europe/Berlin}`.

    Each key is optional; `days` and `hours` are one text or a list; `hours` are in 24-hour format, up to 24:00.

    Attributes:
        days: weekdays, 0 for Monday.
        hours: (begin, end) in minutes from midnight, on the wall clock; begin > end spans midnight and belongs to the
            day on which it begins. None for the whole day.
        zone: the time zone; None for the machine's own.
    """

    days: frozenset[int] = frozenset(range(7))
    hours: tuple[tuple[int, int], ...] | None = None
    zone: tzinfo | None = None

    def open(self, at: datetime) -> bool:
        """Whether the schedule is open at a time.

        Args:
            at: with a time zone; otherwise the machine's own is assumed.
        """
        here = at.astimezone(self.zone)
        minute = here.hour * 60 + here.minute
        day = here.weekday()
        if self.hours is None:
            return day in self.days
        return any(
            (day in self.days and begin <= minute and (minute < end or end < begin))
            or (end < begin and minute < end and (day - 1) % 7 in self.days)
            for begin, end in self.hours
        )

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema as core

        fields = {
            key: core.typed_dict_field(core.no_info_plain_validator_function(read), required=False)
            for key, read in _READ.items()
        }
        parts = core.typed_dict_schema(fields, extra_behavior="forbid")
        return core.no_info_after_validator_function(lambda options: cls(**options), parts)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        texts = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
        parts = {"days": texts, "hours": texts, "zone": {"type": "string"}}
        return {"type": "object", "properties": parts, "additionalProperties": False}


def _all_days(value: Any) -> frozenset[int]:
    return frozenset(day for days in _listed(value, "all") for day in _days(days))


def _all_hours(value: Any) -> tuple[tuple[int, int], ...]:
    return tuple(map(_hours, _listed(value, "the whole day")))


def _listed(value: Any, default: str) -> list[str]:
    texts = list(value) if isinstance(value, (list, tuple)) else [value]
    if not texts:
        raise ValueError(f"must not be empty; leave it out for {default}")
    for text in texts:
        if not isinstance(text, str):
            raise ValueError(f'must be text, such as mon-fri or "22:00-06:00", got {text!r}')
    return texts


def _days(text: str) -> list[int]:
    names = (part.strip().lower() for part in text.partition("-"))
    first, dash, last = (name[:3] if name in _NAMES else name for name in names)
    if first not in _DAYS or (dash and last not in _DAYS):
        raise ValueError(f"must be weekdays, mon to sun, such as [mon-fri, sun], got {text!r}")
    begin = _DAYS.index(first)
    return [(begin + i) % 7 for i in range((_DAYS.index(last) - begin) % 7 + 1)] if dash else [begin]


def _hours(text: str) -> tuple[int, int]:
    match = _HOURS.fullmatch(text)
    if match is None:
        raise ValueError(f'must be a beginning and an end, such as "22:00-06:00", got {text!r}')
    hour, minute, to_hour, to_minute = map(int, match.groups())
    begin = hour * 60 + minute
    end = to_hour * 60 + to_minute
    if minute > 59 or to_minute > 59 or begin >= _DAY or end > _DAY:
        raise ValueError(f"must lie between 00:00 and 24:00, got {text!r}")
    if begin == end:
        raise ValueError(f"must not end where it begins; leave hours out for the whole day, got {text!r}")
    return begin, end


@lru_cache(maxsize=32)
def _zone_by_name(name: str) -> tzinfo | None:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _zone(name: Any) -> tzinfo:
    from zoneinfo import available_timezones

    zone = _zone_by_name(name) if isinstance(name, str) and name else None
    if zone is not None:
        return zone
    zone_names = available_timezones()
    if not zone_names:
        raise ValueError(f"cannot be read, since this machine has no time zone data; install tzdata, got {name!r}")
    raise ValueError(f"must be a time zone, such as {nearest(str(name), zone_names) or 'Europe/Berlin'}, got {name!r}")


_READ: dict[str, Any] = {"days": _all_days, "hours": _all_hours, "zone": _zone}
