"""An f16 network that ONNX Runtime runs where the cache cannot be written."""

import logging

import numpy as np
import pytest

from streamkit.core.data import Device
from streamkit.models.half import f16_file
from streamkit.models.session import Session

pytest.importorskip("onnx")


def test_the_network_runs_without_a_cache_folder(root, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        file = f16_file(root / "models" / "color.onnx")
    assert "color.onnx is converted to f16 at each start: cannot write" in caplog.text
    session = Session(file, Device())
    shape = [length or 2 for length in session.inputs[session.image_input].shape]
    outputs = session.run({session.image_input: np.zeros(shape, session.inputs[session.image_input].dtype)})
    assert all(np.isfinite(values).all() for values in outputs.values())


def test_the_converted_network_is_cached(root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = f16_file(root / "models" / "color.onnx")
    assert file.is_relative_to(tmp_path)
    written_ns = file.stat().st_mtime_ns
    assert f16_file(root / "models" / "color.onnx") == file
    assert file.stat().st_mtime_ns == written_ns


def test_casts_to_f16_of_the_original_network_stay(tmp_path, monkeypatch):
    """It lies behind the last layer, which is computed in f32."""
    import onnx

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    network = """
        <ir_version: 8, opset_import: ["" : 17]>
        rounds (float[1, 3, 8, 8] images) => (float[1, 2, 8, 8] scores)
        <float[2, 3, 1, 1] weights = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6}> {
            sums = Conv(images, weights)
            shares = Sigmoid(sums)
            rounded = Cast<to = 10>(shares)
            scores = Cast<to = 1>(rounded)
        }
    """
    onnx.save(onnx.parser.parse_model(network), tmp_path / "rounds.onnx")
    session = Session(f16_file(tmp_path / "rounds.onnx"), Device())
    images = np.random.default_rng(0).uniform(size=(1, 3, 8, 8)).astype(session.inputs["images"].dtype)
    scores = session.run({"images": images})["scores"]
    assert len(np.unique(scores)) > 20
    np.testing.assert_array_equal(scores, scores.astype(np.float16))
