"""Small networks that take clips, generated for tests: a 3D convolution, and one that names the color of a clip."""

from pathlib import Path

import numpy as np
import pytest

from streamkit.models.card import Card, load_card

SIZE = (16, 12)
COLORS = ("red", "green", "blue")
_AXES = {
    "cthw": ("N", 3, "T", SIZE[1], SIZE[0]),
    "tchw": ("N", "T", 3, SIZE[1], SIZE[0]),
    "thwc": ("N", "T", SIZE[1], SIZE[0], 3),
}
_TO_CTHW = {"tchw": [0, 2, 1, 3, 4], "thwc": [0, 4, 1, 2, 3]}


def convolution(folder: Path, order: str = "cthw", *, frames: int | None = 4, batch: int | str = "N") -> Card:
    """A card of a network whose probabilities of 4 classes depend on the order of the frames.

    Args:
        folder: where the files are written.
        order: of the axes of the input behind the batch.
        frames: number of frames of a clip; None to leave it open.
        batch: number of clips of a run, a name for any.
    """
    random = np.random.default_rng(5)
    kernel = random.normal(0, 0.5, (8, 3, 3, 3, 3)).astype(np.float32)
    last = random.normal(0, 3, (8, 4)).astype(np.float32)
    nodes = [
        ("Conv", ["clip", "kernel"], ["features"], {"pads": [0, 1, 1, 0, 1, 1]}),
        ("Relu", ["features"], ["positive"], {}),
        ("GlobalAveragePool", ["positive"], ["mean"], {}),
        ("Flatten", ["mean"], ["vector"], {}),
        ("MatMul", ["vector", "last"], ["logits"], {}),
        ("Softmax", ["logits"], ["probabilities"], {}),
    ]
    _write(folder, order, frames, batch, nodes, {"kernel": kernel, "last": last}, 4)
    return _card(folder, "clip_probabilities", "walk, run, fall, sit")


def color(folder: Path, *, frames: int | None = 4, gain: float = 40.0) -> Card:
    """A card of a network that names the color of a clip: logits are the means of the channels, times `gain`."""
    nodes = [
        ("GlobalAveragePool", ["clip"], ["mean"], {}),
        ("Flatten", ["mean"], ["vector"], {}),
        ("Mul", ["vector", "gain"], ["logits"], {}),
    ]
    _write(folder, "cthw", frames, "N", nodes, {"gain": np.float32(gain)}, 3, "logits")
    return _card(folder, "clip_logits", ", ".join(COLORS))


def _write(folder, order, frames, batch, nodes, weights, classes, output="probabilities"):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    graph_nodes = [helper.make_node(kind, inputs, outputs, **settings) for kind, inputs, outputs, settings in nodes]
    if order in _TO_CTHW:
        graph_nodes.insert(0, helper.make_node("Transpose", ["frames"], ["clip"], perm=_TO_CTHW[order]))
    named = {"N": batch, "T": "T" if frames is None else frames}
    shape = [named.get(axis, axis) for axis in _AXES[order]]
    graph = helper.make_graph(
        graph_nodes,
        "clips",
        [helper.make_tensor_value_info("frames" if order in _TO_CTHW else "clip", 1, shape)],
        [helper.make_tensor_value_info(output, 1, [batch, classes])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    folder.mkdir(exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "clips.onnx")


def _card(folder: Path, family: str, labels: str) -> Card:
    (folder / "clips.yaml").write_text(
        f"task: action\nfamily: {family}\nfile: clips.onnx\nlabels: [{labels}]\nscore: 0.3\n"
        f"input: {{size: {list(SIZE)}, resize: stretch, scale: 1/255, mean: 0.45, std: 0.225}}\n"
    )
    return load_card(folder / "clips.yaml")
