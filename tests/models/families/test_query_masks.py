"""Queries with a mask of their own: what the authors' postprocessors make of the same outputs; see truth/."""

from pathlib import Path

import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.core.data import Device
from streamkit.models.derive import derive
from streamkit.models.families import ReadOptions, begin_table, family
from streamkit.ops import rle

FOLDER = Path(__file__).parent / "truth"
RF_DETR = np.load(FOLDER / "rfdetr_seg.npz")
QUERIES = np.load(FOLDER / "mask_queries.npz")
DEVICES = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
LABELS = tuple("abcde")
SIDE = 96


def table_of(name, outputs, n, device, frame=(SIDE, SIDE), top_k=300, min_score=0.3):
    xp = Device(device).xp
    outputs = {key: xp.asarray(np.repeat(array.astype(np.float32), n, axis=0)) for key, array in outputs.items()}
    geometry = np.repeat(np.float32([[SIDE / frame[0], SIDE / frame[1], 0, 0]]), n, axis=0)
    options = ReadOptions(np.full(len(LABELS), min_score, np.float32), top_k=top_k)
    sizes = np.repeat(np.array([frame]), n, axis=0)
    return begin_table(family(name), outputs, geometry, sizes, (SIDE, SIDE), options, LABELS)[0]()[0]


def inside(box, width, height):
    y, x = np.mgrid[:height, :width] + 0.5
    return (x >= box[0]) & (x <= box[2]) & (y >= box[1]) & (y <= box[3])


def rf_detr_outputs():
    return {name: RF_DETR[name] for name in ("dets", "labels", "masks")}


@DEVICES
@pytest.mark.parametrize("n", [1, 32])
def test_objects_of_rf_detr_seg_equal_those_of_the_authors(n, device):
    width, height = RF_DETR["frame"].tolist()
    table = table_of("detr_seg", rf_detr_outputs(), n, device, (width, height), top_k=len(RF_DETR["score"]))
    masks = np.unpackbits(RF_DETR["mask"], axis=-1, count=width).astype(bool)
    for row in range(n):
        objects = table[table.batch_row == row]
        np.testing.assert_allclose(objects.score, RF_DETR["score"], atol=1e-6)
        np.testing.assert_allclose(objects.xyxy, RF_DETR["xyxy"], atol=1e-3)
        assert objects.class_id.tolist() == RF_DETR["class_id"].tolist()
        if row in (0, n - 1):
            for box, mask, whole in zip(objects.xyxy, objects.extra["mask"], masks, strict=True):
                expected = whole & inside(box, width, height)
                different = np.count_nonzero((rle.decode(mask) != 0) != expected)
                assert different <= 8 + 0.01 * expected.sum()  # logits are rounded to steps


@DEVICES
@pytest.mark.parametrize("network", ["mask2former", "eomt"])
def test_instances_equal_those_of_the_authors(network, device):
    outputs = {
        "class_queries_logits": QUERIES[f"{network}_classes"],
        "masks_queries_logits": QUERIES[f"{network}_masks"],
    }
    table = table_of("mask_queries", outputs, 3, device, min_score=0.5)
    objects = table[table.batch_row == 2]
    scores = QUERIES[f"{network}_score"]
    assert len(scores) > 3
    order = np.lexsort((scores, QUERIES[f"{network}_class_id"]))
    objects = objects[np.lexsort((objects.score, objects.class_id))]
    assert objects.class_id.tolist() == QUERIES[f"{network}_class_id"][order].tolist()
    # the authors take the mean over the pixels of a larger map
    np.testing.assert_allclose(objects.score, scores[order], atol=0.02)


@DEVICES
def test_the_box_of_a_mask_contains_each_of_its_pixels(device):
    maps = QUERIES["mask2former_masks"]
    outputs = {"class_queries_logits": QUERIES["mask2former_classes"], "masks_queries_logits": maps}
    frame = (4 * SIDE, 2 * SIDE)
    table = table_of("mask_queries", outputs, 1, device, frame, top_k=5)
    for box, mask in zip(table.xyxy, table.extra["mask"], strict=True):
        y, x = np.nonzero(rle.decode(mask))
        tight = x.min(), y.min(), x.max() + 1, y.max() + 1
        assert np.abs(box - tight).max() < 4  # a place of the map is 16 by 8 pixels


@DEVICES
def test_empty_masks_and_masks_of_no_numbers_are_no_objects(device):
    classes = np.full((1, 4, 6), -9, np.float32)
    classes[0, :, 1] = 9
    maps = np.full((1, 4, 8, 8), -3, np.float32)
    maps[0, 1] = np.nan
    maps[0, 2, 2:4, 2:5] = 5
    classes[0, 3] = np.nan
    maps[0, 3] = 5
    table = table_of("mask_queries", {"class_queries_logits": classes, "masks_queries_logits": maps}, 1, device)
    assert len(table) == 1
    assert np.isfinite(table.xyxy).all()
    assert table.score[0] == pytest.approx(1 / (1 + np.exp(-5)), abs=1e-3)


def test_a_network_without_a_mask_for_each_query_is_refused():
    outputs = {"dets": (1, 20, 4), "labels": (1, 20, 5), "masks": (1, 19, 24, 24)}
    with pytest.raises(ValueError, match=r"output 'masks' .* holds 19 masks, and 'dets' .* 20 queries"):
        family("detr_seg").check(outputs, 5)
    outputs = {"class_queries_logits": (1, 12, 6), "masks_queries_logits": (1, 11, 24, 24)}
    with pytest.raises(ValueError, match="holds 11 masks"):
        family("mask_queries").check(outputs, 5)
    with pytest.raises(ValueError, match="holds 6 classes beside 1 other values, and the label list has 5"):
        family("mask_queries").check({**outputs, "class_queries_logits": (1, 12, 7)}, 5)


def test_an_export_of_rf_detr_seg_is_derived_without_a_card(tmp_path):
    (tmp_path / "labels.txt").write_text("\n".join(LABELS))
    sizes = {"dets": ["N", 20, 4], "labels": ["N", 20, 5], "masks": ["N", 20, 24, 24]}
    shaped(tmp_path / "best.onnx", sizes, image=["N", 3, SIDE, SIDE], values=rf_detr_outputs())
    card = derive(tmp_path / "best.onnx").card()
    assert (card.task, card.family, card.input.resize, card.score) == ("segment", "detr_seg", "stretch", 0.5)
    assert card.input.mean == pytest.approx((0.485, 0.456, 0.406))
