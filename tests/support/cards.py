"""Cards for the networks of the test data, and tiny networks for the other families."""

from pathlib import Path

import numpy as np
import pytest

from streamkit.models.card import Card, find_card, load_card

CARDS = {
    "seg": (
        "segment",
        "yolov8_seg",
        "yolov8n-seg_320_deq_dyn.onnx",
        "size: [320, 320], scale: 1/255",
        "labels: coco\niou: 0.7",
    ),
    "deeplab": (
        "segment",
        "semantic",
        "deeplabv3_mnv2_voc_257.onnx",
        "size: [257, 257], resize: stretch, color: rgb, scale: 1/127.5, mean: 1",
        "labels: voc_segmentation",
    ),
    "movenet": (
        "pose",
        "movenet",
        "movenet_lightning_192.onnx",
        "size: [192, 192], pad: 0",
        "labels: person\nkeypoints: coco\nscore: 0.2",
    ),
    "yunet": (
        "detect",
        "yunet",
        "yunet_n_dynamic.onnx",
        "size: [640, 640], anchor: top_left, pad: 0, color: bgr",
        "labels: face\nkeypoints: face\nscore: 0.6\niou: 0.3",
    ),
    "nano": (
        "detect",
        "yolox",
        "yolox_nano_dyn.onnx",
        "size: [416, 416], anchor: top_left, color: bgr",
        "labels: coco",
    ),
}


def card_of(name: str, data: Path, folder: Path) -> Card:
    """Write a card in `folder` for a network of the test data."""
    task, family, file, input_spec, rest = CARDS[name]
    path = folder / f"{name}.yaml"
    path.write_text(f"task: {task}\nfamily: {family}\nfile: {data}/models/{file}\ninput: {{{input_spec}}}\n{rest}\n")
    return load_card(find_card(name, folder))


def tiny_pose(folder: Path, points: int = 4) -> Card:
    """Write a YOLOv8-pose network that detects an object in every image; brighter images give higher scores.

    Its box is 10, 20, 50, 60 in network pixels, its points lie on the diagonal, and their scores rise from 0.2 on.
    """
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    numpy_helper = onnx.numpy_helper
    anchors = np.zeros((1, 5 + 3 * points, 2), np.float32)  # the second anchor is nothing
    anchors[0, :4, 0] = 30, 40, 40, 40
    for i in range(points):
        anchors[0, 5 + 3 * i : 8 + 3 * i, 0] = 10 + 10 * i, 20 + 10 * i, 0.2 + 0.2 * i
    first = np.zeros_like(anchors)
    first[0, 4, 0] = 1
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], axes=[1, 2, 3], keepdims=1),
        helper.make_node("Squeeze", ["mean", "last"], ["one"]),
        helper.make_node("Mul", ["one", "first"], ["score"]),
        helper.make_node("Add", ["score", "anchors"], ["output0"]),
    ]
    graph = helper.make_graph(
        nodes,
        "pose",
        [helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, ["N", 3, 64, 64])],
        [helper.make_tensor_value_info("output0", onnx.TensorProto.FLOAT, ["N", 5 + 3 * points, 2])],
        [
            numpy_helper.from_array(anchors, "anchors"),
            numpy_helper.from_array(first, "first"),
            numpy_helper.from_array(np.array([3], np.int64), "last"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, folder / "tiny.onnx")
    names = ", ".join(f"p{i}" for i in range(points))
    (folder / "tiny.yaml").write_text(
        "task: pose\nfamily: yolov8_pose\nfile: tiny.onnx\ninput: {size: [64, 64], scale: 1/255}\n"
        f"labels: [thing]\nkeypoints: [{names}]\nskeleton: [[p0, p1], [p1, p2]]\nscore: 0.3\n"
    )
    return load_card(folder / "tiny.yaml")
