# SPDX-License-Identifier: Apache-2.0
"""Frame records, schema `streamkit/1`, as sent by every emitter, and as lines of JSON.

Coordinates are rounded to 1/100 pixel, scores to 1/10000, times to microseconds. Other columns keep all digits of
their float32. A number that is not finite is omitted if its key is optional, and null otherwise.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
import orjson

from streamkit.core.data import Batch, Detections, Event, Frame
from streamkit.core.text import text_of

SCHEMA = "streamkit/1"
_MANY = 80  # with fewer objects in a batch, dicts are faster than the calls of NumPy
_RESERVED = {"schema", "source", "frame", "pts_s", "time", "width", "height", "error", "damaged", "objects", "events"}


def record(frame: Frame) -> dict[str, Any]:
    """The frame as a plain dict, in the order of the schema's keys.

    `objects` and `events` are always present, even if empty; `time`, `error`, `damaged`, facts of the frame, and an
    object's `label`, `track_id`, `stage` and further columns only if they have a value. Tables must be on the host.
    """
    tables = frame.tables
    objects: list[dict[str, Any]] = []
    for stage, table in tables.items():
        if len(table):
            limits = _limits(frame.width, frame.height)
            objects += _objects(table, limits, stage if len(tables) > 1 else None)
    return frame_record(frame, objects)


def table_records(table: Detections) -> list[dict[str, Any]]:
    """The `objects` of a record for a table without its frame: boxes are rounded but not clipped to the frame."""
    return _objects(table, None, None) if len(table) else []


def line(frame: Frame) -> bytes:
    """The frame's record as one line of JSON in UTF-8, with its newline."""
    return _line(record(frame))


def batch_lines(batch: Batch) -> list[bytes]:
    """One line of JSON for each of a batch's frames, as `line` makes it; many objects are formatted without dicts."""
    frames = batch.frames
    if sum(len(batch.table(stage)) for stage in batch.tables) < _MANY:
        return [_line(fields) for fields in batch_records(batch)]
    objects = [b""] * len(frames)
    several = len(batch.tables) > 1
    for stage in batch.tables:
        table, ends = batch.table(stage).by_frame(len(frames))
        if not len(table):
            continue
        texts = _object_texts(table, ends, _limits_of(frames, table.batch_row), stage if several else None)
        objects = [b"%b,%b" % pair if all(pair) else pair[0] or pair[1] for pair in zip(objects, texts, strict=True)]
    times = as_json([round(frame.pts_s, 6) for frame in frames])[1:-1].split(b",")
    return list(map(_frame_line, frames, times, objects))


def batch_records(batch: Batch) -> list[dict[str, Any]]:
    """The record of each frame of a batch, from the batch's tables, vectorized over all frames."""
    frames = batch.frames
    objects: list[list[dict[str, Any]]] = [[] for _ in frames]
    several = len(batch.tables) > 1
    for stage in batch.tables:
        table, ends = batch.table(stage).by_frame(len(frames))
        if not len(table):
            continue
        dicts = _objects(table, _limits_of(frames, table.batch_row), stage if several else None)
        for row, of_frame in enumerate(objects):
            of_frame += dicts[ends[row] : ends[row + 1]]
    return [frame_record(frame, of_frame) for frame, of_frame in zip(frames, objects, strict=True)]


def _frame_line(frame: Frame, pts_s: bytes, objects: bytes) -> bytes:
    """The line of a frame, from the JSON of its time and of its objects, joined by commas."""
    if frame.events or frame.facts or frame.damaged or frame.error is not None:
        fields = frame_record(frame, [])
        events = as_json(fields.pop("events"))
        del fields["objects"]
        return b'%b,"objects":[%b],"events":%b}\n' % (as_json(fields)[:-1], objects, events)
    time = b"" if frame.time_s is None else b',"time":"%b"' % wall_clock(frame.time_s).encode()
    return b'%b%b,"frame":%d,"pts_s":%b%b,"width":%d,"height":%d,"objects":[%b],"events":[]}\n' % (
        _HEAD,
        _text_json(frame.source),
        frame.index,
        pts_s,
        time,
        frame.width,
        frame.height,
        objects,
    )


def frame_record(frame: Frame, objects: list[dict[str, Any]]) -> dict[str, Any]:
    """The record of a frame with these objects."""
    fields: dict[str, Any] = {
        "schema": SCHEMA,
        "source": frame.source,
        "frame": frame.index,
        "pts_s": round(frame.pts_s, 6),
    }
    if frame.time_s is not None:
        fields["time"] = wall_clock(frame.time_s)
    fields["width"] = frame.width
    fields["height"] = frame.height
    if frame.error is not None:
        fields["error"] = frame.error
    if frame.damaged:
        fields["damaged"] = True
    fields.update({name: fact for name, fact in frame.facts.items() if name not in _RESERVED})
    fields["objects"] = objects
    fields["events"] = [_event(event) for event in frame.events]
    return fields


def _line(fields: dict[str, Any]) -> bytes:
    return as_json(fields, orjson.OPT_APPEND_NEWLINE)


def as_json(value: Any, option: int = 0) -> bytes:
    """The value as JSON in UTF-8, including NumPy numbers; unsupported values become text."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY | option)
    except TypeError:  # unsupported values become text instead of losing the record
        return orjson.dumps(_plain(value), option=option)


_HEAD = b'{"schema":"%b","source":' % SCHEMA.encode()


@lru_cache(maxsize=4096)
def _text_json(text: str) -> bytes:
    return as_json(text)


def wall_clock(time_s: float) -> str:
    """Seconds since 1970 as `2026-08-01T12:00:00.250Z`."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


# One row of numbers is x1, y1, x2, y2, score. All objects of a table are rounded and clipped in a few calls, because
# Python's cost per frame limits a fast pipeline.
_STEPS = np.array([100, 100, 100, 100, 10000], np.float64)
_POINT_STEPS = np.array([100, 100, 10000], np.float64)  # of x, y and score


@lru_cache(maxsize=256)
def _limits(width: int, height: int) -> np.ndarray:
    return np.array([width, height, width, height, np.inf], np.float64) * _STEPS


def _limits_of(frames: Sequence[Frame], rows: np.ndarray) -> np.ndarray:
    limits = np.concatenate([_limits(frame.width, frame.height) for frame in frames])
    return np.asarray(limits.reshape(-1, 5)[rows])


def numbers_of(table: Detections, frames: Sequence[Frame]) -> np.ndarray:
    """The numbers of records, rounded and clipped to the frame: (n, 5) float64, x1, y1, x2, y2 in pixels and the score.

    Args:
        table: on the host.
        frames: the frames to which `batch_row` refers.
    """
    return _numbers(table, _limits_of(frames, table.batch_row))


def points_of(column: np.ndarray) -> np.ndarray:
    """Key points, (n, k, 3) x, y and score, rounded as in records."""
    return np.asarray(np.rint(column * _POINT_STEPS) / _POINT_STEPS)


def corners_of(column: np.ndarray) -> np.ndarray:
    """Corners of rotated boxes, (n, 4, 2) x and y, rounded as in records."""
    return np.asarray(np.rint(column * 100.0) / 100.0)


def _numbers(table: Detections, limits: np.ndarray | None) -> np.ndarray:
    numbers = np.empty((len(table), 5), np.float64)
    numbers[:, :4] = table.xyxy
    numbers[:, 4] = table.score
    numbers *= _STEPS
    np.rint(numbers, out=numbers)
    if limits is not None:
        np.maximum(numbers, 0.0, out=numbers)
        np.minimum(numbers, limits, out=numbers)
    numbers /= _STEPS
    return numbers


def _objects(table: Detections, limits: np.ndarray | None, stage: str | None) -> list[dict[str, Any]]:
    numbers = _numbers(table, limits)
    ids = table.class_id.tolist()
    names = _names(table.labels, ids)
    entries: list[dict[str, Any]] = [
        {"box": row[:4], "score": row[4], "class_id": class_id, "label": label}
        for row, class_id, label in zip(numbers.tolist(), ids, names, strict=True)
    ]
    if table.track_id is not None:
        for entry, track_id in zip(entries, table.track_id.tolist(), strict=True):
            if track_id != -1:
                entry["track_id"] = track_id
    if stage is not None:
        for entry in entries:
            entry["stage"] = stage
    for name in table.extra:
        if name in table.private:
            continue
        column = table.extra[name]
        if name == "predicted":
            for entry in (entries[row] for row in np.flatnonzero(column).tolist()):
                entry["predicted"] = True
            continue
        if name == "keypoints" and column.shape[2:] == (3,):
            column = points_of(column)
        if name == "corners":
            column = corners_of(column)
        for entry, value in zip(entries, values_of(column), strict=True):
            if not is_missing(value):
                entry.setdefault(name, value)
    if None in names:
        for entry in entries:
            if entry["label"] is None:
                del entry["label"]
    return entries


def _object_texts(table: Detections, ends: list[int], limits: np.ndarray, stage: str | None) -> list[bytes]:
    """The JSON of each frame's objects, joined by commas; frame i has rows `ends[i]` to `ends[i + 1]`."""
    if not {*table.extra} <= {"predicted", *table.private}:
        entries = _objects(table, limits, stage)
        return [as_json(entries[a:b])[1:-1] for a, b in itertools.pairwise(ends)]
    numbers = _numbers(table, limits)
    ids = table.class_id.tolist()
    kinds = {i: b',"class_id":%d' % i for i in set(ids)}
    for i, name in zip(kinds, _names(table.labels, list(kinds)), strict=True):
        kinds[i] += b"" if name is None else b',"label":%b' % _text_json(name)
    columns: list[Iterable[bytes]] = [
        itertools.repeat(b'},{"box":['),
        _rows_json(numbers[:, :4], b"],["),
        itertools.repeat(b'],"score":'),
        _rows_json(numbers[:, 4], b","),
        map(kinds.__getitem__, ids),
    ]
    if table.track_id is not None:
        columns.append([b',"track_id":%d' % i if i != -1 else b"" for i in table.track_id.tolist()])
    if stage is not None:
        columns.append(itertools.repeat(b',"stage":%b' % _text_json(stage)))
    if "predicted" in table.extra and "predicted" not in table.private:
        columns.append(
            [b',"predicted":true' if is_predicted else b"" for is_predicted in table.extra["predicted"].tolist()]
        )
    pieces = list(itertools.chain.from_iterable(zip(*columns, strict=False)))
    each = len(columns)
    return [b"".join(pieces[each * a : each * b])[2:] + b"}" if a < b else b"" for a, b in itertools.pairwise(ends)]


def _rows_json(array: np.ndarray, between: bytes) -> list[bytes]:
    """The numbers of each row of a column (n,) or (n, k) as JSON; `between` separates rows."""
    text = orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)
    return text.strip(b"[]").split(between)


def _names(labels: tuple[str, ...], ids: list[int]) -> list[str | None]:
    if min(ids) >= 0 and max(ids) < len(labels):
        return [labels[i] for i in ids]
    return [labels[i] if 0 <= i < len(labels) else None for i in ids]


def values_of(column: Any) -> list[Any]:
    """A column as plain values, a float32 as its shortest decimal, a missing number as None.

    NaN is a missing float. A row of integers is missing if all of it is -1, the fill value for tables without the
    column; a -1 next to other numbers is a value.
    """
    array = np.ascontiguousarray(column)
    try:
        values: list[Any] = orjson.loads(orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY))
    except TypeError:  # text, objects
        return list(column.tolist()) if isinstance(column, np.ndarray) else list(column)
    if array.dtype.kind == "i":
        missing = array == -1
        if missing.any():
            for row in np.flatnonzero(missing.all(axis=tuple(range(1, array.ndim)))).tolist():
                values[row] = None
    return values


def is_missing(value: Any) -> bool:
    """Whether a value of `values_of` is None or a list of None."""
    return all(map(is_missing, value)) if isinstance(value, list) else value is None


def _event(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": event.kind, "stage": event.stage}
    if event.track_id is not None:
        fields["track_id"] = event.track_id
    if event.data:
        fields["data"] = event.data
    return fields


def _plain(value: Any) -> Any:
    """The value in JSON types; other values as text."""
    if isinstance(value, dict):
        return {_text(key): _plain(child) for key, child in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(child) for child in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return str(value)
    return value if value is None or isinstance(value, (bool, int, float)) else _text(value)


def _text(value: Any) -> str:
    """Text that can be encoded as UTF-8: undecodable bytes of file names become question marks."""
    return text_of(value).encode("utf-8", "replace").decode()
