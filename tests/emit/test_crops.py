"""Crops in records: each is the object's own picture, in what a real database then has."""

import json
import sqlite3
from base64 import b64decode
from contextlib import closing

import numpy as np
import pytest

from streamkit.config.diagram import as_text
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Color, Surface
from streamkit.core.errors import ConfigError
from streamkit.core.stage import default_registry
from streamkit.ops.color import from_rgb
from streamkit.runtime.multiprocess.partition import assign_sources
from streamkit.stages.sinks.brokers.sqlite import SqliteSink
from streamkit.testing.kit import detections, frames, run_stage

COLORS = {"person": (200, 40, 40), "car": (40, 180, 40), "bike": (40, 40, 220)}
BOXES = {"person": [20, 20, 60, 120], "car": [100, 40, 220, 100], "bike": [240, 150, 300, 210]}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scene(count=2, source="gate"):
    rgb = np.full((240, 320, 3), 90, np.uint8)
    for name, (x1, y1, x2, y2) in BOXES.items():
        rgb[y1:y2, x1:x2] = COLORS[name]
    video = frames(count, source, width=320, height=240, step_s=1.0)
    for frame in video:
        frame.surface = Surface(from_rgb(rgb, Color()), Color())
        frame.tables = {"detect": detections(list(BOXES.values()), label=list(BOXES), track_id=[1, 2, 3])}
    return video


def sent(video, batch=4, **options):
    """What the database has, in order, and what was counted."""
    sink = SqliteSink(**{"path": "out.db", "table": "records", "crops": True, **options})
    run_stage(sink, video, batch=batch)
    with closing(sqlite3.connect(sink.path)) as database:
        rows = database.execute("select record from records order by rowid").fetchall()
    return [json.loads(row[0]) for row in rows], dict(sink.context.counters.values)


def picture(text):
    import cv2

    pixels = cv2.imdecode(np.frombuffer(b64decode(text, validate=True), np.uint8), cv2.IMREAD_COLOR)
    return pixels[..., ::-1].astype(int)


def shows(text, name):
    crop = picture(text)
    height, width = crop.shape[:2]
    middle = crop[height // 3 : 2 * height // 3, width // 3 : 2 * width // 3]
    return np.abs(np.median(middle, axis=(0, 1)) - COLORS[name]).max() < 30


@pytest.mark.parametrize("batch", [1, 4])
def test_each_object_has_its_own_crop(batch):
    records, counts = sent([*scene(), *scene(1, "yard")], batch, send="objects")
    assert len(records) == 9
    assert counts["crops sent"] == 9
    for record in records:
        assert list(record["object"])[-1] == "crop"
        assert shows(record["object"]["crop"], record["object"]["label"])
        assert "crop" not in record
    (width, height) = picture(records[0]["object"]["crop"]).shape[1::-1]
    assert (width, height) == (48, 120), "a tenth of the box on each side"


def test_only_selected_objects_are_cropped():
    records, counts = sent(scene(3), send="objects", labels=["car"], every=2.0)
    assert [record["object"]["label"] for record in records] == ["car", "car"]
    assert counts["crops sent"] == 2


def test_events_have_the_crop_of_their_object():
    video = scene()
    video[0]._state.stage = video[1]._state.stage = "door"
    video[0].emit("crossed", 2, direction="in")
    video[1].emit("crossed", 9)
    video[1].emit("counted")
    records, counts = sent(video, send="events")
    assert shows(records[0]["event"]["crop"], "car")
    assert records[0]["event"]["data"] == {"direction": "in"}
    assert ["crop" in record["event"] for record in records] == [True, False, False]
    assert counts["records without a crop: object outside the frame"] == 2


def test_size_pad_and_quality():
    wide, _ = sent(scene(1), send="objects", labels=["car"], crops={"pad": 0.0, "max_size": 40, "quality": 95})
    assert picture(wide[0]["object"]["crop"]).shape == (20, 40, 3)


def test_frames_without_pixels_and_boxes_outside_the_image_have_no_crop():
    video = scene()
    video[0].surface = None
    video[1].tables = {"detect": detections([[400, 10, 450, 50]], label=["car"])}
    records, counts = sent(video, send="objects")
    assert len(records) == 4
    assert not any("crop" in record["object"] for record in records)
    assert counts["records without a crop: object outside the frame"] == 4


def test_nothing_is_cropped_without_the_option():
    records, counts = sent(scene(), send="objects", crops=False)
    assert not any("crop" in record["object"] for record in records)
    assert "crops sent" not in counts


PIPELINE = """
device: {device}
sources: {{a: samples/street.mp4, b: samples/street.mp4}}
stages:
  detect: {{model: demo}}
  draw: {{blur: [person], from: detect}}
  sqlite: {{path: out.db, from: {above}, send: {send}, crops: {crops}}}
"""


def planned(root, crops="true", above="draw", send="objects", device="cpu"):
    text = PIPELINE.format(crops=crops, above=above, send=send, device=device)
    return build(read_text(text, folder=root, registry=default_registry()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"send": "frames"}, "crops are of objects; write send: objects or send: events"),
        ({"crops": "5"}, "sqlite.crops"),
        ({"crops": "{size: 5}"}, "size"),
        ({"crops": "{quality: 101}"}, "must be 1 to 100, got 101"),
        (
            {"above": "detect"},
            r"sqlite would show what draw hides; write from: draw, .*crops: {show_hidden: true} where that",
        ),
        ({"above": "detect", "crops": "{pad: 0}"}, "sqlite would show what draw hides"),
    ],
)
def test_invalid_crop_options_are_refused(root, options, message):
    with pytest.raises(ConfigError, match=message) as problem:
        planned(root, **options)
    assert len(problem.value.problems) == 1


def test_crops_that_show_hidden_objects_need_an_explicit_option(root):
    for options in ({"above": "detect", "crops": "{show_hidden: true}"}, {"above": "detect", "crops": "false"}, {}):
        assert "sqlite" in planned(root, **options).nodes


def test_crops_need_one_process_on_one_device(root):
    with pytest.raises(
        ConfigError, match="never copied between processes; leave out crops, or name one device with processes: 1"
    ):
        assign_sources(planned(root, device="[cuda:0, cuda:1]"))
    assert len(assign_sources(planned(root, crops="false", device="[cuda:0, cuda:1]"))) == 2
    description = "sqlite: the crops that are sent go from device to host, one copy a batch"
    assert description in as_text(planned(root), "cuda:0")
    assert description not in as_text(planned(root, crops="false"), "cuda:0")


@pytest.mark.gpu
def test_only_crops_leave_the_device_and_equal_those_of_the_host():
    import cupy

    from streamkit.ops import traffic

    host, _ = sent(scene(), send="objects", spool={"path": "spool/host"})
    video = scene()
    for frame in video:
        frame.surface = Surface(cupy.asarray(frame.surface.data), frame.surface.color)
    before = traffic.so_far().to_host
    device, counts = sent(video, send="objects", path="other.db", spool={"path": "spool/device"})
    assert [record["object"] for record in device] == [record["object"] for record in host]
    assert counts["crops to host"] == 6
    sizes = [(48, 120), (144, 72), (72, 72)]
    assert traffic.so_far().to_host - before == 2 * sum(width * height * 3 // 2 for width, height in sizes)
