"""Networks for one image at a time, changed to take several: compared with the original, or left alone."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from support.default_network import one_image_at_a_time
from support.messages import collecting

from streamkit.models import dynamic_batch
from streamkit.models.dynamic_batch import with_batches
from streamkit.models.network_file import inspect


def network(path: Path, operator: str = "Identity", **attributes: object) -> Path:
    """A network for one image: an operator, and a reshape to a constant shape that begins with 1."""
    nodes = [
        helper.make_node(operator, ["images"], ["hidden"], **attributes),
        helper.make_node("Reshape", ["hidden", "shape"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 3, 64])],
        [numpy_helper.from_array(np.array([1, 3, 64], np.int64), "shape")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)
    return path


def outputs(file: Path, images: np.ndarray) -> np.ndarray:
    return onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"images": images})[0]


def test_a_network_for_one_image_takes_several_afterwards(tmp_path):
    file = network(tmp_path / "net.onnx")
    changed = with_batches(file)
    assert changed == tmp_path / "net-batches.onnx"
    assert inspect(changed).batch is None
    images = np.random.default_rng(1).random((5, 3, 8, 8), np.float32)
    assert np.array_equal(outputs(changed, images), np.concatenate([outputs(file, image[None]) for image in images]))
    assert with_batches(file) == changed


def test_yolox_nano_takes_several_images_afterwards(test_data, tmp_path):
    file = tmp_path / "net.onnx"
    file.write_bytes(one_image_at_a_time(test_data / "models" / "yolox_nano_dyn.onnx"))
    assert inspect(file).batch == 1
    images = np.random.default_rng(1).uniform(0, 255, (2, 3, 416, 416)).astype(np.float32)
    together = outputs(with_batches(file), images)
    np.testing.assert_allclose(together, outputs(test_data / "models" / "yolox_nano_dyn.onnx", images), atol=1e-5)


@pytest.mark.parametrize(
    ("operator", "attributes", "reason"),
    [
        ("Softmax", {"axis": 0}, r"\(changed to take several, its outputs differ by \d"),
        ("Transpose", {"perm": [3, 1, 2, 0]}, r"\(it cannot be changed to take several: "),
    ],
)
def test_a_network_that_mixes_images_stays_as_it_is(operator, attributes, reason, tmp_path):
    file = network(tmp_path / "net.onnx", operator, **attributes)
    with collecting() as texts:
        assert with_batches(file) == file
    assert len(texts) == 1
    assert re.search(rf"^net.onnx takes one image at a time, and so it runs: .* {reason}", texts[0])
    assert list(tmp_path.iterdir()) == [file]


def test_without_onnx_the_network_stays_as_it_is(tmp_path, monkeypatch):
    file = network(tmp_path / "net.onnx")
    monkeypatch.setattr(dynamic_batch, "has_onnx", lambda: False)
    with collecting() as texts:
        assert with_batches(file) == file
    assert len(texts) == 1
    assert "To let it take several, install onnx: python -m pip install" in texts[0]
