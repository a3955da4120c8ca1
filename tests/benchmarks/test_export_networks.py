"""Networks without weights: what `--restore` makes of them where no PyTorch is installed."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from support.small_networks import NetworkBuilder

from benchmarks.export_networks import restore_weights


@pytest.fixture
def small(tmp_path):
    """A file as `--small` writes it: the first weight is drawn, the second stays."""
    network = NetworkBuilder((1, 64, 8, 8))
    first = network.convolution(network.images, 64, 64)
    model = network.model(network.convolution(first, 64, 3))
    weight = next(tensor for tensor in model.graph.initializer if list(tensor.dims)[:2] == [64, 64])
    weight.ClearField("raw_data")
    weight.ClearField("float_data")
    model.metadata_props.add(key="random weights", value=json.dumps({weight.name: 0.25}))
    file = tmp_path / "net.small.onnx"
    onnx.save(model, file)
    return file, weight.name


def test_weights_are_drawn_from_their_deviation(small, tmp_path):
    file, name = small
    restore_weights(file, tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    onnx.checker.check_model(model)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    assert np.std(weights[name]) == pytest.approx(0.25, rel=0.02)
    assert not model.metadata_props


def test_the_same_file_gives_the_same_network(small, tmp_path):
    for name in ("a.onnx", "b.onnx"):
        restore_weights(small[0], tmp_path / name)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_another_file_is_refused(tmp_path):
    file = tmp_path / "net.onnx"
    onnx.save(helper.make_model(helper.make_graph([], "g", [], [])), file)
    with pytest.raises(ValueError, match=r"net\.onnx is not a file that --small has written"):
        restore_weights(file, tmp_path / "out.onnx")
