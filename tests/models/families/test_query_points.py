"""Queries with keypoints: what the authors' postprocessor makes of the same outputs; see truth/rfdetr_pose.py."""

from pathlib import Path

import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.core.data import Device
from streamkit.models.derive import derive
from streamkit.models.families import ReadOptions, begin_table, family

TRUTH = np.load(Path(__file__).parent / "truth" / "rfdetr_pose.npz")
OUTPUTS = {name: TRUTH[name] for name in ("dets", "labels", "keypoints")}
SIDE = 96
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])


def table_of(name, outputs, n, device, frame, classes=2, min_score=0.01):
    xp = Device(device).xp
    outputs = {key: xp.asarray(np.repeat(array, n, axis=0)) for key, array in outputs.items()}
    geometry = np.repeat(np.float32([[SIDE / frame[0], SIDE / frame[1], 0, 0]]), n, axis=0)
    options = ReadOptions(np.full(classes, min_score, np.float32))
    sizes = np.repeat(np.array([frame]), n, axis=0)
    labels = tuple("ab"[:classes])
    return begin_table(family(name), outputs, geometry, sizes, (SIDE, SIDE), options, labels)[0]()[0]


@DEVICES
@pytest.mark.parametrize("n", [1, 32])
def test_objects_of_rf_detr_equal_those_of_the_authors(n, device):
    table = table_of("rfdetr_pose", OUTPUTS, n, device, TRUTH["frame"].tolist())
    for row in (0, n - 1):
        objects = table[table.batch_row == row]
        for xyxy, score, class_id, points in zip(
            *(TRUTH[k] for k in ("xyxy", "score", "class_id", "points")), strict=True
        ):
            distance = np.abs(objects.xyxy - xyxy).max(axis=1) + 1e3 * (objects.class_id != class_id)
            nearest = distance.argmin()
            assert distance[nearest] < 1e-3
            assert objects.score[nearest] == pytest.approx(score, abs=1e-5)
            np.testing.assert_allclose(objects.extra["keypoints"][nearest], points, atol=1e-3)


@DEVICES
def test_not_finite_values_are_no_objects(device):
    queries = {name: array[:, :3].copy() for name, array in OUTPUTS.items()}
    queries["dets"][0] = 0.5  # in the frame
    assert len(table_of("rfdetr_pose", queries, 1, device, (300, 200))) == 6
    queries["keypoints"][0, 0, :, 4] = np.nan
    queries["labels"][0, 1] = np.nan
    queries["dets"][0, 2, 0] = np.inf
    assert len(table_of("rfdetr_pose", queries, 1, device, (300, 200))) == 0


def test_classes_without_keypoints_have_none():
    outputs = {
        "dets": OUTPUTS["dets"],
        "labels": np.zeros((1, 20, 2), np.float32),
        "keypoints": OUTPUTS["keypoints"][:, :, :5],
    }
    table = table_of("rfdetr_pose", outputs, 1, "cpu", (300, 200))
    assert family("rfdetr_pose").points({"dets": (1, 20, 4), "labels": (1, 20, 2), "keypoints": (1, 20, 5, 8)}, 2) == 5
    assert (table.extra["keypoints"][table.class_id == 1] == 0).all()
    assert table.score[table.class_id == 1] == pytest.approx(0.5)
    assert (table.extra["keypoints"][table.class_id == 0][:, :, 2] > 0).all()


@DEVICES
@pytest.mark.parametrize("n", [1, 32])
def test_detrpose_has_the_box_of_its_keypoints_in_pixels_of_the_frame(n, device):
    rng = np.random.default_rng(2)
    points = rng.uniform(20, 150, (1, 6, 17, 2)).astype(np.float32)
    scores = np.float32([[0.9, 0.8, 0.7, 0.6, 0.001, np.nan]])
    outputs = {"scores": scores, "labels": np.zeros((1, 6), np.int64), "keypoints": points}
    table = table_of("detrpose", outputs, n, device, (300, 200), classes=1)
    assert len(table) == 4 * n
    objects = table[table.batch_row == n - 1]
    np.testing.assert_allclose(objects.extra["keypoints"][:, :, :2], points[0, :4], atol=1e-3)
    np.testing.assert_allclose(objects.extra["keypoints"][:, 3, 2], scores[0, :4], atol=1e-6)
    np.testing.assert_allclose(objects.xyxy[:, :2], points[0, :4].min(axis=1), atol=1e-3)
    np.testing.assert_allclose(objects.xyxy[:, 2:], points[0, :4].max(axis=1), atol=1e-3)


def test_other_shapes_are_refused():
    for outputs, message in (
        ({"dets": (1, 20, 4), "labels": (1, 20, 2), "keypoints": (1, 20, 10, 3)}, "must be 8"),
        ({"dets": (1, 20, 4), "labels": (1, 20, 3), "keypoints": (1, 20, 10, 8)}, "holds 3 classes"),
        ({"dets": (1, 20, 4), "labels": (1, 20, 2)}, "lacks keypoints"),
    ):
        with pytest.raises(ValueError, match=message):
            family("rfdetr_pose").check(outputs, 2)
    with pytest.raises(ValueError, match=r"must be 2 \(x, y\)"):
        family("detrpose").check({"scores": (1, 9), "labels": (1, 9), "keypoints": (1, 9, 17, 3)}, 1)


def test_an_export_of_rf_detr_keypoints_is_derived_without_a_card(tmp_path):
    (tmp_path / "labels.txt").write_text("a\nb")
    sizes = {"dets": ["N", 20, 4], "labels": ["N", 20, 2], "keypoints": ["N", 20, 10, 8]}
    shaped(tmp_path / "best.onnx", sizes, image=["N", 3, SIDE, SIDE], values=OUTPUTS)
    card = derive(tmp_path / "best.onnx").card()
    assert (card.task, card.family, card.input.resize, card.score) == ("pose", "rfdetr_pose", "stretch", 0.5)
