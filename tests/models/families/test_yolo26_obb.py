"""Rows of YOLO26-obb: the corners, scores and classes of the authors' own predictor; see truth/yolo26_obb.py."""

from pathlib import Path

import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.core.data import Device
from streamkit.models.derive import derive
from streamkit.models.families import ReadOptions, begin_table, family

TRUTH = np.load(Path(__file__).parent / "truth" / "yolo26_obb.npz")
LABELS = tuple(map(str, range(80)))
MIN_SCORE = 0.25


def letterbox(size, frame):
    """Geometry of a frame in the middle of the input."""
    scale = (size / frame).min()
    border = (size - np.round(frame * scale)) / 2
    return np.float32([[scale, scale, *np.round(border - 0.1)]])


def table_of(output, n, xp):
    geometry = np.repeat(letterbox(TRUTH["size"], TRUTH["frame"]), n, axis=0)
    sizes = np.repeat(TRUTH["frame"][None], n, axis=0)
    options = ReadOptions(np.full(len(LABELS), MIN_SCORE, np.float32))
    outputs = {"output0": xp.asarray(np.repeat(output, n, axis=0))}
    size = tuple(TRUTH["size"].tolist())
    return begin_table(family("yolo_e2e_obb"), outputs, geometry, sizes, size, options, LABELS)[0]()[0]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("n", [1, 32])
def test_objects_equal_those_of_the_authors(n, device):
    table = table_of(TRUTH["output"], n, Device(device).xp)
    for row in range(n):
        objects = table[table.batch_row == row]
        # the authors also return objects outside of the frame
        inside = ((TRUTH["corners"].max(axis=1) > 0) & (TRUTH["corners"].min(axis=1) < TRUTH["frame"])).all(axis=1)
        assert inside.sum() > 20
        np.testing.assert_array_equal(objects.score, TRUTH["score"][inside])
        assert objects.class_id.tolist() == TRUTH["class_id"][inside].tolist()
        distance = np.abs(objects.extra["corners"][:, :, None] - TRUTH["corners"][inside][:, None]).max(axis=3)
        assert distance.min(axis=2).max() < 0.05  # the corners begin elsewhere
        assert distance.min(axis=1).max() < 0.05


def test_not_finite_rows_are_dropped():
    output = TRUTH["output"].copy()
    output[0, :4] = np.array([np.nan, np.inf, -np.inf, np.nan])[:, None]
    output[0, 4, 6] = np.nan
    table = table_of(output, 1, np)
    assert np.isfinite(table.extra["corners"]).all()
    assert np.isfinite(table.score).all()


@pytest.mark.parametrize("labels", [80, 3])
def test_the_export_is_derived_without_metadata(labels, tmp_path):
    (tmp_path / "labels.txt").write_text("\n".join(LABELS[:labels]))
    shaped(
        tmp_path / "best.onnx", {"output0": ["N", 50, 7]}, image=["N", 3, 96, 128], values={"output0": TRUTH["output"]}
    )
    card = derive(tmp_path / "best.onnx").card()
    assert (card.family, card.input.resize, card.score) == ("yolo_e2e_obb", "letterbox", 0.25)
