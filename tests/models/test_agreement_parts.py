"""Masks, key points and odd outputs in the comparison of arithmetics, on outputs that are made here."""

import dataclasses

import numpy as np
import pytest

from streamkit.models.agreement import MIN_IMAGES, ArithmeticAgreement, Images
from streamkit.models.card import load_card

SIDE = 640
CELLS = 16
"""Objects in a row and in a column of an image: 256 boxes of 30 pixels that do not touch."""
GEOMETRY = np.array([[1, 1, 0, 0]], np.float32)


def anchors(*, classes, more):
    """Return (1, 4 + classes + values of `more`, 256) as YOLOv8 gives it: objects of class 0 with a score of 0.9."""
    centers = (np.arange(CELLS) + 0.5) * SIDE / CELLS
    x, y = (axis.reshape(-1) for axis in np.meshgrid(centers, centers))
    boxes = np.stack([x, y, np.full_like(x, 30), np.full_like(x, 30)])
    scores = np.zeros((classes, len(x)))
    scores[0] = 0.9
    return np.concatenate([boxes, scores, more])[None].astype(np.float32)


def compared(card, before, after, sizes=((SIDE, SIDE),), geometry=GEOMETRY):
    agreement = ArithmeticAgreement(card)
    agreement.add(before, after, Images(geometry, np.array(sizes, np.int64), card.labels))
    return agreement


@pytest.fixture(scope="module")
def segmenting(root):
    card = load_card(root / "models" / "yolov8n-seg.yaml")
    rng = np.random.default_rng(0)
    coefficients = np.abs(rng.standard_normal((32, CELLS * CELLS)))
    prototypes = np.repeat(np.repeat(rng.standard_normal((1, 32, 40, 40)), 4, axis=2), 4, axis=3)
    outputs = {"output0": anchors(classes=80, more=coefficients), "output1": prototypes.astype(np.float32)}
    return card, outputs


@pytest.fixture(scope="module")
def posing(root):
    card = load_card(root / "models" / "yolov8n-pose.yaml")
    table = anchors(classes=1, more=np.zeros((51, CELLS * CELLS)))
    points = table[:, 5:].reshape(1, 17, 3, -1)
    points[:, :, :2] = table[:, None, :2] + np.random.default_rng(0).uniform(-10, 10, (1, 17, 2, CELLS * CELLS))
    points[:, :, 2] = 0.9
    return card, {"output0": table}


def test_equal_masks_agree(segmenting):
    card, outputs = segmenting
    close = {name: values * np.float32(1.0005) for name, values in outputs.items()}
    assert compared(card, outputs, close).verdict == "same"


def test_wrong_masks_in_right_boxes_disagree(segmenting):
    card, outputs = segmenting
    wrong = {**outputs, "output1": -outputs["output1"]}
    agreement = compared(card, outputs, wrong)
    assert agreement.verdict == "different"
    assert agreement.share < 0.1


def test_equal_keypoints_agree(posing):
    card, outputs = posing
    close = {name: values + np.float32(0.01) for name, values in outputs.items()}
    assert compared(card, outputs, close).verdict == "same"


def test_wrong_keypoints_in_right_boxes_disagree(posing):
    card, outputs = posing
    moved = outputs["output0"].copy()
    moved[:, 5::3] += 6
    assert compared(card, outputs, {"output0": moved}).verdict == "different"


# ------------------------------------------------------------------------------------------------ odd outputs


@pytest.fixture(scope="module")
def classifying(root):
    return load_card(root / "models" / "color.yaml")


def classified(card, before, after):
    sizes = [(8, 8)] * MIN_IMAGES
    return compared(card, {"shares": before}, {"shares": after}, sizes, None)


def test_an_infinite_value_on_both_sides_does_not_hide_a_difference(classifying):
    """A network may mask what it rules out with minus infinity."""
    before = np.random.default_rng(0).random((MIN_IMAGES, 6)).astype(np.float32)
    before[:, 0] = -np.inf
    assert classified(classifying, before, before * np.float32(1.0001)).verdict == "same"
    assert classified(classifying, before, before[::-1].copy()).verdict == "different"


def test_infinite_values_of_opposite_sign_disagree(classifying):
    before = np.ones((MIN_IMAGES, 6), np.float32)
    before[:, 0] = -np.inf
    agreement = classified(classifying, before, np.where(np.isinf(before), np.float32(np.inf), before))
    assert agreement.verdict == "different"


def test_outputs_with_different_row_counts_are_compared_by_objects(root):
    """A network that selects objects itself may give another number of rows."""
    card = dataclasses.replace(load_card(root / "models" / "yolov8n.yaml"))
    before = {"output0": anchors(classes=80, more=np.zeros((0, CELLS * CELLS)))}
    after = {"output0": before["output0"][:, :, :-1].copy()}
    agreement = compared(card, before, after)
    assert agreement.verdict == "same"
    assert 0.99 < agreement.share < 1


def test_outputs_of_different_shapes_without_objects_disagree(classifying):
    before = np.ones((MIN_IMAGES, 6), np.float32)
    agreement = classified(classifying, before, before[:, :5].copy())
    assert agreement.verdict == "different"
