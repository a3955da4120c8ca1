"""`detections`: objects from a file, what the checks know of it, and what it refuses."""

import json
from pathlib import Path

import numpy as np
import pytest

import streamkit
from streamkit.batch.coco import CocoPart
from streamkit.batch.formats import MotPart
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.counters import Counters
from streamkit.core.data import Detections
from streamkit.core.errors import ConfigError, StreamkitError
from streamkit.core.records import line
from streamkit.core.stage import Context
from streamkit.stages.inference.detections import BEYOND, OUTSIDE, WEAK, DetectionsFromFile
from streamkit.testing.kit import detections, frames, run_stage

BOXES = [[[10.25, 20.5, 30.75, 60.0], [100.0, 40.0, 140.5, 90.25]], [], [[11.0, 21.0, 31.5, 61.0]]]


def objects() -> list[Detections]:
    return [
        detections(
            boxes,
            [0.5 + 0.25 * i for i in range(len(boxes))],
            track_id=list(range(7, 7 + len(boxes))),
            label=["person"] * len(boxes),
            labels=("person",),
        )
        for boxes in BOXES
    ]


def written(folder: Path, form: str) -> Path:
    """The objects in a file, by the product's own writer of the format."""
    detected = frames(len(BOXES))
    for frame, table in zip(detected, objects(), strict=True):
        frame.tables["detect"] = table
    path = folder / {"mot": "test.txt", "jsonl": "test.jsonl", "coco": "test.json"}[form]
    if form == "jsonl":
        path.write_bytes(b"".join(map(line, detected)))
        return path
    kind = {"mot": MotPart, "coco": CocoPart}[form]
    run_stage(kind(str(path), **({"tracked": True} if form == "mot" else {"labels": ("person",)})), detected)
    return path


@pytest.mark.parametrize("form", ["mot", "jsonl", "coco"])
def test_written_formats_are_read_back(form, tmp_path):
    processed = run_stage(DetectionsFromFile(str(written(tmp_path, form)), keep_ids=True), frames(3))
    for frame, table in zip(processed, objects(), strict=True):
        detected = frame.detections
        np.testing.assert_array_equal(detected.xyxy, table.xyxy)
        np.testing.assert_array_equal(detected.score, table.score)
        assert detected.track_id.tolist() == table.track_id.tolist()
        assert detected.label == table.label


def test_track_ids_of_the_file_are_ignored_by_default(tmp_path):
    processed = run_stage(DetectionsFromFile(str(written(tmp_path, "mot"))), frames(3))
    assert all(frame.detections.track_id is None for frame in processed)


def test_images_without_frame_id_are_the_frames_in_the_order_of_their_names(tmp_path):
    images = [{"id": 5, "file_name": "10.jpg"}, {"id": 9, "file_name": "2.jpg"}]
    annotations = [{"id": 1, "image_id": 9, "category_id": 3, "bbox": [1, 2, 3, 4]}]
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": [{"id": 3, "name": "cat"}]})
    )
    processed = run_stage(DetectionsFromFile(str(path)), frames(2))
    assert [frame.detections.label for frame in processed] == [["cat"], []]
    assert processed[0].detections.xyxy.tolist() == [[1, 2, 4, 6]]
    assert processed[0].detections.score.tolist() == [1]


def coco(**changed: object) -> str:
    return json.dumps({"images": [], "annotations": [], "categories": []} | changed)


REFUSED = {
    "columns.txt": ("1,1,2,3\n", r":1:1: a line must have 6 to 10 numbers"),
    "text.txt": ("1,1,2,3,4,5\nframe,id\n", r":2:1: a line must be numbers"),
    "zero.txt": ("0,1,2,3,4,5\n", r":1:1: frames count from 1, got 0; if the file counts from 0, add 1 to each"),
    "twice.txt": ("1,1,2,3,4,5\n1,1,9,3,4,5\n", r": the id 1 is twice in one frame"),
    "class.txt": ("1,1,2,3,4,5,1,3,1\n", r":1:1: class 3 has no name"),
    "nan.txt": ("1,1,nan,3,4,5\n", r":1:1: each column must be a finite number"),
    "json.jsonl": ("{}\n", r":1:1: a record must have frame and objects"),
    "box.jsonl": ('{"frame": 0, "objects": [{"box": [1]}]}', r":1:1: an object must have box"),
    "keys.json": ("{}", r"images is missing"),
    "results.json": ('[{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4]}]', r"a list of COCO results"),
    "negative.jsonl": ('{"frame": -1, "objects": []}', r":1:1: frames count from 0, got -1"),
    "width.jsonl": ('{"frame": 0, "width": "x", "height": 1, "objects": []}', r":1:1: width and height must be"),
    "far.jsonl": ('{"frame": 1e30, "objects": []}', r":1:1: frame must be a whole number, got 1e\+30"),
    "map.json": (coco(images={}), r"images must be a list, got dict"),
    "image.json": (coco(images=[3]), r"entry 1 of images must have id, a number or a text, got 3"),
    "noid.json": (coco(images=[{"file_name": "a"}]), r"entry 1 of images must have id"),
    "side.json": (coco(images=[{"id": 1, "width": "a", "height": 1}]), r"width and height of the image 1 must be"),
    "class.json": (coco(categories=[{"name": "a"}]), r"entry 1 of categories must have id"),
    "minus.json": (coco(images=[{"id": 1, "frame_id": -1}]), r"frame_id counts from 0, got -1 of the image 1"),
    "same.json": (
        coco(images=[{"id": 1, "frame_id": 3}, {"id": 2, "frame_id": 3}]),
        r"the images 1 and 2 have the same frame_id 3; name the video of each image in video",
    ),
    "score.txt": ("1,1,2,3,4,5,7.5\n", r":1:1: a score must be 0 to 1, got 7.5; scale the scores"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_invalid_file_is_refused_with_its_line(name, tmp_path):
    text, message = REFUSED[name]
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=f"{name}.*{message}"):
        DetectionsFromFile(str(tmp_path / name)).read("a")


def test_a_size_other_than_the_videos_is_refused(tmp_path):
    with pytest.raises(StreamkitError, match="gives frame 0 as 640x360, but test has 320x180"):
        run_stage(DetectionsFromFile(str(written(tmp_path, "coco"))), frames(1, width=320, height=180))


def test_weak_boxes_and_boxes_after_the_last_frame_are_counted(tmp_path):
    stage = DetectionsFromFile(str(written(tmp_path, "mot")), min_score=0.6)
    stage.context = Context(counters=Counters())
    stage.open()
    (frame,) = frames(1)
    stage.process(frame)
    stage.close()
    assert frame.detections.score.tolist() == [0.75]
    assert Counters.total([stage.context.counters]) == {WEAK: 1, OUTSIDE: 1}


def pipeline(path: Path, more: str = "", options: str = "") -> str:
    return (
        f"device: cpu\nsources: {{a: 'test://?frames=3'}}\n"
        f"stages:\n  boxes: {{stage: detections, path: '{path}'{options}}}\n{more}"
    )


def test_check_uses_the_labels_of_the_file(tmp_path):
    count = "  track: {}\n  count: {stage: zone, polygon: [[0, 0], [9, 0], [9, 9]], labels: [truck]}\n"
    with pytest.raises(ConfigError, match="no detector above finds 'truck'; known: person"):
        build(read_text(pipeline(written(tmp_path, "mot"), count)))


def test_ids_of_the_file_replace_a_tracker(tmp_path):
    count = "  count: {stage: zone, polygon: [[0, 0], [9, 0], [9, 9]]}\n"
    path = written(tmp_path, "mot")
    build(read_text(pipeline(path, count, ", keep_ids: true")))
    with pytest.raises(ConfigError, match="reads track_id, which no earlier stage writes"):
        build(read_text(pipeline(path, count)))


def test_a_file_without_ids_cannot_keep_them(tmp_path):
    (tmp_path / "det.txt").write_text("1,-1,1,2,30,40,.5,-1,-1,-1\n")
    with pytest.raises(ConfigError, match=r"det\.txt has no track ids, which keep_ids needs; leave keep_ids out"):
        build(read_text(pipeline(tmp_path / "det.txt", options=", keep_ids: true")))
    build(read_text(pipeline(tmp_path / "det.txt")))


def test_a_missing_file_is_a_problem_of_the_pipeline(tmp_path):
    with pytest.raises(ConfigError, match=r"pipeline.yaml:4:.*boxes.path: there is no file .*no.txt"):
        build(read_text(pipeline(tmp_path / "no.txt")))


def test_a_file_beside_the_yaml_takes_precedence(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "yaml").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for folder, x in (("here", 1), ("yaml", 2)):
        (tmp_path / folder / "a.txt").write_text(f"1,-1,{x},2,30,40,.5,-1,-1,-1\n")
    (tmp_path / "here" / "only.txt").write_text("1,-1,3,2,30,40,.5,-1,-1,-1\n")
    for name, x in (("a.txt", 2), ("'{source}.txt'", 2), ("only.txt", 3)):
        text = (
            f"device: cpu\nsources: {{a: 'test://?frames=3'}}\nstages: {{boxes: {{stage: detections, path: {name}}}}}"
        )
        stage = build(read_text(text, folder=tmp_path / "yaml")).nodes["boxes"]
        assert stage.type(**stage.options).read("a").xyxy[0, 0] == x


def test_boxes_of_a_single_video_are_refused_for_several(tmp_path):
    two = "device: cpu\nsources: {a: 'test://?frames=3', b: 'test://?frames=2'}\n"
    path = written(tmp_path, "jsonl")
    with pytest.raises(ConfigError, match=r"has the boxes of one source, for 2; write \"\{source\}\" into the path"):
        build(read_text(f"{two}stages: {{boxes: {{stage: detections, path: {path}}}}}"))
    records = [json.loads(text) for text in path.read_text().splitlines()]
    both = [json.dumps({**record, "source": name}) for name in "ab" for record in records]
    path.write_text("\n".join(both))
    build(read_text(f"{two}stages: {{boxes: {{stage: detections, path: {path}}}}}"))


def records_of(path: Path, stages: dict, batch: int = 3) -> list[dict]:
    """The records that these stages write of the drawn street."""
    pipeline = {
        "batch": batch,
        "sources": {"street": "samples/street.mp4"},
        "stages": {**stages, "jsonl": {"path": str(path)}},
    }
    streamkit.Pipeline(pipeline, device="cpu", limit=60).run()
    return [json.loads(record) for record in path.read_text().splitlines()]


@pytest.mark.parametrize("batch", [1, 32])
def test_records_of_a_detector_give_the_same_tracks_and_events(batch, root, tmp_path):
    boxes = tmp_path / "boxes.jsonl"
    again = tmp_path / "again.jsonl"
    detect = {"detect": {"model": "demo"}}
    read = {"detect": {"stage": "detections", "path": str(boxes)}}
    track = {"track": {}, "door": {"stage": "line_counter", "line": [[320, 0], [320, 360]]}}
    detected = records_of(boxes, detect)
    assert sum(len(record["objects"]) for record in detected) > 500
    assert records_of(again, read, batch) == detected
    tracked = records_of(again, {**detect, **track})
    assert any(record.get("events") for record in tracked)
    assert records_of(again, {**read, **track}, batch) == tracked


def test_class_numbers_of_the_file_are_kept(tmp_path):
    objects = [
        {"box": [1, 2, 3, 4], "class_id": 2, "label": "car"},
        {"box": [1, 2, 3, 4], "class_id": 0, "label": "bus"},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"frame": 0, "objects": objects}))
    rows = DetectionsFromFile(str(path)).read("a")
    assert (rows.class_id.tolist(), rows.labels) == ([2, 0], ("bus", "1", "car"))
    rows = DetectionsFromFile(str(path), labels=("car", "bus")).read("a")
    assert (rows.class_id.tolist(), rows.labels) == ([0, 1], ("car", "bus"))


@pytest.mark.parametrize(
    ("second", "text"),
    [
        (
            {"class_id": 2, "label": "bus"},
            "'bus' is class_id 2 here, but above 'car' is 2; correct the file, or set labels",
        ),
        ({"class_id": 3, "label": "car"}, "'car' is class_id 3 here, but above 'car' is 2"),
        ({"class_id": -1, "label": "bus"}, "class_id must be 0 to 99999, got -1"),
    ],
)
def test_a_class_with_two_numbers_is_refused(second, text, tmp_path):
    path = tmp_path / "a.jsonl"
    box = {"box": [1, 2, 3, 4]}
    path.write_text(json.dumps({"frame": 0, "objects": [{**box, "class_id": 2, "label": "car"}, {**box, **second}]}))
    with pytest.raises(ConfigError, match=text):
        DetectionsFromFile(str(path)).read("a")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{uri: samples/street.mp4, loop: true}", "a is repeated, and its frames are numbered on; remove loop"),
        ("rtsp://10.0.0.7/a", "a is live, and its frames have no fixed numbers; record it first, and read the file"),
    ],
)
def test_sources_without_fixed_frame_numbers_are_refused(source, text, tmp_path):
    stages = f"stages: {{boxes: {{stage: detections, path: {written(tmp_path, 'mot')}}}}}"
    with pytest.raises(ConfigError, match=f"boxes: the boxes belong to frames by number, but {text}"):
        build(read_text(f"device: cpu\nsources: {{a: {source}}}\n{stages}"))


def logs_and_counts(path: Path, footage: list) -> tuple[list[str], dict[str, int]]:
    """What the stage logs and counts."""
    texts: list[str] = []
    stage = DetectionsFromFile(str(path))
    stage.context = Context(id="boxes", counters=Counters(), log=texts.append)
    stage.open()
    for frame in footage:
        stage.process(frame)
    stage.close()
    return texts, Counters.total([stage.context.counters])


def test_a_file_without_boxes_is_reported(tmp_path):
    (tmp_path / "a.txt").write_text("")
    assert logs_and_counts(tmp_path / "a.txt", frames(1)) == ([f"boxes: {tmp_path}/a.txt has no boxes"], {})


def test_boxes_outside_the_frame_are_counted_and_reported_once(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("1,-1,-5,2,30,40\n1,-1,700,2,30,40\n2,-1,10,365,30,40\n2,-1,600,300,90,90\n")
    texts, counts = logs_and_counts(path, frames(2, width=640, height=360))
    assert texts == [
        f"boxes: {path}:2: the box [700, 2, 730, 42] is outside of test, which has 640x360; if the file is for another "
        "size of the video, scale its boxes"
    ]
    assert counts == {BEYOND: 2}


def test_fewer_images_than_frames_are_reported_once(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(coco(images=[{"id": 1, "file_name": "10.jpg"}, {"id": 2, "file_name": "20.jpg"}]))
    texts, _ = logs_and_counts(path, frames(4))
    assert texts[0] == (
        f"boxes: {path} lists 2 images without frame_id, so image n is frame n, and test has more frames; if the "
        "images are not the first frames, add frame_id to each"
    )
    assert [text for text in texts if "images without" in text] == texts[:1]
    assert not [text for text in logs_and_counts(path, frames(2))[0] if "images without" in text]


def test_videos_of_a_coco_file_are_selected_by_number(tmp_path):
    """As in the files of trackers: `videos`, and `video_id` of each image."""
    images = [{"id": number, "frame_id": 0, "video_id": number} for number in (1, 2)]
    boxes = [{"id": n, "image_id": n, "category_id": 1, "bbox": [n, 2, 3, 4]} for n in (1, 2)]
    videos = [{"id": 1, "name": "a.mp4"}, {"id": 2, "file_name": "b.mp4"}]
    path = tmp_path / "a.json"
    path.write_text(coco(images=images, annotations=boxes, categories=[{"id": 1, "name": "cat"}], videos=videos))
    assert [DetectionsFromFile(str(path)).read(name).xyxy[0, 0] for name in ("a", "b")] == [1, 2]
    with pytest.raises(ConfigError, match=r"has the videos a\.mp4, b\.mp4, and none is 'c'"):
        DetectionsFromFile(str(path)).read("c")


def test_a_byte_order_mark_is_skipped(tmp_path):
    (tmp_path / "a.txt").write_text("1,-1,1,2,30,40\n", encoding="utf-8-sig")
    assert len(DetectionsFromFile(str(tmp_path / "a.txt")).read("a").frame) == 1


def test_an_empty_list_of_labels_is_refused():
    with pytest.raises(ValueError, match="labels must name at least one class"):
        DetectionsFromFile("a.txt", labels=())
