# SPDX-License-Identifier: Apache-2.0
"""The table of detected objects, with selection, concatenation and merging.

A table is immutable, so branches of the graph share it without copies. Arrays are NumPy arrays on the host or CuPy
arrays on a GPU; `array_module` tells which. Nothing here copies between host and device.
"""

from __future__ import annotations

import bisect
import itertools
import sys
from collections import Counter
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from streamkit.core.delegation import functions
from streamkit.core.lazy_column import LazyColumn, read

Array = Any
"""A `numpy.ndarray` or a `cupy.ndarray`."""


def array_module(array: Array) -> Any:
    """Return the module, `numpy` or `cupy`, that `array` belongs to."""
    cupy = sys.modules.get("cupy")
    return cupy if cupy is not None and isinstance(array, cupy.ndarray) else np


def shape_text(array: Array | None) -> str:
    """Dtype, shape and device of an array, for `repr`."""
    if array is None:
        return "None"
    device = "host" if array_module(array) is np else f"cuda:{array.device.id}"
    return f"{array.dtype}{list(array.shape)}@{device}"


@dataclass(frozen=True, slots=True)
class Skeleton:
    """The points of a column `keypoints`.

    Attributes:
        names: names of the points, in order; may be empty.
        edges: pairs of points that are joined in drawings.
    """

    names: tuple[str, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()


class ExtraColumns(dict[str, Array]):
    """Extra columns by name. Read-only: use `Detections.with_columns`."""

    def _refuse(self, *args: object, **kwargs: object) -> Any:
        raise TypeError("the columns of Detections are read-only; write table = table.with_columns(name=array)")

    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = clear = setdefault = _refuse  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return ExtraColumns, (dict(self),)


class LazyColumns(ExtraColumns):
    """Extra columns of which some are lazy: each is read when it is accessed, all when they are copied or pickled.

    `stored` returns them without reading.
    """

    def __getitem__(self, name: str) -> Array:
        return read(dict.__getitem__(self, name))

    def __iter__(self) -> Iterator[str]:  # also makes `dict(columns)` and `{**columns}` call `__getitem__`
        return dict.__iter__(self)

    def get(self, name: str, default: Any = None) -> Any:
        """As of `dict`."""
        return read(dict.get(self, name, default))

    def values(self) -> ValuesView[Array]:  # type: ignore[override]
        """As of `dict`."""
        return ValuesView(self)

    def items(self) -> ItemsView[str, Array]:  # type: ignore[override]
        """As of `dict`."""
        return ItemsView(self)

    def copy(self) -> dict[str, Array]:
        """As of `dict`."""
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | dict(self)


def stored(columns: Mapping[str, Array]) -> dict[str, Array]:
    """Return a table's extra columns by name without reading the lazy ones."""
    return dict(dict.items(columns)) if isinstance(columns, dict) else dict(columns)


def _extra(columns: dict[str, Array]) -> ExtraColumns:
    lazy = any(type(column) is LazyColumn for column in columns.values())
    return (LazyColumns if lazy else ExtraColumns)(columns)


def read_only(array: Array) -> Array:
    """Return the array as read-only: itself, or a copy if it is a view into a writable array.

    A CuPy array has no such flag and is returned unchanged.
    """
    if isinstance(array, np.ndarray) and array.flags.writeable:
        if array.base is not None:
            array = array.copy()
        array.flags.writeable = False
    return array


@dataclass(frozen=True, slots=True, repr=False)
class Detections:
    """One flat, immutable table of objects of a batch or a frame. Columns are arrays of n rows on one device.

    Host arrays become read-only when they enter a table. CuPy has no such flag: do not write to the arrays of a table
    on a GPU. To change values, make another table: `frame.detections = frame.detections.with_columns(score=new)`.

    Attributes:
        xyxy: (n, 4) float32, x1, y1, x2, y2 in source pixels.
        score: (n,) float32, 0..1.
        class_id: (n,) int32, an index into `labels`.
        batch_row: (n,) int32, the row's frame in the batch, ascending. All 0 in the table of a frame.
        track_id: (n,) int64, or None without a tracker; -1 for a row without a track.
        labels: the class names.
        extra: further columns by name, each with n rows: `attributes`, `embedding`, landmarks, columns of plugins. A
            column of dtype object has None for a missing value. Masks and key points are made when they are read.
        row_id: (n,) int32, the row's number in its detector's table; selections keep it, so that merging branches can
            match rows.
        private: names of the columns in `extra` that are for other stages and not in records.
        skeleton: the points of the column `keypoints`, (n, k, 3) float32 x, y and score in source pixels.
    """

    xyxy: Array
    score: Array
    class_id: Array
    batch_row: Array = None
    track_id: Array | None = None
    labels: tuple[str, ...] = ()
    extra: dict[str, Array] = field(default_factory=dict)
    row_id: Array = None
    private: frozenset[str] = frozenset()
    skeleton: Skeleton | None = None

    def __post_init__(self) -> None:
        xp = array_module(self.xyxy)
        n = len(self.xyxy)
        if self.batch_row is None:
            _set(self, "batch_row", xp.zeros(n, np.int32))
        if self.row_id is None:
            _set(self, "row_id", xp.arange(n, dtype=np.int32))
        self._check_columns()
        for name in _ARRAYS:
            _set(self, name, read_only(getattr(self, name)))
        _set(self, "extra", _extra({name: read_only(column) for name, column in stored(self.extra).items()}))

    def _check_columns(self) -> None:
        """Raise ValueError if a column has a wrong type or a wrong number of rows."""
        n = len(self.xyxy)
        self._check("xyxy", self.xyxy, np.float32, (n, 4))
        for name, dtype in _COLUMNS.items():
            self._check(name, getattr(self, name), dtype, (n,))
        if self.track_id is not None:
            self._check("track_id", self.track_id, np.int64, (n,))
        for name, column in stored(self.extra).items():
            if not hasattr(column, "dtype") or not column.ndim:
                raise ValueError(f"Detections.extra[{name!r}] must be an array, got {type(column).__name__}")
            if len(column) != n:
                raise ValueError(f"Detections.extra[{name!r}] must have {n} rows to match xyxy, got {len(column)}")

    def _check(self, name: str, array: Array, dtype: Any, shape: tuple[int, ...]) -> None:
        if not hasattr(array, "dtype"):
            raise ValueError(f"Detections.{name} must be an array, got {type(array).__name__}")
        if tuple(array.shape) != shape:
            raise ValueError(f"Detections.{name} must have shape {shape} to match xyxy, got {tuple(array.shape)}")
        if array.dtype != dtype:
            raise ValueError(f"Detections.{name} must be {np.dtype(dtype)}, got {array.dtype}")

    @classmethod
    def empty(cls, labels: Sequence[str] = (), xp: Any = np) -> Detections:
        """A table with no rows, on the host or, with `xp=cupy`, on the device."""
        return cls(xp.zeros((0, 4), np.float32), xp.zeros(0, np.float32), xp.zeros(0, np.int32), labels=tuple(labels))

    def __len__(self) -> int:
        return len(self.xyxy)

    def __iter__(self) -> Iterator[Detections]:
        return (self[row : row + 1] for row in range(len(self)))

    def __getitem__(self, rows: Any) -> Detections:
        """Select rows by a mask, a slice or indices; every column and `row_id` follow.

        A single number gives a table of that row, as a loop over the table does.

        Raises:
            IndexError: there is no such row.
        """
        if isinstance(rows, (int, np.integer)):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"row {rows} of a table of {len(self)} rows")
            rows = slice(rows, rows + 1 or None)
        return self._unchecked(
            self.xyxy[rows],
            self.score[rows],
            self.class_id[rows],
            self.batch_row[rows],
            None if self.track_id is None else self.track_id[rows],
            self.labels,
            {name: column[rows] for name, column in dict.items(self.extra)},
            self.row_id[rows],
            self.private,
            self.skeleton,
        )

    @classmethod
    def _unchecked(cls, *values: Any) -> Detections:
        """Build without checks, from matching columns that have no other owner."""
        table = object.__new__(cls)
        for name, column in zip(_FIELDS, values, strict=True):
            if name == "extra":
                column = _extra({key: _frozen(column) for key, column in dict.items(column)})
            _set(table, name, _frozen(column))
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        return Detections._unchecked, tuple(getattr(self, name) for name in _FIELDS)

    def __deepcopy__(self, memo: dict[int, Any]) -> Detections:
        return self

    def with_columns(self, **columns: Array) -> Detections:
        """A copy with columns such as `track_id` or `score` replaced, or extra columns added."""
        fields = {name: columns.pop(name, getattr(self, name)) for name in _FIELDS if name != "extra"}
        return Detections(**fields, extra={**stored(self.extra), **columns})

    def by_frame(self, frames: int) -> tuple[Detections, list[int]]:
        """The rows in the order of the batch's `frames` frames, and the bounds: frame i has rows [i] to [i + 1]."""
        if array_module(self.batch_row) is not np:
            raise ValueError("Detections.by_frame needs a table on the host; this one is on the device")
        rows = self.batch_row
        if len(self) > 1 and (rows[1:] < rows[:-1]).any():
            return self[np.argsort(rows, kind="stable")].by_frame(frames)
        numbers = rows.tolist()  # `np.searchsorted` releases the interpreter, and then waits for other threads
        return self, [bisect.bisect_left(numbers, row) for row in range(frames + 1)]

    def split(self, frames: int) -> list[Detections]:
        """One table per frame, for a batch of `frames` frames; `batch_row` is 0 in each. On the host."""
        table, ends = self.by_frame(frames)
        zeros = _frozen(np.zeros(len(table), np.int32))
        return [table._slice(a, b, zeros[a:b]) for a, b in itertools.pairwise(ends)]

    def _slice(self, start: int, end: int, batch_row: np.ndarray) -> Detections:
        """Select rows with another column `batch_row`; every frame needs one, and slices stay read-only."""
        table = object.__new__(Detections)
        rows = slice(start, end)
        _set(table, "xyxy", self.xyxy[rows])
        _set(table, "score", self.score[rows])
        _set(table, "class_id", self.class_id[rows])
        _set(table, "batch_row", batch_row)
        _set(table, "track_id", None if self.track_id is None else self.track_id[rows])
        _set(table, "labels", self.labels)
        _set(table, "extra", type(self.extra)([(name, column[rows]) for name, column in dict.items(self.extra)]))  # type: ignore[arg-type]
        _set(table, "row_id", self.row_id[rows])
        _set(table, "private", self.private)
        _set(table, "skeleton", self.skeleton)
        return table

    @staticmethod
    def concat(tables: Sequence[Detections], *, rows: Sequence[int] | None = None, exact: bool = False) -> Detections:
        """Concatenate tables; if their labels differ, classes are renumbered by name.

        With `rows`, table i becomes the batch's frame `rows[i]`. A column that a table lacks is filled: -1 for
        integers and tracks, NaN for floats, False for booleans, None for objects. On the host, `exact` keeps the values
        of each table: a boolean column that a table lacks, or a column of several types or shapes, becomes a column of
        objects.
        """
        if not tables:
            raise ValueError("Detections.concat needs at least one table")
        xp = array_module(tables[0].xyxy)
        labels, class_id = _numbered(tables, xp)
        tracked = any(t.track_id is not None for t in tables)
        names = list(dict.fromkeys(name for t in tables for name in t.extra))
        lengths = [len(t) for t in tables]
        batch_row = [t.batch_row if rows is None else xp.full(len(t), rows[i], np.int32) for i, t in enumerate(tables)]
        return Detections._unchecked(
            xp.concatenate([t.xyxy for t in tables]),
            xp.concatenate([t.score for t in tables]),
            xp.concatenate(class_id),
            xp.concatenate(batch_row),
            xp.concatenate([_or_nulls(t.track_id, len(t), np.int64, (), xp) for t in tables]) if tracked else None,
            labels,
            {
                name: _stack([dict.get(t.extra, name) for t in tables], lengths, xp, exact and xp is np)
                for name in names
            },
            xp.concatenate([t.row_id for t in tables]),
            frozenset().union(*(t.private for t in tables)),
            next((t.skeleton for t in tables if t.skeleton is not None), None),
        )

    @property
    def label(self) -> list[str]:
        """The class name of each row; the number as text if it has no name."""
        names = self.labels
        return [names[c] if 0 <= c < len(names) else str(c) for c in self.class_id.tolist()]

    @property
    def center(self) -> Array:
        """(n, 2) float32, the middle of each box."""
        return (self.xyxy[:, :2] + self.xyxy[:, 2:]) * np.float32(0.5)

    @property
    def foot(self) -> Array:
        """(n, 2) float32, the middle of each box's lower edge: where an object stands."""
        xp = array_module(self.xyxy)
        return xp.stack([(self.xyxy[:, 0] + self.xyxy[:, 2]) * np.float32(0.5), self.xyxy[:, 3]], axis=1)

    def to_pandas(self) -> Any:
        """The table as a `pandas.DataFrame`, one row per object, with the columns and the rounding of the records.

        `box` becomes `x1`, `y1`, `x2` and `y2`, in source pixels. Boxes are not clipped, because a table does not know
        the size of its frame. Columns that a record would omit are there without values if the table has them.

        Raises:
            MissingPackage: pandas is not installed.
            ValueError: the table is on a GPU.
        """
        return functions().to_pandas(self)

    def to_supervision(self) -> Any:
        """The table as `supervision.Detections`: xyxy in source pixels, confidence, class_id, tracker_id, mask, data.

        `data["class_name"]` has the labels, and `data` further public columns. `tracker_id` is None without a tracker
        and -1 for rows without a track. `mask`, (n, height, width) bool, is there if a stage has written masks. The
        corners of oriented boxes are in `data["xyxyxyxy"]`, where supervision reads them.

        Raises:
            MissingPackage: supervision is not installed.
            ValueError: the table is on a GPU.
        """
        return functions().to_supervision(self)

    def to_supervision_keypoints(self) -> Any:
        """The column `keypoints` as `supervision.KeyPoints`, in source pixels; missing points are (0, 0).

        Raises:
            MissingPackage: supervision is not installed.
            ValueError: the table has no key points, or is on a GPU.
        """
        return functions().to_supervision_keypoints(self)

    def __repr__(self) -> str:
        counts = label_counts([self])
        extra = "".join(f", {name}={shape_text(column)}" for name, column in stored(self.extra).items())
        return (
            f"Detections({len(self)} rows{': ' * bool(counts)}{', '.join(counts)}; xyxy={shape_text(self.xyxy)}, "
            f"track_id={shape_text(self.track_id)}{extra})"
        )

    def _repr_html_(self) -> str:
        """What notebooks show: a table of the first objects."""
        return functions().table_html(self)


_MAX_LABELS = 5


def label_counts(tables: Sequence[Detections]) -> list[str]:
    """Number of rows by label, the most frequent first, as in `2 person`; rarer labels are one entry, `3 others`.

    A table on a GPU is one entry without labels, because labels need a copy to the host.
    """
    on_host = [table for table in tables if array_module(table.class_id) is np]
    counts = Counter(label for table in on_host for label in table.label)
    shown = counts.most_common(_MAX_LABELS)
    others = counts.total() - sum(n for _, n in shown)
    elsewhere = sum(map(len, tables)) - counts.total()
    entries = [f"{n} {label}" for label, n in shown] + [f"{others} others"] * bool(others)
    return entries + [f"{elsewhere} on the GPU"] * bool(elsewhere)


_COLUMNS = {"score": np.float32, "class_id": np.int32, "batch_row": np.int32, "row_id": np.int32}
_FIELDS = ("xyxy", "score", "class_id", "batch_row", "track_id", "labels", "extra", "row_id", "private", "skeleton")
_ARRAYS = ("xyxy", "score", "class_id", "batch_row", "track_id", "row_id")
_set = object.__setattr__


def _frozen(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        column.flags.writeable = False
    return column


def _refuse(self: Detections, name: str, value: object = None) -> None:
    raise AttributeError(
        f"Detections are immutable; write frame.detections = frame.detections.with_columns({name}=array)"
    )


Detections.__setattr__ = Detections.__delattr__ = _refuse  # type: ignore[assignment]  # the message tells what to write instead


def _numbered(tables: Sequence[Detections], xp: Any) -> tuple[tuple[str, ...], list[Array]]:
    """The labels of all tables, and each table's classes renumbered; numbers without a name are kept."""
    first = max((t.labels for t in tables), key=len)
    if all(t.labels is first or t.labels == first[: len(t.labels)] for t in tables):
        return first, [t.class_id for t in tables]
    labels = tuple(dict.fromkeys(name for t in tables for name in t.labels))
    places = {name: place for place, name in enumerate(labels)}
    class_ids = []
    for table in tables:
        renumbered = xp.asarray(np.array([*(places[name] for name in table.labels), 0], np.int32))
        named = (table.class_id >= 0) & (table.class_id < len(table.labels))
        class_ids.append(xp.where(named, renumbered[xp.where(named, table.class_id, -1)], table.class_id))
    return labels, class_ids


def _or_nulls(column: Array | None, n: int, dtype: Any, shape: tuple[int, ...], xp: Any) -> Array:
    if column is not None:
        return column
    if np.dtype(dtype).kind == "O":
        return np.full((n, *shape), None)
    if np.dtype(dtype).kind == "b":
        return xp.zeros((n, *shape), dtype)
    return xp.full((n, *shape), np.nan if np.issubdtype(dtype, np.floating) else -1, dtype)


def _stack(columns: list[Array | None], lengths: list[int], xp: Any, exact: bool) -> Array:
    there = [c for c, n in zip(columns, lengths, strict=True) if c is not None and n]
    example = there[0] if there else next(c for c in columns if c is not None)
    lacking = sum(map(len, there)) < sum(lengths)
    alike = len({(c.dtype.kind, c.shape[1:]) for c in there}) < 2
    as_objects = exact and (not alike or (lacking and example.dtype.kind not in "iuf"))
    if any(type(c) is LazyColumn for c in columns):
        if not alike and not as_objects:
            return _stack([read(c) for c in columns], lengths, xp, exact)
        whole = cache(lambda: _stack([read(c) for c in columns], lengths, xp, exact))
        ends = np.cumsum(lengths)

        def make(rows: np.ndarray) -> np.ndarray:
            part = int(np.searchsorted(ends, rows[0], side="right")) if len(rows) else 0
            start = int(ends[part]) - lengths[part]
            only = columns[part]
            if type(only) is LazyColumn and len(rows) and start <= rows.min() and rows.max() < ends[part]:
                return np.asarray(read(only[rows - start]))  # without those of the other tables
            return np.asarray(whole()[rows])

        form: tuple[Any, ...] = (object,) if as_objects else (example.dtype, example.shape[1:])
        return LazyColumn(make, np.arange(sum(lengths)), *form)
    if as_objects:
        return _objects(columns, lengths)
    filled = [_or_nulls(c, n, example.dtype, example.shape[1:], xp) for c, n in zip(columns, lengths, strict=True)]
    return xp.concatenate(filled)


def _objects(columns: list[Array | None], lengths: list[int]) -> np.ndarray:
    """A column of objects with the values of each table; None for tables without the column."""
    joined = np.full(sum(lengths), None)
    for column, n, end in zip(columns, lengths, itertools.accumulate(lengths), strict=True):
        if column is None:
            continue
        if column.dtype == np.float32:  # keeps 0.1 as 0.1 instead of the exact float64 value of the float32
            column = column.astype(str).astype(np.float64)
        for place, cell in enumerate(column.tolist(), end - n):
            joined[place] = cell
    return joined


def merge(first: Detections, second: Detections) -> Detections:
    """Merge two versions of the same table, from two branches: all rows and all columns of both.

    Rows match by frame and `row_id`; `first` has precedence. Attributes, which are mappings, are combined.
    """
    if first is second:
        return first
    first_rows = {key: i for i, key in enumerate(_keys(first))}
    second_rows = {key: i for i, key in enumerate(_keys(second))}
    rest = second[np.array([i for key, i in second_rows.items() if key not in first_rows], dtype=np.intp)]
    pairs = [(i, second_rows[key]) for key, i in first_rows.items() if key in second_rows]
    shared_first, shared_second = (
        np.array(side, dtype=np.intp) for side in (zip(*pairs, strict=True) if pairs else ((), ()))
    )
    columns: dict[str, Array] = {}
    for name, column in {"track_id": second.track_id, **stored(second.extra)}.items():
        first_column = first.track_id if name == "track_id" else dict.get(first.extra, name)
        if column is not None and first_column is None:
            columns[name] = _placed(column, len(first), shared_first, shared_second)
        elif (
            column is not None
            and column.dtype == object
            and not (type(column) is LazyColumn and column.is_of(first_column))
        ):
            first_column = read(first_column)
            column = read(column)
            columns[name] = first_column.copy()
            for i, j in pairs:
                columns[name][i] = _either(first_column[i], column[j])
    table = Detections.concat([first.with_columns(**columns), rest])
    return table[np.lexsort((table.row_id, table.batch_row))]


def _placed(column: Any, n: int, rows: np.ndarray, other_rows: np.ndarray) -> Any:
    """A column of n rows, whose rows `rows` are the rows `other_rows` of another one; the rest is missing."""
    if type(column) is LazyColumn:
        whole = cache(lambda: _placed(read(column), n, rows, other_rows))
        return LazyColumn(lambda rows: whole()[rows], np.arange(n), column.dtype, column.shape[1:])
    placed = _or_nulls(None, n, column.dtype, column.shape[1:], np)
    placed[rows] = column[other_rows]
    return placed


def _either(first: Any, second: Any) -> Any:
    if isinstance(first, dict) and isinstance(second, dict):
        return {**second, **first}
    return second if first is None else first


def _keys(table: Detections) -> Iterator[tuple[int, int]]:
    return zip(table.batch_row.tolist(), table.row_id.tolist(), strict=True)
