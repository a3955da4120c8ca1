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


def kept(tmp_path):
    return list((tmp_path / "cache" / "streamkit" / "networks").glob("*.npz"))


def values_again(network, tmp_path, name):
    """The values of the same network under another name, as another process sees it."""
    copy = tmp_path / name
    shutil.copy(network, copy)
    return values_of(inspect(copy), SIZE)


def test_a_run_is_kept_and_read_again(network, tmp_path):
    values = values_of(inspect(network), SIZE)
    (file,) = kept(tmp_path)
    with np.load(file) as arrays:
        changed = {name: array + 1 for name, array in arrays.items()}
    np.savez(file, **changed)
    again = values_again(network, tmp_path, "again.onnx")
    assert again.keys() == values.keys()
    for name, array in values.items():
        np.testing.assert_array_equal(again[name], array + 1)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"no archive"])
def test_a_damaged_file_is_made_again(network, tmp_path, content):
    values = values_of(inspect(network), SIZE)
    (file,) = kept(tmp_path)
    file.write_bytes(content)
    for name, array in values_again(network, tmp_path, "again.onnx").items():
        np.testing.assert_array_equal(array, values[name])
    with np.load(file) as arrays:
        assert set(arrays) == set(values)


def test_a_folder_that_cannot_be_written_changes_nothing(network, tmp_path):
    (tmp_path / "cache").write_text("")
    assert values_of(inspect(network), SIZE)


def test_another_size_has_values_of_its_own(network, tmp_path):
    values_of(inspect(network), SIZE)
    values_of(inspect(network), (32, 32))
    assert len(kept(tmp_path)) == 2
