import json
import math
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jsonschema import Draft202012Validator

from streamkit.core.data import Batch, Detections, Event, Frame
from streamkit.core.records import SCHEMA, batch_lines, line, points_of, record, wall_clock
from streamkit.io.formats.schemas import json_schema

JSON_SCHEMA = Draft202012Validator(json_schema())


def table(boxes, score=None, class_id=None, labels=("person", "car", "bus"), **columns):
    n = len(boxes)
    return Detections(
        np.asarray(boxes, np.float32).reshape(n, 4),
        np.asarray(score if score is not None else [0.5] * n, np.float32),
        np.asarray(class_id if class_id is not None else [0] * n, np.int32),
        track_id=columns.pop("track_id", None),
        labels=labels,
        extra=columns,
    )


def frame(**kwargs):
    return Frame(**{"source": "street", "index": 12, "pts_s": 0.48, "width": 640, "height": 360, **kwargs})


def test_a_record_matches_the_schema():
    boxes = table([[10.5, 20.0, 80.25, 120.0]], [0.91], [1], track_id=np.array([7]))
    event = Event("crossed", "crossing", "street", 12, 0.48, 7, {"direction": "in"})
    fields = record(frame(tables={"detect": boxes}, events=[event]))
    assert fields == {
        "schema": "streamkit/1",
        "source": "street",
        "frame": 12,
        "pts_s": 0.48,
        "width": 640,
        "height": 360,
        "objects": [{"box": [10.5, 20.0, 80.25, 120.0], "score": 0.91, "class_id": 1, "label": "car", "track_id": 7}],
        "events": [{"kind": "crossed", "stage": "crossing", "track_id": 7, "data": {"direction": "in"}}],
    }
    assert list(fields) == ["schema", "source", "frame", "pts_s", "width", "height", "objects", "events"]


def test_an_empty_frame_has_a_record():
    fields = record(frame(tables={"detect": Detections.empty()}))
    assert fields["objects"] == []
    assert fields["events"] == []
    assert record(frame())["objects"] == []


def test_keys_without_a_value_are_left_out():
    fields = record(frame(tables={"detect": table([[0, 0, 1, 1]])}, events=[Event("seen", "x", "street", 1, 0.0)]))
    assert set(fields["objects"][0]) == {"box", "score", "class_id", "label"}
    assert fields["events"] == [{"kind": "seen", "stage": "x"}]
    assert not {"time", "error", "damaged"} & set(fields)


def test_records_of_live_and_failed_frames_are_marked():
    fields = record(frame(time_s=1785585600.25, error="detect failed"))
    assert fields["time"] == "2026-08-01T12:00:00.250Z"
    assert fields["error"] == "detect failed"
    assert record(frame(damaged=True))["damaged"] is True
    assert wall_clock(0.0) == "1970-01-01T00:00:00.000Z"


@pytest.mark.parametrize(
    ("box", "expected"),
    [
        ([-5, -5, 700, 400], [0, 0, 640, 360]),
        ([1.234, 1.236, 2.004, 2.0051], [1.23, 1.24, 2.0, 2.01]),
        ([-0.001, 0, 1, 1], [0, 0, 1, 1]),
        ([math.inf, -math.inf, 10, 10], [640, 0, 10, 10]),
    ],
)
def test_boxes_are_clipped_and_rounded(box, expected):
    assert record(frame(tables={"d": table([box])}))["objects"][0]["box"] == expected


def test_keypoints_are_rounded_to_hundredths_and_scores_to_four_digits():
    points = np.array([[[20.126, 31.337, 0.91237]]])
    assert points_of(points).tolist() == [[[20.13, 31.34, 0.9124]]]
    objects = table([[0, 0, 100, 100]], keypoints=points.astype(np.float32))
    assert record(frame(tables={"d": objects}))["objects"][0]["keypoints"] == [[20.13, 31.34, 0.9124]]


def test_corners_are_rounded_to_a_hundredth_of_a_pixel():
    corners = np.array([[[20.126, 31.337], [40.004, 31.0], [40.0, 50.5], [20.0, 50.55]]], np.float32)
    objects = table([[20, 31, 40, 51]], corners=corners)
    expected = [[20.13, 31.34], [40.0, 31.0], [40.0, 50.5], [20.0, 50.55]]
    assert record(frame(tables={"d": objects}))["objects"][0]["corners"] == expected


def test_missing_labels_and_tracks_are_omitted():
    boxes = table([[0, 0, 1, 1]] * 3, class_id=[2, 3, -1], track_id=np.array([4, -1, 0]))
    objects = record(frame(tables={"d": boxes}))["objects"]
    assert [o.get("label") for o in objects] == ["bus", None, None]
    assert [o.get("track_id") for o in objects] == [4, None, 0]
    assert all("label" not in o for o in objects[1:])
    assert "track_id" not in objects[1]


def test_objects_name_their_stage_with_several_detectors():
    persons = table([[0, 0, 1, 1]])
    faces = table([[2, 2, 3, 3]], labels=("face",))
    fields = record(frame(tables={"detect": persons, "faces": faces, "none": Detections.empty()}))
    assert [(o["stage"], o["label"]) for o in fields["objects"]] == [("detect", "person"), ("faces", "face")]
    assert "stage" not in record(frame(tables={"detect": persons}))["objects"][0]


def test_extra_columns_are_in_the_record():
    boxes = table(
        [[0, 0, 1, 1]] * 2,
        landmarks=np.array([[[1.5, 2.25], [3, 4]], [[np.nan] * 2] * 2], np.float32),
        blur=np.array([np.nan, 0.1], np.float32),
        side=np.array([-1, 3], np.int32),
        seen=np.array([True, False]),
        plate=np.array(["AB 12", "CD 34"]),
        box=np.array([9, 9], np.float32),
    )
    first, second = record(frame(tables={"d": boxes}))["objects"]
    assert first["landmarks"] == [[1.5, 2.25], [3.0, 4.0]]
    assert "landmarks" not in second
    assert "blur" not in first
    assert second["blur"] == 0.1, "a float32 is its shortest decimal, not 0.10000000149"
    assert "side" not in first
    assert second["side"] == 3
    assert (first["seen"], second["seen"]) == (True, False)
    assert (first["plate"], second["plate"]) == ("AB 12", "CD 34")
    assert first["box"] == [0, 0, 1, 1], "a column cannot replace a key of the schema"


def test_missing_values_of_a_column_are_omitted():
    """Floats where they are NaN, integers where they are -1; of vectors all of it."""
    boxes = table(
        [[0, 0, 1, 1]] * 3,
        celsius=np.array([-1.0, 2.0, np.nan], np.float32),
        exact=np.array([-1.0, np.nan, 0.0]),
        lane=np.array([-1, 0, 1]),
        small=np.array([-1, -2, 3], np.int8),
        shift=np.array([[-1, -1], [-1, 4], [0, 0]]),
        move=np.array([[-1.0, -1.0], [np.nan, -1.0], [np.nan, np.nan]], np.float32),
        what=np.array([-1, None, [-1]], object),
    )
    each = [
        {"celsius": -1.0, "exact": -1.0, "move": [-1.0, -1.0], "what": -1},
        {"celsius": 2.0, "lane": 0, "small": -2, "shift": [-1, 4], "move": [None, -1.0]},
        {"exact": 0.0, "lane": 1, "small": 3, "shift": [0, 0], "what": [-1]},
    ]
    frame_of_boxes = frame(tables={"d": boxes})
    standard_keys = {"box", "score", "class_id", "label"}
    assert [{k: v for k, v in o.items() if k not in standard_keys} for o in record(frame_of_boxes)["objects"]] == each
    (whole,) = batch_lines(Batch([frame_of_boxes], tables={"d": boxes}))
    assert [{k: v for k, v in o.items() if k not in standard_keys} for o in json.loads(whole)["objects"]] == each


def test_a_table_without_a_column_has_no_values():
    lacks = table([[0, 0, 1, 1]])
    has = table([[0, 0, 1, 1]], celsius=np.array([-1.0], np.float32), lane=np.array([3]))
    first, second = record(frame(tables={"d": Detections.concat([lacks, has])}))["objects"]
    assert not {"celsius", "lane"} & set(first)
    assert (second["celsius"], second["lane"]) == (-1.0, 3)


class Odd:
    def __str__(self):
        return "odd"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(1.5), 1.5),
        (np.int64(3), 3),
        (np.array([1, 2]), [1, 2]),
        (math.nan, None),
        (math.inf, None),
        (
            {
                1,
            },
            [1],
        ),
        ((1, 2), [1, 2]),
        (Path("a/b"), "a/b"),
        (2**70, str(2**70)),
        (Odd(), "odd"),
        ({3: "x"}, {"3": "x"}),
        ("\udcff", "?"),
    ],
)
def test_event_data_is_always_valid_json(value, expected):
    text = line(frame(events=[Event("k", "s", "street", 0, 0.0, None, {"v": value})]))
    assert strict(text)["events"][0]["data"] == {"v": expected}


def test_a_source_name_that_is_not_utf_8_gives_a_valid_record():
    assert strict(line(frame(source="a\udcff")))["source"] == "a?"


def test_records_have_no_line_breaks():
    lines = [line(frame(error="a\nb")), line(frame())]
    assert [text.count(b"\n") for text in lines] == [1, 1]
    assert all(text.endswith(b"\n") for text in lines)


def strict(text):
    """Parse by the JSON standard: NaN and Infinity are refused."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


floats = st.floats(width=32, allow_nan=True, allow_infinity=True)


@st.composite
def frames(draw):
    tables = {}
    for name in draw(st.lists(st.sampled_from(["detect", "faces", "x"]), unique=True, max_size=3)):
        n = draw(st.integers(0, 4))
        tables[name] = Detections(
            draw(hnp.arrays(np.float32, (n, 4), elements=floats)),
            draw(hnp.arrays(np.float32, n, elements=floats)),
            draw(hnp.arrays(np.int32, n)),
            track_id=draw(st.none() | hnp.arrays(np.int64, n)),
            labels=tuple(draw(st.lists(st.text(max_size=3), max_size=3))),
            extra={"e": draw(hnp.arrays(np.float32, (n, 2), elements=floats))},
        )
    return Frame(
        draw(st.text(st.characters(), max_size=5)),
        draw(st.integers(0, 2**40)),
        draw(st.floats()),
        draw(st.integers(1, 8000)),
        draw(st.integers(1, 8000)),
        tables=tables,
    )


@settings(deadline=None, max_examples=150)
@given(frames())
def test_any_frame_gives_a_valid_record(any_frame):
    text = line(any_frame)
    fields = strict(text)
    assert orjson.loads(text) == fields
    assert [error.message for error in JSON_SCHEMA.iter_errors(fields)] == []
    assert fields["schema"] == SCHEMA
    assert fields["frame"] == any_frame.index
    assert len(fields["objects"]) == sum(map(len, any_frame.tables.values()))
    for entry in fields["objects"]:
        assert len(entry["box"]) == 4
        for value, limit in zip(entry["box"], (any_frame.width, any_frame.height) * 2, strict=True):
            assert value is None or 0 <= value <= limit
        assert ("stage" in entry) == (len(any_frame.tables) > 1)


@settings(max_examples=60, deadline=None)
@given(
    objects=st.lists(st.sampled_from((0, 1, 2, 5, 30, 60)), min_size=1, max_size=6),
    tracked=st.booleans(),
    faces=st.booleans(),
    predicted=st.booleans(),
    shuffled=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_lines_of_a_batch_equal_those_of_its_frames(objects, tracked, faces, predicted, shuffled, seed):
    rng = np.random.default_rng(seed)
    sizes = [(int(w), int(h)) for w, h in rng.integers(8, 4000, (len(objects), 2))]
    rows = np.repeat(np.arange(len(objects), dtype=np.int32), objects)
    if shuffled:
        rows = rng.permutation(rows)

    def batch_table(labels, **columns):
        n = len(rows)
        boxes = table(
            rng.uniform(-50, 4100, (n, 4)),
            rng.random(n),
            rng.integers(-1, 4, n),
            labels=labels,
            **({"track_id": rng.integers(-1, 3, n)} if tracked else {}),
            **columns,
        )
        return boxes.with_columns(batch_row=rows)

    tables = {"detect": batch_table(("person", 'c"ar', "bus"))}
    if predicted:
        tables["detect"] = tables["detect"].with_columns(predicted=rng.random(len(rows)) < 0.5)
    if faces:
        tables["faces"] = batch_table((), age=rng.choice([np.nan, 1.5, 30.25], len(rows)).astype(np.float32))
    frames = [
        frame(
            source=f's"{i % 2}',
            index=i,
            pts_s=i * 0.123456789,
            width=w,
            height=h,
            damaged=bool(rng.random() < 0.2),
            time_s=1.7e9 + float(rng.random()) if rng.random() < 0.5 else None,
            events=[Event("seen", "x", "s", i, 0.0)] if rng.random() < 0.5 else [],
            facts={"scene": {"label": "street"}, "objects": "not these"} if rng.random() < 0.3 else {},
        )
        for i, (w, h) in enumerate(sizes)
    ]
    whole = batch_lines(Batch(frames, tables=dict(tables)))
    for name, batch_rows in tables.items():
        for each, part in zip(frames, batch_rows.split(len(frames)), strict=True):
            each.tables[name] = part
    assert whole == list(map(line, frames))


def test_an_empty_batch_has_no_lines():
    assert batch_lines(Batch([])) == []
    assert batch_lines(Batch([], tables={"detect": Detections.empty()})) == []
    assert [json.loads(text)["objects"] for text in batch_lines(Batch([frame(), frame()]))] == [[], []]


def test_facts_never_replace_fields_of_the_frame():
    plain = frame()
    described = frame()
    names = "schema source frame pts_s time width height error damaged objects events"
    described.facts = dict.fromkeys(names.split(), "of a plugin") | {"weather": "dry"}
    expected = {**record(plain), "weather": "dry"}
    assert record(described) == expected
    assert json.loads(line(described)) == expected
    assert [json.loads(text) for text in batch_lines(Batch([described]))] == [expected]


def test_attributes_and_facts_are_in_the_record():
    from streamkit.testing.kit import detections, frames

    (frame,) = frames(1)
    column = np.array([{"color": {"label": "red", "score": 0.8}}, None])
    frame.detections = detections([[0, 0, 9, 9]] * 2, attributes=column, vector=np.ones((2, 3), np.float32))
    frame.facts["attributes"] = {"scene": {"label": "street", "score": 0.5}}
    frame.facts["objects"] = "not these"
    fields = record(frame)
    assert fields["attributes"] == {"scene": {"label": "street", "score": 0.5}}
    assert list(fields).index("attributes") < list(fields).index("objects")
    assert fields["objects"][0]["attributes"] == {"color": {"label": "red", "score": 0.8}}
    assert "attributes" not in fields["objects"][1]
    assert fields["objects"][0]["vector"] == [1, 1, 1]
    frame.detections = frame.detections.with_columns(private=frozenset({"vector"}))
    assert "vector" not in record(frame)["objects"][0]
