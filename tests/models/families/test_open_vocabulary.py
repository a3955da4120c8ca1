"""The outputs of open-vocabulary exports: YOLO-World's two, and OWLv2's logits beside others."""

import numpy as np
import pytest

from streamkit.models.families import ReadOptions, family, unpack

SCORES = np.array([[[0.9, 0.1], [0.85, 0.2], [0.1, 0.6]]], np.float32)
BOXES = np.array([[[10, 10, 50, 50], [11, 10, 50, 50], [60, 20, 90, 80]]], np.float32)
GEOMETRY = np.array([[1, 1, 0, 0]], np.float32)
SIZES = np.array([[100, 100]])
INPUT = (100, 100)


def read(name, outputs, thresholds=(0.5, 0.5), **options):
    reads = family(name).selecting("best_class" if name == "detr" else "")
    reads.check({key: value.shape for key, value in outputs.items()}, len(thresholds))
    read_options = ReadOptions(np.array(thresholds, np.float32), iou=0.5, **options)
    packed = reads.read(outputs, GEOMETRY, SIZES, INPUT, read_options)
    return unpack(packed.rows, packed.counts, ("car", "van"), {})


def test_yolo_world_has_scores_and_boxes_of_anchors():
    table = read("yolo_world", {"scores": SCORES, "boxes": BOXES})
    assert table.label == ["car", "van"]
    np.testing.assert_allclose(table.xyxy, BOXES[0, [0, 2]])
    np.testing.assert_allclose(table.score, [0.9, 0.6])
    several = read("yolo_world", {"boxes": BOXES, "scores": SCORES}, (0.5, 0.15), multi_label=True)
    assert sorted(several.label) == ["car", "van", "van"]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"out": SCORES, "boxes": BOXES}, "reads scores .* and boxes"),
        ({"scores": SCORES, "boxes": BOXES[:, :, :3]}, "dimension 2 of output 'boxes' must be 4"),
        ({"scores": SCORES[:, :, :1], "boxes": BOXES}, "holds 1 classes, and the label list has 2"),
    ],
)
def test_other_outputs_are_refused(outputs, message):
    with pytest.raises(ValueError, match=message):
        read("yolo_world", outputs)


def test_logits_and_boxes_are_read_beside_other_outputs():
    shares = np.array([[[0.3, 0.3, 0.4, 0.4], [0.75, 0.5, 0.3, 0.6]]], np.float32)
    logits = np.array([[[3.0, -3.0], [-3.0, 1.0]]], np.float32)
    table = read("detr", {"logits": logits, "pred_boxes": shares, "text_embeds": shares, "image_embeds": shares[None]})
    assert table.label == ["car", "van"]
    np.testing.assert_allclose(table.xyxy, [[10, 10, 50, 50], [60, 20, 90, 80]], atol=1e-3)
    np.testing.assert_allclose(table.score, 1 / (1 + np.exp([-3.0, -1.0])), rtol=1e-5)
