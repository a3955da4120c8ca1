"""`detect` with `of`: objects within objects."""

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.errors import ConfigError
from streamkit.core.units import Of
from streamkit.models.card import find_card, load_card
from streamkit.stages.inference.detectors import Detect
from streamkit.testing.kit import detections, frames, run_stage


def street(root, n=3):
    import av

    street_frames = []
    with av.open(str(root / "samples" / "street.mp4")) as file:
        for i, frame in enumerate(file.decode(video=0)):
            if i >= n * 20:
                break
            if i % 20 == 0:
                street_frames += frames(1, pixels=frame.to_ndarray(format="rgb24"), start=i)
    return street_frames


def within(street_frames, boxes, **options):
    for frame in street_frames:
        frame.tables = {"area": detections(boxes)}
    stage = Detect(load_card(find_card("demo")), of=Of("area"), pad=0.0, **options)
    return run_stage(stage, street_frames, stage_id="inside", batch=2)


def test_a_crop_of_the_whole_image_gives_its_detections(root):
    whole = run_stage(Detect(load_card(find_card("demo"))), street(root), stage_id="inside")
    processed = within(street(root), [[0, 0, 640, 360]])
    assert sum(len(frame.tables["inside"]) for frame in processed) > 10
    for a, b in zip(whole, processed, strict=True):
        np.testing.assert_allclose(a.tables["inside"].xyxy, b.tables["inside"].xyxy, atol=0.02)
        assert a.tables["inside"].class_id.tolist() == b.tables["inside"].class_id.tolist()
        assert len(b.tables["area"]) == 1


def test_detections_in_crops_are_in_image_coordinates_without_duplicates(root):
    half = [[0, 0, 400, 360], [240, 0, 640, 360]]
    whole = run_stage(Detect(load_card(find_card("demo"))), street(root), stage_id="inside")
    once = within(street(root), half[:1])
    twice = within(street(root), [half[0], half[0], half[1]])
    for a, b, c in zip(whole, once, twice, strict=True):
        inside = b.tables["inside"]
        assert (inside.xyxy[:, 2] <= 402).all()
        assert len(c.tables["inside"]) <= len(a.tables["inside"]) * 1.4 + 2
        for box in a.tables["inside"].xyxy[a.tables["inside"].xyxy[:, 2] < 380].tolist():
            if box[2] - box[0] > 20:
                assert np.abs(inside.xyxy - box).max(axis=1).min() < 12


def test_a_frame_without_objects_has_no_crops(root):
    processed = within(street(root, 2), np.zeros((0, 4)))
    assert [len(frame.tables["inside"]) for frame in processed] == [0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("tiles: {size: [64, 64]}, of: detect", "with of, the network sees crops of objects: leave out tiles"),
        ("pad: 0.3", "crops are made with of: leave out pad"),
        ("of: detect.dog", "detect has no class 'dog'"),
    ],
)
def test_check_refuses_invalid_uses_of_of(options, message, root):
    stages = f"  detect: {{model: demo}}\n  b: {{stage: detect, model: demo, {options}}}"
    text = f"sources: {{a: samples/street.mp4}}\nstages:\n{stages}"
    config = read_text(text, folder=root)
    with pytest.raises(ConfigError, match=message):
        build(config)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_run_size_does_not_change_detections(device, run_pipeline):
    records = []
    for size in (2, 32):
        text = f"""
sources: {{a: samples/street.mp4}}
stages:
  detect: {{model: demo}}
  color: {{stage: classify, model: color, of: detect.car, min_size: 8, batch: {size}}}
  who: {{stage: embed, model: look, of: detect.person, min_size: 8, record: true, batch: {size}}}
  inside: {{stage: detect, model: demo, of: detect.car, pad: 0.5, batch: {size}}}
  tiled: {{stage: detect, model: demo, tiles: {{size: [320, 240]}}}}
  collect: {{}}
"""
        outcome = run_pipeline(text, device=device, limit=12)
        assert outcome.code == 0
        records.append(outcome.records["a"])
    kinds = [detection for record in records[0] for detection in record["objects"]]
    assert {"detect", "inside", "tiled"} <= {detection["stage"] for detection in kinds}
    assert sum("attributes" in detection for detection in kinds) > 12
    assert sum("embedding" in detection for detection in kinds) > 2
    if device == "cpu":
        assert records[0] == records[1]
    else:
        assert sum(len(frame_record["objects"]) for frame_record in records[1]) == pytest.approx(len(kinds), rel=0.02)
