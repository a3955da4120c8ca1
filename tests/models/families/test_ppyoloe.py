"""PP-YOLOE: the objects of PaddleDetection itself, in source pixels; see truth/ppyoloe.py."""

from pathlib import Path

import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.core.data import Device
from streamkit.core.errors import ModelError
from streamkit.models.derive import derive
from streamkit.models.families import ReadOptions, begin_table, family
from streamkit.models.families.base import stack_images
from streamkit.models.network import check_model

TRUTH = np.load(Path(__file__).parent / "truth" / "ppyoloe.npz")
LABELS = ("a", "b", "c")
SIZE = tuple(TRUTH["size"].tolist())
SCORE = 0.05
CONFIG = """\
mode: paddle
draw_threshold: 0.4
arch: YOLO
Preprocess:
- interp: 2
  keep_ratio: false
  target_size: [96, 96]
  type: Resize
- mean: [0.0, 0.0, 0.0]
  norm_type: none
  std: [1.0, 1.0, 1.0]
  type: NormalizeImage
- type: Permute
label_list: [a, b, c]
"""
OUTPUTS = {"scale_0": ["K", 6], "scale_1": [1]}


def table_of(name, outputs, n, xp, **options):
    geometry = np.tile(np.float32([*(TRUTH["size"] / TRUTH["frame"]), 0, 0]), (n, 1))
    sizes = np.repeat(TRUTH["frame"][None], n, axis=0)
    options = ReadOptions(np.full(3, SCORE, np.float32), **options)
    outputs = {key: xp.asarray(value) for key, value in outputs.items()}
    return begin_table(family(name), outputs, geometry, sizes, SIZE, options, LABELS)[0]()[0]


def clipped(boxes):
    return boxes.clip(0, np.tile(TRUTH["frame"], 2))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("n", [1, 32])
def test_rows_are_the_objects_of_the_authors(n, device):
    run = {"rows": TRUTH["rows"], "count": TRUTH["count"]}
    table = table_of("ppyoloe_e2e", run if n == 1 else stack_images([run] * n, np), n, Device(device).xp)
    objects = TRUTH["objects"][np.argsort(-TRUTH["objects"][:, 1], kind="stable")]
    for row in range(n):
        objects_of_frame = table[table.batch_row == row]
        np.testing.assert_allclose(objects_of_frame.score, objects[:, 1], atol=1e-4)
        assert objects_of_frame.class_id.tolist() == objects[:, 0].astype(int).tolist()
        np.testing.assert_allclose(objects_of_frame.xyxy, clipped(objects[:, 2:]), atol=0.1)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("n", [1, 32])
def test_boxes_before_non_max_suppression_are_those_of_the_authors(n, device):
    outputs = {key: np.repeat(TRUTH[key], n, axis=0) for key in ("boxes", "scores")}
    table = table_of("ppyoloe", outputs, n, Device(device).xp, iou=1.0)
    best = TRUTH["scores"][0].max(axis=0)
    order = np.argsort(-best, kind="stable")
    boxes = clipped(TRUTH["candidates"][0])
    inside = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
    order = order[(best >= SCORE)[order] & inside[order]]
    assert len(order) > 30
    for row in range(n):
        objects_of_frame = table[table.batch_row == row]
        np.testing.assert_array_equal(objects_of_frame.score, best[order])
        assert objects_of_frame.class_id.tolist() == TRUTH["scores"][0].argmax(axis=0)[order].tolist()
        np.testing.assert_allclose(objects_of_frame.xyxy, boxes[order], atol=0.02)


def test_rows_behind_the_number_of_objects_are_ignored():
    rows = TRUTH["rows"].copy()
    rows[3:] = np.nan
    assert len(table_of("ppyoloe_e2e", {"rows": rows, "count": np.array([3])}, 1, np)) == 3
    assert len(table_of("ppyoloe_e2e", {"rows": rows[:3], "count": np.array([2125])}, 1, np)) == 3


def test_a_list_of_one_image_is_refused_for_two_frames():
    with pytest.raises(ValueError, match="2 frames gave one list of objects; run this network with batches of 1"):
        table_of("ppyoloe_e2e", {"rows": TRUTH["rows"], "count": TRUTH["count"]}, 2, np)


def export(folder, **more):
    how = {"image": ["N", 3, 96, 96], "extra": {"scale_factor": ["M", 2]}, "integers": ("scale_1",)}
    return shaped(folder / "best.onnx", OUTPUTS, **(how | more))


def test_the_export_is_derived_with_the_configuration_of_the_authors(tmp_path):
    (tmp_path / "infer_cfg.yml").write_text(CONFIG)
    card = derive(export(tmp_path)).card()
    assert (card.family, card.labels, card.score) == ("ppyoloe_e2e", LABELS, 0.4)
    spec = card.input
    assert (spec.resize, spec.color, spec.scale, *spec.mean, *spec.std) == ("stretch", "rgb", 1 / 255, 0, 0, 0, 1, 1, 1)
    assert "bicubic filter (interp: 2)" in card.note
    check_model(card)


@pytest.mark.parametrize(
    ("line", "other", "expected"),
    [
        ("  norm_type: none\n", "", (1 / 255, (0.0, 0.0, 0.0))),
        ("  norm_type: none\n", "  is_scale: false\n", (1, (0.0, 0.0, 0.0))),
        ("[0.0, 0.0, 0.0]\n  norm_type: none\n", "[0.4, 0.5, 0.6]\n", (1 / 255, (0.4, 0.5, 0.6))),
        ("[0.0, 0.0, 0.0]\n  norm_type: none\n", "[0.4, 0.5, 0.6]\n  norm_type: none\n", (1 / 255, (0.0, 0.0, 0.0))),
    ],
)
def test_the_values_of_the_input_are_read(line, other, expected, tmp_path):
    (tmp_path / "infer_cfg.yml").write_text(CONFIG.replace(line, other))
    spec = derive(export(tmp_path)).card().input
    assert (spec.scale, tuple(spec.mean)) == expected


@pytest.mark.parametrize(
    ("line", "other", "expected"),
    [
        ("keep_ratio: false", "keep_ratio: true", "resizes with keep_ratio, which has no fixed height and width"),
        ("- type: Permute", "- type: PadStride", "has PadStride, which a card cannot do"),
        ("target_size: [96, 96]", "target_size: 96", "must have the target_size of Resize"),
        ("target_size: [96, 96]", "target_size: [128, 96]", "input.size is 96 x 128 in infer_cfg.yml"),
        ("Preprocess:", "Process:", "must be a mapping with the steps of Preprocess"),
        ("mode: paddle", "mode: [", "infer_cfg.yml cannot be read"),
        ("label_list: [a, b, c]", "label_list: a", "must be a list of names"),
        ("[0.0, 0.0, 0.0]\n  norm_type: none", "1", "mean of NormalizeImage in"),
    ],
)
def test_a_configuration_that_a_card_cannot_follow_is_refused(line, other, expected, tmp_path):
    (tmp_path / "infer_cfg.yml").write_text(CONFIG.replace(line, other))
    with pytest.raises(ModelError, match=expected):
        derive(export(tmp_path))


def test_without_a_configuration_the_input_is_asked_for(tmp_path):
    (tmp_path / "labels.txt").write_text("a\nb\nc")
    with pytest.raises(ModelError) as caught:
        derive(export(tmp_path))
    (problem,) = caught.value.problems
    assert "put infer_cfg.yml of PaddleDetection's export beside it" in problem.text
    assert "(input.scale, input.mean, input.std)" in problem.text
    assert "--family ppyoloe_e2e" in problem.text
    card = derive(export(tmp_path), family="ppyoloe_e2e", assume=True).card()
    assert (card.input.resize, card.input.scale, card.score, card.iou) == ("stretch", 1 / 255, 0.5, 0.7)
