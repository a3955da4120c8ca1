"""Records as table rows for databases: the same columns in all of them, extracted from the JSON by the database."""

from __future__ import annotations

from typing import NamedTuple

from streamkit.emit.client import Lost


class RecordColumn(NamedTuple):
    """A column: its type (text, integer, real, time), and the keys and list indices that lead to it in the record."""

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
"""The columns of each kind of record, besides `id`, the primary key, and `record`, the whole record."""


def check_columns(table: str, send: str, there: set[str]) -> None:
    """Raise Lost if a table lacks columns."""
    lacks = ", ".join(name for name in ("id", *COLUMNS[send], "record") if name not in there)
    if lacks:
        fix = "set another table, or add the columns"
        raise Lost(f"the table {table} has no column {lacks}, which send: {send} needs; {fix}")
