"""Networks that select their objects themselves: the same masks and keypoints as the networks that do not."""

import numpy as np
import pytest

from streamkit.models.families import ReadOptions, begin_table, family

SIZE = (320, 320)
GEOMETRY = np.array([(0.5, 0.5, 0, 40)], np.float32)
SIZES = np.array([(640, 480)])


def table_of(name, outputs, xp, classes):
    reads = family(name)
    options = ReadOptions(np.full(classes, 0.25, np.float32), iou=0.7, top_k=20)
    outputs = {key: xp.asarray(value) for key, value in outputs.items()}
    labels = tuple(map(str, range(classes)))
    return begin_table(reads, outputs, GEOMETRY, SIZES, SIZE, options, labels)[0]()[0]


def rows_of(anchors: np.ndarray, classes: int) -> np.ndarray:
    """Rows x1, y1, x2, y2, score, class and what follows, of columns of anchors; zeros behind the last."""
    values = anchors[0].T
    half = values[:, 2:4] / 2
    scores = values[:, 4 : 4 + classes]
    parts = values[:, :2] - half, values[:, :2] + half, scores.max(1), scores.argmax(1), values[:, 4 + classes :]
    rows = np.column_stack(parts)
    rows = rows[np.argsort(-rows[:, 4])][:300]
    return np.concatenate([rows, np.zeros((300 - len(rows), rows.shape[1]))])[None].astype(np.float32)


def few_anchors(seed: int, classes: int, more: int) -> np.ndarray:
    """Columns of anchors that do not overlap."""
    rng = np.random.default_rng(seed)
    place = np.stack(np.meshgrid(np.arange(4), np.arange(3)), -1).reshape(-1, 2) * 70 + 60
    rest = rng.uniform(0, 0.9, (12, classes)), rng.uniform(-1, 1, (12, more)) * 20
    return np.concatenate([place, rng.uniform(30, 60, (12, 2)), *rest], axis=1).T[None].astype(np.float32)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_masks_are_decoded(device):
    from streamkit.core.data import Device

    xp = Device(device).xp
    anchors = few_anchors(1, 3, 8)
    rng = np.random.default_rng(2)
    prototypes = np.repeat(np.repeat(rng.normal(0, 1, (1, 8, 10, 10)), 8, 2), 8, 3).astype(np.float32)
    expected = table_of("yolov8_seg", {"a": anchors, "p": prototypes}, xp, 3)
    end_to_end = table_of("yolo_e2e_seg", {"rows": rows_of(anchors, 3), "p": prototypes}, xp, 3)
    assert len(expected) > 6
    np.testing.assert_allclose(end_to_end.xyxy, expected.xyxy, atol=1e-3)
    assert end_to_end.class_id.tolist() == expected.class_id.tolist()
    assert end_to_end.extra["mask"].tolist() == expected.extra["mask"].tolist()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_keypoints_are_decoded(device):
    from streamkit.core.data import Device

    xp = Device(device).xp
    anchors = few_anchors(3, 1, 15)
    expected = table_of("yolov8_pose", {"a": anchors}, xp, 1)
    end_to_end = table_of("yolo_e2e_pose", {"rows": rows_of(anchors, 1)}, xp, 1)
    assert len(expected) > 6
    np.testing.assert_allclose(end_to_end.extra["keypoints"], expected.extra["keypoints"], atol=1e-3)


def test_the_number_of_points_and_coefficients_is_checked():
    assert family("yolo_e2e_pose").points({"o": (1, 300, 57)}, 1) == 17
    assert family("yolo_e2e_pose").points({"o": (1, 300, "n")}, 1) is None
    with pytest.raises(ValueError, match="has 58 values per row, which are not box, score and class, and 3 per point"):
        family("yolo_e2e_pose").check({"o": (1, 300, 58)}, 1)
    with pytest.raises(ValueError, match=r"dimension 2 of output 'o' must be 38 \(box, score, class and mask coeff"):
        family("yolo_e2e_seg").check({"o": (1, 300, 37), "p": (1, 32, 80, 80)}, 1)
