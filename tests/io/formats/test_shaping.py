"""A record comes back from Avro and Protobuf as it was: those of our own stages, and any that JSON can hold."""

import importlib
import json
import math
import sys

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.decoding import decoder
from support.record_samples import BAD, GOOD, HEAD, ROOT, compile_proto

from streamkit.io.formats import avro, protobuf
from streamkit.io.formats.description import RECORDS
from streamkit.io.formats.shaping import shaper

FORMATS = {"avro": avro, "protobuf": protobuf}
CODERS = {
    (name, send): (module.encoder(send), decoder(name, send)) for name, module in FORMATS.items() for send in RECORDS
}


def kind(record):
    return "frames" if "objects" in record else "objects" if "object" in record else "events"


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("format_", FORMATS)
def test_a_record_survives_a_round_trip(format_, name):
    encode, decode = CODERS[format_, kind(GOOD[name])]
    assert decode(encode(GOOD[name])) == GOOD[name]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", ["no source", "half a box", "a score of text", "an event of no kind"])
def test_an_invalid_record_is_refused(format_, name):
    record, _ = BAD[name]
    with pytest.raises(ValueError, match=r"must have (source|object|event), of the type that the schema says"):
        CODERS[format_, kind(record)][0](record)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_record_of_another_kind_is_refused(format_):
    with pytest.raises(ValueError, match="ObjectRecord must have object, of the type that the schema says"):
        CODERS[format_, "objects"][0](GOOD["an event"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("track_id", "seven"),
        ("track_id", 2**63),
        ("predicted", 1),
        ("mask", {"size": [1, 2, 3], "counts": ""}),
        ("mask", {"size": [1, 2], "counts": "", "of": 3}),
        ("keypoints", [[1.0, 2.0]]),
        ("crop", "no base64"),
        ("attributes", {"color": "red"}),
        ("label", None),
        ("speed_kmh", None),
        ("crop", "YR=="),
        ("extra", {"a": 1}),
    ],
)
def test_values_of_a_wrong_type_go_into_extra(key, value):
    record = {**HEAD, "object": {"box": [0.0, 0.0, 1.0, 1.0], "score": 0.5, "class_id": 0, key: value}}
    shaped = shaper(RECORDS["objects"])(record)
    assert json.loads(shaped["object"]["extra"]) == {key: value}
    for format_ in FORMATS:
        encode, decode = CODERS[format_, "objects"]
        assert decode(encode(record)) == record


def test_values_have_the_types_of_the_format():
    shaped = shaper(RECORDS["objects"])(GOOD["an object with every key"])["object"]
    assert shaped["box"] == {"x1": 10.5, "y1": 20.0, "x2": 80.25, "y2": 120.0}
    assert shaped["crop"].startswith(b"\xff\xd8\xff"), "a JPEG, not its Base64"
    assert shaped["keypoints"][0] == {"x": 1.5, "y": 2.0, "score": 0.5}
    assert "extra" not in shaped
    timed = shaper(RECORDS["frames"])(GOOD["a failed frame of a camera"])
    assert timed["time"] == 1785585600250
    nowhere = shaper(RECORDS["objects"])(GOOD["a box with a corner that is nowhere"])
    assert math.isnan(nowhere["object"]["box"]["x1"])


@pytest.mark.parametrize("time", ["2026-08-01T12:00:00Z", "2026-08-01T12:00:00.250+02:00", "noon", 5, "0001-01-01"])
def test_a_time_in_another_format_stays_text(time):
    shaped = shaper(RECORDS["frames"])({**GOOD["the documented record"], "time": time})
    assert json.loads(shaped["extra"]) == {"time": time}


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
attributes = st.dictionaries(st.text(max_size=3), st.fixed_dictionaries({"label": st.text(), "score": numbers}))
mask = st.fixed_dictionaries({"size": st.lists(st.integers(0, 9), min_size=2, max_size=2), "counts": st.text()})


def maybe(good):
    """Mostly what the schema says, now and then what JSON can hold at all."""
    return good | good | values


objects = st.fixed_dictionaries(
    {"box": st.lists(numbers, min_size=4, max_size=4), "score": numbers, "class_id": st.integers(-(2**31), 2**31 - 1)},
    optional={
        "label": maybe(st.text()),
        "track_id": maybe(st.integers(0, 2**63 - 1)),
        "stage": maybe(st.text()),
        "predicted": maybe(st.booleans()),
        "attributes": maybe(attributes),
        "mask": maybe(mask),
        "keypoints": maybe(st.lists(st.lists(numbers, min_size=3, max_size=3), max_size=3)),
        "embedding": maybe(st.lists(numbers, max_size=3)),
        "speed_kmh": maybe(numbers),
        "crop": maybe(st.text()),
        "of_a_plugin": values,
        "extra": values,
    },
)
events = st.fixed_dictionaries(
    {"kind": st.text(), "stage": st.text()},
    optional={"track_id": maybe(st.integers(0, 9)), "data": values, "other": values},
)
frames = st.fixed_dictionaries(
    {
        "schema": st.just("streamkit/1"),
        "source": st.text(),
        "frame": st.integers(0, 2**63 - 1),
        "pts_s": numbers,
        "width": st.integers(0, 9000),
        "height": st.integers(0, 9000),
        "objects": st.lists(objects, max_size=2),
        "events": st.lists(events, max_size=2),
    },
    optional={
        "id": maybe(st.text()),
        "time": maybe(st.just("1969-12-31T23:59:59.001Z")),
        "error": maybe(st.text()),
        "attributes": maybe(attributes),
        "segmentation": maybe(st.dictionaries(st.text(), mask)),
        "of_a_plugin": values,
    },
)


@settings(max_examples=60, deadline=None)
@given(frames)
def test_any_record_survives_a_round_trip(record):
    for format_ in FORMATS:
        encode, decode = CODERS[format_, "frames"]
        assert decode(encode(record)) == record


# ----------------------------------------------------------------------------------------------- as others read them


@pytest.mark.parametrize("name", GOOD)
def test_avro_is_readable_with_the_schema_file(name):
    import io

    record = GOOD[name]
    schema = fastavro.schema.load_schema(str(ROOT / "docs" / "schema" / f"streamkit-1.{kind(record)}.avsc"))
    decoded = fastavro.schemaless_reader(io.BytesIO(CODERS["avro", kind(record)][0](record)), schema, None)
    assert decoded["source"] == "street"
    assert decoded["pts_s"] == record["pts_s"]
    if "time" in record:
        assert decoded["time"].isoformat() == "2026-08-01T12:00:00.250000+00:00"
    if "object" in decoded:
        assert decoded["object"]["track_id"] == 7
        assert decoded["object"]["attributes"] == record["object"].get("attributes")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """The module that protoc makes of the .proto."""
    out = tmp_path_factory.mktemp("proto")
    compile_proto(ROOT / "docs" / "schema" / protobuf.FILE, f"--python_out={out}")
    sys.path.insert(0, str(out))
    try:
        yield importlib.import_module("streamkit_1_pb2")
    finally:
        sys.path.remove(str(out))
        sys.modules.pop("streamkit_1_pb2")


@pytest.mark.parametrize("name", GOOD)
def test_generated_protobuf_code_reads_and_writes_records(name, compiled):
    record = GOOD[name]
    encode, decode = CODERS["protobuf", kind(record)]
    message = getattr(compiled, RECORDS[kind(record)].name).FromString(encode(record))
    assert message.source == "street"
    assert message.HasField("time") == ("time" in record)
    if "time" in record:
        assert message.time.ToJsonString() == "2026-08-01T12:00:00.250Z"
    if kind(record) == "objects":
        assert message.object.box.y2 == record["object"]["box"][3]
        assert {key: attribute.label for key, attribute in message.object.attributes.items()} == {
            key: attribute["label"] for key, attribute in record["object"].get("attributes", {}).items()
        }
    assert decode(message.SerializeToString()) == record


def test_empty_lists_and_mappings_are_kept_if_the_format_supports_them():
    record = {**GOOD["an object"]}
    record["object"] = {**record["object"], "keypoints": [], "embedding": [], "attributes": {}}
    empties = {"keypoints": [], "embedding": [], "attributes": {}}
    shaped = shaper(RECORDS["objects"])(record)["object"]
    assert {name: shaped[name] for name in empties} == empties
    assert "extra" not in shaped
    shaped = shaper(RECORDS["objects"], empties=False)(record)["object"]
    assert not set(empties) & set(shaped)
    assert json.loads(shaped["extra"]) == empties
