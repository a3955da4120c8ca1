"""Records as table rows for databases: the same columns in all of them, extracted from the JSON by the database."""

from __future__ import annotations

from typing import NamedTuple


class RecordColumn(NamedTuple):
    """A column: what it holds (text, integer, real, time), and its place in the record; a number counts in a list."""

    kind: str
    path: tuple[str | int, ...]


_FRAME = {
    "source": RecordColumn("text", ("source",)),
    "frame": RecordColumn("integer", ("frame",)),
    "pts_s": RecordColumn("real", ("pts_s",)),
    "time": RecordColumn("time", ("time",)),
}

COLUMNS: dict[str, dict[str, RecordColumn]] = {
    "frames": {**_FRAME, "error": RecordColumn("text", ("error",))},
    "objects": {
        **_FRAME,
        "label": RecordColumn("text", ("object", "label")),
        "track_id": RecordColumn("integer", ("object", "track_id")),
        "score": RecordColumn("real", ("object", "score")),
        **{name: RecordColumn("real", ("object", "box", i)) for i, name in enumerate(("x1", "y1", "x2", "y2"))},
    },
    "events": {
        **_FRAME,
        "stage": RecordColumn("text", ("event", "stage")),
        "kind": RecordColumn("text", ("event", "kind")),
        "track_id": RecordColumn("integer", ("event", "track_id")),
    },
}
"""The columns of each kind of record, beside `id`, its primary key, and `record`, the whole of it."""


def missing(send: str, there: set[str]) -> str | None:
    """Message about the columns that a table lacks; None if it has all."""
    lacks = [name for name in ("id", *COLUMNS[send], "record") if name not in there]
    if not lacks:
        return None
    return f"has no column {', '.join(lacks)}, which send: {send} needs; name another table, or add what it lacks"
