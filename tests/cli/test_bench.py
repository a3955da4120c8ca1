"""The commands that measure, as the user types them."""

import subprocess
import sys

import click
import pytest

from streamkit.bench.capacity import CapacityOptions
from streamkit.cli.bench import bench_gpu, capacity


def run(root, *arguments):
    command = [sys.executable, str(root / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=120)


def test_bench_gpu_without_a_gpu_exits_with_2_and_names_the_doctor(root):
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:
        completed = run(root, "bench", "gpu")
        assert completed.returncode == 2
        assert "device cuda cannot be used: " in completed.stderr
        assert "streamkit doctor` shows details" in completed.stderr
    else:
        pytest.skip("there is a GPU")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "gpu", "--batches", "8,x"], "give whole numbers from 1"),
        (["bench", "gpu", "--sources", "0"], "give whole numbers from 1"),
        (["bench", "gpu", "--processes", "auto,0"], "give auto or whole numbers from 1"),
        (["bench", "gpu", "--processes", "many"], "give auto or whole numbers from 1"),
        (["bench", "gpu", "--device", "cpu", "--clip", "h264=none.mp4", "--models", "demo"], "there is no none.mp4"),
        (["bench", "gpu", "--device", "cpu", "--data", "samples"], "bench needs"),
        (["bench", "gpu", "--device", "cpu", "--data", "samples", "--models", "demo"], "bench needs"),
        (["bench", "gpu", "--device", "cuda:0,cuda:1"], "only one device is measured"),
        (["capacity", "pipeline.yaml", "--device", "cuda:0,cuda:1"], "capacity measures one device"),
        (["capacity", "nothing.yaml"], "nothing.yaml: there is no such file"),
        (["capacity", "pipeline.yaml", "--set", "stages.detect.min_scor=1"], "min_score"),
        (["capacity", "pipeline.yaml", "--fps", "0"], "fps"),
    ],
)
def test_invalid_arguments_exit_with_2(arguments, message, root, here):
    completed = here(*arguments, cwd=root)
    assert completed.returncode == 2
    assert message in completed.stderr


@pytest.mark.parametrize(
    ("arguments", "taken"), [([], ("auto",)), (["--processes", "auto, 3"], ("auto", 3)), (["--processes", "2"], (2,))]
)
def test_processes_is_auto_or_a_list_of_numbers(arguments, taken, root, monkeypatch):
    measured = []
    monkeypatch.setattr("streamkit.bench.gpu.bench", lambda options, out, echo: measured.append(options) or 0)
    line = ["--device", "cpu", "--models", "demo", "--clip", f"h264={root}/samples/street.mp4", *arguments]
    bench_gpu.main(line, standalone_mode=False)
    assert measured[0].processes == taken


@pytest.mark.parametrize(
    ("models", "networks", "files"),
    [
        ("demo", ["demo"], ["bench.json"]),
        ("demo, nets/yolo11m.onnx", ["demo", "nets/yolo11m.onnx"], ["bench-demo.json", "bench-yolo11m.json"]),
    ],
)
def test_networks_are_measured_one_after_the_other(models, networks, files, root, monkeypatch):
    runs = []
    monkeypatch.setattr("streamkit.bench.gpu.bench", lambda options, out, echo: runs.append((options, out)) or 0)
    line = ["--device", "cpu", "--models", models, "--clip", f"h264={root}/samples/street.mp4", "--out", "bench.json"]
    bench_gpu.main(line, standalone_mode=False)
    assert [options.model for options, _ in runs] == networks
    assert [out.name for _, out in runs] == files


def test_custom_clips_and_networks_need_no_test_data(root, tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr("streamkit.bench.gpu.bench", lambda options, out, echo: calls.append(options) or 0)
    street = root / "samples" / "street.mp4"
    line = ["--device", "cpu", "--data", str(tmp_path), "--models", "demo", "--clip", f"h264={street}"]
    bench_gpu.main(line, standalone_mode=False)
    assert (calls[0].clips, calls[0].data) == ({"h264": street}, None)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ([], CapacityOptions()),
        (["--max-latency", "40"], CapacityOptions(max_latency_s=0.04)),
        (["--max-latency", "2500"], CapacityOptions(max_latency_s=2.5)),
        (
            ["--fps", "12.5", "--seconds", "0.5", "--start", "3", "--max-streams", "9"],
            CapacityOptions(fps=12.5, seconds=0.5, start=3, max_streams=9),
        ),
    ],
)
def test_capacity_uses_the_search_options(arguments, options, root, monkeypatch):
    calls = []
    monkeypatch.setattr("streamkit.bench.capacity.capacity", lambda *call: calls.append(call) or 0)
    capacity.main([f"{root}/pipeline.yaml", "--device", "cpu", *arguments], standalone_mode=False)
    assert [(call[2], call[3]) for call in calls] == [("cpu", options)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seconds", "0.4"],
        ["--seconds", "-0.5"],
        ["--start", "0"],
        ["--max-streams", "0"],
        ["--fps", "0"],
        ["--max-latency", "0.9"],
    ],
)
def test_capacity_refuses_options_out_of_range(arguments, root):
    with pytest.raises(click.BadParameter, match=r"is not in the range"):
        capacity.main([f"{root}/pipeline.yaml", *arguments], standalone_mode=False)


def test_the_help_names_both_kinds_of_bench(root):
    completed = run(root, "bench", "--help")
    assert completed.returncode == 0
    assert "cpu" in completed.stdout
    assert "gpu" in completed.stdout
