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
    data: Data = event.data if isinstance(event.data, Mapping) else {}
    own = data.get("text")
    if isinstance(own, str) and own.strip():
        return _line(own)
    made = _SENTENCES.get(str(event.kind))
    if made is not None:
        try:
            return _line(made(event, data))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
            pass
    return _line(_generic(event, data))


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
        return ", ".join(f"{_words(name)} {plain(one, depth + 1)}" for name, one in value.items()) if depth < 3 else "…"
    if isinstance(value, (list, tuple)):
        return " ".join(plain(one, depth + 1) for one in value) if depth < 3 else "…"
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


def _line_name(event: Event, data: Data) -> str:
    return f'the line "{data.get("line", event.stage)}"'


def _zone_name(event: Event, data: Data) -> str:
    return f'the zone "{data.get("zone", event.stage)}"'


def _window(data: Data) -> str:
    return f"in {span_text(float(data['to_s']) - float(data['from_s']))}"


def _count(n: Any, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"


# ------------------------------------------------------------------------------------------------------------- kinds


def _crossed(event: Event, data: Data) -> str:
    so_far = f" ({data['in']} in, {data['out']} out so far)" if "in" in data and "out" in data else ""
    going = f" going {data['direction']}" if "direction" in data else ""
    return f"{_who(event)} crossed {_line_name(event, data)}{going} at {event.source}{so_far}"


def _counted(event: Event, data: Data) -> str:
    counts = f"{data['in']} went in and {data['out']} went out"
    return f"{_window(data)}, {counts} over {_line_name(event, data)} at {event.source}"


def _entered(event: Event, data: Data) -> str:
    verb = "appeared in" if data.get("appeared") else "entered"
    return f"{_who(event)} {verb} {_zone_name(event, data)} at {event.source} ({data['count']} inside)"


def _left(event: Event, data: Data) -> str:
    if "identity" in data:
        stays = [f"{stay['source']} for {span_text(stay['to_s'] - stay['from_s'])}" for stay in data["path"]]
        return f"{_identity(event, data)} left after {span_text(data['stayed_s'])}: {', then '.join(stays)}"
    verb = "was last seen in" if data.get("lost") else "left"
    after = f"after {span_text(data['dwell_s'])}"
    return f"{_who(event)} {verb} {_zone_name(event, data)} at {event.source} {after} ({data['count']} inside)"


def _identity(event: Event, data: Data) -> str:
    return f"{event_label(event) or 'object'} {data['identity']}"


def _seen(event: Event, data: Data) -> str:
    whom = _identity(event, data)
    if data.get("new"):
        return f"{whom} was seen for the first time, at {event.source}"
    if not data["away_s"]:
        return f"{whom} was seen at {event.source}, and at {data['before']} at the same time"
    return f"{whom} was seen at {event.source}, {span_text(data['away_s'])} after {data['before']}"


def _loitering(event: Event, data: Data) -> str:
    return f"{_who(event)} has been in {_zone_name(event, data)} at {event.source} for {span_text(data['dwell_s'])}"


def _overcrowded(event: Event, data: Data) -> str:
    return f"{_zone_name(event, data)} at {event.source} is overcrowded: {_count(data['count'], 'object', 'objects')}"


def _occupancy(event: Event, data: Data) -> str:
    inside = f"{data['mean']:.3g} objects on average, {data['max']} at most"
    moved = f"{data['entered']} entered and {data['left']} left"
    return f"{_window(data)}, {_zone_name(event, data)} at {event.source} held {inside}; {moved}"


def _raised(event: Event, data: Data) -> str:
    whom = "" if event.track_id is None else f" for {_who(event)}"
    return f'the rule "{data["rule"]}" is true{whom} at {event.source}'


def _cleared(event: Event, data: Data) -> str:
    if "rule" in data:
        whom = "" if event.track_id is None else f" for {_who(event)}"
        after = f" after {span_text(data['lasted_s'])}" if "lasted_s" in data else ""
        return f'the rule "{data["rule"]}" is no longer true{whom} at {event.source}{after}'
    return f"{_zone_name(event, data)} at {event.source} is no longer overcrowded ({data['count']} inside)"


def _pair(event: Event, data: Data) -> str:
    first, second = data["labels"]
    return f"{_who(event, first)} and {_who(event, second, data['other'])}"


def _met(event: Event, data: Data) -> str:
    return f"{_pair(event, data)} met at {event.source}"


def _parted(event: Event, data: Data) -> str:
    return f"{_pair(event, data)} parted at {event.source} after {span_text(data['together_s'])}"


def _read(event: Event, data: Data) -> str:
    before = f', read as "{data["before"]}" before' if "before" in data else ""
    return f'{_who(event)} at {event.source} reads "{data["value"]}"{before}'


def _speeding(event: Event, data: Data) -> str:
    speed, limit = f"{data['speed_kmh']:.0f} km/h", f"{data['limit_kmh']:g} km/h"
    return f"{_who(event)} moves at {speed} at {event.source}, above the limit of {limit}"


def _slowed(event: Event, data: Data) -> str:
    speed, limit = f"{data['speed_kmh']:.0f} km/h", f"{data['limit_kmh']:g} km/h"
    return f"{_who(event)} has slowed to {speed} at {event.source}, below the limit of {limit}"


def _changed(event: Event, data: Data) -> str:
    if "before" in data:
        return f"{_who(event)} turned from {data['before']} to {data['direction']} at {event.source}"
    return f"{_who(event)} moves {data['direction']} at {event.source}"


def _wrong_way(event: Event, data: Data) -> str:
    return f"{_who(event)} moves the wrong way at {event.source}: {data['direction']}"


def _manual(event: Event, data: Data) -> str:
    return f"a clip of {event.source} was started by hand"


def _recorded(event: Event, data: Data) -> str:
    size = f"{data['bytes'] / 1e6:.1f} MB" if data["bytes"] >= 1e5 else f"{data['bytes'] / 1e3:.1f} kB"
    return f"a clip of {event.source} was recorded: {span_text(data['duration_s'])}, {size}"


def _saved(event: Event, data: Data) -> str:
    if "of" not in data:
        return f"the image of {event.stage} at {event.source} was saved"
    of, what = data["of"], data.get("label")
    what = what or "the frame"
    return f"a snapshot of {what} at {event.source} was saved for {of['stage']} {_words(of['kind'])}"


def _collected(event: Event, data: Data) -> str:
    what = data.get("label") or "the frame"
    return f"an image of {what} at {event.source} was collected for labelling: {_words(data['reason'])}"


def _answered(event: Event, data: Data) -> str:
    whom = "the frame" if event.track_id is None else _who(event)
    told = "; ".join(f"{_words(name)}: {plain(value)}" for name, value in data["answer"].items())
    return f'{whom} at {event.source}, asked "{data["prompt"].strip()}": {told}'


def _reconnected(event: Event, data: Data) -> str:
    cause = f" ({_words(data['cause'])})" if data.get("cause") else ""
    return f"the source {event.source} is connected again after {span_text(data['away_s'])}{cause}"


def _resized(event: Event, data: Data) -> str:
    before = data["before"]
    size = f"{data['width']}x{data['height']}"
    return f"the picture of {event.source} is {size} from now on, before {before['width']}x{before['height']}"


def _restarted(event: Event, data: Data) -> str:
    lost = _count(data["frames_lost"], "frame was lost", "frames were lost")
    return f"the source {event.source} was restarted in another process: {data['cause']}; {lost}"


def _generic(event: Event, data: Data) -> str:
    known = {name: value for name, value in data.items() if name not in _TRACE}
    facts = [f"{_words(name)} {plain(value)}" for name, value in list(known.items())[:_MAX_FACTS]]
    label = event_label(event)
    whom = f" for {_who(event)}" if event.track_id is not None or label is not None else ""
    told = f": {', '.join(facts)}" if facts else ""
    return f"{_words(event.kind)}{whom} at {event.source}, from {event.stage}{told}"


_SENTENCES: dict[str, Sentence] = {
    "crossed": _crossed, "counted": _counted, "entered": _entered, "left": _left, "loitering": _loitering,
    "overcrowded": _overcrowded, "cleared": _cleared, "occupancy": _occupancy, "raised": _raised, "met": _met,
    "parted": _parted, "read": _read, "speeding": _speeding, "slowed": _slowed, "changed": _changed,
    "wrong_way": _wrong_way, "manual": _manual, "recorded": _recorded, "saved": _saved, "collected": _collected,
    "answered": _answered, "reconnected": _reconnected, "resized": _resized,
    "restarted": _restarted, "seen": _seen,
}  # fmt: skip

KINDS = frozenset(_SENTENCES)
"""The kinds that have a sentence of their own."""
