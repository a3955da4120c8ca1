# SPDX-License-Identifier: Apache-2.0
"""The data set's Parquet sink: collects the rows of a file by batch, and writes them as Arrow tables.

Python's cost per frame limits the number of files at once: a batch becomes columns once, each frame keeps only the
bounds of its rows, and Arrow arrays are made per row group.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from streamkit.batch.tables import DatasetTables, ObjectColumn, others_of
from streamkit.core.data import Batch, Detections, Event, Frame
from streamkit.core.detections import stored
from streamkit.core.errors import OutputError, describe
from streamkit.core.records import as_json, numbers_of
from streamkit.core.stage import Sink
from streamkit.io.parquet_file import TableFile, arrow

ROWS = 1 << 16
HEAVY_ROWS = 1 << 13  # where a row has a mask or a vector
_EVENTS = 1 << 14  # events and frames held until they are a row group
_LOOSE = 256  # frames after which a file's rows are copied out of the batches that it shares with others
_HEAVY = ("mask", "vector", "points")


@dataclass(eq=False)
class DataSet(Sink):
    """Write one file's objects, events and frames.

    Attributes:
        path: the file of objects, such as "out/objects/{source}.parquet"; other tables are in sibling folders.
        tables: the pipeline's tables and columns.
        names: the name of each file, by its key.
    """

    name: ClassVar[str] = "dataset"

    path: str
    tables: DatasetTables
    names: Mapping[str, str] = field(default_factory=dict)

    def open(self) -> None:
        """Prepare the tables; their files are created with the first row."""
        path = Path(self.path)
        self._key = path.stem
        self._source = self.names.get(self._key, self._key)
        schemas = self.tables.schemas()
        self._files = {
            name: TableFile(path.parent.parent / name / path.name, schema) for name, schema in schemas.items()
        }
        self._schemas = schemas
        self._objects = ObjectCollector(self.tables, schemas["objects"], self._key, self._source)
        self._frames = FrameCollector(schemas["frames"], self._key, self._source)
        self._events: list[dict[str, Any]] = []
        self._ended = False

    @staticmethod
    def encode(batch: Batch) -> list[Any]:
        """Collect the rows of all frames of the batch at once; see `Sink.encode`."""
        return spans(batch)

    def write(self, frame: Frame) -> None:
        """Write the frame's objects and events."""
        self.write_encoded(frame, spans_of(frame))

    def write_encoded(self, frame: Frame, encoded: list[Span]) -> None:
        """Write the frame's objects, which were collected with those of its batch, and its events."""
        objects = self._objects.add(encoded)
        if self._objects.full:
            self._files["objects"].write(self._objects.take())
        self._events += [event_row(event, self._key, self._source) for event in frame.events]
        if len(self._events) >= _EVENTS:
            self._write_events()
        self._frames.add(frame, objects)
        if self._frames.rows >= _EVENTS:
            self._files["frames"].write(self._frames.take())

    def _write_events(self) -> None:
        self._files["events"].write(arrow().Table.from_pylist(self._events, self._schemas["events"]))
        self._events = []

    def end(self, source: str) -> None:
        """Write the remaining rows and publish the parts; the video has ended."""
        if self._objects.rows:
            self._files["objects"].write(self._objects.take())
        if self._events:
            self._write_events()
        if self._frames.rows:
            self._files["frames"].write(self._frames.take())
        for file in self._files.values():
            file.finish()

    def close(self) -> None:
        """Discard incomplete parts."""
        for file in self._files.values():
            file.discard()


# --------------------------------------------------------------------------------------------------------- objects


Span = tuple[str, Detections, int, int]
"""Some frame's rows of a table: the detector's id, the table with the columns of `_with_frames`, from, to."""

# no stage can use these names
_INDEX = "#index"
_DAMAGED = "#damaged"
_PTS_S = "#pts_s"
_NUMBERS = "#numbers"


def spans(batch: Batch) -> list[list[Span]]:
    """The rows of each frame of a batch, by detector."""
    by_frame: list[list[Span]] = [[] for _ in batch.frames]
    for stage in batch.tables:
        table, ends = batch.table(stage).by_frame(len(batch.frames))
        if not len(table):
            continue
        table = _with_frames(table, batch.frames)
        for frame_spans, (begin, end) in zip(by_frame, itertools.pairwise(ends), strict=True):
            if end > begin:
                frame_spans.append((stage, table, begin, end))
    return by_frame


def spans_of(frame: Frame) -> list[Span]:
    """The rows of a frame that has its own tables."""
    tables = frame.tables.items()
    return [(stage, _with_frames(table, [frame]), 0, len(table)) for stage, table in tables if len(table)]


def _with_frames(table: Detections, frames: Sequence[Frame]) -> Detections:
    """Add columns with the frame's index in its source, whether its data was damaged, its seconds, and `numbers_of`."""
    rows = table.batch_row
    return table.with_columns(
        **{
            _INDEX: np.array([frame.index for frame in frames], np.int32)[rows],
            _DAMAGED: np.array([frame.damaged for frame in frames], bool)[rows],
            _PTS_S: np.array([round(frame.pts_s, 6) for frame in frames], np.float64)[rows],
            _NUMBERS: numbers_of(table, frames),
        }
    )


class ObjectCollector:
    """Collects the objects of one file.

    Args:
        tables: the pipeline's tables and columns.
        schema: Arrow schema of the table of objects.
        key: the file's key.
        source: the file's name.

    Attributes:
        rows: number of collected rows.
        full: whether they fill a row group.
    """

    def __init__(self, tables: DatasetTables, schema: Any, key: str, source: str) -> None:
        self._tables = tables
        self._schema = schema
        self._key = key
        self._source = source
        self._row_limit = HEAVY_ROWS if any(column.kind in _HEAVY for column in tables.columns) else ROWS
        self._spans: dict[str, list[tuple[int, Span]]] = {}
        self._copied: dict[str, list[tuple[np.ndarray, Detections]]] = {}
        self._frames = self.rows = self._loose = 0

    def add(self, frame: list[Span]) -> int:
        """Add a frame's rows; return their number."""
        before = self.rows
        for span in frame:
            self._spans.setdefault(span[0], []).append((self._frames, span))
            self.rows += span[3] - span[2]
        self._frames += 1
        self._loose += len(frame)
        if self._loose >= _LOOSE:
            self._copy()
        return self.rows - before

    @property
    def full(self) -> bool:
        """Whether the rows fill a row group."""
        return self.rows >= self._row_limit

    def take(self) -> Any:
        """Return the collected rows as an Arrow table, in frame order, and start over."""
        pa = arrow()
        self._copy()
        tables = [
            self._table(stage, _stacked(list(group)))
            for stage, copied in self._copied.items()
            for _, group in itertools.groupby((table for _, table in copied), _form)
        ]
        collected = pa.concat_tables(tables) if tables else self._schema.empty_table()
        if len(self._copied) > 1:
            frames = np.concatenate([numbers for copied in self._copied.values() for numbers, _ in copied])
            collected = collected.take(np.argsort(frames, kind="stable"))
        self._copied = {}
        self.rows = 0
        self._frames = 0
        return collected.combine_chunks()

    def _copy(self) -> None:
        """Copy the rows of this file out of the batches, so that their other rows can be freed."""
        for stage, held in self._spans.items():
            frames = np.repeat([number for number, _ in held], [end - begin for _, (_, _, begin, end) in held])
            parts = [table[begin:end] for _, table, begin, end in _joined(span for _, span in held)]
            for _, group in itertools.groupby(parts, _form):
                table = _stacked(list(group))
                self._copied.setdefault(stage, []).append((frames[: len(table)], table))
                frames = frames[len(table) :]
        self._spans = {}
        self._loose = 0

    def _table(self, stage: str, table: Detections) -> Any:
        pa = arrow()
        extra = table.extra
        n = len(table)
        numbers = extra[_NUMBERS].astype(np.float32)
        columns: dict[str, Any] = {
            "key": pa.repeat(self._key, n),
            "source": pa.repeat(self._source, n),
            "frame": pa.array(extra[_INDEX]),
            "damaged": pa.array(extra[_DAMAGED]),
            "pts_s": pa.array(extra[_PTS_S]),
            "stage": pa.repeat(stage, n),
            "label": _labels(table),
            "class_id": pa.array(table.class_id),
            "score": pa.array(numbers[:, 4]),
            **{name: pa.array(numbers[:, i]) for i, name in enumerate(("x1", "y1", "x2", "y2"))},
        }
        for column in self._tables.columns:
            columns[column.name] = _array(column, table, n)
        if self._tables.others:
            declared = [*self._schema.names, *table.private, _INDEX, _DAMAGED, _PTS_S, _NUMBERS]
            columns["extra"] = pa.array(others_of(extra, declared, n), pa.string())
        return pa.Table.from_arrays([columns[name] for name in self._schema.names], schema=self._schema)


def _array(column: ObjectColumn, table: Detections, rows: int) -> Any:
    values = table.track_id if column.name == "track_id" else table.extra.get(column.name)
    if values is None:
        return column.nulls(rows)
    try:
        return column.array(values).cast(column.type)
    except (TypeError, ValueError, NotImplementedError, AttributeError) as error:
        dtype_and_shape = f"{getattr(values, 'dtype', type(values).__name__)}{list(np.shape(values)[1:]) or ''}"
        problem = f"the column {column.name} cannot be written as {column.kind}: its values are {dtype_and_shape}"
        raise OutputError(f"{problem}; {describe(error)}") from error


def _labels(table: Detections) -> Any:
    pa = arrow()
    names = table.labels
    codes = pa.array(table.class_id, mask=(table.class_id < 0) | (table.class_id >= len(names)))
    return pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string())).dictionary_decode()


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Merge consecutive spans of one table, as in most batches."""
    joined: list[Span] = []
    for stage, table, begin, end in spans:
        if joined and joined[-1][1] is table and joined[-1][3] == begin:
            joined[-1] = *joined[-1][:3], end
        else:
            joined.append((stage, table, begin, end))
    return joined


def _form(table: Detections) -> Any:
    """What tables must share to be concatenated: labels, private columns, and the shapes of their columns."""
    return table.labels, table.private, {name: column.shape[1:] for name, column in stored(table.extra).items()}


def _stacked(tables: list[Detections]) -> Detections:
    return tables[0] if len(tables) == 1 else Detections.concat(tables)


# --------------------------------------------------------------------------------------------------- events and frames


def event_row(event: Event, key: str, source: str) -> dict[str, Any]:
    """A row of the table of events."""
    return {
        "key": key,
        "source": source,
        "frame": event.frame,
        "pts_s": round(event.pts_s, 6),
        "stage": event.stage,
        "kind": event.kind,
        "track_id": event.track_id,
        "data": as_json(event.data).decode() if event.data else None,
    }


class FrameCollector:
    """Collects the rows of one file's frames by column: every processed frame has one.

    Args:
        schema: Arrow schema of the table of frames.
        key: the file's key.
        source: the file's name.
    """

    def __init__(self, schema: Any, key: str, source: str) -> None:
        self._schema = schema
        self._key = key
        self._source = source
        self._columns: dict[str, list[Any]] = {name: [] for name in schema.names if name not in ("key", "source")}

    @property
    def rows(self) -> int:
        """Number of collected rows."""
        return len(self._columns["frame"])

    def add(self, frame: Frame, objects: int) -> None:
        """Add a frame with this number of objects."""
        values = (
            frame.index,
            round(frame.pts_s, 6),
            frame.width,
            frame.height,
            objects,
            frame.error,
            frame.damaged,
            as_json(frame.facts).decode() if frame.facts else None,
        )
        for column, value in zip(self._columns.values(), values, strict=True):
            column.append(value)

    def take(self) -> Any:
        """Return the collected rows as an Arrow table, and start over."""
        pa = arrow()
        rows = self.rows
        columns = [pa.repeat(self._key, rows), pa.repeat(self._source, rows)]
        columns += [pa.array(values, self._schema.field(name).type) for name, values in self._columns.items()]
        for column in self._columns.values():
            column.clear()
        return pa.Table.from_arrays(columns, schema=self._schema)
