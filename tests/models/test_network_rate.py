"""Measured rates of networks on disk."""

import pytest

from streamkit.core.data import Device
from streamkit.models.arithmetic import F32, Arithmetic
from streamkit.models.card import load_card
from streamkit.models.network_rate import NetworkRate, expected_rate, rate_file, read_rate, write_rate

RATE = NetworkRate(1234.5, 32, 0.25)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_the_highest_rate_is_stored(tmp_path):
    file = tmp_path / "rate.json"
    write_rate(file, RATE)
    write_rate(file, NetworkRate(1000.0, 32))
    assert read_rate(file) == RATE
    write_rate(file, NetworkRate(2000.0, 64))
    assert read_rate(file) == NetworkRate(2000.0, 64)


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"images_per_s": "x", "batch": 1}', '{"images_per_s": 0, "batch": 1}']
)
def test_a_damaged_rate_is_measured_again(text, tmp_path):
    file = tmp_path / "rate.json"
    file.write_text(text)
    assert read_rate(file) is None
    write_rate(file, RATE)
    assert read_rate(file) == RATE


def test_rates_are_stored_per_network_size_gpu_and_precision(root):
    network = root / "models" / "demo.onnx"
    other = root / "models" / "color.onnx"
    files = {
        rate_file(network, (640, 640), "H200", F32),
        rate_file(other, (640, 640), "H200", F32),
        rate_file(network, (320, 320), "H200", F32),
        rate_file(network, (640, 640), "L4", F32),
        rate_file(network, (640, 640), "H200", Arithmetic("fused", "f16")),
    }
    assert len(files) == 5


def test_there_is_no_rate_without_a_gpu(root):
    card = load_card(root / "models" / "demo.yaml")
    assert expected_rate(card, "auto", "auto", Device()) is None
