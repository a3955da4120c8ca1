"""Depth of objects and frames, with a network whose depth is the brightness of a place."""

import json

import numpy as np
import pytest
from support.map_networks import SIZE, anomaly_card, depth_card, gray_frames

from streamkit.core.errors import ConfigError
from streamkit.core.records import record
from streamkit.core.units import Of
from streamkit.ops import rle
from streamkit.stages.inference.frame_maps import Depth
from streamkit.stages.video.draw import Draw
from streamkit.testing.kit import detections, run_stage

WIDE = 192
HIGH = 128
BOXES = [[8, 8, 88, 120], [100, 20, 180, 100], [96, 0, 192, 128]]


def pictures(count=1):
    """Pictures of two halves, of which the left one is darker."""
    levels = np.zeros((count, HIGH, WIDE), np.uint8)
    for i, picture in enumerate(levels):
        picture[:, : WIDE // 2] = 20 + i
        picture[:, WIDE // 2 :] = 200 - i
    return levels


def seen(count=1, boxes=BOXES, labels=("car", "person", "car"), **columns):
    """Frames with objects, all of one table."""
    footage = gray_frames(pictures(count))
    for frame in footage:
        frame.detections = detections(boxes, label=list(labels), **columns)
    return footage


def column(frame, name="depth"):
    return frame.detections.extra[name].tolist()


@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("resize", ["stretch", "letterbox"])
def test_objects_have_the_median_of_their_box_in_meters(batch, resize, tmp_path):
    card = depth_card(tmp_path, resize=resize)
    for i, frame in enumerate(run_stage(Depth(model=card, of=Of("detect")), seen(33), batch=batch)):
        wanted = np.array([20 + i, 200 - i, 200 - i]) / 25.5
        np.testing.assert_allclose(column(frame), wanted, atol=0.05)
        assert [measured["depth"] for measured in record(frame)["objects"]] == pytest.approx(column(frame))


def test_only_the_chosen_class_is_measured(tmp_path):
    (frame,) = run_stage(Depth(model=depth_card(tmp_path), of=Of("detect", ("person",))), seen())
    assert np.isnan(column(frame)).tolist() == [True, False, True]
    assert ["depth" in measured for measured in record(frame)["objects"]] == [False, True, False]


@pytest.mark.parametrize(("family", "wanted"), [("relative_depth", [0, 1, 1]), ("inverse_depth", [1, 0, 0])])
def test_depth_without_a_unit_is_from_the_nearest_place_to_the_farthest(family, wanted, tmp_path):
    (frame,) = run_stage(Depth(model=depth_card(tmp_path, family), of=Of("detect")), seen())
    np.testing.assert_allclose(column(frame, "relative_depth"), wanted, atol=0.02)
    assert "depth" not in frame.detections.extra


def test_an_object_with_a_mask_has_the_median_of_the_mask(tmp_path):
    right = np.zeros((HIGH, WIDE), bool)
    right[:, 100:] = True
    masks = np.array([rle.encode(right, WIDE, HIGH), None, None], object)
    footage = seen(boxes=[[0, 0, 130, 128], [0, 0, 130, 128], [100, 0, 192, 128]], mask=masks)
    (frame,) = run_stage(Depth(model=depth_card(tmp_path), of=Of("detect")), footage)
    np.testing.assert_allclose(column(frame), np.array([200, 20, 200]) / 25.5, atol=0.05)


def test_frames_have_their_map_on_the_device(tmp_path):
    (frame,) = run_stage(Depth(model=depth_card(tmp_path)), seen(), stage_id="far")
    assert list(frame.maps) == ["far"]
    assert frame.maps["far"].kind == "depth"
    assert frame.maps["far"].values.shape == SIZE[::-1]
    assert "depth" not in frame.detections.extra
    assert "maps" not in record(frame)


def test_draw_colors_near_places_lighter(tmp_path):
    (frame,) = run_stage(Depth(model=depth_card(tmp_path)), gray_frames(pictures()))
    plain = frame.image()
    (drawn,) = run_stage(Draw(maps=1.0), [frame])
    image = drawn.image().astype(int)
    assert image[64, 40].sum() > image[64, 150].sum() + 200  # the dark half is near
    (frame.surface,) = [run_stage(Draw(maps=0.0), gray_frames(pictures()))[0].surface]
    np.testing.assert_array_equal(frame.image(), plain)


def test_draw_leaves_the_picture_clear_unless_asked_for_depth(tmp_path):
    (frame,) = run_stage(Depth(model=depth_card(tmp_path)), gray_frames(pictures()))
    (drawn,) = run_stage(Draw(), [frame])
    assert drawn.surface is frame.surface
    (drawn,) = run_stage(Draw(maps=0.5), [frame])
    assert np.abs(drawn.image().astype(int) - frame.image()).max() > 30


@pytest.fixture
def pipeline(tmp_path):
    """A pipeline with a tracker above the stages to add."""

    def write(stages, family="metric_depth"):
        depth_card(tmp_path, family)
        return f"""
sources: {{a: {{uri: samples/street.mp4}}}}
stages:
  detect: {{model: demo}}
  track: {{}}
  depth: {{model: {tmp_path}/{family}.yaml, of: detect, precision: f32}}
  {stages}
"""

    return write


def test_a_rule_compares_meters(pipeline, run_pipeline):
    text = pipeline(
        "near: {stage: rule, when: depth < 4}\n  far: {stage: rule, when: count(car and depth > 3) > 0}\n  collect: {}"
    )
    outcome = run_pipeline(text, limit=30)
    assert outcome.code == 0
    records = outcome.records["a"]
    depths = {o["track_id"]: o["depth"] for r in records for o in r["objects"] if "track_id" in o and "depth" in o}
    raised = [e for r in records for e in r["events"] if e["kind"] == "raised" and e["stage"] == "near"]
    assert raised
    assert all(event["data"]["values"]["depth"] < 4 for event in raised)
    assert {event["track_id"] for event in raised} <= depths.keys()
    assert min(depths.values()) > 0


@pytest.mark.parametrize(
    ("when", "family", "text"),
    [
        ("depth < 2", "inverse_depth", "depth is in meters, and the network above gives depth without a unit"),
        (
            "relative_depth < 0.2",
            "metric_depth",
            "relative_depth is measured by a stage depth with a network of another",
        ),
    ],
)
def test_a_rule_about_the_other_form_is_refused(when, family, text, pipeline, run_pipeline):
    with pytest.raises(ConfigError, match=text):
        run_pipeline(pipeline(f'near: {{stage: rule, when: "{when}"}}\n  collect: {{}}', family))


def test_a_card_of_another_task_is_refused(tmp_path):
    with pytest.raises(ValueError, match="depth needs a card with task: depth; anomalib has task: anomaly"):
        Depth(model=anomaly_card(tmp_path))


def test_values_that_are_not_finite_are_counted_and_left_out(tmp_path, run_pipeline):
    depth_card(tmp_path, factor=np.inf)  # black places are NaN, and all others infinite
    text = f"""
sources: {{a: {{uri: samples/street.mp4}}}}
stages:
  detect: {{model: demo}}
  depth: {{model: {tmp_path}/metric_depth.yaml, of: detect}}
  draw: {{}}
  collect: {{}}
"""
    outcome = run_pipeline(text, limit=6)
    assert outcome.code == 0
    objects = [o for r in outcome.records["a"] for o in r["objects"]]
    assert objects
    assert not any("depth" in o for o in objects)
    counts = outcome.report["counts"]
    assert counts["maps with values that are not finite"] == 6
    assert counts["objects without depth"] == len(objects)


# ------------------------------------------------------------------------------------------------------------------ GPU


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["metric_depth", "inverse_depth"])
def test_gpu_and_cpu_measure_alike_and_no_pixel_goes_to_the_host(family, pipeline, run_pipeline):
    from streamkit.ops import traffic

    text = pipeline("draw: {}\n  collect: {}", family)
    without = "\n".join(line for line in text.splitlines() if "  depth:" not in line)
    sides = []
    fetched = []
    for device, stages in (("cpu", text), ("cuda", text), ("cuda", without)):
        before = traffic.so_far().to_host
        outcome = run_pipeline(stages, device=device, limit=64)
        assert outcome.code == 0, outcome.err
        assert outcome.report["counts"].get("pixels to host", 0) == 0
        fetched.append(traffic.so_far().to_host - before)
        sides.append(outcome.records["a"])
    assert fetched[1] - fetched[2] < 64 * 1024  # a number for each object; a map has 6 kB
    name = "depth" if family == "metric_depth" else "relative_depth"
    compared = 0
    for cpu, gpu in zip(*sides[:2], strict=True):
        by_box = {json.dumps([round(v) for v in o["box"]]): o[name] for o in gpu["objects"]}
        for measured in cpu["objects"]:
            other = by_box.get(json.dumps([round(v) for v in measured["box"]]))
            if other is not None:
                compared += 1
                assert other == pytest.approx(measured[name], abs=0.05)
    assert compared > 300
