# SPDX-License-Identifier: Apache-2.0
"""The records of schema `streamkit/1`, described once: all other forms of the schema are generated from this.

Version 1 may gain keys, so forms with named fields have a field `extra` for everything not described: columns of
plugins, further facts of a frame, and values that do not have the type described here.

A field's number is Protobuf's, and is never changed or reused; Avro uses names. New fields are optional.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from streamkit.core.records import SCHEMA, as_json

Make = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


class Misfit(ValueError):
    """A value does not have the described type."""


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A value without parts, and its type in each format.

    Attributes:
        shape: converts the value in JSON to the value in other formats; raises Misfit for other types.
        json: its keywords in JSON Schema.
        avro: its Avro schema.
        protobuf: its Protobuf type.
        arrow: name of the pyarrow function that returns its type, and the arguments.
    """

    shape: Make
    json: Mapping[str, Any]
    avro: Any
    protobuf: str
    arrow: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Several:
    """A list."""

    of: Type


@dataclass(frozen=True, slots=True)
class ByName:
    """A mapping with user-defined names."""

    of: Type


@dataclass(frozen=True, slots=True)
class Field:
    """A key of a record: its name, its number in Protobuf, its type, its description, whether it is always present."""

    name: str
    number: int
    type: Type
    help: str
    required: bool = False


@dataclass(frozen=True)
class Group:
    """A set of keys.

    Attributes:
        name: type name in Avro and Protobuf.
        help: description.
        fields: its keys.
        row: in JSON it is a list of the values in the order of the fields, all of them present.
        closed: it has these keys and no others.
    """

    name: str
    help: str
    fields: tuple[Field, ...]
    row: bool = False
    closed: bool = False


Type = Scalar | Several | ByName | Group


def _exactly(kind: type) -> Make:
    def shape(value: Any) -> Any:
        if type(value) is not kind:
            raise Misfit(f"must be {kind.__name__}, got {value!r}")
        return value

    return shape


def _integer(bits: int, avro: str) -> Scalar:
    limit = 2 ** (bits - 1)

    def shape(value: Any) -> Any:
        if type(value) is not int or not -limit <= value < limit:
            raise Misfit(f"must be an integer from {-limit} to {limit - 1}, got {value!r}")
        return value

    json = {"type": "integer", "minimum": -limit, "maximum": limit - 1}
    return Scalar(shape, json, avro, f"int{bits}", (f"int{bits}",))


def _number(value: Any) -> Any:
    if type(value) is float or (type(value) is int and abs(value) <= 1 << 53):
        return value
    raise Misfit(f"must be a number, got {value!r}")


def _milliseconds(value: Any) -> int:
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise Misfit(f"must be a time, got {value!r}") from error
    if moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z" != value:
        raise Misfit(f"must be a time in UTC with milliseconds, got {value!r}")
    return (moment - _EPOCH) // _MS


def _jpeg(value: Any) -> bytes:
    try:
        data = base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise Misfit("must be Base64") from error
    if base64.b64encode(data).decode() != value:
        raise Misfit("must be canonical Base64")
    return data


TEXT = Scalar(_exactly(str), {"type": "string"}, "string", "string", ("string",))
FLAG = Scalar(_exactly(bool), {"type": "boolean"}, "boolean", "bool", ("bool_",))
INT32 = _integer(32, "int")
INT64 = _integer(64, "long")
NUMBER = Scalar(_number, {"type": "number"}, "double", "double", ("float64",))
"""A double. Non-finite values are null in JSON, and NaN in formats without null."""
TIME = Scalar(
    _milliseconds,
    {"type": "string", "format": "date-time"},
    {"type": "long", "logicalType": "timestamp-millis"},
    "google.protobuf.Timestamp",
    ("timestamp", "ms", "UTC"),
)
"""A time, to the millisecond; in JSON as `2026-08-01T12:00:00.250Z`."""
JPEG = Scalar(
    _jpeg,
    {"type": "string", "contentEncoding": "base64", "contentMediaType": "image/jpeg"},
    "bytes",
    "bytes",
    ("binary",),
)
"""A JPEG; in JSON as Base64."""
ANYTHING = Scalar(lambda value: as_json(value).decode(), {}, "string", "string", ("string",))
"""Any JSON value; in other formats its JSON text."""

EXTRA = Field("extra", 15, TEXT, "a JSON object with everything that has no field")
"""The field of what is not described, in formats whose fields have names. Number 15 is the last that takes one byte."""


def _closed(name: str, help_: str, *parts: tuple[str, Type, str], row: bool = False) -> Group:
    fields = [Field(part, i, type_, text, True) for i, (part, type_, text) in enumerate(parts, 1)]
    return Group(name, help_, tuple(fields), row=row, closed=True)


BOX = _closed(
    "Box",
    "corners in source pixels, within the frame",
    ("x1", NUMBER, "left"),
    ("y1", NUMBER, "top"),
    ("x2", NUMBER, "right"),
    ("y2", NUMBER, "bottom"),
    row=True,
)
KEYPOINT = _closed(
    "Keypoint",
    "a point of a body or face",
    ("x", NUMBER, "source pixels from the left"),
    ("y", NUMBER, "source pixels from the top"),
    ("score", NUMBER, "confidence of the model, 0 to 1"),
    row=True,
)
CORNER = _closed(
    "Corner",
    "a corner of a rotated box",
    ("x", NUMBER, "source pixels from the left; may be outside of the frame"),
    ("y", NUMBER, "source pixels from the top; may be outside of the frame"),
    row=True,
)
SIZE = _closed("Size", "size of an image in pixels", ("height", INT32, "rows"), ("width", INT32, "columns"), row=True)
MASK = _closed(
    "Mask",
    "a mask of the whole frame in COCO's compressed run-length encoding; pycocotools reads it",
    ("size", SIZE, "height and width of the frame"),
    ("counts", TEXT, "the runs"),
)
ATTRIBUTE = _closed(
    "Attribute",
    "the result of a classifier",
    ("label", TEXT, "the class"),
    ("score", NUMBER, "confidence of the classifier, 0 to 1"),
)
DETECTION = Group(
    "Detection",
    "a detected object",
    (
        Field("box", 1, BOX, "x1, y1, x2, y2 in source pixels, within the frame", True),
        Field("score", 2, NUMBER, "confidence of the detector, 0 to 1", True),
        Field("class_id", 3, INT32, "class number", True),
        Field("label", 4, TEXT, "class name"),
        Field("track_id", 5, INT64, "track number, unique within its source"),
        Field("stage", 6, TEXT, "the detector, if the pipeline has several"),
        Field(
            "predicted", 7, FLAG, "true if the object was not detected on this frame, and the tracker predicted its box"
        ),
        Field("attributes", 8, ByName(ATTRIBUTE), "results of classifiers, by attribute name"),
        Field("keypoints", 9, Several(KEYPOINT), "x, y and score of each point, in the order of the model's card"),
        Field("mask", 10, MASK, "the object's pixels"),
        Field("embedding", 11, Several(NUMBER), "a vector of length 1 that identifies the object's appearance"),
        Field("speed_kmh", 12, NUMBER, "speed over the ground, in km/h"),
        Field(
            "heading_deg", 13, NUMBER, "direction of movement, in degrees clockwise from the frame's upward direction"
        ),
        Field("crop", 14, JPEG, "the object's crop of the frame, if the emitter has the option crops"),
        Field("identity", 17, INT64, "number of the object's identity, the same on all cameras"),
        Field("corners", 16, Several(CORNER), "the four corners of a rotated box, clockwise; box is their hull"),
        Field("depth", 18, NUMBER, "distance from the camera in meters, by a network for metric depth"),
        Field(
            "relative_depth",
            19,
            NUMBER,
            "depth without a unit, from 0, the frame's nearest place, to 1, its farthest; comparable within a frame",
        ),
        Field("anomaly_score", 20, NUMBER, "how unusual the object is, 0 to 1"),
    ),
)
EVENT = Group(
    "Event",
    "an event at a frame",
    (
        Field("kind", 1, TEXT, "what happened, in one word", True),
        Field("stage", 2, TEXT, "the stage that emitted it", True),
        Field("track_id", 3, INT64, "the track it concerns"),
        Field("data", 4, ANYTHING, "the stage's data about it; docs/schema-examples.md shows those of each stage"),
        Field("crop", 5, JPEG, "the crop of the track's object, if the emitter has the option crops"),
    ),
)
_HEAD = (
    Field("id", 1, TEXT, "unique id, the same when the record is sent again; set by emitters, absent from files"),
    Field("schema", 2, replace(TEXT, json={"const": SCHEMA}), "the schema and its version", True),
    Field("source", 3, TEXT, "the source's id", True),
    Field("frame", 4, INT64, "the frame's number in its source, from 0", True),
    Field("pts_s", 5, NUMBER, "presentation time in seconds", True),
    Field("time", 6, TIME, "time of arrival, UTC; live sources only"),
    Field("width", 7, INT32, "width of the frame in pixels", True),
    Field("height", 8, INT32, "height of the frame in pixels", True),
)
_DAMAGED = FLAG, "true if the frame's data was damaged or incomplete, and the decoder concealed the errors"
FRAME_RECORD = Group(
    "FrameRecord",
    "a frame with its objects and events",
    (
        *_HEAD,
        Field("error", 9, TEXT, "why a stage failed on the frame"),
        Field("objects", 10, Several(DETECTION), "the detected objects", True),
        Field("events", 11, Several(EVENT), "the events", True),
        Field("attributes", 12, ByName(ATTRIBUTE), "results of classifiers for the whole frame, by attribute name"),
        Field("segmentation", 13, ByName(MASK), "the mask of each class, by class name"),
        Field("damaged", 14, *_DAMAGED),
        Field("anomaly_score", 16, NUMBER, "how unusual the frame is, 0 to 1, .5 at the network's threshold"),
    ),
)
OBJECT_RECORD = Group(
    "ObjectRecord",
    "one object of a frame",
    (*_HEAD, Field("object", 9, DETECTION, "the detected object", True), Field("damaged", 10, *_DAMAGED)),
)
EVENT_RECORD = Group(
    "EventRecord",
    "one event of a frame",
    (*_HEAD, Field("event", 9, EVENT, "the event", True), Field("damaged", 10, *_DAMAGED)),
)

RECORDS = {"frames": FRAME_RECORD, "objects": OBJECT_RECORD, "events": EVENT_RECORD}
"""The records that an emitter sends, by its option `send`. The .proto has its messages in this order."""


def groups() -> list[Group]:
    """Return every group once: the records first, then their parts."""
    groups_by_name: dict[str, Group] = {group.name: group for group in RECORDS.values()}

    def visit(type_: Type) -> None:
        if isinstance(type_, (Several, ByName)):
            visit(type_.of)
        elif isinstance(type_, Group):
            groups_by_name.setdefault(type_.name, type_)
            for field in type_.fields:
                visit(field.type)

    for record in RECORDS.values():
        visit(record)
    return list(groups_by_name.values())


def fields_of(group: Group) -> tuple[Field, ...]:
    """Return the fields of a group in formats with named fields, which include `extra`."""
    return group.fields if group.closed else (*group.fields, EXTRA)
