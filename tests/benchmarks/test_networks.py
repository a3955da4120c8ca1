"""benchmarks/networks.py on a CPU: what it measures and writes, and that it refuses a machine without a GPU."""

import json
import statistics

import pytest

from benchmarks import networks
from streamkit.core.data import Device
from streamkit.models.arithmetic import F32, Arithmetic
from streamkit.runtime.execution.device import gpu_trouble

SERIES = networks.Series(rounds=3, runs=1)
SIDES = {"onnxruntime_f32": F32, "again": F32}


@pytest.fixture(scope="module")
def rates(root):
    return networks.measure(root / "models" / "color.onnx", 2, Device(), SERIES, SIDES)


def test_each_side_has_a_rate_for_each_series(rates):
    assert {side: len(values) for side, values in rates.fps.items()} == {"onnxruntime_f32": 3, "again": 3}
    assert all(rate > 0 for values in rates.fps.values() for rate in values)
    assert rates.left_out == {}


def test_equal_arithmetic_has_no_error(rates):
    assert all(error == 0 for side in SIDES for error in rates.errors[side].values())
    assert rates.errors["again"]


def test_an_entry_has_medians_and_all_rates(rates, root):
    row = networks.entry(root / "models" / "color.onnx", 2, Device(), SERIES, rates)
    figure = row["figures"]["onnxruntime_f32_fps"]
    assert figure["median"] == statistics.median(figure["values"])
    assert (row["row"], row["repetitions"], row["error"]) == ("color", 3, None)
    assert row["conditions"]["batch"] == 2
    assert json.loads(json.dumps(row)) == row


def test_a_side_that_cannot_run_is_named_with_its_reason(tmp_path):
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"no network")
    with pytest.raises(Exception, match=r"damaged\.onnx"):
        networks.measure(damaged, 2, Device(), SERIES, {"fused": Arithmetic("fused", "f16")})
    rates = networks.NetworkRates(left_out={"fused": "convolutions are 3% of its work"})
    assert networks.line("net", 2, rates) == (
        "net, batch 2, images/s: fused not measured (convolutions are 3% of its work)"
    )


def test_help_needs_no_gpu(capsys):
    with pytest.raises(SystemExit) as ended:
        networks.main(["--help"])
    assert ended.value.code == 0
    assert "fused engine" in capsys.readouterr().out


@pytest.mark.skipif(gpu_trouble() is None, reason="there is a GPU")
def test_a_machine_without_a_gpu_is_refused(root):
    with pytest.raises(SystemExit, match="networks are measured on a GPU: there is no NVIDIA driver"):
        networks.main([str(root / "models" / "demo.onnx")])


@pytest.mark.gpu
def test_a_gpu_measures_all_sides(root, tmp_path):
    out = tmp_path / "networks.json"
    networks.main(
        [str(root / "models" / "demo.onnx"), "--batch", "2", "--rounds", "2", "--runs", "2", "--out", str(out)]
    )
    (row,) = json.loads(out.read_text())["rows"]
    assert row["error"] is None
    assert {f"{side}_fps" for side in networks.SIDES} <= row["figures"].keys()
