"""Make stripes.onnx, a network without any training: which colors an object has from top to bottom.

    python models/make_stripes.py

Input `images` (N, 3, 32, 16) f32, RGB, 0..255. Output (N, 256) f32: for each of 64 colors, the square root of its
share in each of four stripes, from the head to the feet. The colors are a grid over RGB. A pixel belongs to a color
the more, the nearer it is to it, by a softmax over squared distances of logarithms: (brightness, red - green, blue -
yellow). So the light of a camera, which multiplies all of a picture, changes the brightness only, which counts less.
Pixels in the middle column count most, because the sides of a crop show what is behind. The cosine of two outputs is
the mean over the stripes of the Bhattacharyya coefficient of their colors.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

WIDTH = 16
HEIGHT = 32
LEVELS = (30.0, 95.0, 160.0, 225.0)  # of red, green and blue: their combinations are the colors
STRIPES = (0.05, 0.35, 0.65, 0.95)  # the middle of each, as a share of the height
OFFSET = 16.0  # added before the logarithm: dark pixels are mostly noise
SOFTNESS = 0.04
SPACE = np.array([[0.2, 0.2, 0.2], [1.0, -1.0, 0.0], [-0.5, -0.5, 1.0]])


def weights() -> np.ndarray:
    """How much each pixel counts in each stripe, (HEIGHT * WIDTH, stripes), each 1 in sum."""
    y, x = (np.mgrid[:HEIGHT, :WIDTH] + 0.5) / np.array([HEIGHT, WIDTH])[:, None, None]
    bells = [np.exp(-(((x - 0.5) / 0.12) ** 2 + ((y - middle) / 0.18) ** 2) / 2) for middle in STRIPES]
    return np.stack([bell / bell.sum() for bell in bells], axis=-1).reshape(-1, len(STRIPES)).astype(np.float32)


def network() -> onnx.ModelProto:
    """The network."""
    places = np.log(np.stack(np.meshgrid(LEVELS, LEVELS, LEVELS), axis=-1).reshape(-1, 3) + OFFSET) @ SPACE.T
    # -|Sp - c|^2 is 2 c.Sp - |c|^2 and a term that all colors share, which the softmax takes out.
    kernel = (2 * places @ SPACE / SOFTNESS).astype(np.float32)[:, :, None, None]
    bias = (-(places**2).sum(axis=1) / SOFTNESS).astype(np.float32)
    constants = {
        "kernel": kernel,
        "bias": bias,
        "weights": weights(),
        "pixels": np.array([0, len(places), -1]),
        "offset": np.float32(OFFSET),
        "length": np.array([0, len(places) * len(STRIPES)]),
    }
    nodes = [
        helper.make_node("Add", ["images", "offset"], ["above"]),
        helper.make_node("Log", ["above"], ["logarithms"]),
        helper.make_node("Conv", ["logarithms", "kernel", "bias"], ["nearness"]),
        helper.make_node("Softmax", ["nearness"], ["belongs"], axis=1),
        helper.make_node("Reshape", ["belongs", "pixels"], ["flat"]),
        helper.make_node("MatMul", ["flat", "weights"], ["shares"]),
        helper.make_node("Sqrt", ["shares"], ["roots"]),
        helper.make_node("Reshape", ["roots", "length"], ["stripes"]),
    ]
    graph = helper.make_graph(
        nodes,
        "stripes",
        [helper.make_tensor_value_info("images", onnx.TensorProto.FLOAT, ["N", 3, HEIGHT, WIDTH])],
        [helper.make_tensor_value_info("stripes", onnx.TensorProto.FLOAT, ["N", len(places) * len(STRIPES)])],
        [numpy_helper.from_array(np.asarray(constant), name) for name, constant in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="streamkit")
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model


if __name__ == "__main__":
    onnx.save(network(), Path(__file__).with_name("stripes.onnx"))
