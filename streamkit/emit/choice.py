"""What of a frame is sent: its record, a record for each object, or one for each event; all of them or some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import orjson

from streamkit.data import Frame
from streamkit.occasions import Occasions
from streamkit.records import as_json, frame_record

VARIABLES = {
    "frames": ("source",),
    "objects": ("source", "label", "stage", "track_id"),
    "events": ("source", "stage", "kind", "track_id"),
}
"""What templates may name, by what is sent."""

NONE = "none"
"""What stands for a variable that a record has no value for."""

_HEAD = ("schema", "source", "frame", "pts_s", "time", "width", "height", "damaged")
_EARLY_S = 1e-3  # a frame this much early is on time: cameras' times are not exact


class Chosen(NamedTuple):
    """What is sent.

    Attributes:
        values: those of `VARIABLES`, or the first of them.
        body: the record as JSON.
        box: x1, y1, x2, y2 of the object that it is of, in source pixels, where that is wanted and known.
    """

    values: tuple[str, ...]
    body: bytes
    box: Sequence[float] | None = None


class Choice:
    """Chooses, and encodes what is chosen.

    Args:
        send: frames, objects or events.
        labels: objects of these labels only; None for all.
        every_s: frames of a source, or objects of a track, at most once in so many seconds.
        on_change: frames of a source only where the number of objects of some label is another than in the one
            before; with `every_s` also where nothing has changed for so long.
        when: events of these names only, as STAGE.KIND or STAGE; None for all.
        named: whether more than the source is to be told of each object; it takes time.
        boxed: whether the box is wanted of the object that an event is of; likewise.

    Raises:
        ValueError: options that do not go together.
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
            raise ValueError("labels and every choose frames and objects; with send: events write when")
        if send != "frames" and on_change:
            raise ValueError(f"on_change chooses frames; leave it out with send: {send}")
        if send != "events" and when is not None:
            raise ValueError(f"when chooses events; write send: events, or leave it out with send: {send}")
        self._labels, self._boxed = None if labels is None else frozenset(labels), boxed
        self._every_s, self._on_change, self._named = every_s, on_change, named
        self._occasions = None if when is None else Occasions(when if isinstance(when, str) else list(when))
        self._make = {"frames": self._frame, "objects": self._objects, "events": self._events}[send]
        self._last_s: dict[str, dict[Any, float]] = {}  # by source, and by track within it
        self._before: dict[str, Any] = {}

    def of(self, frame: Frame, made: Callable[[], dict[str, Any]]) -> list[Chosen]:
        """What is sent of a frame.

        Args:
            frame: the frame.
            made: its record, made where it is needed.
        """
        return self._make(frame, made)

    def end(self, source: str) -> None:
        """No frame of `source` will come any more."""
        self._last_s.pop(source, None)
        self._before.pop(source, None)

    def _frame(self, frame: Frame, made: Callable[[], dict[str, Any]]) -> list[Chosen]:
        if not self._on_change and not self._due(frame, None):
            return []
        found = made()
        if self._labels is not None:
            found["objects"] = self._chosen(found)
        if self._on_change:
            now = Counter(one.get("label", one["class_id"]) for one in found["objects"]), found.get("error")
            changed = self._before.get(frame.source) != now
            if changed:
                self._last_s.get(frame.source, {}).clear()
            elif self._every_s is None or not self._due(frame, None):
                return []
            if changed and self._every_s is not None:
                self._due(frame, None)
            self._before[frame.source] = now
        return [Chosen((frame.source,), as_json(found))]

    def _objects(self, frame: Frame, made: Callable[[], dict[str, Any]]) -> list[Chosen]:
        record = made()
        chosen = self._chosen(record)
        if self._every_s is not None:
            due: dict[Any, bool] = {}  # objects without a track count as one
            for one in chosen:
                track = one.get("track_id")
                if track not in due:
                    due[track] = self._due(frame, track)
            chosen = [one for one in chosen if due[one.get("track_id")]]
            self._tidy(frame)
        if not chosen:
            return []
        head = as_json({key: record[key] for key in _HEAD if key in record})[:-1] + b',"object":'
        bodies = [head + text + b"}" for text in _encoded(chosen)]
        source = frame.source
        if not self._named:
            return [Chosen((source,), body, one["box"]) for one, body in zip(chosen, bodies, strict=True)]
        only = next(iter(frame.tables), NONE)
        values = [
            (source, str(one.get("label", one["class_id"])), one.get("stage", only), str(one.get("track_id", NONE)))
            for one in chosen
        ]
        boxes = [one["box"] for one in chosen]
        return list(map(Chosen, values, bodies, boxes))

    def _events(self, frame: Frame, made: Callable[[], dict[str, Any]]) -> list[Chosen]:
        if not frame.events:
            return []
        record = frame_record(frame, [])
        head = as_json({key: record[key] for key in _HEAD if key in record})[:-1] + b',"event":'
        boxes = {one.get("track_id"): one["box"] for one in reversed(made()["objects"])} if self._boxed else {}
        return [
            Chosen(
                (frame.source, event.stage, event.kind, NONE if event.track_id is None else str(event.track_id)),
                head + as_json(told) + b"}",
                None if event.track_id is None else boxes.get(event.track_id),
            )
            for event, told in zip(frame.events, record["events"], strict=True)
            if self._occasions is None or event in self._occasions
        ]

    def _chosen(self, record: dict[str, Any]) -> list[dict[str, Any]]:
        objects: list[dict[str, Any]] = record["objects"]
        return objects if self._labels is None else [one for one in objects if one.get("label") in self._labels]

    def _due(self, frame: Frame, track: Any) -> bool:
        """Whether so much time has passed since the last one of this source, or track, that was sent."""
        if self._every_s is None:
            return True
        known = self._last_s.setdefault(frame.source, {})
        last_s = known.get(track)
        if last_s is not None and 0 <= frame.pts_s - last_s < self._every_s - _EARLY_S:
            return False
        known[track] = frame.pts_s
        return True

    def _tidy(self, frame: Frame) -> None:
        """Forget tracks that have gone."""
        known = self._last_s.get(frame.source, {})
        if len(known) > 1000:
            oldest_s = frame.pts_s - 60 - (self._every_s or 0.0)
            self._last_s[frame.source] = {track: s for track, s in known.items() if s > oldest_s}


def _encoded(objects: list[dict[str, Any]]) -> list[bytes]:
    try:
        return [orjson.dumps(one, None, orjson.OPT_SERIALIZE_NUMPY) for one in objects]
    except TypeError:  # a value that JSON does not have
        return [as_json(one) for one in objects]
