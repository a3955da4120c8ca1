"""Make color.onnx, a network without any training: which colors the middle of a picture has.

    python models/make_color.py

Input `images` (N, 3, 32, 32) f32, RGB, 0..255. Output (N, 9) f32: the share of each of `NAMES`, 1 in sum. A pixel
belongs to a color the more, the nearer it is to it, by a softmax over squared distances, a convolution of 1 x 1.
Distances count brightness less than hue: they are taken in (brightness / 2, red - green, blue - yellow). Pixels in the
middle count most, those just above it: the rim of a crop shows what is behind, and the wheels are below.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

SIZE = 32
COLORS = {
    "black": [(30, 32, 36)],
    "gray": [(112, 117, 122)],
    "white": [(205, 208, 206)],
    "red": [(176, 30, 36)],
    "orange": [(205, 110, 45)],
    "yellow": [(210, 180, 55)],
    "green": [(44, 110, 74)],
    "blue": [(32, 72, 140)],
    "purple": [(105, 45, 95)],
}
NAMES = tuple(COLORS)
SOFTNESS = 900.0
SPACE = np.array([[0.17, 0.17, 0.16], [1.0, -1.0, 0.0], [-0.5, -0.5, 1.0]])


def weights() -> np.ndarray:
    """How much each pixel counts, (SIZE, SIZE), 1 in sum."""
    y, x = (np.mgrid[:SIZE, :SIZE] + 0.5) / SIZE - 0.5
    bell = np.exp(-((x / 0.24) ** 2 + ((y + 0.05) / 0.12) ** 2) / 2)
    return np.asarray(bell / bell.sum(), np.float32)


def network() -> onnx.ModelProto:
    """The network."""
    places = np.array([SPACE @ np.array(color[0], float) for color in COLORS.values()])
    # -|Sp - c|^2 is 2 c.Sp - |c|^2 and a term that all colors share, which the softmax takes out.
    kernel = (2 * places @ SPACE / SOFTNESS).astype(np.float32)[:, :, None, None]
    bias = (-(places**2).sum(axis=1) / SOFTNESS).astype(np.float32)
    constants = {"kernel": kernel, "bias": bias, "weights": weights()[None, None], "places": np.array([2, 3])}
    nodes = [
        helper.make_node("Conv", ["images", "kernel", "bias"], ["nearness"]),
        helper.make_node("Softmax", ["nearness"], ["belongs"], axis=1),
        helper.make_node("Mul", ["belongs", "weights"], ["weighted"]),
        helper.make_node("ReduceSum", ["weighted", "places"], ["shares"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "color",
        [helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, ["N", 3, SIZE, SIZE])],
        [helper.make_tensor_value_info("shares", onnx.TensorProto.FLOAT, ["N", len(NAMES)])],
        [numpy_helper.from_array(np.asarray(constant), name) for name, constant in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="streamkit")
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    onnx.save(network(), Path(__file__).with_name("color.onnx"))
