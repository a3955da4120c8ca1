"""Simplified networks on disk."""

import logging

import numpy as np
import pytest

from streamkit.models.fused import engine_graph
from streamkit.models.simplified import SimplifiedNetwork


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "streamkit" / "simplified"


SHAPES = {"images": (2, 3, 384, 640)}


def test_a_cached_network_gives_the_same_graph(root, cache):
    network = root / "models" / "demo.onnx"
    simplified = engine_graph(network, SHAPES, keep=True)
    (file,) = cache.iterdir()
    written_ns = file.stat().st_mtime_ns
    read = engine_graph(network, SHAPES, keep=True)
    assert read.nodes == simplified.nodes
    assert read.shapes == simplified.shapes
    assert all(np.array_equal(values, simplified.constants[name]) for name, values in read.constants.items())
    assert file.stat().st_mtime_ns == written_ns


def test_sizes_and_files_are_cached_separately(root, cache):
    engine_graph(root / "models" / "demo.onnx", SHAPES, keep=True)
    engine_graph(root / "models" / "demo.onnx", {"images": (1, 3, 384, 640)}, keep=True)
    assert len(list(cache.iterdir())) == 2
    assert engine_graph(root / "models" / "demo.onnx", SHAPES, keep=True).shapes["images"] == SHAPES["images"]


def test_nothing_is_cached_by_default(root, cache):
    engine_graph(root / "models" / "demo.onnx", SHAPES)
    assert not cache.exists()


def test_a_damaged_cache_file_is_replaced(root, cache, caplog):
    network = root / "models" / "demo.onnx"
    simplified = engine_graph(network, SHAPES, keep=True)
    (file,) = cache.iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        again = engine_graph(network, SHAPES, keep=True)
    assert f"{file} is damaged: the network is simplified again" in caplog.text
    assert again.nodes == simplified.nodes
    assert SimplifiedNetwork(network, SHAPES).read() is not None


def test_a_network_that_cannot_be_cached_is_used(root, cache):
    cache.parent.parent.mkdir(parents=True)
    cache.parent.write_text("a file where the folder should be")
    assert engine_graph(root / "models" / "demo.onnx", SHAPES, keep=True).nodes
