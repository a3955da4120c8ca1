"""Networks whose map is the brightness of each place, so that its values are known for any picture."""

from pathlib import Path

import numpy as np
import pytest

from streamkit.core.data import Color, Frame, Surface
from streamkit.models.card import Card, load_card
from streamkit.ops.color import from_rgb

SIZE = (48, 32)
INPUT = "input: {size: [48, 32], resize: %s, scale: 1/255, pad: 0}\n"


def depth_card(folder: Path, family: str = "metric_depth", factor: float = 10.0, resize: str = "stretch") -> Card:
    """Write a network for depth: `factor` where the picture is white, 0 where it is black."""
    return _card(folder, "depth", family, _network(factor, anomaly=False), resize)


def anomaly_card(folder: Path, factor: float = 1.0) -> Card:
    """Write a network as anomalib exports it: the map is `factor` times the brightness, the score its maximum."""
    return _card(folder, "anomaly", "anomalib", _network(factor, anomaly=True), "stretch")


def _card(folder: Path, task: str, family: str, network, resize: str) -> Card:
    onnx = pytest.importorskip("onnx")
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(network, folder / f"{task}.onnx")
    spec = INPUT % resize if resize == "letterbox" else (INPUT % resize).replace(", pad: 0", "")
    (folder / f"{family}.yaml").write_text(f"task: {task}\nfamily: {family}\nfile: {task}.onnx\n{spec}score: 0.5\n")
    return load_card(folder / f"{family}.yaml")


def _network(factor: float, anomaly: bool):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    real = onnx.TensorProto.FLOAT
    width, height = SIZE
    name = "anomaly_map" if anomaly else "predicted_depth"
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], axes=[1], keepdims=int(anomaly)),
        helper.make_node("Mul", ["mean", "factor"], [name]),
    ]
    outputs = [helper.make_tensor_value_info(name, real, ["N", *([1] if anomaly else []), height, width])]
    if anomaly:
        nodes += [
            helper.make_node("ReduceMax", [name], ["score"], axes=[1, 2], keepdims=0),
            helper.make_node("ReduceMax", ["score"], ["pred_score"], axes=[1], keepdims=1),
            helper.make_node("Greater", ["pred_score", "half"], ["pred_label"]),
            helper.make_node("Greater", [name, "half"], ["pred_mask"]),
        ]
        outputs += [
            helper.make_tensor_value_info("pred_score", real, ["N", 1]),
            helper.make_tensor_value_info("pred_label", onnx.TensorProto.BOOL, ["N", 1]),
            helper.make_tensor_value_info("pred_mask", onnx.TensorProto.BOOL, ["N", 1, height, width]),
        ]
    numbers = {"factor": factor, "half": 0.5}
    constants = [onnx.numpy_helper.from_array(np.array(number, np.float32), key) for key, number in numbers.items()]
    images = helper.make_tensor_value_info("images", real, ["N", 3, height, width])
    graph = helper.make_graph(nodes, "maps", [images], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def gray_frames(levels: np.ndarray, source: str = "test", color: Color | None = None) -> list[Frame]:
    """Frames of gray pictures, (n, height, width) uint8."""
    color = color or Color("bt709", full_range=True)
    rgb = np.repeat(levels[..., None], 3, axis=3)
    height, width = levels.shape[1:]
    return [
        Frame(source, i, i / 10, width, height, Surface(from_rgb(picture, color), color))
        for i, picture in enumerate(rgb)
    ]
