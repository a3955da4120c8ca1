"""Outputs of networks with a selection of their own, and of DeepStream-Yolo: inputs, numbers of objects, bad values."""

import numpy as np
import onnx
import pytest
from support.shaped_networks import shaped

from streamkit.core.data import Device
from streamkit.core.errors import ModelError
from streamkit.models.derive import derive
from streamkit.models.families import CAUSES, ReadOptions, family

SIZE = (64, 64)
BOXES = np.array([[[2, 4, 20, 30], [30, 4, 50, 30], [2, 40, 20, 60], [30, 40, 50, 60]]], np.float32)
SCORES = np.array([[0.9, 0.8, 0.7, 0.6]], np.float32)
LABELS = np.array([[0, 1, 2, 1]])
FORMS = {
    "efficient_nms": {
        "num_dets": np.array([[4]], np.int32),
        "det_boxes": BOXES,
        "det_scores": SCORES,
        "det_classes": LABELS.astype(np.int32),
    },
    "mmdeploy": {"dets": np.concatenate([BOXES, SCORES[..., None]], axis=2), "labels": LABELS},
    "deepstream_yolo": {"output": np.concatenate([BOXES, SCORES[..., None], LABELS[..., None]], axis=2)},
    "ppyoloe_e2e": {
        "rows": np.concatenate([LABELS[..., None], SCORES[..., None], BOXES], axis=2)[0],
        "count": np.array([4], np.int32),
    },
}
PLACES = {"efficient_nms": "det_boxes", "mmdeploy": "dets", "deepstream_yolo": "output", "ppyoloe_e2e": "rows"}


def read(name, outputs, xp):
    outputs = {
        key: xp.asarray(array.astype(np.float32) if array.dtype == np.float64 else array)
        for key, array in outputs.items()
    }
    options = ReadOptions(np.full(3, 0.5, np.float32))
    packed = family(name).read(outputs, np.float32([[1, 1, 0, 0]]), np.array([SIZE]), SIZE, options)
    return (packed.rows, packed.counts) if xp is np else (packed.rows.get(), packed.counts.get())


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", FORMS)
def test_boxes_that_are_not_finite_are_counted(name, bad, device):
    outputs = {key: array.copy() for key, array in FORMS[name].items()}
    place = outputs[PLACES[name]].reshape(4, -1)
    place[2, -1 if name == "ppyoloe_e2e" else 0] = bad
    rows, counts = read(name, outputs, Device(device).xp)
    assert rows[0, :3, 4].tolist() == SCORES[0, [0, 1, 3]].tolist()
    assert counts[0, 0] == 3
    assert counts[0, 1 + CAUSES.index("not_finite")] == 1


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("name", "count"), [("efficient_nms", "num_dets"), ("ppyoloe_e2e", "count")])
def test_only_so_many_rows_are_objects(name, count, device):
    outputs = FORMS[name] | {count: np.full_like(FORMS[name][count], 2)}
    rows, counts = read(name, outputs, Device(device).xp)
    assert counts[0, 0] == 2
    assert rows[0, :2, 5].tolist() == [0, 1]


def export(folder, layer=""):
    (folder / "labels.txt").write_text("a\nb\nc")
    path = shaped(folder / "net.onnx", {"dets": ["N", 100, 5], "labels": ["N", 100]}, integers=("labels",))
    network = onnx.load(path)
    network.graph.node[0].name = layer
    onnx.save(network, path)
    return path


def test_rtmdet_is_known_by_its_layers(tmp_path):
    card = derive(export(tmp_path, "/bbox_head/rtm_cls.0/Conv")).card()
    assert (card.family, card.score) == ("mmdeploy", 0.3)
    assert (card.input.resize, card.input.anchor, card.input.color, card.input.scale) == (
        "letterbox",
        "top_left",
        "bgr",
        1,
    )
    assert tuple(card.input.mean) == (103.53, 116.28, 123.675)


def test_the_input_of_other_detectors_of_mmdetection_is_asked_for(tmp_path):
    with pytest.raises(ModelError) as caught:
        derive(export(tmp_path))
    (problem,) = caught.value.problems
    assert "RTMDet (bgr, padded at the top left" in problem.text
    assert "--family mmdeploy" in problem.text
