# SPDX-License-Identifier: Apache-2.0
"""Events as English sentences, for pages and mails. An event of an unknown kind gets a sentence from its data."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from streamkit.core.data import Event

_MAX_CHARS = 300
_MAX_FACTS = 12  # of a generic sentence
_TRACE = frozenset({"clip", "clip_s", "snapshot", "path", "box", "text", "label"})  # not part of a generic sentence

Data = Mapping[str, Any]
Sentence = Callable[[Event, Data], str]


def sentence(event: Event) -> str:
    """What happened, as one line of text: `Car 7 crossed the line "door" going in at gate (5 in, 3 out so far).`

    An event with its own text, such as an alarm, is described by that text. Never raises: a stage of a plugin may emit
    a known kind with other data; it gets the generic sentence.
    """
    fields: Data = event.data if isinstance(event.data, Mapping) else {}
    text = fields.get("text")
    if isinstance(text, str) and text.strip():
        return _line(text)
    describe = _SENTENCES.get(str(event.kind))
    if describe is not None:
        try:
            return _line(describe(event, fields))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            pass
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


def _line_name(event: Event, fields: Data) -> str:
    return f'the line "{fields.get("line", event.stage)}"'


def _zone_name(event: Event, fields: Data) -> str:
    return f'the zone "{fields.get("zone", event.stage)}"'


def _window(fields: Data) -> str:
    return f"in {span_text(float(fields['to_s']) - float(fields['from_s']))}"


def _count(n: Any, singular: str, plural: str) -> str:
    return f"{n} {singular if n == 1 else plural}"


# ------------------------------------------------------------------------------------------------------------- kinds


def _crossed(event: Event, fields: Data) -> str:
    so_far = f" ({fields['in']} in, {fields['out']} out so far)" if "in" in fields and "out" in fields else ""
    going = f" going {fields['direction']}" if "direction" in fields else ""
    return f"{_who(event)} crossed {_line_name(event, fields)}{going} at {event.source}{so_far}"


def _counted(event: Event, fields: Data) -> str:
    counts = f"{fields['in']} went in and {fields['out']} went out"
    return f"{_window(fields)}, {counts} over {_line_name(event, fields)} at {event.source}"


def _entered(event: Event, fields: Data) -> str:
    verb = "appeared in" if fields.get("appeared") else "entered"
    return f"{_who(event)} {verb} {_zone_name(event, fields)} at {event.source} ({fields['count']} inside)"


def _left(event: Event, fields: Data) -> str:
    if "identity" in fields:
        stays = [f"{stay['source']} for {span_text(stay['to_s'] - stay['from_s'])}" for stay in fields["path"]]
        return f"{_identity(event, fields)} left after {span_text(fields['stayed_s'])}: {', then '.join(stays)}"
    verb = "was last seen in" if fields.get("lost") else "left"
    after = f"after {span_text(fields['dwell_s'])}"
    return f"{_who(event)} {verb} {_zone_name(event, fields)} at {event.source} {after} ({fields['count']} inside)"


def _identity(event: Event, fields: Data) -> str:
    return f"{event_label(event) or 'object'} {fields['identity']}"


def _seen(event: Event, fields: Data) -> str:
    whom = _identity(event, fields)
    if fields.get("new"):
        return f"{whom} was seen for the first time, at {event.source}"
    if not fields["away_s"]:
        return f"{whom} was seen at {event.source}, and at {fields['before']} at the same time"
    return f"{whom} was seen at {event.source}, {span_text(fields['away_s'])} after {fields['before']}"


def _loitering(event: Event, fields: Data) -> str:
    return f"{_who(event)} has been in {_zone_name(event, fields)} at {event.source} for {span_text(fields['dwell_s'])}"


def _overcrowded(event: Event, fields: Data) -> str:
    return (
        f"{_zone_name(event, fields)} at {event.source} is overcrowded: {_count(fields['count'], 'object', 'objects')}"
    )


def _occupancy(event: Event, fields: Data) -> str:
    inside = f"{fields['mean']:.3g} objects on average, {fields['max']} at most"
    moved = f"{fields['entered']} entered and {fields['left']} left"
    return f"{_window(fields)}, {_zone_name(event, fields)} at {event.source} held {inside}; {moved}"


def _raised(event: Event, fields: Data) -> str:
    whom = "" if event.track_id is None else f" for {_who(event)}"
    return f'the rule "{fields["rule"]}" is true{whom} at {event.source}'


def _cleared(event: Event, fields: Data) -> str:
    if "rule" in fields:
        whom = "" if event.track_id is None else f" for {_who(event)}"
        after = f" after {span_text(fields['lasted_s'])}" if "lasted_s" in fields else ""
        return f'the rule "{fields["rule"]}" is no longer true{whom} at {event.source}{after}'
    return f"{_zone_name(event, fields)} at {event.source} is no longer overcrowded ({fields['count']} inside)"


def _pair(event: Event, fields: Data) -> str:
    first, second = fields["labels"]
    return f"{_who(event, first)} and {_who(event, second, fields['other'])}"


def _met(event: Event, fields: Data) -> str:
    return f"{_pair(event, fields)} met at {event.source}"


def _parted(event: Event, fields: Data) -> str:
    return f"{_pair(event, fields)} parted at {event.source} after {span_text(fields['together_s'])}"


def _read(event: Event, fields: Data) -> str:
    before = f', read as "{fields["before"]}" before' if "before" in fields else ""
    return f'{_who(event)} at {event.source} reads "{fields["value"]}"{before}'


def _speeding(event: Event, fields: Data) -> str:
    speed = f"{fields['speed_kmh']:.0f} km/h"
    limit = f"{fields['limit_kmh']:g} km/h"
    return f"{_who(event)} moves at {speed} at {event.source}, above the limit of {limit}"


def _slowed(event: Event, fields: Data) -> str:
    speed = f"{fields['speed_kmh']:.0f} km/h"
    limit = f"{fields['limit_kmh']:g} km/h"
    return f"{_who(event)} has slowed to {speed} at {event.source}, below the limit of {limit}"


def _changed(event: Event, fields: Data) -> str:
    if "before" in fields:
        return f"{_who(event)} turned from {fields['before']} to {fields['direction']} at {event.source}"
    return f"{_who(event)} moves {fields['direction']} at {event.source}"


def _wrong_way(event: Event, fields: Data) -> str:
    return f"{_who(event)} moves the wrong way at {event.source}: {fields['direction']}"


def _manual(event: Event, fields: Data) -> str:
    return f"a clip of {event.source} was started by hand"


def _recorded(event: Event, fields: Data) -> str:
    size = f"{fields['bytes'] / 1e6:.1f} MB" if fields["bytes"] >= 1e5 else f"{fields['bytes'] / 1e3:.1f} kB"
    return f"a clip of {event.source} was recorded: {span_text(fields['duration_s'])}, {size}"


def _saved(event: Event, fields: Data) -> str:
    if "of" not in fields:
        return f"the image of {event.stage} at {event.source} was saved"
    of = fields["of"]
    what = fields.get("label")
    what = what or "the frame"
    return f"a snapshot of {what} at {event.source} was saved for {of['stage']} {_words(of['kind'])}"


def _collected(event: Event, fields: Data) -> str:
    what = fields.get("label") or "the frame"
    return f"an image of {what} at {event.source} was collected for labeling: {_words(fields['reason'])}"


def _answered(event: Event, fields: Data) -> str:
    whom = "the frame" if event.track_id is None else _who(event)
    answers = "; ".join(f"{_words(name)}: {plain(value)}" for name, value in fields["answer"].items())
    return f'{whom} at {event.source}, asked "{fields["prompt"].strip()}": {answers}'


def _reconnected(event: Event, fields: Data) -> str:
    cause = f" ({_words(fields['cause'])})" if fields.get("cause") else ""
    return f"the source {event.source} is connected again after {span_text(fields['away_s'])}{cause}"


def _resized(event: Event, fields: Data) -> str:
    before = fields["before"]
    size = f"{fields['width']}x{fields['height']}"
    return f"the picture of {event.source} is {size} from now on, before {before['width']}x{before['height']}"


def _restarted(event: Event, fields: Data) -> str:
    lost = _count(fields["frames_lost"], "frame was lost", "frames were lost")
    return f"the source {event.source} was restarted in another process: {fields['cause']}; {lost}"


def _generic(event: Event, fields: Data) -> str:
    reported = {name: fact for name, fact in fields.items() if name not in _TRACE}
    facts = [f"{_words(name)} {plain(value)}" for name, value in list(reported.items())[:_MAX_FACTS]]
    label = event_label(event)
    whom = f" for {_who(event)}" if event.track_id is not None or label is not None else ""
    listed = f": {', '.join(facts)}" if facts else ""
    return f"{_words(event.kind)}{whom} at {event.source}, from {event.stage}{listed}"


_SENTENCES: dict[str, Sentence] = {
    "crossed": _crossed,
    "counted": _counted,
    "entered": _entered,
    "left": _left,
    "loitering": _loitering,
    "overcrowded": _overcrowded,
    "cleared": _cleared,
    "occupancy": _occupancy,
    "raised": _raised,
    "met": _met,
    "parted": _parted,
    "read": _read,
    "speeding": _speeding,
    "slowed": _slowed,
    "changed": _changed,
    "wrong_way": _wrong_way,
    "manual": _manual,
    "recorded": _recorded,
    "saved": _saved,
    "collected": _collected,
    "answered": _answered,
    "reconnected": _reconnected,
    "resized": _resized,
    "restarted": _restarted,
    "seen": _seen,
}

KINDS = frozenset(_SENTENCES)
"""The kinds that have a sentence of their own."""
