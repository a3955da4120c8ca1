# SPDX-License-Identifier: Apache-2.0
"""Errors of line and zone counts: the pipeline's events beside those of the same stages on the truth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from streamkit.core.data import Event

NEAR_S = 1.0
"""An event of the pipeline is that of the truth if it is at most this much earlier or later."""

_KINDS = ("crossed", "entered", "left", "loitering")
_Key = tuple[str, str, str, str]


@dataclass(slots=True, frozen=True)
class CountError:
    """An event that the pipeline missed, or that did not happen.

    Attributes:
        kind: `missed` or `extra`.
        what: stage, line or zone, and direction or kind of event.
        label: the class.
        source: the source.
        frame: the event's frame.
        track_id: the object's id in the truth, or the pipeline's track of an extra event.
        why: what happened to the object there.
    """

    kind: str
    what: str
    label: str
    source: str
    frame: int
    track_id: int | None
    why: str = ""


def count_table(
    pipeline_events: Sequence[Event], truth: Sequence[Event], classes: Sequence[str]
) -> list[dict[str, Any]]:
    """A row for each line or zone, kind of event and class, with both counts."""
    keys = sorted(
        {
            _key(event)
            for event in (*pipeline_events, *truth)
            if event.kind in _KINDS and event.data.get("label") in classes
        }
    )
    rows = []
    for key in keys:
        counts = [sum(_key(event) == key for event in events) for events in (pipeline_events, truth)]
        stage, shape, what, label = key
        rows.append(
            {
                "stage": stage,
                "shape": shape,
                "what": what,
                "label": label,
                "found": counts[0],
                "truth": counts[1],
                "error": counts[0] - counts[1],
            }
        )
    return rows


def count_errors(pipeline_events: Sequence[Event], truth: Sequence[Event], classes: Sequence[str]) -> list[CountError]:
    """The events that do not agree: each is paired with the nearest free one of its line, direction and class."""
    errors = []
    wanted = [event for event in truth if event.kind in _KINDS and event.data.get("label") in classes]
    free = [event for event in pipeline_events if event.kind in _KINDS and event.data.get("label") in classes]
    for real in wanted:
        near = [event for event in free if _key(event) == _key(real) and event.source == real.source]
        near = [event for event in near if abs(event.pts_s - real.pts_s) <= NEAR_S]
        if near:
            free.remove(min(near, key=lambda event: abs(event.pts_s - real.pts_s)))
        else:
            errors.append(_error("missed", real))
    errors += [_error("extra", event) for event in free]
    return sorted(errors, key=lambda event: (event.source, event.frame, event.kind))


def as_text(row: dict[str, Any]) -> str:
    """Stage, shape and kind of event of a row of `count_table`."""
    return " ".join(filter(None, (row["stage"], row["shape"], row["what"])))


def as_json(error: CountError) -> dict[str, Any]:
    """The error as JSON."""
    return asdict(error)


def _error(kind: str, event: Event) -> CountError:
    stage, shape, what, label = _key(event)
    text = " ".join(filter(None, (stage, shape, what)))
    return CountError(kind, text, label, event.source, event.frame, event.track_id)


def _key(event: Event) -> _Key:
    shape = str(event.data.get("line") or event.data.get("zone") or "")
    return event.stage, shape, str(event.data.get("direction") or event.kind), str(event.data.get("label", ""))
