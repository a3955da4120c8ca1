"""`roi:` and `tiles:` with the detector that ships."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Color, Frame, Surface
from streamkit.core.errors import ConfigError
from streamkit.models.card import load_card
from streamkit.ops.color import from_rgb
from streamkit.stages.inference.detectors import Detect
from streamkit.stages.inference.inference_regions import InferenceRegions, Tiles
from streamkit.stages.sources.source import VideoSource
from streamkit.testing.kit import run_stage

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def card():
    return load_card(ROOT / "models" / "demo.yaml")


@pytest.fixture(scope="module")
def street() -> list[Frame]:
    """Four frames of the street that ships, half a second apart or more."""
    return run_stage(VideoSource(uri=str(ROOT / "samples" / "street.mp4"), every=20, end=2.5))[:4]


@pytest.fixture(scope="module")
def wall(street) -> Frame:
    """The four as one picture of twice the width and height."""
    height = street[0].height
    width = street[0].width
    upper, lower = (
        np.concatenate([_luma(a), _luma(b)], axis=1) for a, b in ((street[0], street[1]), (street[2], street[3]))
    )
    chroma = [np.concatenate([_chroma(a), _chroma(b)], axis=1) for a, b in zip(street[::2], street[1::2], strict=True)]
    data = np.concatenate([upper, lower, *chroma])
    return Frame("wall", 0, 0.0, 2 * width, 2 * height, Surface(data, street[0].surface.color))


def _luma(frame):
    return frame.surface.data[: frame.height]


def _chroma(frame):
    return frame.surface.data[frame.height :]


def copies(frames):
    return [dataclasses.replace(frame, tables={}, events=[]) for frame in frames]


def tables(card, frames, batch=4, **options):
    return [f.tables["detect"] for f in run_stage(Detect(model=card, **options), copies(frames), batch=batch)]


def near(table, other_table, atol=0.05):
    """Whether two tables hold the same objects, in any order."""
    if len(table) != len(other_table):
        return False
    first, second = (t[np.lexsort(np.round(t.xyxy).T)] for t in (table, other_table))
    return np.allclose(first.xyxy, second.xyxy, atol=atol) and first.label == second.label


def test_tiles_give_the_detections_of_each_part(card, street, wall):
    (tiled,) = tables(card, [wall], tiles=Tiles((street[0].width, street[0].height), 0.0, full_frame=False))
    alone = tables(card, street)
    assert len(tiled) == sum(map(len, alone))
    for i, table in enumerate(alone):
        corner = np.array([i % 2 * street[0].width, i // 2 * street[0].height])
        size = street[0].width, street[0].height
        middle = tiled.center - corner
        within_part = tiled[((middle >= 0) & (middle < size)).all(axis=1)]
        # Boxes are clipped at the whole picture's border only.
        within_part = within_part.with_columns(
            xyxy=np.clip(within_part.xyxy, np.tile(corner, 2), np.tile(corner + size, 2), dtype=np.float32)
        )
        shifted = table.with_columns(xyxy=table.xyxy + np.tile(corner, 2).astype(np.float32))
        assert near(within_part, shifted, atol=0.1)
    assert (np.diff(tiled.score) <= 0).all()
    assert tiled.row_id.tolist() == list(range(len(tiled)))


def test_overlapping_tiles_detect_small_objects_without_duplicates(card, street, wall):
    alone = sum(map(len, tables(card, street)))
    whole = len(tables(card, [wall])[0])
    (tiled,) = tables(card, [wall], tiles=Tiles((480, 360), 0.3))
    assert whole < 0.7 * alone, "or tiles would be of no use here"
    assert 0.9 * alone <= len(tiled) <= 1.1 * alone


def test_the_batch_size_does_not_change_detections(card, street):
    options = {"tiles": Tiles((320, 240), 0.2), "roi": ((40.0, 40.0), (600.0, 60.0), (620.0, 350.0), (20.0, 350.0))}
    wanted = tables(card, street, batch=2, **options)
    for batch in (1, 3, 4):
        for expected, detected in zip(wanted, tables(card, street, batch=batch, **options), strict=True):
            np.testing.assert_array_equal(expected.xyxy, detected.xyxy)
            np.testing.assert_array_equal(expected.score, detected.score)


def test_a_roi_keeps_the_objects_whose_anchor_is_inside(card, street):
    roi = ((100.0, 100.0), (500.0, 100.0), (500.0, 340.0), (100.0, 340.0))
    plain = tables(card, street)
    in_roi = tables(card, street, roi=roi)
    assert sum(map(len, in_roi)) > 3
    for table in in_roi:
        feet = table.foot
        assert ((feet >= [100, 100]) & (feet <= [500, 340])).all()
    # What lies well inside is found either way.
    inner = sum(int(((t.xyxy[:, :2] > 130) & (t.xyxy[:, 2:] < [470, 320])).all(axis=1).sum()) for t in plain)
    seen = sum(int(((t.xyxy[:, :2] > 130) & (t.xyxy[:, 2:] < [470, 320])).all(axis=1).sum()) for t in in_roi)
    assert inner > 2
    assert abs(seen - inner) <= max(2, inner // 4)


@pytest.mark.parametrize(
    ("anchor", "unseen"),
    [
        ("foot", [True, False, False]),
        ("top", [False, False, False]),
        ("right", [False, True, False]),
        ("center", [False] * 3),
    ],
)
def test_an_object_extending_beyond_the_roi_is_dropped_by_its_anchor(anchor, unseen):
    seen = InferenceRegions(roi=((100.0, 0.0), (500.0, 0.0), (500.0, 200.0), (100.0, 200.0)), anchor=anchor)
    boxes = np.array([[150, 50, 190, 199.5], [400, 0, 499, 150], [150, 50, 190, 195]], np.float32)
    within = np.tile(seen.parts(640, 360)[0], (3, 1))
    is_unseen = seen.unseen(boxes, within, np.tile([640, 360], (3, 1)), np.ones((3, 2), np.float32))
    assert is_unseen.tolist() == unseen
    # At the picture's own border nothing is hidden.
    assert not seen.unseen(boxes, within, np.tile([500, 200], (3, 1)), np.ones((3, 2), np.float32)).any()


def test_several_rois_may_be_in_shares_of_the_image(card, street):
    areas = {
        "left": ((0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)),
        "right": ((0.5, 0.0), (1.0, 0.0), (1.0, 1.0), (0.5, 1.0)),
    }
    in_areas = tables(card, street, roi=areas, units="share", anchor="center")
    plain = tables(card, street)
    assert sum(map(len, in_areas)) >= 0.9 * sum(map(len, plain))
    (left,) = tables(card, street[:1], roi={"left": areas["left"]}, units="share", anchor="center")
    assert len(left)
    assert (left.center[:, 0] <= street[0].width / 2).all()


def test_a_roi_outside_the_image_gives_nothing_and_is_reported(run_pipeline):
    text = f"""
sources: {{a: {ROOT}/samples/street.mp4}}
stages:
  detect: {{model: demo, roi: [[5000, 5000], [6000, 5000], [6000, 6000]]}}
  collect: {{}}
"""
    outcome = run_pipeline(text, limit=4)
    assert outcome.code == 0
    assert [record["objects"] for record in outcome.records["a"]] == [[]] * 4
    assert any("the roi is outside of frames of 640x360" in logged for logged in outcome.logged)


def test_dropped_objects_and_inferred_regions_are_counted(run_pipeline):
    text = f"""
sources: {{a: {ROOT}/samples/street.mp4}}
stages:
  detect: {{model: demo, tiles: {{size: [320, 240]}}, roi: [[0, 0], [640, 0], [640, 200]]}}
  collect: {{}}
"""
    report = run_pipeline(text, limit=6).report
    assert report["counts"]["boxes removed: roi"] > 0
    assert report["counts"]["regions inferred"] == 6 * (3 * 1 + 1)
    assert "detect.regions" in report["stages"]


def problems(stage: str) -> list[str]:
    config = read_text(f"sources: {{a: samples/street.mp4}}\nstages:\n  detect: {stage}\n", folder=ROOT)
    try:
        build(config)
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ("{model: demo, tiles: {size: [640]}}", "3:39: detect.tiles.size.1 is required"),
        ("{model: demo, tiles: {size: [64, 8]}}", "3:44: detect.tiles.size.1 must be at least 32, got 8"),
        ("{model: demo, tiles: {size: 640}}", "3:39: detect.tiles.size must be a list, got 640"),
        (
            "{model: demo, tiles: {size: [64, 64], overlap: 1}}",
            "3:58: detect.tiles.overlap must be 0 to 0.9, got 1",
        ),
        (
            "{model: demo, tiles: {size: [64, 64], full_frame: 3}}",
            "3:61: detect.tiles.full_frame must be true or false, got 3",
        ),
        ("{model: demo, tiles: {overlap: 0.1}}", "3:32: detect.tiles.size is required"),
        (
            "{model: demo, tiles: {size: [64, 64], ovrlap: 0.1}}",
            "3:49: detect.tiles has no option 'ovrlap'; did you mean 'overlap'?",
        ),
        ("{model: demo, roi: [[0, 0], [9, 9]]}", "3:30: detect.roi must have three corners or more"),
        ("{model: demo, roi: [[0, 0], [90, 90], [90, 0], [0, 90]]}", "3:30: detect.roi must not cross or touch itself"),
        ("{model: demo, roi: {a: [[0, 0], [9, 9]]}}", "3:34: detect.roi.a must have three corners or more"),
        ("{model: demo, roi: [[0, 0], [1, 0], [1, 1]]}", "3:11: detect: all coordinates lie within one pixel: write"),
        (
            "{model: demo, roi: [[0, 0], [90, 0], [90, 90]], units: share}",
            "3:11: detect: with units: share coordinates",
        ),
        (
            "{model: demo, roi: [[0, 0], [90, 0], [90, 90]], tiles: {size: [320, 320]}}",
            "3:11: detect: tiles of 320x320 are larger than the roi: make them smaller, or leave them out",
        ),
    ],
)
def test_contradicting_options_are_refused_with_their_position(stage, text):
    (problem,) = problems(stage)
    assert text in problem


def test_regions_fit_images_of_any_size():
    seen = InferenceRegions(tiles=Tiles((320, 240), 0.2))
    rects = seen.rects(640, 360)[:, 0].tolist()
    assert rects[0] == [0, 0, 640, 360]
    assert len(rects) == 1 + 3 * 2
    assert InferenceRegions(tiles=Tiles((640, 640))).rects(640, 360).tolist() == [[[0, 0, 640, 360], [0, 0, 640, 360]]]


@pytest.mark.gpu
def test_gpu_and_cpu_give_equal_detections_in_tiles(run_pipeline):
    text = f"""
sources: {{a: {ROOT}/samples/street.mp4}}
stages:
  detect: {{model: demo, tiles: {{size: [320, 240]}}, roi: [[0, 60], [640, 60], [640, 360], [0, 360]]}}
  collect: {{}}
"""
    cpu, gpu = (run_pipeline(text, device=device, limit=40) for device in ("cpu", "cuda"))
    assert gpu.report["counts"].get("pixels to host", 0) == 0
    counts = [[len(rows) for _, rows in run.boxes("a")] for run in (cpu, gpu)]
    assert abs(sum(counts[0]) - sum(counts[1])) <= 0.02 * sum(counts[0])


def test_pixels_outside_the_roi_have_no_effect(card, street):
    """An object that another picture has beside the roi changes nothing."""
    frame = street[0]
    other = Surface(frame.surface.data.copy(), frame.surface.color)
    gray = from_rgb(np.full((frame.height, frame.width, 3), 90, np.uint8), Color())
    other.data[:, : frame.width // 2] = gray[:, : frame.width // 2]
    right = ((0.5, 0.0), (1.0, 0.0), (1.0, 1.0), (0.5, 1.0))
    plain, changed = tables(card, [frame, dataclasses.replace(frame, surface=other)], roi=right, units="share")
    np.testing.assert_array_equal(plain.xyxy, changed.xyxy)
