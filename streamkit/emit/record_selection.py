# SPDX-License-Identifier: Apache-2.0
"""Selects which records of a frame are sent: the frame's, one per object, or one per event; all or some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from streamkit.core.data import EventFilter, Frame
from streamkit.core.records import as_json, frame_record

VARIABLES = {
    "frames": ("source",),
    "objects": ("source", "label", "stage", "track_id"),
    "events": ("source", "stage", "kind", "track_id"),
}
"""The variables of templates, by what is sent."""

NONE = "none"
"""The value of a variable that a record does not have."""

_HEAD = ("schema", "source", "frame", "pts_s", "time", "width", "height", "damaged")
_EARLY_S = 1e-3  # a frame may be this much early: cameras' times are not exact


class SelectedRecord(NamedTuple):
    """A selected record.

    Attributes:
        values: the values of `VARIABLES`, or only the first of them.
        body: the record as JSON.
        box: x1, y1, x2, y2 of its object in source pixels, if requested and known.
    """

    values: tuple[str, ...]
    body: bytes
    box: Sequence[float] | None = None


class RecordSelection:
    """Selects and encodes records.

    Args:
        send: frames, objects or events.
        labels: only objects with these labels; None for all.
        every_s: minimum interval in seconds between records of a source (frames) or of a track (objects).
        on_change: only frames in which the number of objects of a label differs from the frame before; with `every_s`
            also a frame when nothing has changed for that long.
        when: only events with these names, as STAGE.KIND or STAGE; None for all.
        named: whether template values other than the source are needed; this takes time.
        boxed: whether the box of an event's object is needed; this takes time.

    Attributes:
        all_frames: whether it selects the record of every frame, unchanged.
        of: selects the records of a frame, its argument; its second argument creates the frame's record, and is called
            only if needed.

    Raises:
        ValueError: options that do not fit each other.
    """

    def __init__(
        self,
        send: str,
        labels: Sequence[str] | None = None,
        every_s: float | None = None,
        on_change: bool = False,
        when: str | Sequence[str] | None = None,
        named: bool = True,
        boxed: bool = False,
    ) -> None:
        if send == "events" and (labels is not None or every_s is not None):
            raise ValueError("labels and every select frames and objects; with send: events use when")
        if send != "frames" and on_change:
            raise ValueError(f"on_change selects frames; remove it with send: {send}")
        if send != "events" and when is not None:
            raise ValueError(f"when selects events; write send: events, or remove it with send: {send}")
        self._labels = None if labels is None else frozenset(labels)
        self._boxed = boxed
        self._every_s = every_s
        self._on_change = on_change
        self._named = named
        self._events_wanted = None if when is None else EventFilter(when if isinstance(when, str) else list(when))
        self.all_frames = send == "frames" and labels is None and every_s is None and not on_change
        self.of = {"frames": self._frame, "objects": self._objects, "events": self._events}[send]
        self._last_s: dict[str, dict[Any, float]] = {}  # by source, and by track within it
        self._before: dict[str, Any] = {}

    def end(self, source: str) -> None:
        """Forget the state of a source that has ended."""
        self._last_s.pop(source, None)
        self._before.pop(source, None)

    def _frame(self, frame: Frame, make_record: Callable[[], dict[str, Any]]) -> list[SelectedRecord]:
        if not self._on_change and not self._due(frame, None):
            return []
        record = make_record()
        if self._labels is not None:
            record["objects"] = self._chosen(record)
        if self._on_change:
            now = (
                Counter(detection.get("label", detection["class_id"]) for detection in record["objects"]),
                record.get("error"),
            )
            changed = self._before.get(frame.source) != now
            if changed:
                self._last_s.get(frame.source, {}).clear()
            elif self._every_s is None or not self._due(frame, None):
                return []
            if changed and self._every_s is not None:
                self._due(frame, None)
            self._before[frame.source] = now
        return [SelectedRecord((frame.source,), as_json(record))]

    def _objects(self, frame: Frame, make_record: Callable[[], dict[str, Any]]) -> list[SelectedRecord]:
        record = make_record()
        chosen = self._chosen(record)
        if self._every_s is not None:
            due: dict[Any, bool] = {}  # objects without a track count as one
            for detection in chosen:
                track = detection.get("track_id")
                if track not in due:
                    due[track] = self._due(frame, track)
            chosen = [detection for detection in chosen if due[detection.get("track_id")]]
            self._tidy(frame)
        if not chosen:
            return []
        head = as_json({key: record[key] for key in _HEAD if key in record})[:-1] + b',"object":'
        bodies = [head + text + b"}" for text in _encoded(chosen)]
        source = frame.source
        if not self._named:
            return [
                SelectedRecord((source,), body, detection["box"])
                for detection, body in zip(chosen, bodies, strict=True)
            ]
        only = next(iter(frame.tables), NONE)
        values = [
            (
                source,
                str(detection.get("label", detection["class_id"])),
                detection.get("stage", only),
                str(detection.get("track_id", NONE)),
            )
            for detection in chosen
        ]
        return list(map(SelectedRecord, values, bodies, [detection["box"] for detection in chosen]))

    def _events(self, frame: Frame, make_record: Callable[[], dict[str, Any]]) -> list[SelectedRecord]:
        if not frame.events:
            return []
        record = frame_record(frame, [])
        head = as_json({key: record[key] for key in _HEAD if key in record})[:-1] + b',"event":'
        boxes = (
            {detection.get("track_id"): detection["box"] for detection in reversed(make_record()["objects"])}
            if self._boxed
            else {}
        )
        return [
            SelectedRecord(
                (frame.source, event.stage, event.kind, NONE if event.track_id is None else str(event.track_id)),
                head + as_json(data) + b"}",
                None if event.track_id is None else boxes.get(event.track_id),
            )
            for event, data in zip(frame.events, record["events"], strict=True)
            if self._events_wanted is None or event in self._events_wanted
        ]

    def _chosen(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        objects: list[dict[str, Any]] = record["objects"]
        return (
            objects
            if self._labels is None
            else [detection for detection in objects if detection.get("label") in self._labels]
        )

    def _due(self, frame: Frame, track: Any) -> bool:
        """Whether the minimum interval since the last record of this source or track has passed."""
        if self._every_s is None:
            return True
        last_by_track = self._last_s.setdefault(frame.source, {})
        last_s = last_by_track.get(track)
        if last_s is not None and 0 <= frame.pts_s - last_s < self._every_s - _EARLY_S:
            return False
        last_by_track[track] = frame.pts_s
        return True

    def _tidy(self, frame: Frame) -> None:
        """Forget tracks that have ended."""
        last_by_track = self._last_s.get(frame.source, {})
        if len(last_by_track) > 1000:
            oldest_s = frame.pts_s - 60 - (self._every_s or 0.0)
            self._last_s[frame.source] = {track: s for track, s in last_by_track.items() if s > oldest_s}


def _encoded(objects: list[dict[str, Any]]) -> list[bytes]:
    try:
        return [orjson.dumps(detection, None, orjson.OPT_SERIALIZE_NUMPY) for detection in objects]
    except TypeError:  # JSON has no such value
        return [as_json(detection) for detection in objects]
