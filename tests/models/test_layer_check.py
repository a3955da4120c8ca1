"""Which tensor of a network differs first, and which are too large for f16."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from streamkit.models.layer_check import compare_layers, keep_outside, tensors_outside, too_large


def tensors(**factors: float) -> list[tuple[str, np.ndarray]]:
    return [(name, np.full((2, 1, 2, 2), factor, np.float32)) for name, factor in factors.items()]


REFERENCES = {name: np.ones((1, 1, 2, 2), np.float32) for name in ("a", "b", "c")}


def test_the_first_tensor_that_differs_is_named() -> None:
    check = compare_layers(tensors(a=1.001, b=1.2, c=3.0), REFERENCES)
    assert (check.first, check.large) == ("b", ())
    assert check.error == pytest.approx(0.2)
    assert str(check) == "the first tensor that differs is b, by 20%"


def test_a_non_finite_tensor_differs() -> None:
    assert str(compare_layers(tensors(a=np.nan, b=1.0), REFERENCES)) == (
        "the first tensor that differs is a, as it is not finite"
    )


def test_rounding_errors_name_no_tensor() -> None:
    check = compare_layers(tensors(a=1.001, b=1.04, other=9.0, c=1.02), REFERENCES)
    assert check.first == ""
    assert str(check) == "no layer stands out, the largest error of one is 4.0%"


def test_tensors_above_half_of_the_f16_limit_are_listed() -> None:
    large = {**REFERENCES, "b": REFERENCES["b"] * -32_753, "c": REFERENCES["c"] * 32_752}
    values = [(name, reference * 1.0) for name, reference in large.items()]
    values[0] = ("a", values[0][1] * np.inf)  # as one before it overflows
    assert compare_layers(values, large).large == ("b",)
    assert too_large(values[1:]) == ("b",)
    assert too_large([("d", np.array([np.nan, 1.0])), ("e", np.array([np.nan]))]) == ("d",)  # the first of them


def test_excluded_tensors_are_stored_per_network_and_accumulated(root, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    network = root / "models" / "demo.onnx"
    assert tensors_outside(network) == frozenset()
    keep_outside(network, ["b", "a"])
    keep_outside(network, ["c", "a"])
    assert tensors_outside(network) == {"a", "b", "c"}


def test_a_damaged_list_is_ignored_with_a_warning(root, tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    network = root / "models" / "demo.onnx"
    keep_outside(network, ["a"])
    keep_outside(network, ["b"])
    damaged = next(
        file for file in (tmp_path / "streamkit" / "outside-f16").iterdir() if "a" in json.loads(file.read_text())
    )
    for text in ("{", "{}"):
        damaged.write_text(text)
        assert tensors_outside(network) == {"b"}
    assert len(caplog.messages) == 2
    keep_outside(network, ["a"])
    assert tensors_outside(network) == {"a", "b"}


def test_processes_that_store_tensors_at_once_lose_none(root, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    network = root / "models" / "demo.onnx"
    names = [f"tensor {number}" for number in range(40)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: keep_outside(network, [name]), names))
    assert tensors_outside(network) == set(names)
