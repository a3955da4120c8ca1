"""Columns that are made when they are first read: what reads them, and what does not."""

import copy
import pickle

import numpy as np
import pytest

from streamkit.core.data import Batch, Detections, Frame, merge
from streamkit.core.detections import stored
from streamkit.core.lazy_column import LazyColumn, read
from streamkit.core.records import record
from streamkit.runtime.execution.tables import join, split


class LazyTable:
    """A table of four objects in three frames with a lazy column of texts and one of points; keeps what was read."""

    def __init__(self) -> None:
        self.read: list[list[int]] = []
        values = np.array([{"n": i} for i in range(4)], object)

        def make(rows):
            self.read.append(rows.tolist())
            return values[rows]

        points = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
        self.table = Detections(
            np.tile(np.float32([[0, 0, 10, 10]]), (4, 1)),
            np.full(4, 0.5, np.float32),
            np.zeros(4, np.int32),
            np.array([0, 0, 1, 2], np.int32),
            labels=("a",),
            extra={
                "mask": LazyColumn(make, np.arange(4), object),
                "keypoints": LazyColumn(
                    lambda rows: (self.read.append(rows.tolist()), points[rows])[1], np.arange(4), np.float32, (2, 3)
                ),
                "speed": np.arange(4, dtype=np.float32),
            },
        )


def numbers(column):
    return [cell and cell["n"] for cell in read(column)]


@pytest.fixture
def lazy():
    return LazyTable()


def test_a_lazy_column_looks_like_an_array(lazy):
    column = stored(lazy.table.extra)["keypoints"]
    assert (column.shape, column.ndim, column.dtype, len(column)) == ((4, 2, 3), 3, np.float32, 4)
    assert column.nbytes == 4 * 2 * 3 * 4
    assert column[1:3].shape == (2, 2, 3)
    assert "mask=object[4]" in repr(lazy.table)
    assert lazy.read == []


WAYS = {
    "rows by a mask": lambda t: t[np.array([True, False, True, True])],
    "rows by indices": lambda t: t[[3, 0, 2]],
    "one row": lambda t: t[2],
    "the tables of the frames": lambda t: t.split(3)[0],
    "another column": lambda t: t.with_columns(track_id=np.arange(4)),
    "a table in front": lambda t: Detections.concat([t[:2], t[2:]]),
    "a table without the column": lambda t: Detections.concat([t, Detections.empty(("a",))]),
    "frames that are joined": lambda t: Detections.concat(t.split(3), rows=range(3), exact=True),
    "the table of another branch": lambda t: merge(t[[0, 1, 2]], t.with_columns(track_id=np.arange(4))),
    "a column of another branch": lambda t: merge(Detections(t.xyxy, t.score, t.class_id, t.batch_row), t),
    "a copy": copy.copy,
    "a deep copy": copy.deepcopy,
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_read_before_access(way, lazy):
    derived = WAYS[way](lazy.table)
    assert lazy.read == []
    wanted = derived.row_id.tolist()
    if way == "a table in front":
        wanted = [0, 1, 2, 3]
    assert numbers(derived.extra["mask"]) == wanted
    assert derived.extra["keypoints"][:, 0, 0].tolist() == [6 * i for i in wanted]
    assert derived.extra["mask"] is derived.extra["mask"]
    assert len(lazy.read) < 9


def test_only_accessed_rows_are_computed(lazy):
    first, _, third = lazy.table[1:].split(3)
    assert numbers(first.extra["mask"]) == [1]
    assert numbers(third.extra["mask"]) == [3]
    assert lazy.read == [[1], [3]]
    again = Detections.concat([first, third], rows=[0, 1], exact=True)
    assert numbers(again.split(2)[1].extra["mask"]) == [3]
    assert lazy.read == [[1], [3]]


@pytest.mark.parametrize(
    ("rows", "read_rows"), [([0], [[0]]), ([1, 0], [[1, 0]]), ([2], [[2]]), ([3], [[3]]), ([1, 2], [[0, 1], [2], [3]])]
)
def test_rows_of_a_joined_table_are_read_without_the_others(lazy, rows, read_rows):
    joined = Detections.concat(lazy.table.split(3), rows=range(3), exact=True)
    assert numbers(joined[rows].extra["mask"]) == rows
    assert lazy.read == read_rows


def test_rows_without_the_column_are_missing(lazy):
    plain = Detections.empty(("a",)).with_columns()
    other = Detections(*(getattr(lazy.table, name) for name in ("xyxy", "score", "class_id")), labels=("a",))
    for exact in (False, True):
        both = Detections.concat([other[:1], lazy.table[1:3], plain], rows=[0, 1, 2], exact=exact)
        assert numbers(both.extra["mask"]) == [None, 1, 2]
        assert numbers(both[1:].extra["mask"]) == [1, 2]
    ids = {"row_id": np.array([9, 0, 3, 8], np.int32), "batch_row": np.array([0, 0, 2, 2], np.int32)}
    merged = merge(other.with_columns(**ids), lazy.table[[0, 3]])
    assert merged.row_id.tolist() == [0, 9, 3, 8]
    assert numbers(merged.extra["mask"]) == [0, None, 3, None]
    both = merge(lazy.table.with_columns(mask=np.array([{"m": 1}, None, None, {"m": 2}], object)), lazy.table)
    assert both.extra["mask"].tolist() == [{"n": 0, "m": 1}, {"n": 1}, {"n": 2}, {"n": 3, "m": 2}]


def test_every_access_to_the_columns_gives_values(lazy):
    extra = lazy.table.extra
    for columns in (
        dict(extra),
        {**extra},
        extra.copy(),
        extra | {},
        {} | extra,
        dict(extra.items()),
        dict(zip(extra, extra.values(), strict=True)),
        {name: extra.get(name) for name in extra},
    ):
        assert list(columns) == ["mask", "keypoints", "speed"]
        assert all(isinstance(column, np.ndarray) for column in columns.values())
        assert numbers(columns["mask"]) == [0, 1, 2, 3]
    assert (extra.get("none"), extra.get("none", 3), "mask" in extra, len(extra)) == (None, 3, True, 3)
    assert lazy.read == [[0, 1, 2, 3]] * 2
    with pytest.raises(TypeError, match="read-only"):
        extra["mask"] = 1
    assert not extra["mask"].flags.writeable


def test_unaccessed_rows_are_not_read(lazy):
    assert [name for name in lazy.table.extra if name != "mask"] == ["keypoints", "speed"]
    assert len(lazy.table.extra.items()) == 3
    assert lazy.read == []


def test_a_pickled_table_has_the_values(lazy):
    back = pickle.loads(pickle.dumps(lazy.table[:2]))
    assert lazy.read == [[0, 1]] * 2
    assert numbers(back.extra["mask"]) == [0, 1]
    assert all(isinstance(column, np.ndarray) for column in stored(back.extra).values())


def test_a_record_has_the_values_and_a_private_column_is_not_read(lazy):
    frame = Frame("a", 0, 0.0, 64, 48, tables={"detect": lazy.table.split(3)[0]})
    assert [entry["mask"] for entry in record(frame)["objects"]] == [{"n": 0}, {"n": 1}]
    lazy.read.clear()
    frame.tables["detect"] = lazy.table.with_columns(private=frozenset({"mask", "keypoints"})).split(3)[1]
    assert "mask" not in record(frame)["objects"][0]
    assert lazy.read == []


def test_a_batch_keeps_columns_lazy(lazy):
    frames = [Frame("a", i, 0.0, 64, 48) for i in range(3)]
    batch = Batch(frames, tables={"detect": lazy.table})
    parts = [batch.fork().take([row]) for row in range(3)]
    joined = Batch.join(parts, batch)
    split(joined)
    join(joined, [{} for _ in frames])
    assert lazy.read == []
    assert numbers(joined.table("detect").extra["mask"]) == [0, 1, 2, 3]
    assert numbers(joined.frames[0].detections.extra["mask"]) == [0, 1]
