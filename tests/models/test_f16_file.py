"""An f16 network that ONNX Runtime runs where the cache cannot be written."""

import logging

import numpy as np
import pytest

from streamkit.core.data import Device
from streamkit.models.half import f16_file
from streamkit.models.session import Session

pytest.importorskip("onnx")


def test_without_a_folder_for_the_cache_the_network_runs_all_the_same(root, tmp_path, monkeypatch, caplog):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING):
        file = f16_file(root / "models" / "color.onnx")
    assert "color.onnx is converted to f16 at each start: cannot write" in caplog.text
    session = Session(file, Device())
    shape = [length or 2 for length in session.inputs[session.image_input].shape]
    outputs = session.run({session.image_input: np.zeros(shape, session.inputs[session.image_input].dtype)})
    assert all(np.isfinite(values).all() for values in outputs.values())


def test_the_converted_network_is_kept(root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = f16_file(root / "models" / "color.onnx")
    assert file.is_relative_to(tmp_path)
    written_ns = file.stat().st_mtime_ns
    assert f16_file(root / "models" / "color.onnx") == file
    assert file.stat().st_mtime_ns == written_ns
