"""The parts of a network, by its structure alone."""

import numpy as np
import pytest
from support.networks import classifier

from streamkit.core.errors import ModelError
from streamkit.models.onnx_graph import is_quantized, load_onnx, name_nodes, opset, parts, with_opset

onnx = pytest.importorskip("onnx")


def model(*nodes: str, opset_version: int = 17):
    """A graph of `name: operator input ... > output`; names that begin with w are weights."""
    graph_nodes = []
    weights = set()
    for line in nodes:
        name, rest = line.split(": ")
        words, output = rest.split(" > ")
        operator, *inputs = words.split()
        weights |= {name_of_input for name_of_input in inputs if name_of_input.startswith("w")}
        graph_nodes.append(onnx.helper.make_node(operator, inputs, [output], name=name))
    initializers = [
        onnx.numpy_helper.from_array(np.zeros((1, 1, 1, 1), np.float32), weight) for weight in sorted(weights)
    ]
    graph = onnx.helper.make_graph(graph_nodes, "g", [], [], initializers)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset_version)])


def test_the_convolution_of_a_softmax_belongs_to_the_box_decoding():
    split = parts(
        model(
            "stem: Conv x w0 > a",
            "act: Relu a > b",
            "box: Conv b w1 > c",
            "cls: Conv b w2 > d",
            "shape: Reshape c > e",
            "soft: Softmax e > f",
            "move: Transpose f > g",
            "dfl: Conv g w3 > h",
            "sig: Sigmoid d > i",
            "out: Concat h i > j",
        )
    )
    assert split.body == ["stem"]
    assert split.last == ["box", "cls"]
    assert split.tail == ["shape", "soft", "move", "dfl", "sig", "out"]


def test_each_scale_of_a_head_ends_at_its_own_last_convolution():
    """As in SSD and YOLOX: the coarse scale is made from the fine one, whose predictions go straight to the end."""
    split = parts(
        model(
            "c1: Conv x w0 > a",
            "fine: Conv a w1 > p1",
            "down: Conv a w2 > b",
            "coarse: Conv b w3 > p2",
            "flat1: Flatten p1 > q1",
            "flat2: Flatten p2 > q2",
            "all: Concat q1 q2 > out",
        )
    )
    assert split.body == ["c1", "down"]
    assert split.last == ["fine", "coarse"]
    assert split.tail == ["flat1", "flat2", "all"]


def test_attention_before_a_convolution_is_not_part_of_the_tail():
    nodes = (
        "q: Conv x w0 > a",
        "score: MatMul a a > b",
        "soft: Softmax b > c",
        "mix: MatMul c a > d",
        "proj: Conv d w1 > e",
        "norm: Sigmoid e > f",
        "decoder: MatMul f w2 > g",
        "box: Gemm g w3 > h",
        "pick: TopK h > i",
    )
    assert parts(model(*nodes)).tail == ["norm", "decoder", "box", "pick"]
    split = parts(model(*nodes), products=True)
    assert split.body == ["q", "proj", "decoder"]
    assert (split.last, split.tail) == (["box"], ["pick"])


def test_nodes_get_unique_names():
    network = model("a: Relu x > y", "a: Relu y > z")
    network.graph.node[0].name = ""
    name_nodes(network)
    assert [node.name for node in network.graph.node] == ["Relu_0", "a"]
    network.graph.node[0].name = "a"
    name_nodes(network)
    assert len({node.name for node in network.graph.node}) == 2


def test_the_opset_is_raised_only_if_needed(tmp_path):
    old = load_onnx(classifier(tmp_path, opset=11).file, "a test")
    assert opset(with_opset(old, 13, "old.onnx")) == 13
    new = load_onnx(classifier(tmp_path, opset=17).file, "a test")
    assert with_opset(new, 13, "new.onnx") is new


def test_an_opset_that_cannot_be_raised_is_reported():
    network = model("a: NoSuchOperator x > y", opset_version=11)
    with pytest.raises(ModelError, match=r"odd.onnx has opset 11, int8 needs 13, and onnx cannot convert it: .*export"):
        with_opset(network, 13, "odd.onnx")


def test_a_float_network_is_not_quantized(tmp_path):
    assert not is_quantized(classifier(tmp_path).file)


def test_a_file_that_is_not_a_network_is_reported(tmp_path):
    (tmp_path / "x.onnx").write_bytes(b"no network")
    with pytest.raises(ModelError, match="not an ONNX model that can be read"):
        load_onnx(tmp_path / "x.onnx", "a test")
    with pytest.raises(ModelError, match="there is no file"):
        load_onnx(tmp_path / "y.onnx", "a test")
