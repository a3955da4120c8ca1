"""What goes before a record: Confluent's wire format, and Avro's single-object encoding, byte for byte."""

import json
import struct

import orjson
import pytest
from support.decoding import decoder
from support.record_samples import GOOD, HEAD, ROOT

from streamkit.core.errors import MissingPackage
from streamkit.io.formats import protobuf
from streamkit.io.formats.codec import codec

RECORDS = {"frames": "the documented record", "objects": "an object", "events": "an event"}


def body(send):
    return orjson.dumps(GOOD[RECORDS[send]])


def test_json_is_unchanged():
    assert codec("json", "frames") is None
    assert codec("json", "frames", 7)(b"{}") == b"\0\0\0\0\7{}"


@pytest.mark.parametrize("send", RECORDS)
def test_avro_has_the_id_of_its_schema(send):
    message = codec("avro", send, 0x01020304)(body(send))
    assert message[:5] == b"\0\1\2\3\4"
    assert decoder("avro", send)(message[5:]) == GOOD[RECORDS[send]]


def crc_64_avro(data):
    """The fingerprint as the specification's own lines compute it."""
    empty = 0xC15D213AA4D7A795
    table = []
    for i in range(256):
        value = i
        for _ in range(8):
            value = (value >> 1) ^ (empty & -(value & 1) & (2**64 - 1))
        table.append(value)
    checksum = empty
    for byte in data:
        checksum = (checksum >> 8) ^ table[(checksum ^ byte) & 0xFF]
    return checksum


def canonical(schema, space=""):
    """Parsing Canonical Form, as far as our schemas go."""
    if isinstance(schema, str):
        primitive = schema in ("null", "boolean", "int", "long", "double", "bytes", "string")
        return json.dumps(schema if primitive or "." in schema else f"{space}.{schema}")
    if isinstance(schema, list):
        return "[" + ",".join(canonical(branch, space) for branch in schema) + "]"
    match schema["type"]:
        case "record":
            space = schema.get("namespace", space)
            fields = ",".join(
                f'{{"name":"{field["name"]}","type":{canonical(field["type"], space)}}}' for field in schema["fields"]
            )
            return f'{{"name":"{space}.{schema["name"]}","type":"record","fields":[{fields}]}}'
        case "array":
            return f'{{"type":"array","items":{canonical(schema["items"], space)}}}'
        case "map":
            return f'{{"type":"map","values":{canonical(schema["values"], space)}}}'
        case simple:
            return json.dumps(simple)


def test_the_fingerprint_matches_the_specification():
    assert crc_64_avro(b'"null"') == 0x63DD24E7CC258F8A


@pytest.mark.parametrize("send", RECORDS)
def test_avro_can_use_single_object_encoding(send):
    message = codec("avro", send)(body(send))
    schema = json.loads((ROOT / "docs" / "schema" / f"streamkit-1.{send}.avsc").read_text())
    assert message[:2] == b"\xc3\x01"
    assert struct.unpack("<Q", message[2:10]) == (crc_64_avro(canonical(schema).encode()),)
    assert decoder("avro", send)(message[10:]) == GOOD[RECORDS[send]]


@pytest.mark.parametrize(("send", "index"), [("frames", b"\0"), ("objects", b"\2\2"), ("events", b"\2\4")])
def test_protobuf_has_the_schema_id_and_message_index(send, index):
    """Lists are as long as they say, in zigzag; [0] is one zero byte."""
    message = codec("protobuf", send, 9)(body(send))
    assert message[: 5 + len(index)] == b"\0\0\0\0\x09" + index
    assert decoder("protobuf", send)(message[5 + len(index) :]) == GOOD[RECORDS[send]]
    names = [message.name for message in protobuf.file_descriptor().message_type]
    assert names[[b"\0", b"\2\2", b"\2\4"].index(index)] == protobuf.message_class(send).DESCRIPTOR.name


def test_protobuf_can_be_written_without_a_header():
    assert decoder("protobuf", "objects")(codec("protobuf", "objects")(body("objects"))) == GOOD["an object"]


@pytest.mark.parametrize("format_", ["avro", "protobuf"])
def test_invalid_records_raise_value_error(format_):
    for text in (b"no json", b"[1]", orjson.dumps(HEAD)):
        with pytest.raises(ValueError, match=r"invalid literal|must be an object|must have"):
            codec(format_, "objects")(text)


@pytest.mark.parametrize(("format_", "package"), [("avro", "fastavro"), ("protobuf", "google.protobuf")])
def test_a_missing_package_is_reported_with_its_extra(format_, package, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackage, match=rf"format: {format_} needs .* pip install -e '.*\[{format_}\]'"):
        codec(format_, "frames")
