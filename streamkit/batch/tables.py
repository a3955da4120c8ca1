# SPDX-License-Identifier: Apache-2.0
"""The tables of a data set: their columns, the same for every file, and the conversion of results to Arrow arrays.

The pipeline determines the columns: `track_id` with a tracker, a column for each measure, typed columns for attributes,
keypoints, masks and embeddings. Columns of plugins without a declared type go into `extra` as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from streamkit.core.records import as_json, corners_of, is_missing, points_of, values_of
from streamkit.io.parquet_file import arrow
from streamkit.stages.inference import apply_results

if TYPE_CHECKING:
    from streamkit.config.plan import Graph, Node

_POINT = ("x", "y", "score")
_CORNER = ("x", "y")
RUN_COLUMNS = ("attempts", "seconds", "finished_at")
"""The columns of `files` that describe the run, not the result: they differ between runs."""


# ---------------------------------------------------------------------------------------------------------- columns


@dataclass(frozen=True, slots=True)
class ObjectColumn:
    """An additional column of the table of objects.

    Attributes:
        name: the column's name, also in `Detections.extra`.
        kind: how its values become an Arrow array: a key of `KINDS`.
        fields: the names of the attributes, for `attributes`.
    """

    name: str
    kind: str
    fields: tuple[str, ...] = ()

    @property
    def type(self) -> Any:
        """Its Arrow type."""
        return KINDS[self.kind][0](arrow(), self)

    def array(self, values: np.ndarray) -> Any:
        """Convert a host column of a `Detections` to an Arrow array; missing values become null."""
        return KINDS[self.kind][1](arrow(), self, values)

    def nulls(self, rows: int) -> Any:
        """The array for rows of a table without the column."""
        pa = arrow()
        return pa.array(np.zeros(rows, bool)) if self.kind == "flag" else pa.nulls(rows, self.type)


def _numbers(pa: Any, column: ObjectColumn, values: np.ndarray) -> Any:
    """Numbers with nulls for NaN and -1, the fill values of tables without the column."""
    values = np.asarray(values)
    return pa.array(values, column.type, mask=np.isnan(values) if values.dtype.kind == "f" else values == -1)


def _points(pa: Any, column: ObjectColumn, values: np.ndarray) -> Any:
    return _places(pa, points_of(values.astype(np.float64)), _POINT)


def _corners(pa: Any, column: ObjectColumn, values: np.ndarray) -> Any:
    return _places(pa, corners_of(values.astype(np.float64)), _CORNER)


def _places(pa: Any, values: np.ndarray, names: Sequence[str]) -> Any:
    """Lists of (n, k, len(names)) values as structs; null for rows of NaN."""
    n, k, width = values.shape
    flat = values.astype(np.float32).reshape(n * k, width)
    structs = pa.StructArray.from_arrays([pa.array(np.ascontiguousarray(flat[:, i])) for i in range(width)], names)
    return _lists(pa, structs, n, k, np.isnan(values).all(axis=(1, 2)))


def _vectors(pa: Any, column: ObjectColumn, values: np.ndarray) -> Any:
    n, d = values.shape
    flat = pa.array(np.ascontiguousarray(values, np.float32).reshape(-1))
    return _lists(pa, flat, n, d, np.isnan(values).all(axis=1))


def _lists(pa: Any, flat: Any, n: int, each: int, none: np.ndarray) -> Any:
    """Lists of `each` items, null where `none` is set."""
    present = flat.filter(pa.array(np.repeat(~none, each))) if none.any() else flat
    offsets = np.concatenate([[0], np.cumsum(np.where(none, 0, each))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), present, mask=pa.array(none) if none.any() else None)


def _objects(pa: Any, column: ObjectColumn, values: np.ndarray) -> Any:
    return pa.array(list(values), column.type)


def _flags(pa: Any, column: ObjectColumn, values: np.ndarray) -> Any:
    return pa.array(np.asarray(values, bool))


def _struct(pa: Any, **fields: Any) -> Any:
    return pa.struct(list(fields.items()))


KINDS: dict[str, tuple[Callable[[Any, ObjectColumn], Any], Callable[[Any, ObjectColumn, np.ndarray], Any]]] = {
    "float": (lambda pa, column: pa.float32(), _numbers),
    "double": (lambda pa, column: pa.float64(), _numbers),
    "int": (lambda pa, column: pa.int64(), _numbers),
    "flag": (lambda pa, column: pa.bool_(), _flags),
    "text": (lambda pa, column: pa.string(), _objects),
    "points": (lambda pa, column: pa.list_(_struct(pa, **dict.fromkeys(_POINT, pa.float32()))), _points),
    "corners": (lambda pa, column: pa.list_(_struct(pa, **dict.fromkeys(_CORNER, pa.float32()))), _corners),
    "vector": (lambda pa, column: pa.list_(pa.float32()), _vectors),
    "mask": (lambda pa, column: _struct(pa, size=pa.list_(pa.int32()), counts=pa.string()), _objects),
    "attributes": (
        lambda pa, column: _struct(
            pa, **dict.fromkeys(column.fields, _struct(pa, label=pa.string(), score=pa.float32()))
        ),
        _objects,
    ),
}
"""For each kind of column, its Arrow type and how its array is made. A plugin may use these names in a class attribute,
as in `columns = {"height_m": "float"}`."""


# ---------------------------------------------------------------------------------------------------------- schemas


@dataclass(frozen=True, slots=True)
class DatasetTables:
    """The tables that a pipeline makes.

    Attributes:
        columns: additional columns of objects.
        others: whether objects may have undeclared columns, which go into `extra` as JSON.
        labels: the classes without duplicates, by detector.
    """

    columns: tuple[ObjectColumn, ...] = ()
    others: bool = False
    labels: tuple[str, ...] = field(default=())

    def schemas(self) -> dict[str, Any]:
        """The Arrow schemas, by folder."""
        return _schemas(self)


@lru_cache(maxsize=16)
def _schemas(tables: DatasetTables) -> dict[str, Any]:
    where = _WHERE + " stage:string"
    objects = where + " label:string class_id:int32 score:float damaged:bool x1:float y1:float x2:float y2:float"
    more = [(column.name, column.type) for column in tables.columns]
    frames = " width:int32 height:int32 objects:int32 error:string damaged:bool facts:string"
    return {
        "objects": _schema(objects, *more, *([("extra", "string")] if tables.others else [])),
        "events": _schema(where + " kind:string track_id:int64 data:string"),
        "frames": _schema(_WHERE + frames),
    }


def _schema(columns: str, *more: tuple[str, Any]) -> Any:
    """An Arrow schema of columns as in `width:int32`, and further ones."""
    return arrow().schema([*(tuple(column.split(":")) for column in columns.split()), *more])


_WHERE = "key:string source:string frame:int32 pts_s:double"


def tables_of(graph: Graph) -> DatasetTables:
    """The tables of a pipeline, by its stages."""
    columns: dict[str, ObjectColumn] = {}
    others = False
    nodes = list(graph.nodes.values())
    for node in nodes:
        node_columns = _columns(node)
        columns.update({name: _both(columns.get(name), column) for name, column in node_columns.items()})
        others |= not node.type.spec.built_in
    order = sorted(columns, key=lambda name: (name != "track_id", name != "predicted"))
    labels = dict.fromkeys(label for node in nodes if "detections" in node.type.spec.writes for label in node.labels)
    return DatasetTables(tuple(columns[name] for name in order), others, tuple(labels))


def _columns(node: Node) -> dict[str, ObjectColumn]:
    kind = node.type
    options = node.options
    columns: list[ObjectColumn] = []
    if "track_id" in node.writes:
        columns += [ObjectColumn("track_id", "int"), ObjectColumn("predicted", "flag")]
    if issubclass(kind, apply_results.ApplyAttributes):
        names = options["model"].attributes(options.get("attribute") or node.table)
        columns.append(ObjectColumn("attributes", "attributes", names))
    if (fields := getattr(kind, "attribute_fields", None)) is not None and options.get("capture") != "frame":
        columns.append(ObjectColumn("attributes", "attributes", tuple(fields(options))))
    if issubclass(kind, apply_results.ApplyEmbeddings) and options.get("record"):
        columns.append(ObjectColumn("embedding", "vector"))
    card = options.get("model")
    if "detections" in kind.spec.writes and card is not None:
        from streamkit.models.card import family_of

        names = {*family_of(card).columns, *(["mask"] if card.task == "segment" else [])}
        columns += [ObjectColumn(name, _OF_NETWORKS[name]) for name in sorted(names & _OF_NETWORKS.keys())]
    columns += [ObjectColumn(name, _OF_NETWORKS[name]) for name in kind.spec.writes if name in _OF_NETWORKS]
    columns += [ObjectColumn(name, word) for name, word in kind.spec.columns.items() if word in KINDS]
    return {column.name: column for column in columns}


_OF_NETWORKS = {"keypoints": "points", "mask": "mask", "corners": "corners"}


def _both(first: ObjectColumn | None, second: ObjectColumn) -> ObjectColumn:
    """Merge the attributes of two stages that fill one column."""
    if first is None or not second.fields:
        return second
    return ObjectColumn(first.name, first.kind, tuple(dict.fromkeys([*first.fields, *second.fields])))


def others_of(extra: Mapping[str, Any], declared: Sequence[str], rows: int) -> np.ndarray:
    """The undeclared columns as JSON text per row; None for a row without any value."""
    extras: list[dict[str, Any]] = [{} for _ in range(rows)]
    for name in extra:
        if name not in declared:
            for row_extra, value in zip(extras, values_of(extra[name]), strict=True):
                if not is_missing(value):
                    row_extra[name] = value
    texts = np.full(rows, None)
    texts[:] = [as_json(row_extra).decode() if row_extra else None for row_extra in extras]
    return texts


# ------------------------------------------------------------------------------------------------- the table of files


def files_schema() -> Any:
    """The Arrow schema of the table of files, one row per file."""
    pa = arrow()
    models = pa.list_(_struct(pa, name=pa.string(), sha256=pa.string()))
    return pa.schema([*_schema(_FILES), ("models", models), *_schema(_RUN), ("finished_at", pa.timestamp("ms", "UTC"))])


_FILES = (
    "key:string source:string path:string size:int64 version:string status:string cause:string cause_kind:string "
    "frames:int64 frames_failed:int64 frames_damaged:int64 objects:int64 processed_s:double codec:string width:int32 "
    "height:int32 fps:double duration_s:double frames_in_file:int64 concealed_errors:int64 parts_bytes:int64 "
    "pipeline:string"
)
_RUN = "streamkit:string attempts:int32 seconds:double"


def comparable(table: Any) -> Any:
    """A table in a form that is comparable between runs: sorted by file, without `RUN_COLUMNS`."""
    names = [name for name in table.column_names if name not in RUN_COLUMNS]
    return table.select(names).take(arrow().compute.sort_indices(table, [("key", "ascending")])).combine_chunks()
