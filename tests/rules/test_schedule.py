from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from pydantic import TypeAdapter

from streamkit.config.alarms import Alarm
from streamkit.config.validate import OptionValidator
from streamkit.core.yaml_tree import tree
from streamkit.rules.schedule import Schedule

PARSE = TypeAdapter(Schedule).validate_python
BERLIN = ZoneInfo("Europe/Berlin")


def at(day, time, zone=UTC):
    """A moment of the week that begins on Monday, 2 March 2026."""
    hour, minute = map(int, time.split(":"))
    return datetime(2026, 3, 2, hour, minute, tzinfo=zone) + timedelta(days=day)


@pytest.mark.parametrize(
    ("options", "opened", "closed"),
    [
        ({}, [(0, "00:00"), (6, "23:59")], []),
        ({"days": ["mon-fri"]}, [(0, "00:00"), (4, "23:59")], [(5, "00:00"), (6, "12:00")]),
        ({"days": "sat-mon"}, [(5, "12:00"), (6, "12:00"), (0, "12:00")], [(1, "12:00"), (4, "12:00")]),
        ({"days": ["Monday", "WED"]}, [(0, "12:00"), (2, "12:00")], [(1, "12:00")]),
        ({"days": ["monday-tue", "sun"]}, [(0, "1:00"), (1, "1:00"), (6, "1:00")], [(2, "1:00")]),
        ({"hours": "09:00-17:00"}, [(0, "09:00"), (6, "16:59")], [(0, "08:59"), (0, "17:00")]),
        ({"hours": "22:00-24:00"}, [(0, "23:59")], [(0, "21:59"), (1, "00:00")]),
        ({"hours": "22:00-06:00"}, [(0, "22:00"), (0, "05:59")], [(0, "06:00"), (0, "21:59")]),
        ({"hours": ["06:00-08:00", "17:00-19:00"]}, [(0, "07:00"), (0, "18:00")], [(0, "12:00")]),
        # a night belongs to the day on which it begins
        ({"days": ["fri"], "hours": "22:00-06:00"}, [(4, "23:00"), (5, "05:59")], [(4, "05:00"), (5, "22:00")]),
        ({"days": ["sun"], "hours": "22:00-06:00"}, [(6, "23:00"), (0, "05:59")], [(0, "22:00"), (6, "05:00")]),
    ],
)
def test_a_schedule_is_active_at_its_times(options, opened, closed):
    schedule = PARSE({**options, "zone": "UTC"})
    assert [schedule.open(at(*moment)) for moment in opened] == [True] * len(opened)
    assert [schedule.open(at(*moment)) for moment in closed] == [False] * len(closed)


def test_time_zone_and_daylight_saving_time_are_applied():
    schedule = PARSE({"hours": "09:00-17:00", "zone": "Europe/Berlin"})
    assert schedule.open(at(0, "08:00")) and not schedule.open(at(0, "07:59"))  # noqa: PT018  09:00 in winter
    summer = datetime(2026, 7, 6, 7, 0, tzinfo=UTC)
    assert schedule.open(summer) and not schedule.open(summer - timedelta(minutes=1))  # noqa: PT018  09:00 in summer
    assert schedule.open(at(0, "12:00", BERLIN))


def test_the_default_time_zone_is_the_machines():
    here = datetime(2026, 3, 2, 10, 30).astimezone()
    schedule = PARSE({"hours": "10:00-11:00"})
    assert schedule.open(here)
    assert schedule.open(here.astimezone(UTC))
    assert not schedule.open(here + timedelta(hours=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("mon-fri", "must be a mapping, got 'mon-fri'"),
        ({"day": "mon"}, "has no option 'day'; did you mean 'days'?"),
        ({"days": ["fryday"]}, "days must be weekdays, mon to sun, such as [mon-fri, sun], got ['fryday']"),
        ({"days": "mon-"}, "days must be weekdays"),
        ({"days": []}, "days must not be empty"),
        ({"days": [1]}, "days must be text"),
        ({"hours": "22-6"}, "hours must be a beginning and an end, such as \"22:00-06:00\", got '22-6'"),
        ({"hours": 5}, "hours must be text"),
        ({"hours": []}, "hours must not be empty"),
        ({"hours": "22:00-25:00"}, "hours must lie between 00:00 and 24:00"),
        ({"hours": "24:00-01:00"}, "hours must lie between 00:00 and 24:00"),
        ({"hours": "10:61-11:00"}, "hours must lie between 00:00 and 24:00"),
        ({"hours": "10:00-10:00"}, "leave hours out for the whole day"),
        ({"zone": "Europe/Berln"}, "zone must be a time zone, such as Europe/Berlin, got 'Europe/Berln'"),
        ({"zone": "../../etc/passwd"}, "zone must be a time zone"),
        ({"zone": 3}, "zone must be a time zone"),
    ],
)
def test_invalid_schedules_are_refused(options, message):
    problems = []
    OptionValidator(Path(), problems)(Alarm, tree({"when": "down_s > 3", "schedule": options}, "p.yaml"), "a")
    assert [problem.text.startswith("a.schedule") and message in problem.text for problem in problems] == [True]
