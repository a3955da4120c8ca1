# SPDX-License-Identifier: Apache-2.0
"""Events as English sentences, for pages and mails. An event of an unknown kind gets a sentence from its data."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from string import Formatter
from typing import Any

from streamkit.core.data import Event

_MAX_CHARS = 300
_MAX_FACTS = 12  # of a generic sentence
_TRACE = frozenset({"clip", "clip_s", "snapshot", "path", "box", "text", "label"})  # not part of a generic sentence

Data = Mapping[str, Any]


def sentence(event: Event) -> str:
    """What happened, as one line of text: `Car 7 crossed the line "door" going in at gate (5 in, 3 out so far).`

    An event with its own text, such as an alarm, is described by that text. Never raises: a stage of a plugin may emit
    a known kind with other data; it gets the generic sentence.
    """
    fields: Data = event.data if isinstance(event.data, Mapping) else {}
    text = fields.get("text")
    if isinstance(text, str) and text.strip():
        return _line(text)
    for template in _TEMPLATES.get(str(event.kind), ()):
        with suppress(KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            return _line(_Template(event, fields).fill(template))
    return _line(_generic(event, fields))


def event_label(event: Event) -> str | None:
    """The class of the event's object, if its data names one."""
    label = event.data.get("label") if isinstance(event.data, Mapping) else None
    return label if isinstance(label, str) and label else None


def span_text(seconds: float) -> str:
    """A duration in words: `0.4 s`, `31 s`, `2 min`, `3 h 20 min`. Raises ValueError if it is not a number."""
    seconds = float(seconds)
    if not math.isfinite(seconds):
        raise ValueError("not a duration")
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 and seconds % 1 else f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def plain(value: Any, depth: int = 0) -> str:
    """A value as words, without the brackets and quotes of JSON."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return (
            ", ".join(f"{_words(name)} {plain(child, depth + 1)}" for name, child in value.items())
            if depth < 3
            else "…"
        )
    if isinstance(value, (list, tuple)):
        return " ".join(plain(child, depth + 1) for child in value) if depth < 3 else "…"
    return str(value)


# ------------------------------------------------------------------------------------------------------------- parts


def _line(text: str) -> str:
    """One line that begins with a capital and ends with a full stop."""
    text = " ".join(text.split())
    text = text if len(text) <= _MAX_CHARS else f"{text[: _MAX_CHARS - 1]}…"
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?", "…")) else f"{text}."


def _words(name: Any) -> str:
    return str(name).replace("_", " ")


def _who(event: Event, label: Any = None, track: Any = None) -> str:
    """The object: `car 7`, `car`, `track 7`, or `an object`."""
    label = event_label(event) if label is None else label
    track = event.track_id if track is None else track
    if label is None:
        return "an object" if track is None else f"track {track}"
    return str(label) if track is None else f"{label} {track}"


def _identity(event: Event, fields: Data) -> str:
    return f"{event_label(event) or 'object'} {fields['identity']}"


def _pair(event: Event, fields: Data) -> str:
    first, second = fields["labels"]
    return f"{_who(event, first)} and {_who(event, second, fields['other'])}"


def _for_whom(event: Event, fields: Data) -> str:
    return "" if event.track_id is None else f" for {_who(event)}"


def _stays(stays: Any) -> str:
    return ", then ".join(f"{stay['source']} for {span_text(stay['to_s'] - stay['from_s'])}" for stay in stays)


def _bytes(size: Any) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def _answers(answer: Any) -> str:
    return "; ".join(f"{_words(name)}: {plain(value)}" for name, value in answer.items())


def _count(singular: str, plural: str) -> Callable[[Any], str]:
    return lambda n: f"{n} {singular if n == 1 else plural}"


def _only(holds: Callable[[Any], bool]) -> Callable[[Any], str]:
    """Write nothing; a sentence whose condition does not hold is not the one."""

    def check(value: Any) -> str:
        if not holds(value):
            raise KeyError(value)
        return ""

    return check


_FIELDS: Mapping[str, Callable[[Event, Data], Any]] = {
    "source": lambda event, fields: event.source,
    "stage": lambda event, fields: event.stage,
    "who": lambda event, fields: _who(event),
    "line": lambda event, fields: f'the line "{fields.get("line", event.stage)}"',
    "zone": lambda event, fields: f'the zone "{fields.get("zone", event.stage)}"',
    "period": lambda event, fields: f"in {span_text(float(fields['to_s']) - float(fields['from_s']))}",
    "identity": _identity,
    "pair": _pair,
    "for whom": _for_whom,
    "label": lambda event, fields: fields.get("label") or "the frame",
    "whom": lambda event, fields: "the frame" if event.track_id is None else _who(event),
}
"""What a template may name beside the event's data."""

_FORMATS: Mapping[str, Callable[[Any], str]] = {
    "span": span_text,
    "words": _words,
    "bytes": _bytes,
    "stays": _stays,
    "answers": _answers,
    "stripped": str.strip,
    "objects": _count("object", "objects"),
    "frames": _count("frame was lost", "frames were lost"),
    "if": _only(bool),
    "if not": _only(lambda value: not value),
}


class _Template(Formatter):
    """Fills a template with an event: its fields in braces; a part in <> is left out if it names a missing field."""

    def __init__(self, event: Event, fields: Data) -> None:
        self._event = event
        self._fields = fields

    def get_value(self, key: Any, args: Any, kwargs: Any) -> Any:
        field = _FIELDS.get(key)
        return self._fields[key] if field is None else field(self._event, self._fields)

    def format_field(self, value: Any, format_spec: str) -> str:
        write = _FORMATS.get(format_spec)
        return str(super().format_field(value, format_spec)) if write is None else write(value)

    def fill(self, template: str) -> str:
        text = ""
        for number, part in enumerate(re.split("[<>]", template)):
            try:
                text += self.format(part)
            except KeyError:
                if number % 2 == 0:
                    raise
        return text


def _generic(event: Event, fields: Data) -> str:
    reported = {name: fact for name, fact in fields.items() if name not in _TRACE}
    facts = [f"{_words(name)} {plain(value)}" for name, value in list(reported.items())[:_MAX_FACTS]]
    label = event_label(event)
    whom = f" for {_who(event)}" if event.track_id is not None or label is not None else ""
    listed = f": {', '.join(facts)}" if facts else ""
    return f"{_words(event.kind)}{whom} at {event.source}, from {event.stage}{listed}"


_TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "crossed": ("{who} crossed {line}< going {direction}> at {source}< ({in} in, {out} out so far)>",),
    "counted": ("{period}, {in} went in and {out} went out over {line} at {source}",),
    "entered": (
        "{appeared:if}{who} appeared in {zone} at {source} ({count} inside)",
        "{who} entered {zone} at {source} ({count} inside)",
    ),
    "left": (
        "{identity} left after {stayed_s:span}: {path:stays}",
        "{lost:if}{who} was last seen in {zone} at {source} after {dwell_s:span} ({count} inside)",
        "{who} left {zone} at {source} after {dwell_s:span} ({count} inside)",
    ),
    "loitering": ("{who} has been in {zone} at {source} for {dwell_s:span}",),
    "overcrowded": ("{zone} at {source} is overcrowded: {count:objects}",),
    "cleared": (
        'the rule "{rule}" is no longer true{for whom} at {source}< after {lasted_s:span}>',
        "{zone} at {source} is no longer overcrowded ({count} inside)",
        "the view of {source} is no longer anomalous after {lasted_s:span} (highest score {max_score:.2f})",
    ),
    "anomalous": ("the view of {source} is anomalous: score {score:.2f}",),
    "occupancy": (
        "{period}, {zone} at {source} held {mean:.3g} objects on average, {max} at most; {entered} entered and "
        "{left} left",
    ),
    "raised": ('the rule "{rule}" is true{for whom} at {source}',),
    "met": ("{pair} met at {source}",),
    "parted": ("{pair} parted at {source} after {together_s:span}",),
    "read": ('{who} at {source} reads "{value}"<, read as "{before}" before>',),
    "started": ('{whom} at {source}: "{action}" has started',),
    "ended": ('{whom} at {source}: "{action}" has ended after {lasted_s:span}',),
    "speeding": ("{who} moves at {speed_kmh:.0f} km/h at {source}, above the limit of {limit_kmh:g} km/h",),
    "slowed": ("{who} has slowed to {speed_kmh:.0f} km/h at {source}, below the limit of {limit_kmh:g} km/h",),
    "changed": ("{who} turned from {before} to {direction} at {source}", "{who} moves {direction} at {source}"),
    "wrong_way": ("{who} moves the wrong way at {source}: {direction}",),
    "manual": ("a clip of {source} was started by hand",),
    "recorded": ("a clip of {source} was recorded: {duration_s:span}, {bytes:bytes}",),
    "saved": (
        "a snapshot of {label} at {source} was saved for {of[stage]} {of[kind]:words}",
        "the image of {stage} at {source} was saved",
    ),
    "collected": ("an image of {label} at {source} was collected for labeling: {reason:words}",),
    "answered": ('{whom} at {source}, asked "{prompt:stripped}": {answer:answers}',),
    "reconnected": ("the source {source} is connected again after {away_s:span}<{cause:if} ({cause:words})>",),
    "resized": ("the picture of {source} is {width}x{height} from now on, before {before[width]}x{before[height]}",),
    "restarted": ("the source {source} was restarted in another process: {cause}; {frames_lost:frames}",),
    "seen": (
        "{new:if}{identity} was seen for the first time, at {source}",
        "{away_s:if}{identity} was seen at {source}, {away_s:span} after {before}",
        "{away_s:if not}{identity} was seen at {source}, and at {before} at the same time",
    ),
}
"""The sentences of each kind; the first one of which the event has all fields is taken."""

KINDS = frozenset(_TEMPLATES)
"""The kinds that have a sentence of their own."""
