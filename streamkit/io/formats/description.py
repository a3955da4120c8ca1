"""The records of schema `streamkit/1`, described once: all other forms of the schema are generated from this.

Version 1 may gain keys, so forms with named fields have a field `extra` for everything not described: columns of
plugins, further facts of a frame, and values that do not have the type described here.

A field's number is Protobuf's, and is never changed or reused; Avro uses names. New fields are optional.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from streamkit.core.records import SCHEMA


@dataclass(frozen=True, slots=True)
class Text:
    """Text; `only` is its only possible value."""

    only: str | None = None


@dataclass(frozen=True, slots=True)
class Whole:
    """A signed integer of `bits` bits, 32 or 64."""

    bits: int = 32


@dataclass(frozen=True, slots=True)
class Number:
    """A double. Non-finite values are null in JSON, and NaN in formats that have no null here."""


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Time:
    """A time, to the millisecond; in JSON as `2026-08-01T12:00:00.250Z`."""


@dataclass(frozen=True, slots=True)
class JpegImage:
    """A JPEG; in JSON as Base64."""


@dataclass(frozen=True, slots=True)
class Anything:
    """Any JSON value; in other formats its JSON text."""


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
    """A key of a record: its name, its number in Protobuf, what it holds and means, whether it is always there."""

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

    @cached_property
    def required(self) -> frozenset[str]:
        """Names of the required fields."""
        return frozenset(field.name for field in self.fields if field.required)


Type = Text | Whole | Number | Flag | Time | JpegImage | Anything | Several | ByName | Group

EXTRA = Field("extra", 15, Text(), "a JSON object of all that has no field of its own")
"""The field of what is not described, in formats whose fields have names. Number 15 is the last that takes one byte."""


def _row(name: str, help_: str, *parts: tuple[str, Type, str]) -> Group:
    fields = [Field(part, i, type_, told, True) for i, (part, type_, told) in enumerate(parts, 1)]
    return Group(name, help_, tuple(fields), row=True, closed=True)


BOX = _row(
    "Box",
    "corners in pixels of the source, within the picture",
    ("x1", Number(), "left"),
    ("y1", Number(), "top"),
    ("x2", Number(), "right"),
    ("y2", Number(), "bottom"),
)
KEYPOINT = _row(
    "Keypoint",
    "a point of a body or face",
    ("x", Number(), "pixels of the source from the left"),
    ("y", Number(), "pixels of the source from the top"),
    ("score", Number(), "how sure the network is, 0 to 1"),
)
SIZE = _row("Size", "of a picture, in pixels", ("height", Whole(), "rows"), ("width", Whole(), "columns"))
MASK = Group(
    "Mask",
    "a mask of the whole picture as COCO's compressed run-length encoding; pycocotools reads it",
    (
        Field("size", 1, SIZE, "height and width of the picture", True),
        Field("counts", 2, Text(), "the runs", True),
    ),
    closed=True,
)
ATTRIBUTE = Group(
    "Attribute",
    "the answer of a classifier",
    (
        Field("label", 1, Text(), "the class", True),
        Field("score", 2, Number(), "how sure it is, 0 to 1", True),
    ),
    closed=True,
)
DETECTION = Group(
    "Detection",
    "an object that was found",
    (
        Field("box", 1, BOX, "where it is: x1, y1, x2, y2 in pixels of the source, within the picture", True),
        Field("score", 2, Number(), "how sure the detector is, 0 to 1", True),
        Field("class_id", 3, Whole(), "the number of its class", True),
        Field("label", 4, Text(), "the name of its class"),
        Field("track_id", 5, Whole(64), "the same for as long as the object is followed; of its source"),
        Field("stage", 6, Text(), "the detector, where the pipeline has several"),
        Field("predicted", 7, Flag(), "true where the tracker did not see it, but says where it is"),
        Field("attributes", 8, ByName(ATTRIBUTE), "answers of classifiers, by the name of the attribute"),
        Field("keypoints", 9, Several(KEYPOINT), "x, y and score of each point, in the order of the model's card"),
        Field("mask", 10, MASK, "the pixels that are the object's"),
        Field("embedding", 11, Several(Number()), "a vector of length 1 that tells objects apart"),
        Field("speed_kmh", 12, Number(), "speed over the ground, in km/h"),
        Field("heading_deg", 13, Number(), "where it goes, in degrees clockwise from up the picture"),
        Field("crop", 14, JpegImage(), "where an emitter has crops: the object's part of the picture"),
    ),
)
EVENT = Group(
    "Event",
    "something that happened at a frame",
    (
        Field("kind", 1, Text(), "what happened, in a word", True),
        Field("stage", 2, Text(), "the stage that says so", True),
        Field("track_id", 3, Whole(64), "the track that it happened to"),
        Field("data", 4, Anything(), "what the stage says of it; docs/schema.md has each stage's"),
        Field("crop", 5, JpegImage(), "where an emitter has crops: the part of the picture with the track's object"),
    ),
)
_HEAD = (
    Field("id", 1, Text(), "no other record has it, and a repeat has it again; emitters set it, files have none"),
    Field("schema", 2, Text(SCHEMA), "the schema and its version", True),
    Field("source", 3, Text(), "the source's id", True),
    Field("frame", 4, Whole(64), "the frame's number in its source, from 0", True),
    Field("pts_s", 5, Number(), "its presentation time, in seconds", True),
    Field("time", 6, Time(), "when it came in, UTC; live sources only"),
    Field("width", 7, Whole(), "of the picture, in pixels", True),
    Field("height", 8, Whole(), "of the picture, in pixels", True),
)
_DAMAGED = Flag(), "true where the frame's data was damaged or incomplete, and the decoder concealed that"
FRAME_RECORD = Group(
    "FrameRecord",
    "a frame with all that was found and all that happened",
    (
        *_HEAD,
        Field("error", 9, Text(), "why a stage failed on it"),
        Field("objects", 10, Several(DETECTION), "what was found", True),
        Field("events", 11, Several(EVENT), "what happened", True),
        Field("attributes", 12, ByName(ATTRIBUTE), "answers of classifiers about the whole frame, by name"),
        Field("segmentation", 13, ByName(MASK), "the places of each class"),
        Field("damaged", 14, *_DAMAGED),
    ),
)
OBJECT_RECORD = Group(
    "ObjectRecord",
    "one object of a frame",
    (*_HEAD, Field("object", 9, DETECTION, "what was found", True), Field("damaged", 10, *_DAMAGED)),
)
EVENT_RECORD = Group(
    "EventRecord",
    "one event of a frame",
    (*_HEAD, Field("event", 9, EVENT, "what happened", True), Field("damaged", 10, *_DAMAGED)),
)

RECORDS = {"frames": FRAME_RECORD, "objects": OBJECT_RECORD, "events": EVENT_RECORD}
"""What an emitter carries, by its option `send`. Their order is that of the messages in the .proto."""


def groups() -> list[Group]:
    """Return every group once: the records first, then their parts."""
    found: dict[str, Group] = {group.name: group for group in RECORDS.values()}

    def visit(type_: Type) -> None:
        if isinstance(type_, (Several, ByName)):
            visit(type_.of)
        elif isinstance(type_, Group):
            found.setdefault(type_.name, type_)
            for field in type_.fields:
                visit(field.type)

    for record in RECORDS.values():
        visit(record)
    return list(found.values())


def fields_of(group: Group) -> tuple[Field, ...]:
    """Return the fields of a group in formats with named fields, which include `extra`."""
    return group.fields if group.closed else (*group.fields, EXTRA)
