"""The plain reference of `models check`: against the families, against the exact tensor, and by hand."""

import dataclasses

import cv2
import numpy as np
import pytest
from support.detector_forms import CLASSES, FORMS, SINGLE_CLASS, random_outputs, reader_of

from streamkit.core.data import Color, Surface
from streamkit.models import reference
from streamkit.models.families import FAMILIES, ReadOptions
from streamkit.ops.color import from_rgb, to_rgb
from streamkit.ops.letterbox import InputSpec
from streamkit.ops.preprocess import preprocess, preprocess_reference

# ------------------------------------------------------------------------------------------------- image to tensor


def picture(width: int = 90, height: int = 60) -> np.ndarray:
    """A smooth picture, so that ways of resampling differ little."""
    small = np.random.default_rng(4).integers(20, 235, (4, 5, 3), np.uint8)
    return cv2.resize(small, (width, height), interpolation=cv2.INTER_CUBIC)


@pytest.mark.parametrize("matrix", ["bt601", "bt709", "bt2020"])
@pytest.mark.parametrize("full_range", [False, True])
@pytest.mark.parametrize("siting", [(0.0, 0.5), (0.5, 0.5), (0.0, 0.0)])
@pytest.mark.parametrize("size", [(90, 60), (89, 59)])
def test_rgb_equals_the_unrounded_conversion(matrix, full_range, siting, size):
    color = Color(matrix, full_range, *siting)
    surface = Surface(from_rgb(picture(*size), color), color)
    rgb = reference.rgb(surface, *size)
    assert (rgb.shape, rgb.dtype) == ((size[1], size[0], 3), np.float32)
    assert np.abs(rgb - to_rgb(surface, *size)).max() <= 0.51


def test_colors_outside_of_rgb_are_clipped():
    color = Color("bt601", full_range=True)
    data = np.concatenate([np.full((4, 4), 255), np.full((2, 4), 255)]).astype(np.uint8)
    assert reference.rgb(Surface(data, color), 4, 4).max() == 255
    assert reference.rgb(Surface(255 - data, color), 4, 4).min() == 0


SPECS = {
    "letterbox": InputSpec((64, 64)),
    "top left": InputSpec((64, 64), anchor="top_left", pad=(10, 20, 30)),
    "upright": InputSpec((32, 80), pad=7),
    "stretch": InputSpec((48, 64), "stretch"),
    "crop": InputSpec((32, 40), "crop", resize_to=48),
    "crop of the short side": InputSpec((40, 32), "crop"),
    "crop of more than there is": InputSpec((64, 64), "crop", resize_to=40),
    "antialias": InputSpec((24, 20), "stretch", antialias=True),
    "antialias of a letterbox": InputSpec((24, 24), antialias=True),
    "larger": InputSpec((160, 160), antialias=True),
    "normalized": InputSpec((64, 64), color="bgr", scale=1 / 255, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)),
    "channels last": InputSpec((64, 64), layout="nhwc"),
    "whole numbers": InputSpec((64, 64), dtype="u8", layout="nhwc", scale=1.2),
    "half": InputSpec((64, 64), dtype="f16", scale=1 / 255),
}


@pytest.mark.parametrize("size", [(90, 60), (60, 90), (61, 45)])
@pytest.mark.parametrize("name", SPECS)
def test_the_tensor_equals_the_exact_formula(name, size):
    spec = SPECS[name]
    color = Color("bt709", full_range=True)
    surface = Surface(from_rgb(picture(*size), color), color)
    exact = preprocess_reference([surface], [size], spec)
    geometry = preprocess([surface], [size], spec)[1]
    tensor, placing = reference.tensor(reference.rgb(surface, *size), spec)
    assert (tensor.shape, tensor.dtype) == (exact.shape, exact.dtype)
    np.testing.assert_allclose(placing, geometry[0], rtol=1e-6)
    levels = spec.scale / np.array(spec.std).reshape((3, 1, 1) if spec.layout == "nchw" else 3)
    errors = np.abs(tensor.astype(np.float64) - exact) / levels
    assert errors.max() < 6
    assert errors.mean() < 0.7


def test_antialiasing_is_a_triangle_filter():
    spec = InputSpec((2, 2), "stretch", antialias=True, layout="nhwc")
    rgb = np.zeros((8, 8, 3), np.float32)
    rgb[:, 3] = 80
    weights = np.array([1 - abs(x + 0.5 - 2) / 4 for x in range(6)])
    column = 80 * weights[3] / weights.sum()
    tensor, _ = reference.tensor(rgb, spec)
    np.testing.assert_allclose(tensor[0, :, 0], column, rtol=1e-5)


# --------------------------------------------------------------------------------------------------- outputs to objects

SIZE = (96, 64)
FRAME = (180, 110)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("geometry", [(0.5, 0.5, 0.0, 4.0), (0.25, 0.75, 3.0, 0.0)])
@pytest.mark.parametrize("iou", [0.2, 0.6])
def test_objects_equal_those_of_the_family(form, geometry, iou):
    outputs = random_outputs(form, 1, np.float32, seed=3, size=SIZE)
    reads = reader_of(form)
    classes = 1 if form in SINGLE_CLASS else CLASSES
    options = ReadOptions(np.full(classes, 0.3, np.float32), iou=iou, top_k=9999)
    packed = reads.read(outputs, np.array([geometry], np.float32), np.array([FRAME]), SIZE, options)
    rows = packed.rows[0, : packed.counts[0, 0]]
    select = getattr(reads, "select", "") or ("top_k" if form == "detr raw" else "")
    objects = reference.objects(
        reads, outputs, geometry, FRAME, InputSpec(SIZE), min_score=0.3, iou=iou, select=select, classes=classes
    )
    objects = objects[(objects[:, 5] >= 0) & (objects[:, 5] < classes)]
    assert len(rows) == len(objects) > 0
    np.testing.assert_allclose(rows[:, :6], objects[:, :6], rtol=1e-4, atol=2e-3)
    behind = in_source_pixels(
        objects[:, 6:], {"keypoints": 3, "corners": 2}.get(next(iter(reads.columns), ""), 0), geometry
    )
    if form != "yunet":  # the reference reads no landmarks
        np.testing.assert_allclose(rows[:, 6 : 6 + behind.shape[1]], behind, rtol=1e-4, atol=2e-3)


def in_source_pixels(behind: np.ndarray, step: int, geometry: tuple[float, ...]) -> np.ndarray:
    """The values behind the class, with x and y of each point in source pixels."""
    moved = behind.copy()
    if step:
        moved[:, 0::step] = (behind[:, 0::step] - geometry[2]) / geometry[0]
        moved[:, 1::step] = (behind[:, 1::step] - geometry[3]) / geometry[1]
    return moved


def test_boxes_and_scores_of_yolo_world_are_read():
    boxes = np.array([[[2, 2, 20, 20], [30, 8, 60, 40]]])
    scores = np.array([[[0.2, 0.9], [0.8, 0.1]]])
    objects = reference.objects(
        FAMILIES["yolo_world"],
        {"Scores": scores, "Boxes": boxes},
        (1, 1, 0, 0),
        SIZE,
        InputSpec(SIZE),
        min_score=0.5,
        iou=0.5,
    )
    assert objects.tolist() == [[2, 2, 20, 20, 0.9, 1], [30, 8, 60, 40, 0.8, 0]]


def test_objects_are_clipped_and_those_outside_dropped():
    rows = np.array(
        [[[-9, -8, 20, 20, 0.9, 0], [50, 50, 400, 300, 0.8, 0], [-9, 2, 0, 9, 0.7, 0], [5, 200, 9, 220, 0.6, 0]]]
    )
    objects = reference.objects(
        FAMILIES["yolo_e2e"], {"o": rows}, (1, 1, 0, 0), FRAME, InputSpec(SIZE), min_score=0.5, iou=0.5
    )
    assert objects[:, :5].tolist() == [[0, 0, 20, 20, 0.9], [50, 50, 180, 110, 0.8]]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([0, 0, 10, 10], [0, 0, 10, 10], 1),
        ([0, 0, 10, 10], [5, 0, 15, 10], 1 / 3),
        ([0, 0, 10, 10], [0, 4, 10, 24], 6 / 24),
        ([0, 0, 10, 10], [10, 0, 20, 10], 0),
        ([0, 0, 10, 10], [20, 20, 30, 30], 0),
        ([0, 0, 0, 0], [0, 0, 0, 0], 0),
    ],
)
def test_iou_of_boxes_is_intersection_over_union(a, b, expected):
    assert reference.overlap(np.array(a, float), np.array(b, float)) == pytest.approx(expected)


def rotated_row(cx: float, cy: float, width: float, height: float, angle: float) -> np.ndarray:
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    corners = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * (width / 2, height / 2) @ turn + (cx, cy)
    return np.concatenate([np.zeros(6), corners.ravel()])


def test_iou_of_rotated_boxes_is_intersection_over_union():
    """Two Gaussians of equal size, d standard deviations apart, have a Bhattacharyya distance of d^2 / 8."""
    box = rotated_row(20, 20, 12, 6, 0.4)
    assert reference.rotated_overlap(box, box) == pytest.approx(1, abs=1e-6)
    away = 2 * 12 / np.sqrt(12) * np.array([np.cos(0.4), np.sin(0.4)])  # two standard deviations along the width
    moved = rotated_row(*(np.array([20, 20]) + away), 12, 6, 0.4)
    assert reference.rotated_overlap(box, moved) == pytest.approx(1 - np.sqrt(1 - np.exp(-4 / 8)))
    wide = rotated_row(20, 20, 24, 12, 0.4)
    # sizes that differ by two: the log of (5/2) / 2 in each of two directions, halved
    unlike = 0.5 * np.log((2.5**2) / (1 * 4))
    assert reference.rotated_overlap(box, wide) == pytest.approx(1 - np.sqrt(1 - np.exp(-unlike)))
    assert reference.rotated_overlap(box, rotated_row(20, 20, 0, 0, 0.4)) == 0


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        ("logits", [np.exp(3) / (np.exp(3) + np.exp(4)), np.exp(4) / (np.exp(3) + np.exp(4))]),
        ("probabilities", [3, 4]),
        ("embedding", [0.6, 0.8]),
    ],
)
def test_the_vector_of_an_image_has_the_form_of_its_family(family, expected):
    outputs = {"o": np.array([[3.0, 4.0]]).reshape(1, 2, 1, 1), "last_hidden_state": np.zeros((1, 5, 2))}
    assert reference.answer(FAMILIES[family], outputs) == pytest.approx(expected)


def test_a_mask_is_where_the_logits_of_its_prototypes_are_above_0():
    """Prototypes at a quarter of an input of 32 x 16, of a frame of 64 x 32: 8 frame pixels a place."""
    prototypes = np.zeros((2, 4, 8))
    prototypes[0] = -1
    prototypes[1] = np.arange(8)
    mask = reference.mask(
        np.array([1.0, 0.5]), prototypes, np.array([4, 6, 60, 20]), (0.5, 0.5, 0, 0), (64, 32), InputSpec((32, 16))
    )
    assert (mask.shape, mask.dtype) == ((32, 64), bool)
    rows, columns = np.nonzero(mask)
    # the logit -1 + p / 2 is above 0 from place 2 on, whose middle is at 8 * 2.5 = 20 pixels
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (6, 19, 20, 59)
    assert mask.sum() == 14 * 40


def test_a_mask_of_a_letterboxed_frame_is_in_source_pixels():
    prototypes = np.full((1, 4, 8), -1.0)
    prototypes[0, 1, 2] = 9
    spec = InputSpec((32, 16))
    mask = reference.mask(np.array([1.0]), prototypes, np.array([0, 0, 90, 90]), (0.5, 0.5, 4, 2), (40, 20), spec)
    rows, columns = np.nonzero(mask)
    # the middle of place (2, 1) is at network pixel (10, 6), which is frame pixel (12, 8)
    assert (columns.mean() + 0.5, rows.mean() + 0.5) == (12, 8)


def test_a_mask_of_negative_coefficients_is_empty():
    prototypes = np.ones((1, 4, 8))
    args = (np.array([0, 0, 40, 20]), (0.5, 0.5, 0, 0), (40, 20), InputSpec((32, 16)))
    assert reference.mask(np.array([1.0]), prototypes, *args).all()
    assert not reference.mask(np.array([-1.0]), prototypes, *args).any()


def test_each_field_of_a_spec_changes_the_tensor():
    """A spec that differs in one value gives another tensor."""
    rgb = picture().astype(np.float32)
    spec = dataclasses.replace(SPECS["normalized"], layout="nhwc")
    tensor, _ = reference.tensor(rgb, spec)
    for changes in (
        {"pad": 0},
        {"scale": 1 / 200},
        {"mean": (0.4, 0.5, 0.61)},
        {"std": (0.2, 0.3, 0.41)},
        {"color": "rgb"},
    ):
        other, _ = reference.tensor(rgb, dataclasses.replace(spec, **changes))
        assert not np.allclose(tensor, other, atol=1e-3)
