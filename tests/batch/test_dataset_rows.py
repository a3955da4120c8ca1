"""The rows of a data set: that they are the records', whatever the batches, and what they take of memory."""

import json
import weakref

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.cards import card_of, tiny_pose  # the paths are set just above
from support.dataset_runs import HERE, TRACKED, do, settings, sink_of

from streamkit.batch import dataset
from streamkit.batch.dataset import (
    HEAVY_ROWS,
    DataSet,
    FrameCollector,
    ObjectCollector,
    event_row,
    spans,
    spans_of,
)
from streamkit.batch.job import VideoFile
from streamkit.batch.tables import DatasetTables, ObjectColumn
from streamkit.core.data import Batch, Event
from streamkit.core.errors import OutputError
from streamkit.core.records import record
from streamkit.testing.kit import detections, frames


def flat(records):
    """The objects of records as the rows of the table, without what all have in common."""
    return [
        {
            "frame": record["frame"],
            "pts_s": record["pts_s"],
            "label": o["label"],
            "class_id": o["class_id"],
            "score": np.float32(o["score"]).item(),
            "box": [np.float32(x).item() for x in o["box"]],
            "track_id": o.get("track_id"),
            "predicted": o.get("predicted", False),
        }
        for record in records
        for o in record["objects"]
    ]


def test_rows_equal_the_records(tmp_path, run_pipeline):
    batch_settings = settings(tmp_path, TRACKED)
    (key,) = do(batch_settings, limit=60)
    text = TRACKED.replace('jsonl: {path: "a/{source}.jsonl"}', "collect: {}")
    records = run_pipeline(f"sources: {{street: samples/street.mp4}}\n{text}", limit=60).records["street"]
    table = pq.read_table(batch_settings.out / "objects")
    rows = [
        {name: row[name] for name in ("frame", "pts_s", "label", "class_id", "score", "track_id", "predicted")}
        | {"box": [row[name] for name in ("x1", "y1", "x2", "y2")]}
        for row in table.to_pylist()
    ]
    assert rows == flat(records)
    assert len(rows) > 300
    assert set(table["key"].to_pylist()) == {key}
    assert set(table["source"].to_pylist()) == {HERE.name}
    events = [
        {**event, "frame": record["frame"], "pts_s": record["pts_s"]}
        for record in records
        for event in record["events"]
    ]
    event_rows = pq.read_table(batch_settings.out / "events").to_pylist()
    assert [
        (e["frame"], e["pts_s"], e["kind"], e["stage"], e["track_id"], json.loads(e["data"])) for e in event_rows
    ] == [(e["frame"], e["pts_s"], e["kind"], e["stage"], e["track_id"], e["data"]) for e in events]
    assert events


EVERYTHING = """
device: cpu
stages:
  detect: {model: demo}
  track: {}
  color: {stage: classify, model: color, of: detect.car}
  kind: {stage: classify, model: color, of: detect.car, attribute: again}
  look: {stage: embed, model: look, of: detect, record: true}
  speed: {points: [[0, 0], [640, 0], [640, 360], [0, 360]], ground: [[0, 0], [10, 0], [10, 8], [0, 8]],
    smoothing: 100ms}
  direction: {smoothing: 100ms}
  outline: {stage: segment, model: seg, of: detect.bike}
  points: {stage: pose, model: tiny, from: decode}
  whole: {stage: classify, model: color, from: decode}
  all: {stage: jsonl, path: "a.jsonl", from: [outline, points, whole]}
"""


def test_the_tables_have_all_fields_of_records(tmp_path, test_data):
    card_of("seg", test_data, tmp_path)
    tiny_pose(tmp_path)
    batch_settings = settings(tmp_path, EVERYTHING, "parquet", "jsonl")
    (key,) = do(batch_settings, limit=8)
    records = [json.loads(text) for text in (batch_settings.out / "jsonl" / f"{key}.jsonl").read_text().splitlines()]
    rows = pq.read_table(batch_settings.out / "objects").to_pylist()
    objects = [detection for record in records for detection in record["objects"]]
    assert len(rows) == len(objects) > 80
    seen = set()
    for row, detection in zip(rows, objects, strict=True):
        for name in detection.keys() - {"box", "score", "class_id", "label", "stage"}:
            seen.add(name)
            assert plain(row[name]) == approx(detection[name]), name
    assert seen == {"track_id", "attributes", "embedding", "speed_kmh", "heading_deg", "mask", "keypoints"}
    assert {name for detection in objects for name in detection.get("attributes", {})} == {"color", "again"}
    frame_rows = pq.read_table(batch_settings.out / "frames").to_pylist()
    assert [json.loads(row["facts"])["attributes"] for row in frame_rows] == [
        record["attributes"] for record in records
    ]
    assert [row["objects"] for row in frame_rows] == [len(record["objects"]) for record in records]


def plain(value):
    """A value of a table as a record has it: without nulls, points as lists."""
    if isinstance(value, dict) and set(value) == {"x", "y", "score"}:
        return [value["x"], value["y"], value["score"]]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items() if item is not None}
    return [plain(item) for item in value] if isinstance(value, list) else value


def approx(value):
    """A value of a record as float32 holds it."""
    if isinstance(value, dict):
        return {name: approx(item) for name, item in value.items()}
    if isinstance(value, list):
        return [approx(item) for item in value]
    return np.float32(value).item() if isinstance(value, float) else value


def test_the_bytes_do_not_depend_on_batches_or_other_files(tmp_path):
    alone = settings(tmp_path / "a", TRACKED)
    do(alone)
    other = settings(tmp_path / "b", "batch: 3\n" + TRACKED)
    second = VideoFile("u", "2026/second.mp4", 5, "1")
    do(other, HERE, second)
    for name in ("objects", "events"):
        (part_file,) = (alone.out / name).glob("street-*")
        assert part_file.read_bytes() == (other.out / name / part_file.name).read_bytes()
        assert len(list((other.out / name).glob("second-*"))) == 1


def test_a_failed_frame_has_events_and_no_row(tmp_path):
    batch_settings, sink = sink_of(tmp_path)
    three = frames(3)
    for frame in three:
        frame.tables = {"detect": detections([[1, 2, 3, 4]], labels=("car",))}
        frame.emit("crossed", track_id=4, line="a")
    three[1].tables = {}
    three[1].error = "detect failed"
    write(sink, three)
    assert pq.read_table(batch_settings.out / "objects")["frame"].to_pylist() == [0, 2]
    assert pq.read_table(batch_settings.out / "events")["data"].to_pylist() == ['{"line":"a"}'] * 3


def test_rows_of_several_detectors_are_ordered_by_frame(tmp_path):
    batch_settings, sink = sink_of(tmp_path)
    table = detections([[1, 2, 3, 4]] * 4, labels=("car",)).with_columns(batch_row=np.array([0, 1, 1, 2], np.int32))
    other = detections([[5, 6, 7, 8]] * 2, labels=("face",)).with_columns(batch_row=np.array([0, 2], np.int32))
    batch = Batch(frames(3), tables={"detect": table, "faces": other})
    for frame, encoded in zip(batch.frames, DataSet.encode(batch), strict=True):
        sink.write_encoded(frame, encoded)
    sink.end("key")
    rows = pq.read_table(batch_settings.out / "objects")
    assert list(zip(rows["frame"].to_pylist(), rows["stage"].to_pylist(), rows["label"].to_pylist(), strict=True)) == [
        (0, "detect", "car"),
        (0, "faces", "face"),
        (1, "detect", "car"),
        (1, "detect", "car"),
        (2, "detect", "car"),
        (2, "faces", "face"),
    ]


def test_columns_may_appear_and_disappear_and_unknown_ones_are_stored(tmp_path):
    tables = DatasetTables((ObjectColumn("track_id", "int"), ObjectColumn("speed_kmh", "float")), others=True)
    batch_settings, sink = sink_of(tmp_path, tables)
    four = frames(4)
    four[0].tables = {"d": detections([[1, 2, 3, 4]], track_id=[9], labels=("car",))}
    four[1].tables = {"d": detections([[1, 2, 3, 4]], labels=("car",), speed_kmh=np.array([3.5], np.float32))}
    four[2].tables = {"d": detections([[1, 2, 3, 4]], labels=("car",), plate=np.array(["B-X 1"], object))}
    four[3].facts["weather"] = "fog"
    write(sink, four)
    rows = pq.read_table(batch_settings.out / "objects").select(["track_id", "speed_kmh", "extra"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (9, None, None),
        (None, 3.5, None),
        (None, None, '{"plate":"B-X 1"}'),
    ]
    frame_rows = pq.read_table(batch_settings.out / "frames").to_pylist()
    assert [(row["frame"], row["objects"], row["facts"]) for row in frame_rows][2:] == [
        (2, 1, None),
        (3, 0, '{"weather":"fog"}'),
    ]


@pytest.mark.parametrize(
    ("kind", "values", "problem"),
    [
        ("float", np.array(["tall"], object), "object"),
        ("points", np.zeros((1, 4), np.float32), r"float32\[4\]"),
        ("attributes", np.array(["red"], object), "object"),
        ("vector", np.zeros(1, np.float32), "float32"),
    ],
)
def test_a_column_of_the_wrong_type_is_an_error(tmp_path, kind, values, problem):
    _, sink = sink_of(tmp_path, DatasetTables((ObjectColumn("mine", kind, ("color",)),)))
    (frame,) = frames(1)
    frame.tables = {"d": detections([[1, 2, 3, 4]], mine=values)}
    sink.write(frame)
    with pytest.raises(OutputError, match=rf"the column mine cannot be written as {kind}: its values are {problem}"):
        sink.end("key")
    sink.close()
    assert not list(tmp_path.rglob("*key*"))


def test_numbers_of_other_widths_are_converted(tmp_path):
    batch_settings, sink = sink_of(
        tmp_path, DatasetTables((ObjectColumn("a", "float"), ObjectColumn("b", "int"), ObjectColumn("c", "double")))
    )
    (frame,) = frames(1)
    frame.tables = {
        "d": detections([[1, 2, 3, 4]], a=np.array([1.5]), b=np.array([7], np.int16), c=np.array([2], np.int32))
    }
    write(sink, [frame])
    assert [pq.read_table(batch_settings.out / "objects")[name].to_pylist() for name in "abc"] == [[1.5], [7], [2.0]]


def test_row_groups_are_bounded(tmp_path):
    batch_settings, sink = sink_of(tmp_path, DatasetTables((ObjectColumn("embedding", "vector"),)))
    n = 100
    table = detections([[1, 2, 3, 4]] * n, labels=("car",), embedding=np.full((n, 4), 0.5, np.float32))
    for frame in frames(200):
        frame.tables = {"d": table}
        sink.write(frame)
    sink.end("key")
    (path,) = (batch_settings.out / "objects").glob("key*")
    about = pq.ParquetFile(path).metadata
    assert [about.row_group(i).num_rows for i in range(about.num_row_groups)] == [8200, 8200, 3600]
    assert HEAVY_ROWS <= 8200
    assert about.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize(
    ("columns", "row_limit"),
    [
        ((), 7),
        ((ObjectColumn("a", "float"),), 7),
        ((ObjectColumn("a", "float"), ObjectColumn("b", "mask")), 3),
        ((ObjectColumn("b", "points"),), 3),
    ],
)
def test_a_file_is_written_once_it_has_a_row_group(monkeypatch, columns, row_limit):
    monkeypatch.setattr(dataset, "ROWS", 7)
    monkeypatch.setattr(dataset, "HEAVY_ROWS", 3)
    collector = objects(DatasetTables(columns))
    for turn in range(2):
        seen = []
        for number in range(row_limit + 1):
            (frame,) = frames(1, start=number + turn)
            frame.tables = {"d": detections([[1, 2, 3, 4]])}
            seen.append((collector.add(spans_of(frame)), collector.rows, collector.full))
        assert seen == [(1, n, n >= row_limit) for n in range(1, row_limit + 2)]
        assert collector.take()["frame"].to_pylist() == [number + turn for number in range(row_limit + 1)]
        assert (collector.rows, collector.full) == (0, False)


def objects(tables):
    return ObjectCollector(tables, tables.schemas()["objects"], "key", "a.mp4")


def test_files_interleaved_in_a_batch_have_separate_rows():
    """Frames 0, 2 and 3 are of one file; frame 3 has two objects, frame 4 none."""
    rows = np.array([0, 1, 2, 3, 3], np.int32)
    table = detections([[n, 2, 30, 40] for n in range(5)], track_id=range(5)).with_columns(batch_row=rows)
    spans_by_frame = spans(Batch(frames(5), tables={"d": table}))
    assert [[span[2:] for span in frame_spans] for frame_spans in spans_by_frame] == [
        [(0, 1)],
        [(1, 2)],
        [(2, 3)],
        [(3, 5)],
        [],
    ]
    collector = objects(DatasetTables((ObjectColumn("track_id", "int"),)))
    other = objects(DatasetTables())
    assert [collector.add(spans_by_frame[n]) for n in (0, 2, 3, 4)] == [1, 1, 2, 0]
    assert other.add(spans_by_frame[1]) == 1
    taken = collector.take()
    assert taken["frame"].to_pylist() == [0, 2, 3, 3]
    assert taken["x1"].to_pylist() == taken["track_id"].to_pylist() == [0, 2, 3, 4]
    assert other.take()["x1"].to_pylist() == [1]
    assert collector.take().num_rows == 0


def test_an_object_has_the_label_of_its_class_if_any():
    (frame,) = frames(1)
    frame.tables = {"d": detections([[1, 2, 3, 4]] * 5, class_id=[-2, -1, 0, 1, 2], labels=("car", "bike"))}
    collector = objects(DatasetTables())
    collector.add(spans_of(frame))
    taken = collector.take()
    assert taken["label"].to_pylist() == [None, None, "car", "bike", None]
    assert taken["class_id"].to_pylist() == [-2, -1, 0, 1, 2]


def test_times_have_six_digits_in_every_table():
    (frame,) = frames(1)
    frame.pts_s = 1.23456789
    frame.facts = {"weather": "fog"}
    frame.tables = {"d": detections([[1, 2, 3, 4]])}
    collector = objects(DatasetTables())
    collector.add(spans_of(frame))
    assert collector.take()["pts_s"].to_pylist() == [1.234568]
    frame_collector = FrameCollector(DatasetTables().schemas()["frames"], "key", "a.mp4")
    frame_collector.add(frame, 3)
    assert frame_collector.rows == 1
    assert frame_collector.take().to_pylist() == [
        {
            "key": "key",
            "source": "a.mp4",
            "frame": 0,
            "pts_s": 1.234568,
            "width": 640,
            "height": 360,
            "objects": 3,
            "error": None,
            "damaged": False,
            "facts": '{"weather":"fog"}',
        }
    ]
    assert frame_collector.take().num_rows == 0
    event = Event("crossed", "line", "cam", 7, 1.23456749, track_id=4, data={"to": "in"})
    assert event_row(event, "key", "a.mp4") == {
        "key": "key",
        "source": "a.mp4",
        "frame": 7,
        "pts_s": 1.234567,
        "stage": "line",
        "kind": "crossed",
        "track_id": 4,
        "data": '{"to":"in"}',
    }


def test_a_file_retains_only_its_rows_of_shared_batches(tmp_path):
    """On a GPU a batch has frames of many files: what is held of it for one file must not be the whole batch."""
    tables = DatasetTables()
    batches = []
    collector = ObjectCollector(tables, tables.schemas()["objects"], "key", "a.mp4")
    for number in range(600):
        rows = np.repeat(np.arange(4, dtype=np.int32), 2)
        table = detections([[1, 2, 3, 4]] * 8, labels=("car",)).with_columns(batch_row=rows)
        batches.append(weakref.ref(table.xyxy))
        collector.add(spans(Batch(frames(4, start=number), tables={"d": table}))[1])
        del table
    assert sum(array_ref() is not None for array_ref in batches) <= 256
    assert collector.take()["frame"].to_pylist() == [number + 1 for number in range(600) for _ in range(2)]


def write(sink, batch_frames):
    for frame in batch_frames:
        sink.write(frame)
    sink.end("key")
    sink.close()


def test_records_of_frames_and_rows_of_batches_are_equal(tmp_path):
    rng = np.random.default_rng(1)
    xyxy = np.sort(rng.uniform(-5, 700, (6, 4)).astype(np.float32))
    rows = np.array([2, 0, 2, 1, 0, 2], np.int32)  # not rising, as a plugin may leave it
    table = detections(xyxy, rng.uniform(0, 1, 6), [0, 1, 0, 7, 1, 0], labels=("car", "bike")).with_columns(
        batch_row=rows
    )
    batch = Batch(frames(3), tables={"d": table})
    batch_settings, sink = sink_of(tmp_path)
    for frame, encoded in zip(batch.frames, DataSet.encode(batch), strict=True):
        sink.write_encoded(frame, encoded)
    sink.end("key")
    for frame, part in zip(batch.frames, batch.table("d").split(3), strict=True):
        frame.tables["d"] = part
    expected_rows = [
        [*np.float32([*o["box"], o["score"]]).tolist(), o.get("label")]
        for f in batch.frames
        for o in record(f)["objects"]
    ]
    rows = pq.read_table(batch_settings.out / "objects").select(["x1", "y1", "x2", "y2", "score", "label"]).to_pylist()
    assert [list(row.values()) for row in rows] == expected_rows
    assert None in [row[-1] for row in expected_rows]
