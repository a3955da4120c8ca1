"""Describes a record in plain words: the text of e-mails, and variables of templates."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from streamkit.emit.record_selection import NONE

_MOST = 200  # characters of one fact


def told(record: dict[str, Any]) -> str:
    """One line: `crossed at gate (crossing, track 7, direction in)`, `person at gate (track 7)`, `2 person at gate`.

    An event with its own text, such as an alarm, is described by that text.
    """
    source = record["source"]
    if (event := record.get("event")) is not None:
        data = event.get("data", {})
        if isinstance(own := data.get("text"), str) and own:
            return " ".join(own.split())
        plain = {name: value for name, value in data.items() if not isinstance(value, (dict, list))}
        about = [event["stage"], *_track(event), *(_fact(name, value) for name, value in plain.items())]
        return f"{event['kind']} at {source} ({', '.join(about)})"
    if (one := record.get("object")) is not None:
        score = one.get("score")  # none where the model gave no number
        about = [*_track(one), *([] if score is None else [f"score {score:.2f}"])]
        behind = f" ({', '.join(about)})" if about else ""
        return f"{one.get('label', one['class_id'])} at {source}{behind}"
    if error := record.get("error"):
        return f"{source}: {' '.join(str(error).split())}"
    found = Counter(one.get("label", one["class_id"]) for one in record["objects"])
    return f"{', '.join(f'{n} {label}' for label, n in found.items()) or 'nothing'} at {source}"


def when(record: dict[str, Any]) -> str:
    """Local time of a record; for recordings, which have no such time, the position in seconds."""
    if isinstance(time := record.get("time"), str):
        return datetime.fromisoformat(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return f"{record['pts_s']:.2f} s"


def title(record: dict[str, Any]) -> str:
    """Title that records of the same kind share: `camera_down raised at gate`, `crossed at gate`."""
    source = record["source"]
    if (event := record.get("event")) is not None:
        name = event.get("data", {}).get("alarm")
        return f"{name} {event['kind']} at {source}" if name else f"{event['kind']} at {source}"
    one = record.get("object")
    return f"frames of {source}" if one is None else f"{one.get('label', one['class_id'])} at {source}"


def _track(one: dict[str, Any]) -> list[str]:
    track = one.get("track_id", NONE)
    return [] if track == NONE else [f"track {track}"]


def _fact(name: str, value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{name} {' '.join(text.split())[:_MOST]}"
