"""`Upsample` becomes `Resize`, and says the same."""

import builtins

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from streamkit.core.errors import ModelError
from streamkit.models.upsample import for_cuda


@pytest.fixture(params=[("linear", 2.0), ("linear", 7.7878), ("nearest", 2.0), ("nearest", 1.5)])
def upsampling(request, tmp_path):
    """A network of one Upsample, and its output's side for a picture of 33."""
    mode, scale = request.param
    side = int(33 * scale)
    shape = (1, 3, 33, 33), (1, 3, side, side)
    graph = helper.make_graph(
        [helper.make_node("Upsample", ["x", "scales"], ["y"], mode=mode)],
        "up",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape[0])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape[1])],
        [numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), "scales")],
    )
    path = tmp_path / "up.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=8), path)
    return path


def outputs(network, feed):
    session = ort.InferenceSession(network, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: feed})[0]


def test_the_output_is_unchanged_bit_for_bit(upsampling):
    feed = np.random.default_rng(1).normal(size=(1, 3, 33, 33)).astype(np.float32)
    np.testing.assert_array_equal(outputs(for_cuda(upsampling), feed), outputs(upsampling, feed))
    assert "Upsample" not in {node.op_type for node in onnx.load_from_string(for_cuda(upsampling)).graph.node}


def test_a_real_network_is_converted(test_data):
    file = test_data / "models" / "deeplabv3_mnv2_voc_257.onnx"
    feed = np.random.default_rng(1).uniform(-1, 1, (1, 257, 257, 3)).astype(np.float32)
    np.testing.assert_array_equal(outputs(for_cuda(file), feed), outputs(file, feed))


def test_other_files_are_unchanged(root, test_data):
    for file in (root / "models" / "demo.onnx", test_data / "models" / "yolov8n_640_deq_dyn.onnx"):
        assert for_cuda(file) == file


def test_a_missing_package_is_refused(upsampling, monkeypatch):
    there = builtins.__import__

    def missing(name, *args, **kwargs):
        if name == "onnx":
            raise ImportError(name)
        return there(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ModelError, match="pip install onnx"):
        for_cuda(upsampling)
