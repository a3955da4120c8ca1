"""Records as rows of a table, for databases: the same columns in all of them, taken out of the JSON by the database."""

from __future__ import annotations

from typing import NamedTuple


class Column(NamedTuple):
    """A column: what it holds (text, integer, real, time), and its place in the record; a number counts in a list."""

    kind: str
    path: tuple[str | int, ...]


_FRAME = {
    "source": Column("text", ("source",)),
    "frame": Column("integer", ("frame",)),
    "pts_s": Column("real", ("pts_s",)),
    "time": Column("time", ("time",)),
}

COLUMNS: dict[str, dict[str, Column]] = {
    "frames": {**_FRAME, "error": Column("text", ("error",))},
    "objects": {
        **_FRAME,
        "label": Column("text", ("object", "label")),
        "track_id": Column("integer", ("object", "track_id")),
        "score": Column("real", ("object", "score")),
        **{name: Column("real", ("object", "box", i)) for i, name in enumerate(("x1", "y1", "x2", "y2"))},
    },
    "events": {
        **_FRAME,
        "stage": Column("text", ("event", "stage")),
        "kind": Column("text", ("event", "kind")),
        "track_id": Column("integer", ("event", "track_id")),
    },
}
"""The columns of each kind of record, beside `id`, its primary key, and `record`, the whole of it."""


def missing(send: str, there: set[str]) -> str | None:
    """What a table with other columns lacks, as a message; None where it has all."""
    lacks = [name for name in ("id", *COLUMNS[send], "record") if name not in there]
    if not lacks:
        return None
    return f"has no column {', '.join(lacks)}, which send: {send} needs; name another table, or add what it lacks"
