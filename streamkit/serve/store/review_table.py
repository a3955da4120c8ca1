# SPDX-License-Identifier: Apache-2.0
"""The table of review items: what happened once, made of the events of a track or of a rule.

An event with a track joins the item of its track; another one that of its stage or rule, if the item's last event is at
most 30 s old. Events that only keep books, such as a finished clip, make no item; ends, such as `left`, extend one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from streamkit.core.data import Event
from streamkit.core.sentences import event_label, sentence
from streamkit.runtime.preview.demand import Box
from streamkit.runtime.preview.gallery import GalleryEvent

Severity = Literal["alert", "notice"]

GAP_S = 30.0
"""An item ends when none of its events came for this long, in seconds."""

MAX_COMMENT = 2000
_MAX_PATH = 100  # points
_BOOKS = frozenset(
    {"counted", "occupancy", "recorded", "saved", "collected", "answered", "reconnected", "resized", "restarted"}
)
_ENDS = frozenset({"cleared", "left", "slowed", "parted", "ended"})
_ALARMS = "alarms"

SCHEMA = """
CREATE TABLE IF NOT EXISTS review_items (
    id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, source TEXT NOT NULL, stage TEXT NOT NULL,
    kind TEXT NOT NULL, label TEXT, track_id INTEGER, severity TEXT NOT NULL, text TEXT NOT NULL,
    started_s REAL NOT NULL, ended_s REAL NOT NULL, events INTEGER NOT NULL, number INTEGER NOT NULL,
    image INTEGER, box TEXT, path TEXT NOT NULL, reviewed_by TEXT, reviewed_s REAL, kept INTEGER NOT NULL DEFAULT 0,
    comment TEXT NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS review_by_key ON review_items (key, ended_s);
CREATE INDEX IF NOT EXISTS review_by_time ON review_items (started_s);
CREATE INDEX IF NOT EXISTS review_open ON review_items (severity, id) WHERE reviewed_s IS NULL;
CREATE TABLE IF NOT EXISTS review_events (
    number INTEGER PRIMARY KEY, item INTEGER NOT NULL REFERENCES review_items (id)
);
CREATE INDEX IF NOT EXISTS review_events_of_item ON review_events (item);
"""

_COLUMNS = (
    "id, source, stage, kind, label, track_id, severity, text, started_s, ended_s, events, number, image, box, path, "
    "reviewed_by, reviewed_s, kept, comment"
)


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """What happened once.

    Attributes:
        id: increases with each item, also over restarts.
        source: id of the source.
        stage: id of the stage of its most severe event.
        kind: kind of that event.
        label: class of the object; None if it has none.
        track_id: the object's track; None for an item of a rule about the whole frame.
        severity: alert or notice.
        text: the sentence of that event.
        started_s: time of the first event, in seconds since 1970.
        ended_s: time of the last event.
        events: number of events.
        number: number of that most severe event.
        image: number of the event whose image shows the object largest; None if no event has an image.
        box: the object in that image, x1, y1, x2, y2 as shares of the frame; None without an object.
        path: time in seconds since 1970, x and y of the object's foot at its events, as shares of the frame.
        reviewed_by: who has reviewed it; None until then.
        reviewed_s: when, in seconds since 1970.
        kept: whether it and its events are kept however old they are.
        comment: what people wrote about it.
    """

    id: int
    source: str
    stage: str
    kind: str
    label: str | None
    track_id: int | None
    severity: Severity
    text: str
    started_s: float
    ended_s: float
    events: int
    number: int
    image: int | None
    box: Box | None
    path: list[tuple[float, float, float]]
    reviewed_by: str | None
    reviewed_s: float | None
    kept: bool
    comment: str


@dataclass(frozen=True, slots=True)
class ReviewQuery:
    """Which items are wanted; None means any.

    Attributes:
        severity: alert or notice.
        source: id of the source.
        label: class of the object.
        reviewed: whether someone has reviewed them.
        kept: whether they are kept.
        from_s: they end at this time or later, in seconds since 1970.
        to_s: they begin before this time.
        text: words of their text, comment or label, or of the data of their events, each from its beginning.
        before: number below which their ids are.
        sources: the sources that the client may see; None for all.
    """

    severity: Severity | None = None
    source: str | None = None
    label: str | None = None
    reviewed: bool | None = None
    kept: bool | None = None
    from_s: float | None = None
    to_s: float | None = None
    text: str | None = None
    before: int | None = None
    sources: frozenset[str] | None = None

    def where(self) -> tuple[str, list[Any]]:
        """The condition in SQL, and its values."""
        conditions: list[tuple[str, Any]] = [
            (f"{name} = ?", value)
            for name in ("severity", "source", "label", "kept")
            if (value := getattr(self, name)) is not None
        ]
        bounds = ("ended_s >= ?", self.from_s), ("started_s < ?", self.to_s), ("id < ?", self.before)
        conditions += [(text, value) for text, value in bounds if value is not None]
        texts = [text for text, _ in conditions]
        values = [value for _, value in conditions]
        if self.sources is not None:
            texts.append("source IN (SELECT value FROM json_each(?))")
            values.append(json.dumps(sorted(self.sources)))
        if self.reviewed is not None:
            texts.append("reviewed_s IS NOT NULL" if self.reviewed else "reviewed_s IS NULL")
        for word in (self.text or "").split():
            prefix = '"' + word.replace('"', '""') + '"*'
            texts.append(
                "((' ' || text || ' ' || comment) LIKE ? ESCAPE '\\' OR id IN (SELECT item FROM review_events WHERE "
                "number IN (SELECT rowid FROM event_words WHERE event_words MATCH ?)))"
            )
            values += [f"% {_escaped(word)}%", prefix]
        return " AND ".join(texts) or "1", values


def _escaped(word: str) -> str:
    """A word in which % and _ stand for themselves in LIKE."""
    return word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def severity_of(event: Event, severities: Mapping[tuple[str, str], Severity]) -> Severity | None:
    """How severe an event is; None if it makes no item.

    Args:
        event: the event.
        severities: those of rules, by stage and name of the rule.
    """
    if event.kind in _BOOKS or event.kind in _ENDS or event.stage == _ALARMS:
        return None
    return severities.get((event.stage, str(event.data.get("rule", ""))), "notice")


def add_event(
    connection: sqlite3.Connection, gallery_event: GalleryEvent, severities: Mapping[tuple[str, str], Severity]
) -> int | None:
    """Add a stored event to its item, or make one of it.

    Returns:
        The id of an item that has just become an alert; None otherwise.
    """
    event = gallery_event.event
    severity = severity_of(event, severities)
    if severity is None and event.kind not in _ENDS:
        return None
    key = _key(event)
    row = connection.execute(
        "SELECT id, severity, started_s, image, box, path FROM review_items WHERE key = ? AND ended_s BETWEEN ? AND ? "
        "ORDER BY id DESC LIMIT 1",  # a later item is of before the clock was set back
        (key, gallery_event.time_s - GAP_S, gallery_event.time_s + GAP_S),
    ).fetchone()
    if row is None:
        return None if severity is None else _insert(connection, gallery_event, key, severity)
    return _extend(connection, gallery_event, row, severity)


def _key(event: Event) -> str:
    if event.track_id is not None:
        return json.dumps([event.source, event.track_id])
    return json.dumps([event.source, event.stage, str(event.data.get("rule", ""))])


def clean(value: Any) -> str:
    """The text of a value, without what UTF-8 has not."""
    return str(value).encode("utf-8", "replace").decode()


def _label(event: Event) -> str | None:
    label = event_label(event)
    return None if label is None else clean(label)


def _insert(connection: sqlite3.Connection, gallery_event: GalleryEvent, key: str, severity: Severity) -> int | None:
    event = gallery_event.event
    image = gallery_event.number if gallery_event.jpeg is not None else None
    row = {
        "key": key,
        "source": clean(event.source),
        "stage": clean(event.stage),
        "kind": clean(event.kind),
        "label": _label(event),
        "track_id": None if event.track_id is None else int(event.track_id),
        "severity": severity,
        "text": clean(sentence(event)),
        "started_s": gallery_event.time_s,
        "ended_s": gallery_event.time_s,
        "events": 1,
        "number": gallery_event.number,
        "image": image,
        "box": None if image is None or gallery_event.box is None else json.dumps(gallery_event.box),
        "path": json.dumps(_path([], gallery_event)),
    }
    marks = ", ".join(f":{name}" for name in row)
    id_ = connection.execute(f"INSERT INTO review_items ({', '.join(row)}) VALUES ({marks})", row).lastrowid
    connection.execute("INSERT OR IGNORE INTO review_events VALUES (?, ?)", (gallery_event.number, id_))
    return id_ if severity == "alert" else None


def _extend(
    connection: sqlite3.Connection, gallery_event: GalleryEvent, row: Sequence[Any], severity: Severity | None
) -> int | None:
    id_, severity_before, started_s, image, box, path = row
    event = gallery_event.event
    changes: dict[str, Any] = {
        "started_s": min(started_s, gallery_event.time_s),
        "path": json.dumps(_path(json.loads(path), gallery_event)),
    }
    if gallery_event.jpeg is not None and (
        image is None or _area(gallery_event.box) > _area(json.loads(box or "null"))
    ):
        changes["image"] = gallery_event.number
        changes["box"] = None if gallery_event.box is None else json.dumps(gallery_event.box)
    raised = severity == "alert" and severity_before != "alert"
    if raised:  # it is open again, also if someone has reviewed it as a notice
        changes |= {"severity": "alert", "stage": clean(event.stage), "kind": clean(event.kind)}
        changes["text"] = clean(sentence(event))
        changes |= {"number": gallery_event.number, "reviewed_by": None, "reviewed_s": None}
    texts = ", ".join(f"{name} = :{name}" for name in changes)
    connection.execute(
        f"UPDATE review_items SET {texts}, events = events + 1, ended_s = MAX(ended_s, :time_s), "
        "label = COALESCE(label, :label) WHERE id = :id",
        {**changes, "time_s": gallery_event.time_s, "label": _label(event), "id": id_},
    )
    connection.execute("INSERT OR IGNORE INTO review_events VALUES (?, ?)", (gallery_event.number, id_))
    return int(id_) if raised else None


def _area(box: Sequence[float] | None) -> float:
    return 0.0 if box is None else (box[2] - box[0]) * (box[3] - box[1])


def _path(path: list[list[float]], gallery_event: GalleryEvent) -> list[list[float]]:
    if gallery_event.box is None:
        return path
    x1, _, x2, y2 = gallery_event.box
    return [*path[: _MAX_PATH - 1], [round(gallery_event.time_s, 3), round((x1 + x2) / 2, 4), y2]]


def find_items(connection: sqlite3.Connection, query: ReviewQuery, limit: int) -> list[ReviewItem]:
    """The latest items that match, newest first."""
    where, values = query.where()
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM review_items WHERE {where} ORDER BY id DESC LIMIT ?", (*values, limit)
    )
    return [_item(row) for row in rows]


def item_of(connection: sqlite3.Connection, id_: int) -> ReviewItem | None:
    """An item by its id."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM review_items WHERE id = ?", (id_,)).fetchone()
    return None if row is None else _item(row)


def _item(row: Sequence[Any]) -> ReviewItem:
    values = dict(zip((declared.name for declared in fields(ReviewItem)), row, strict=True))
    box = json.loads(values["box"] or "null")
    values["box"] = None if box is None else tuple(box)
    values["path"] = [tuple(point) for point in json.loads(values["path"])]
    values["kept"] = bool(values["kept"])
    return ReviewItem(**values)


def events_of(connection: sqlite3.Connection, id_: int) -> list[int]:
    """The numbers of an item's events, ascending."""
    rows = connection.execute("SELECT number FROM review_events WHERE item = ? ORDER BY number", (id_,))
    return [number for (number,) in rows]


def count_open(connection: sqlite3.Connection) -> dict[str, dict[str, int]]:
    """How many items no one has reviewed, by severity and source."""
    rows = connection.execute(
        "SELECT severity, source, COUNT(*) FROM review_items WHERE reviewed_s IS NULL GROUP BY severity, source"
    )
    counts: dict[str, dict[str, int]] = {"alert": {}, "notice": {}}
    for severity, source, n in rows:
        counts[severity][source] = n
    return counts


def mark_reviewed(connection: sqlite3.Connection, ids: Iterable[int], by: str | None, time_s: float) -> int:
    """Note who has reviewed items, or with None that no one has; return how many there are."""
    values = [(by, None if by is None else time_s, id_) for id_ in ids]
    marked = connection.executemany("UPDATE review_items SET reviewed_by = ?, reviewed_s = ? WHERE id = ?", values)
    return marked.rowcount


def change_item(connection: sqlite3.Connection, id_: int, kept: bool | None, comment: str | None) -> None:
    """Keep an item or no longer, and set its comment; None changes nothing."""
    connection.execute(
        "UPDATE review_items SET kept = COALESCE(?, kept), comment = COALESCE(?, comment) WHERE id = ?",
        (kept, comment, id_),
    )


def delete_items(connection: sqlite3.Connection, ids: Iterable[int]) -> int:
    """Delete items; their events stay. Returns how many there were."""
    places = [(id_,) for id_ in ids]
    connection.executemany("DELETE FROM review_events WHERE item = ?", places)
    return connection.executemany("DELETE FROM review_items WHERE id = ?", places).rowcount


def remove_before(connection: sqlite3.Connection, time_s: float) -> None:
    """Delete the items that ended before a time in seconds since 1970, unless they are kept."""
    old = "SELECT id FROM review_items WHERE ended_s < ? AND NOT kept"
    connection.execute(f"DELETE FROM review_events WHERE item IN ({old})", (time_s,))
    connection.execute("DELETE FROM review_items WHERE ended_s < ? AND NOT kept", (time_s,))


def remove_without_events(connection: sqlite3.Connection) -> None:
    """Delete the items whose events were all removed, unless they are kept."""
    connection.execute("DELETE FROM review_events WHERE number NOT IN (SELECT number FROM events)")
    connection.execute("DELETE FROM review_items WHERE NOT kept AND id NOT IN (SELECT item FROM review_events)")


KEPT_EVENTS = "SELECT review_events.number FROM review_events JOIN review_items ON item = id WHERE kept"
"""The numbers of the events of kept items, as SQL."""
