"""DetectNet_v2: the objects of NVIDIA's own postprocessor with non-max suppression; see truth/detectnet.py."""

from pathlib import Path

import numpy as np
import pytest
from support.shaped_networks import shaped

from streamkit.core.data import Device
from streamkit.core.errors import ModelError
from streamkit.models.derive import derive
from streamkit.models.families import CAUSES, ReadOptions, family

TRUTH = np.load(Path(__file__).parent / "truth" / "detectnet.npz")
SIZE = (128, 80)
NAMES = ("output_cov/Sigmoid:0", "output_bbox/BiasAdd:0")


def read(scores, distances, n, xp, min_score=0.3):
    outputs = {
        name: xp.asarray(np.repeat(maps, n, axis=0)) for name, maps in zip(NAMES, (scores, distances), strict=True)
    }
    geometry = np.tile(np.float32([*(SIZE / TRUTH["frame"]), 0, 0]), (n, 1))
    sizes = np.repeat(TRUTH["frame"][None], n, axis=0)
    options = ReadOptions(np.full(2, min_score, np.float32), iou=0.5)
    packed = family("detectnet").read(outputs, geometry, sizes, SIZE, options)
    if xp is np:
        return packed.rows, packed.counts
    return packed.rows.get(), packed.counts.get()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("n", [1, 32])
def test_objects_equal_those_of_the_authors(n, device):
    objects = TRUTH["objects"]
    rows, counts = read(TRUTH["scores"], TRUTH["distances"], n, Device(device).xp)
    assert len(objects) == 4
    for row in range(n):
        assert counts[row, 0] == len(objects)
        order = np.lexsort((rows[row, :4, 0], rows[row, :4, 5]))
        assert rows[row, order, 5].tolist() == objects[:, 0].tolist()
        np.testing.assert_allclose(rows[row, order, :4], objects[:, 1:], atol=1e-3)
        best = [TRUTH["scores"][0, label, :, half].max() for label in (0, 1) for half in (slice(4), slice(4, 8))]
        np.testing.assert_allclose(rows[row, order, 4], best)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_values_that_are_not_finite_are_counted(device):
    scores = TRUTH["scores"].copy()
    scores[0, 0, :2, 0] = np.nan
    distances = TRUTH["distances"].copy()
    best = scores[0, 1].argmax()
    distances[0, 5].flat[best] = np.inf
    rows, counts = read(scores, distances, 1, Device(device).xp)
    assert counts[0, 1 + CAUSES.index("not_finite")] == 3
    assert np.isfinite(rows).all()


def test_a_network_of_tao_is_derived_and_its_classes_are_asked_for(tmp_path):
    outputs = {NAMES[0]: ["N", 3, 34, 60], NAMES[1]: ["N", 12, 34, 60]}
    path = shaped(tmp_path / "best.onnx", outputs, image=["N", 3, 544, 960])
    with pytest.raises(ModelError) as caught:
        derive(path)
    (problem,) = caught.value.problems
    assert "no source names 3 classes (family detectnet" in problem.text
    (tmp_path / "labels.txt").write_text("person\nbag\nface")
    card = derive(path).card()
    assert (card.family, card.input.resize, card.input.scale, card.iou) == ("detectnet", "stretch", 1 / 255, 0.5)
