"""The run of a network on a gray image is kept for later processes."""

import shutil

import numpy as np
import onnx
import pytest
from support.small_networks import NetworkBuilder

from streamkit.models.network_file import inspect
from streamkit.models.run_facts import values_of

SIZE = 64, 32


@pytest.fixture
def network(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "network.onnx"
    builder = NetworkBuilder((1, 3, "height", "width"))
    onnx.save(builder.model(builder.convolution(builder.images, 3, 4)), file)
    return file


def cached_runs(tmp_path):
    return list((tmp_path / "cache" / "streamkit" / "networks").glob("*.npz"))


def values_again(network, tmp_path, name):
    """The values of the same network under another name, as another process sees it."""
    copy = tmp_path / name
    shutil.copy(network, copy)
    return values_of(inspect(copy), SIZE)


def test_facts_of_a_run_are_stored_and_read(network, tmp_path):
    values = values_of(inspect(network), SIZE)
    (file,) = cached_runs(tmp_path)
    with np.load(file) as arrays:
        names = arrays["names"]
        changed = [arrays[f"arr_{place}"] + 1 for place in range(len(names))]
    np.savez(file, *changed, names=names)
    again = values_again(network, tmp_path, "again.onnx")
    assert again.keys() == values.keys()
    for name, array in values.items():
        np.testing.assert_array_equal(again[name], array + 1)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"no archive"])
def test_a_damaged_file_is_replaced(network, tmp_path, content):
    values = values_of(inspect(network), SIZE)
    (file,) = cached_runs(tmp_path)
    file.write_bytes(content)
    for name, array in values_again(network, tmp_path, "again.onnx").items():
        np.testing.assert_array_equal(array, values[name])
    with np.load(file) as arrays:
        assert arrays["names"].tolist() == list(values)


def test_an_unwritable_folder_is_ignored(network, tmp_path):
    (tmp_path / "cache").write_text("")
    assert values_of(inspect(network), SIZE)


def test_facts_are_stored_per_size(network, tmp_path):
    values_of(inspect(network), SIZE)
    values_of(inspect(network), (32, 32))
    assert len(cached_runs(tmp_path)) == 2


def test_outputs_may_have_any_name(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    builder = NetworkBuilder((1, 3, 32, 64))
    model = builder.model(builder.convolution(builder.images, 3, 4))
    model.graph.node[-1].output[0] = model.graph.output[0].name = "file"
    onnx.save(model, tmp_path / "network.onnx")
    assert list(values_of(inspect(tmp_path / "network.onnx"), SIZE)) == ["file"]
    assert list(values_again(tmp_path / "network.onnx", tmp_path, "again.onnx")) == ["file"]


def test_facts_depend_on_external_weights(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    builder = NetworkBuilder((1, 3, 32, 64))
    model = builder.model(builder.convolution(builder.images, 3, 4))
    network = tmp_path / "network.onnx"
    onnx.save(model, network, save_as_external_data=True, location="weights", size_threshold=0)
    (before,) = values_of(inspect(network), SIZE).values()
    weights = tmp_path / "weights"
    weights.write_bytes((np.frombuffer(weights.read_bytes(), np.float32) * 2).tobytes())
    copy = tmp_path / "copy.onnx"  # as another process sees it
    shutil.copy(network, copy)
    (after,) = values_of(inspect(copy), SIZE).values()
    np.testing.assert_allclose(after, 2 * before, rtol=1e-5)
    assert len(cached_runs(tmp_path)) == 2
