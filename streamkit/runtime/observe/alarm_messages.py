"""Texts of alarms, generated from the facts that their rules use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

Value = float | str


class AlarmSubject(NamedTuple):
    """Of what is spoken.

    Attributes:
        source: the source's id.
        word: `camera` or `source`.
        things: the folder, emitter or stage that a pipeline fact is about, by fact.
    """

    source: str
    word: str
    things: Mapping[str, str]


_TEXTS = {
    "down_s": "{one} has been down for {span}{why}",
    "quiet_s": "{one} has given no frame for {span}{why}",
    "state": "{one} is {value}{why}",
    "cause": "{one} is {state}{why}",
    "fps_in": "{one} gives {value:.1f} frames a second",
    "fps_out": "{value:.1f} frames a second of {one} come to the end of the pipeline",
    "drop_rate": "{value:.0%} of the frames of {one} are dropped",
    "fail_rate": "{value:.0%} of the frames of {one} fail in a stage",
    "latency_p50_s": "half of the frames of {one} take more than {value:.2f} s to the end of the pipeline",
    "latency_p95_s": "one in twenty frames of {one} takes more than {value:.2f} s to the end of the pipeline",
    "reconnects_1h": "{one} was lost and came back {value:.0f} times within an hour",
    "total_fps": "{value:.1f} frames a second come to the end of the pipeline",
    "sources": "there are {value:.0f} sources",
    "sources_down": "{value:.0f} of {sources:.0f} sources are down",
    "disk_free_gb": "{value:.1f} GB are free on the disk of {thing}",
    "disk_used_share": "the disk of {thing} is {value:.0%} full",
    "spool_share": "the spool of {thing} is {value:.0%} full",
    "spool_records": "{value:,.0f} records wait in the spool of {thing}",
    "undelivered_s": "{thing} has delivered nothing for {span}, and records wait",
    "stage_call_s": "stage {thing} has been in one call for {span}",
    "memory_gb": "the pipeline has {value:.1f} GB of memory",
    "gpu_memory_share": "the memory of {thing} is {value:.0%} full",
    "uptime_s": "the pipeline has run for {span}",
}
_BACK = ("down_s", "quiet_s")


def raised(facts: Sequence[str], values: Mapping[str, Value], about: AlarmSubject) -> str:
    """Text of a raised alarm, from the first known fact of its rule: `camera "gate" has been down for 31 s`."""
    name = next((name for name in facts if name in values and values[name] == values[name]), facts[0])  # not NaN
    value = values.get(name, 0.0)
    cause = values.get("cause")
    known = {
        "one": f'{about.word} "{about.source}"',
        "value": value,
        "span": span(value) if isinstance(value, float) else value,
        "why": f" ({cause})" if cause else "",
        "state": values.get("state", "away"),
        "sources": values.get("sources", 0.0),
        "thing": about.things.get(name, "nothing"),
    }
    return _TEXTS[name].format(**known)


def back(
    facts: Sequence[str], before: Mapping[str, Value], now: Mapping[str, Value], lasted_s: float, about: AlarmSubject
) -> str | None:
    """Text for a source that is back, such as `camera "gate" is back after 45 s`; None for other rules.

    Args:
        facts: the facts that the rule uses.
        before: their values when the alarm was raised.
        now: their current values.
        lasted_s: how long the rule was true after that, in seconds.
        about: the source.
    """
    if not facts or facts[0] not in _BACK:
        return None
    then_s, now_s = float(before.get(facts[0], 0.0)), float(now.get(facts[0], 0.0))
    if now_s >= then_s:  # it is not: the schedule says that it does not count any more
        return None
    return f'{about.word} "{about.source}" is back after {span(then_s + lasted_s)}'


def span(seconds: float) -> str:
    """Format a duration for people: `31 s`, `2 min`, `3 h 20 min`, `2 d 4 h`; NaN is an unknown time."""
    if seconds != seconds:
        return "an unknown time"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 100:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    return f"{hours // 24} d {hours % 24} h" if hours % 24 else f"{hours // 24} d"


def short(value: Value) -> str:
    """Format a fact for a user's text template."""
    return value if isinstance(value, str) else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
