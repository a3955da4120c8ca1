"""Make activity.onnx, a network without any training: whether what a clip shows stands still or moves.

    python models/make_activity.py

Input `frames` (N, 8, 3, 32, 32) f32, RGB, 0..1. Output (N, 2) f32: the probabilities of `NAMES`. It compares the mean
difference of the brightness of a pixel, from one frame to the next, with `THRESHOLD`. The crop of an object that moves
changes too, because what is behind the object does.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIZE = 32
FRAMES = 8
NAMES = ("still", "moves")
THRESHOLD = 0.0155
GAIN = 300.0


def network() -> onnx.ModelProto:
    """The network."""
    constants = {
        "time": np.array([1]),
        "from_second": np.array([1]),
        "from_first": np.array([0]),
        "to_last": np.array([FRAMES]),
        "to_last_but_one": np.array([FRAMES - 1]),
        "gain": np.array([[-GAIN, GAIN]], np.float32),
        "bias": np.array([[GAIN * THRESHOLD, -GAIN * THRESHOLD]], np.float32),
        "column": np.array([-1, 1]),
    }
    nodes = [
        helper.make_node("ReduceMean", ["frames"], ["brightness"], axes=[2], keepdims=0),
        helper.make_node("Slice", ["brightness", "from_second", "to_last", "time"], ["later"]),
        helper.make_node("Slice", ["brightness", "from_first", "to_last_but_one", "time"], ["earlier"]),
        helper.make_node("Sub", ["later", "earlier"], ["change"]),
        helper.make_node("Abs", ["change"], ["difference"]),
        helper.make_node("ReduceMean", ["difference"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Reshape", ["mean", "column"], ["means"]),
        helper.make_node("Mul", ["means", "gain"], ["scaled"]),
        helper.make_node("Add", ["scaled", "bias"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "activity",
        [helper.make_tensor_value_info("frames", onnx.TensorProto.FLOAT, ["N", FRAMES, 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("probabilities", onnx.TensorProto.FLOAT, ["N", len(NAMES)])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="streamkit")
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    onnx.save(network(), Path(__file__).with_name("activity.onnx"))
