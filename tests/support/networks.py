"""Small convolution networks, generated for tests that rewrite networks."""

from pathlib import Path

import numpy as np
import pytest

from streamkit.models.card import Card, load_card


def classifier(
    folder: Path,
    *,
    convolutions: int = 3,
    name: str = "small",
    opset: int = 17,
    gain: float = 1.0,
    batch: int | str = "N",
) -> Card:
    """A card of a classifier of 4 classes, 32 x 32, of random weights: convolutions with Relu, then a mean.

    `gain` multiplies the values in its middle; `batch` is its number of images, a name for any.
    """
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    array = onnx.numpy_helper.from_array
    random = np.random.default_rng(3)
    nodes = []
    weights = []
    input_name = "images"
    channels = 3
    for number in range(convolutions):
        last = number == convolutions - 1
        out = 4 if last else 8
        kernel = random.normal(0, 0.3, (out, channels, 3, 3)).astype(np.float32)
        weights.append(array(kernel * np.float32(gain if number == 1 else 1 / gain if last else 1), f"w{number}"))
        nodes.append(helper.make_node("Conv", [input_name, f"w{number}"], [f"c{number}"], pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        input_name = f"r{number}"
        channels = out
    nodes += [
        helper.make_node("GlobalAveragePool", [input_name], ["mean"]),
        helper.make_node("Flatten", ["mean"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("images", 1, [batch, 3, 32, 32])],
        [helper.make_tensor_value_info("logits", 1, [batch, 4])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, folder / f"{name}.onnx")
    (folder / f"{name}.yaml").write_text(
        f"task: classify\nfamily: logits\nfile: {name}.onnx\nlabels: [a, b, c, d]\n"
        "input: {size: [32, 32], resize: stretch, scale: 1/255}\n"
    )
    return load_card(folder / f"{name}.yaml")
