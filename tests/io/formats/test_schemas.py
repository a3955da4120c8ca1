"""The forms of the records' schema: fresh in docs/schema, valid by their own rules, and of one mind."""

import json

import jsonschema
import pytest
from google.protobuf import descriptor_pb2
from support.record_samples import BAD, GOOD, ROOT, compile_proto

from streamkit.cli import cli
from streamkit.io.formats import avro, protobuf
from streamkit.io.formats.description import RECORDS, Group, groups
from streamkit.io.formats.schemas import files, json_schema

CHECKED_IN = ROOT / "docs" / "schema"


@pytest.fixture(scope="module")
def validator():
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


def problems(validator, record):
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator.iter_errors(record)]


@pytest.mark.parametrize("name", files())
def test_checked_in_schemas_are_up_to_date(name):
    text = (CHECKED_IN / name).read_text(encoding="utf-8") if (CHECKED_IN / name).exists() else None
    command = {"json": "json", "avsc": f"avro --send {name.split('.')[1]}", "proto": "proto"}[name.rsplit(".", 1)[1]]
    assert text == files()[name], f"run: python run.py schema --records {command} > docs/schema/{name}"


def test_no_other_schema_is_checked_in():
    assert {path.name for path in CHECKED_IN.iterdir() if path.is_file()} == {*files(), "examples.py"}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["json"], "streamkit-1.schema.json"),
        (["avro"], "streamkit-1.frames.avsc"),
        (["avro", "--send", "objects"], "streamkit-1.objects.avsc"),
        (["proto"], "streamkit-1.proto"),
    ],
)
def test_the_command_prints_the_schemas(words, name):
    from click.testing import CliRunner

    completed = CliRunner().invoke(cli, ["schema", "--records", *words])
    assert completed.exit_code == 0, completed.output
    assert completed.output == files()[name]


def test_a_keyword_without_effect_is_refused():
    from click.testing import CliRunner

    completed = CliRunner().invoke(cli, ["schema", "--records", "json", "--send", "objects"])
    assert completed.exit_code == 2
    assert "--send selects an Avro schema; add --records avro, or omit it" in completed.output


def test_field_numbers_never_change():
    """Numbers that were given away once: add to this table, and change nothing in it."""
    head = {"id": 1, "schema": 2, "source": 3, "frame": 4, "pts_s": 5, "time": 6, "width": 7, "height": 8}
    numbers = {
        "FrameRecord": {**head, "error": 9, "objects": 10, "events": 11, "attributes": 12, "segmentation": 13,
                        "damaged": 14, "anomaly_score": 16},
        "ObjectRecord": {**head, "object": 9, "damaged": 10},
        "EventRecord": {**head, "event": 9, "damaged": 10},
        "Detection": {
            "box": 1, "score": 2, "class_id": 3, "label": 4, "track_id": 5, "stage": 6, "predicted": 7,
            "attributes": 8, "keypoints": 9, "mask": 10, "embedding": 11, "speed_kmh": 12, "heading_deg": 13,
            "crop": 14, "corners": 16, "identity": 17, "depth": 18, "relative_depth": 19,
            "anomaly_score": 20,
        },
        "Box": {"x1": 1, "y1": 2, "x2": 3, "y2": 4},
        "Attribute": {"label": 1, "score": 2},
        "Keypoint": {"x": 1, "y": 2, "score": 3},
        "Corner": {"x": 1, "y": 2},
        "Mask": {"size": 1, "counts": 2},
        "Size": {"height": 1, "width": 2},
        "Event": {"kind": 1, "stage": 2, "track_id": 3, "data": 4, "crop": 5},
    }  # fmt: skip
    assert {group.name: {field.name: field.number for field in group.fields} for group in groups()} == numbers
    assert all(15 not in {field.number for field in group.fields} for group in groups())


def test_the_proto_file_equals_the_descriptor(tmp_path):
    (tmp_path / protobuf.FILE).write_text(files()[protobuf.FILE])
    compile_proto(tmp_path / protobuf.FILE, f"--descriptor_set_out={tmp_path / 'set'}")
    (compiled,) = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file
    for message in compiled.message_type:  # protoc also writes the names of JSON's form
        for field in [*message.field, *(nested_field for entry in message.nested_type for nested_field in entry.field)]:
            field.ClearField("json_name")
    assert compiled == protobuf.file_descriptor()


def test_all_formats_have_the_same_fields():
    described = {group.name: [field.name for field in group.fields] for group in groups()}
    definitions = json_schema()["$defs"]
    assert {
        name: list(definition.get("properties", described[name])) for name, definition in definitions.items()
    } == described
    for send, record in RECORDS.items():
        fields = [field["name"] for field in avro.record_schema(send)["fields"]]
        assert fields == [*described[record.name], "extra"]
    assert all(isinstance(group, Group) and all(field.help for field in group.fields) for group in groups())


@pytest.mark.parametrize("name", GOOD)
def test_the_json_schema_accepts_records(name, validator):
    assert problems(validator, GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_the_json_schema_refuses_invalid_records(name, validator):
    record, reason = BAD[name]
    (problem,) = problems(validator, record)
    assert reason in problem


@pytest.mark.parametrize("name", [name for name in files() if name.endswith(".avsc")])
def test_fastavro_reads_the_avro_schema(name):
    import fastavro

    parsed = fastavro.parse_schema(json.loads((CHECKED_IN / name).read_text()))
    assert parsed["name"] == f"streamkit.v1.{RECORDS[name.split('.')[1]].name}"
