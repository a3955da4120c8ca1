# SPDX-License-Identifier: Apache-2.0
"""The table of events: what is asked for, in SQL and for events that are not written yet."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from streamkit.core.data import Event
from streamkit.core.records import as_json
from streamkit.core.sentences import event_label, plain, sentence
from streamkit.runtime.preview.gallery import GalleryEvent
from streamkit.serve.store.review_table import KEPT_EVENTS, clean, remove_without_events

_COLUMNS = "e.number, time_s, source, stage, kind, frame, pts_s, track_id, data, clip, clip_s, snapshot"
_MAX_WORDS = 2000  # characters of an event's data that can be searched
_MAX_DATA = 100_000  # bytes of an event's data
_IN_SOURCES = "source IN (SELECT value FROM json_each(?))"
_TERM = re.compile(r"\w+")
_IMAGES = 10  # removed at once


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event with its files.

    Attributes:
        number: increases with each event, also over restarts.
        time_s: wall clock in seconds since 1970.
        event: the event.
        image: whether it has a small image.
        clip: path of a clip that contains it, as its `recorded` event named it; None if there is none.
        clip_s: position of the event in the clip, in seconds.
        snapshot: path of its snapshot; None if there is none.
    """

    number: int
    time_s: float
    event: Event
    image: bool
    clip: str | None = None
    clip_s: float | None = None
    snapshot: str | None = None

    @classmethod
    def unwritten(cls, gallery_event: GalleryEvent) -> StoredEvent:
        """An event that is only in memory so far."""
        return cls(gallery_event.number, gallery_event.time_s, gallery_event.event, gallery_event.jpeg is not None)


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events are wanted; None means any.

    Attributes:
        source: id of the source.
        stage: id of the stage.
        kind: kind of the event.
        label: class of its object.
        from_s: earliest time, in seconds since 1970.
        to_s: time before which they are.
        text: words that the event's sentence or data must all contain, each from its beginning.
        after: number above which they are.
        before: number below which they are.
        sources: the sources that the client may see; None for all.
    """

    source: str | None = None
    stage: str | None = None
    kind: str | None = None
    label: str | None = None
    from_s: float | None = None
    to_s: float | None = None
    text: str | None = None
    after: int | None = None
    before: int | None = None
    sources: frozenset[str] | None = None

    def where(self) -> tuple[str, list[Any]]:
        """The condition in SQL, and its values."""
        parts: list[tuple[str, Any]] = [
            (f"{name} = ?", value)
            for name in ("source", "stage", "kind", "label")
            if (value := getattr(self, name)) is not None
        ]
        bounds = ("time_s >= ?", self.from_s), ("time_s < ?", self.to_s)
        numbers = ("e.number > ?", self.after), ("e.number < ?", self.before)
        parts += [(text, value) for text, value in (*bounds, *numbers) if value is not None]
        if self.sources is not None:
            parts.append((_IN_SOURCES, as_json(sorted(self.sources)).decode()))
        if terms := self._terms():
            matches_words = "e.number IN (SELECT rowid FROM event_words WHERE event_words MATCH ?)"
            parts.append((matches_words, " ".join(f'"{term}"*' for term in terms)))
        return " AND ".join(text for text, _ in parts) or "1", [value for _, value in parts]

    def matches(self, gallery_event: GalleryEvent) -> bool:
        """Whether an event that is not written yet is wanted."""
        event = gallery_event.event
        same = all(
            wanted in (None, value)
            for wanted, value in (
                (self.source, event.source),
                (self.stage, event.stage),
                (self.kind, event.kind),
                (self.label, event_label(event)),
            )
        )
        timely = (self.from_s is None or gallery_event.time_s >= self.from_s) and (
            self.to_s is None or gallery_event.time_s < self.to_s
        )
        numbered = (self.after is None or gallery_event.number > self.after) and (
            self.before is None or gallery_event.number < self.before
        )
        shown = self.sources is None or event.source in self.sources
        if not (same and timely and numbered and shown):
            return False
        here = [word.casefold() for word in _TERM.findall(words(event))]
        return all(any(word.startswith(term.casefold()) for word in here) for term in self._terms())

    def _terms(self) -> list[str]:
        """The words of the text; without signs, which the search language would take for operators."""
        return _TERM.findall(self.text or "")


def words(event: Event) -> str:
    """What free text is searched in: the sentence, the names, and the data."""
    parts = [sentence(event), event.kind, event.stage, event.source, event_label(event) or ""]
    return " ".join(map(str, parts)) + f" {plain(event.data)}"[:_MAX_WORDS]


def add_event(connection: sqlite3.Connection, gallery_event: GalleryEvent, image: int | None) -> None:
    """Insert an event with the id of its image.

    Raises:
        ValueError, TypeError, OverflowError: a plugin's event has values of other types.
        sqlite3.Error: the file cannot be written.
    """
    event = gallery_event.event
    label = event_label(event)
    track = event.track_id
    row = (
        gallery_event.number,
        float(gallery_event.time_s),
        clean(event.source),
        clean(event.stage),
        clean(event.kind),
        int(event.frame),
        float(event.pts_s),
        None if track is None else int(track),
        None if label is None else clean(label),
        _data_text(event),
        clean(words(event)),
        image,
    )
    marks = ", ".join("?" * len(row))
    connection.execute(
        "INSERT OR IGNORE INTO events (number, time_s, source, stage, kind, frame, pts_s, track_id, label, data, words,"
        f" image) VALUES ({marks})",
        row,
    )


def add_image(connection: sqlite3.Connection, id_: int, jpeg: bytes) -> None:
    """Insert an image; its id is the number of its first event."""
    connection.execute("INSERT OR IGNORE INTO images VALUES (?, ?)", (id_, jpeg))


def _data_text(event: Event) -> str:
    try:
        text = as_json(event.data).decode()
    except Exception:  # a plugin's object that has no JSON
        return "{}"
    return text if len(text) <= _MAX_DATA else "{}"


def find_events(connection: sqlite3.Connection, query: EventQuery, limit: int) -> list[StoredEvent]:
    """The latest events that match, newest first."""
    where, values = query.where()
    rows = connection.execute(
        f"SELECT {_COLUMNS}, i.id IS NOT NULL FROM events e LEFT JOIN images i ON i.id = e.image WHERE {where} "
        "ORDER BY e.number DESC LIMIT ?",
        (*values, limit),
    )
    return [_stored(row) for row in rows]


def _stored(row: Sequence[Any]) -> StoredEvent:
    number, time_s, source, stage, kind, frame, pts_s, track_id, data, clip, clip_s, snapshot, image = row
    event = Event(kind, stage, source, frame, pts_s, track_id, json.loads(data))
    return StoredEvent(number, time_s, event, bool(image), clip, clip_s, snapshot)


def image_of(connection: sqlite3.Connection, number: int) -> bytes | None:
    """The image of an event."""
    row = connection.execute(
        "SELECT jpeg FROM events e JOIN images i ON i.id = e.image WHERE e.number = ?", (number,)
    ).fetchone()
    return None if row is None else bytes(row[0])


def last_number(connection: sqlite3.Connection) -> int:
    """The highest number so far, also of events that were removed; 0 if there was none."""
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return 0 if row is None else int(row[0])


def count_over_time(
    connection: sqlite3.Connection, query: EventQuery, from_s: float, to_s: float, bins: int
) -> dict[str, list[int]]:
    """The number of matching events in equal parts of a period, by source."""
    where, values = query.where()
    counts_by_source: dict[str, list[int]] = {}
    rows = connection.execute(
        f"SELECT source, MIN(CAST((time_s - ?) * ? AS INTEGER), ?) AS place, COUNT(*) FROM events e WHERE {where} "
        "GROUP BY source, place ORDER BY source",
        (from_s, bins / (to_s - from_s), bins - 1, *values),
    )
    for source, place, n in rows:
        counts_by_source.setdefault(source, [0] * bins)[max(0, place)] += n
    return counts_by_source


def event_names(connection: sqlite3.Connection, query: EventQuery) -> dict[str, list[str]]:
    """The sources, stages, kinds and labels of the events that match, for filters."""
    where, values = query.where()
    by_stage = connection.execute(f"SELECT DISTINCT stage, kind FROM events e WHERE {where}", values).fetchall()
    sources, labels = (
        [
            row[0]
            for row in connection.execute(
                f"SELECT DISTINCT {name} FROM events e WHERE {name} IS NOT NULL AND {where}", values
            )
        ]
        for name in ("source", "label")
    )
    stages, kinds = ({row[place] for row in by_stage} for place in (0, 1))
    return {"sources": sorted(sources), "stages": sorted(stages), "kinds": sorted(kinds), "labels": sorted(labels)}


def last_mask(connection: sqlite3.Connection) -> tuple[int, str]:
    """The number from which images hide what they hid last, and what that was."""
    row = connection.execute("SELECT number, hidden FROM masks ORDER BY number DESC LIMIT 1").fetchone()
    return (0, "") if row is None else (int(row[0]), str(row[1]))


def add_mask(connection: sqlite3.Connection, number: int, hidden: str) -> None:
    """Note what images hide from a number on; only the latest entry counts."""
    connection.execute("DELETE FROM masks")
    connection.execute("INSERT INTO masks VALUES (?, ?)", (number, hidden))


def last_of_node(connection: sqlite3.Connection, node: str) -> int:
    """The highest `node_event` in the data of the events with this `node`; 0 if there is none."""
    wanted = "MAX(json_extract(data, '$.node_event'))"
    (highest,) = connection.execute(
        f"SELECT {wanted} FROM events WHERE json_extract(data, '$.node') = ?", (node,)
    ).fetchone()
    return int(highest or 0)


def remove_before(connection: sqlite3.Connection, time_s: float) -> tuple[int, int]:
    """Remove events and images that are older, but for those of kept items; return how many of each."""
    events = connection.execute(
        f"DELETE FROM events WHERE time_s < ? AND number NOT IN ({KEPT_EVENTS})", (time_s,)
    ).rowcount
    # an image has the number of its first event
    first = f"(SELECT COALESCE(MIN(number), 9e18) FROM events WHERE number NOT IN ({KEPT_EVENTS}))"
    shown = "(SELECT image FROM events WHERE image IS NOT NULL)"
    images = connection.execute(f"DELETE FROM images WHERE id < {first} AND id NOT IN {shown}").rowcount
    return events, images


def remove_oldest(connection: sqlite3.Connection) -> Iterator[tuple[int, int]]:
    """Remove the oldest images and, when none is left, the oldest events; yield how many of each after each step.

    Those of kept review items stay.
    """
    kept_images = f"SELECT image FROM events WHERE image IS NOT NULL AND number IN ({KEPT_EVENTS})"
    oldest = "DELETE FROM {0} WHERE {1} IN (SELECT {1} FROM {0} WHERE {1} NOT IN ({2}) ORDER BY {1} LIMIT ?)"
    while images := connection.execute(oldest.format("images", "id", kept_images), (_IMAGES,)).rowcount:
        yield 0, images
    removable = f"SELECT COUNT(*) FROM events WHERE number NOT IN ({KEPT_EVENTS})"
    while left := connection.execute(removable).fetchone()[0]:
        events = connection.execute(oldest.format("events", "number", KEPT_EVENTS), (max(1, left // 10),)).rowcount
        remove_without_events(connection)
        connection.execute("INSERT INTO event_words (event_words) VALUES ('optimize')")  # its words still take room
        yield events, 0
