"""The network to measure with."""

import sys

import numpy as np
import pytest

from streamkit.bench.networks import half, network
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError
from streamkit.models.card import load_card
from streamkit.models.session import Session


def test_a_card_of_ones_own_stays(tmp_path, root):
    assert network("demo", None, tmp_path, "f16") == ("demo", "demo")
    shipped = root / "models" / "demo.yaml"
    assert network(str(shipped), None, tmp_path, "f16")[0] == str(shipped)


def test_without_card_and_data_it_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match=r"--model.*--data"):
        network(None, None, tmp_path, "f32")


def test_a_card_is_written_for_the_data_folders_network(tmp_path, test_data):
    path, told = network(None, test_data, tmp_path, "f32")
    card = load_card(tmp_path / "yolox-nano-f32.yaml")
    assert (path, told) == (str(tmp_path / "yolox-nano-f32.yaml"), "yolox-nano in f32")
    assert (card.family, card.file) == ("yolox", (test_data / "models" / "yolox_nano_dyn.onnx").resolve())


def test_without_the_converter_the_ways_out_are_told(tmp_path, test_data, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxconverter_common", None)
    monkeypatch.setitem(sys.modules, "onnxconverter_common.float16", None)
    with pytest.raises(ConfigError, match=r"onnxconverter.*--dtype f32"):
        network(None, test_data, tmp_path, "f16")


def test_half_precision_gives_nearly_the_same(tmp_path, test_data):
    pytest.importorskip("onnxconverter_common")
    given = test_data / "models" / "yolox_nano_dyn.onnx"
    half(given, tmp_path / "half.onnx")
    small, large = Session(tmp_path / "half.onnx", Device("cpu")), Session(given, Device("cpu"))
    assert (small.dtype, small.fixed_batch) == ("f16", None)
    pictures = np.random.default_rng(0).uniform(0, 255, (1, 3, 416, 416))
    one = small.run({"images": pictures.astype(np.float16)})["output"].astype(np.float32)
    other = large.run({"images": pictures.astype(np.float32)})["output"]
    assert np.abs(one[..., 4:] - other[..., 4:]).max() < 0.01
