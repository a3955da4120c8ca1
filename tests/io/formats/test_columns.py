"""Records as rows: a column for each key."""

import orjson
from support.record_samples import GOOD, HEAD

from streamkit.io.formats.columns import ArrowTableBuilder, arrow_schema, columns


def test_every_key_has_a_column_and_nested_values_are_json():
    record = GOOD["an object with every key"]
    (row,) = ArrowTableBuilder("objects").table([orjson.dumps(record)]).to_pylist()
    detected = record["object"]
    assert [row[name] for name in ("x1", "y1", "x2", "y2")] == detected["box"]
    for name in ("score", "class_id", "label", "track_id", "stage", "predicted", "speed_kmh", "heading_deg"):
        assert row[name] == detected[name]
    for name in ("attributes", "keypoints", "mask", "embedding"):
        assert orjson.loads(row[name]) == detected[name]
    assert row["crop"].startswith(b"\xff\xd8\xff")
    assert row["extra"] is None
    (row,) = ArrowTableBuilder("events").table([orjson.dumps(GOOD["an event"])]).to_pylist()
    assert (row["kind"], row["stage"], orjson.loads(row["data"])) == ("crossed", "crossing", {"direction": "in"})
    (row,) = ArrowTableBuilder("frames").table([orjson.dumps(GOOD["a failed frame of a camera"])]).to_pylist()
    assert row["time"].isoformat() == "2026-08-01T12:00:00.250000+00:00"
    assert row["error"] == "detect failed"


def test_values_without_a_column_are_in_extra():
    unusual_object = {**HEAD, "object": {**GOOD["an object"]["object"], "track_id": "seven", "height_m": 1.8}}
    event = GOOD["an event"]  # an earlier run with other settings may have left it in the spool
    records = [orjson.dumps(record) for record in (unusual_object, event)]
    object_row, event_row = ArrowTableBuilder("objects").table(records).to_pylist()
    assert orjson.loads(object_row["extra"]) == {"track_id": "seven", "height_m": 1.8}
    assert object_row["x1"] == 10.5
    assert orjson.loads(event_row["extra"]) == {"event": event["event"]}
    assert event_row["source"] == "street"


def test_extra_values_of_frame_and_object_are_combined():
    record = {**HEAD, "site": "north", "object": {**GOOD["an object"]["object"], "height_m": 1.8}}
    (row,) = ArrowTableBuilder("objects").table([orjson.dumps(record)]).to_pylist()
    assert orjson.loads(row["extra"]) == {"site": "north", "height_m": 1.8}


def test_the_columns_are_described():
    for send in ("frames", "objects", "events"):
        schema = arrow_schema(send)
        assert schema.names == list(columns(send))
        assert all(schema.field(name).metadata[b"description"] for name in schema.names)
