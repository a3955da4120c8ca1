"""YOLO-NAS: the objects of super-gradients itself, of both of its exports; see truth/yolo_nas.py."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from support.shaped_networks import shaped

from streamkit.core.data import Device
from streamkit.core.errors import ModelError
from streamkit.models.derive import derive
from streamkit.models.families import ReadOptions, begin_table, family

TRUTH = np.load(Path(__file__).parent / "truth" / "yolo_nas.npz")
SIZE = (96, 96)
LABELS = ("a", "b", "c")
SELECTED = {
    "graph2_num_predictions": "count",
    "graph2_pred_boxes": "pred_boxes",
    "graph2_pred_scores": "pred_scores",
    "graph2_pred_classes": "pred_classes",
}
EXPORTS = {
    "yolo_world": {"1135": TRUTH["boxes"], "1127": TRUTH["scores"]},
    "efficient_nms": {name: TRUTH[key] for name, key in SELECTED.items()},
}
COUNT = int(TRUTH["count"][0, 0])
OBJECTS = {
    "yolo_world": TRUTH["objects"],
    # with several classes of a box
    "efficient_nms": np.column_stack([TRUTH[f"pred_{key}"][0, :COUNT] for key in ("boxes", "scores", "classes")]),
}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("n", [1, 32])
@pytest.mark.parametrize("name", EXPORTS)
def test_objects_equal_those_of_the_authors(name, n, device):
    xp = Device(device).xp
    outputs = {key: xp.asarray(np.repeat(array, n, axis=0)) for key, array in EXPORTS[name].items()}
    geometry = np.tile(np.float32([1, 1, 0, 0]), (n, 1))
    sizes = np.tile([SIZE], (n, 1))
    options = ReadOptions(np.full(3, 0.25, np.float32), iou=0.6)
    table = begin_table(family(name), outputs, geometry, sizes, SIZE, options, LABELS)[0]()[0]
    objects = OBJECTS[name][np.argsort(-OBJECTS[name][:, 4], kind="stable")]
    boxes = objects[:, :4].clip(0, 96)
    objects = objects[(boxes[:, 2:] > boxes[:, :2]).all(axis=1)]
    assert len(objects) > 8
    for row in range(n):
        of_frame = table[table.batch_row == row]
        np.testing.assert_allclose(of_frame.score, objects[:, 4], atol=1e-4)
        assert of_frame.class_id.tolist() == objects[:, 5].tolist()
        np.testing.assert_allclose(of_frame.xyxy, objects[:, :4].clip(0, 96), atol=0.01)


@pytest.mark.parametrize("name", EXPORTS)
def test_the_export_is_derived(name, tmp_path):
    (tmp_path / "labels.txt").write_text("a\nb\nc")
    outputs = EXPORTS[name]
    shapes = {key: list(array.shape) for key, array in outputs.items()}
    integers = ("graph2_num_predictions", "graph2_pred_classes")
    path = shaped(tmp_path / "best.onnx", shapes, image=[1, 3, *SIZE], values=outputs, integers=integers)
    with pytest.raises(ModelError, match=r"YOLO-NAS.* have these outputs; write a card and complete it"):
        derive(path)
    network = onnx.load(path)
    network.graph.node[0].name = "/model/heads/head1/stem/seq/conv/Conv"
    onnx.save(network, path)
    card = derive(path).card()
    assert (card.family, card.input.resize, card.input.pad, card.score, card.iou) == (
        name,
        "letterbox",
        114,
        0.25,
        0.7,
    )
