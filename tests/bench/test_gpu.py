"""`bench gpu`: the same measurements on few frames on the CPU, and in their quick form on a GPU."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from streamkit.bench import gpu, trial
from streamkit.bench.table import Measurement
from streamkit.core.errors import ConfigError, DeviceError
from streamkit.runtime.observe.nvml import GpuUtilization, Nvml


def options(root, **changed):
    defaults = {
        "clips": {"h264": root / "samples" / "street.mp4"},
        "model": "demo",
        "device": "cpu",
        "batches": (2, 3),
        "sources": (1, 2),
        "seconds": 0.3,
        "frames": 500,
    }
    return gpu.GpuBenchOptions(**{**defaults, **changed})


@pytest.fixture
def brisk(monkeypatch):
    """Runs of the whole but the first take place in this process, and none is waited for until it has settled."""
    monkeypatch.setattr(trial, "_UNTUNED_S", 0.05)
    measure = trial.measure
    measured = []

    def measured_here(spec, until_s=None):
        spec.seconds = min(spec.seconds, 0.5)
        spec.warmup_s = 0.05
        spec.launched_s = time.monotonic()
        measured.append(spec)
        return trial.run(spec) if len(measured) > 1 else measure(spec, until_s)

    monkeypatch.setattr(trial, "measure", measured_here)


def test_parts_and_whole_are_measured_and_every_frame_has_its_record(root, tmp_path, brisk):
    messages = []
    out = tmp_path / "bench.json"
    behind = tmp_path / "behind.yaml"
    behind.write_text("stages: {track: {}, area: {stage: zone, polygon: [[9, 9], [99, 9], [99, 99]]}}")
    code = gpu.bench(
        options(root, batches=(2,), realtime=(1,), extra_stages=gpu.stages_of(behind)), out, messages.append
    )
    assert code == 0, messages
    report = json.loads(out.read_text())
    rows = report["rows"]
    assert report["complete"] is True
    kinds = [(row["what"], row["sources"], row["batch"]) for row in rows]
    parts = [("preprocess", 0, 2), ("infer", 0, 2), ("postprocess", 0, 2)]
    assert kinds[:5] == [("decode", 1, 0), ("decode", 2, 0), *parts]
    whole = [row for row in rows if row["what"] == "whole"]
    assert {row["batch"] for row in whole} == {2}
    assert {row["sources"] for row in whole} == {1, 2}
    assert {"one file, 1 decoders", "one file, 7 decoders", "decode + preprocess", "paced", "whole + stages"} <= {
        k[0] for k in kinds
    }
    assert all(row["fps"] > 0 for row in rows if row["what"] != "paced")  # its tracker is compiled meanwhile
    assert all(row["found"]["frames_in_all"] > 0 for row in rows if row["what"] == "paced")
    behind = next(row for row in rows if row["what"] == "whole + stages")
    assert behind["found"]["stages"].keys() >= {"track", "area"}
    best = report["summary"]["h264"]
    parts = [max(row["fps"] for row in rows if row["what"] == what) for what in ("decode", "infer")]
    assert best["of_limit"] == pytest.approx(best["whole_fps"] / min(parts), abs=1e-3)
    assert best["binds"] == max(best["uses"], key=best["uses"].get)
    assert best["packet_bytes"] > 100
    assert best["host_mb_a_source"] is not None
    assert report["left_out"] == []
    assert report["machine"]["gpu"] is None
    assert messages[1] == gpu.HEAD
    assert messages[-1].startswith("h264: ")


def test_a_file_without_stages_is_refused(tmp_path):
    path = tmp_path / "behind.yaml"
    for text in ("", "sources: {}", "stages: {}", "stages: {detect: {model: demo}}"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="must have stages"):
            gpu.stages_of(path)


def test_parts_that_take_too_long_are_skipped(root, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "_PARTS_SHARE", 0.0)
    messages = []
    bench = gpu.GpuBenchmark(options(root, max_s=120), tmp_path, messages.append)
    bench.clips = bench.options.clips
    bench.measure_parts()
    assert [row.what for row in bench.rows] == ["decode", "decode", "preprocess", "infer", "postprocess"]
    assert bench.left_out == ["parts alone with batches over 2"]
    assert "skipped: parts alone with batches over 2" in messages


def test_runs_without_enough_time_are_skipped_or_stopped(root, tmp_path):
    """The bound holds whatever a run takes, paced ones included, and every row is kept as it comes."""
    messages = []
    reports = []

    def keep(bench):
        reports.append(bench.report(complete=False))

    bench = gpu.GpuBenchmark(options(root, max_s=5.0, seconds=0.3, realtime=(1, 2)), tmp_path, messages.append, keep)
    start_s = time.monotonic()
    bench.all()
    assert time.monotonic() - start_s < 5.0 + 3.0  # what is killed takes a moment to end
    assert bench.left_out
    assert all(f"skipped: {text}" in messages for text in bench.left_out)
    assert len(reports) == len(bench.rows) + len(bench.left_out)
    assert [len(report["rows"]) + len(report["left_out"]) for report in reports] == list(range(1, len(reports) + 1))
    assert not (tmp_path / "out").exists() or bench.rows[-1].what == "paced"


def test_a_run_over_time_is_stopped_and_its_outputs_removed(root, tmp_path, monkeypatch):
    def measure(spec, until_s):
        assert until_s == bench._until_s
        (tmp_path / "out").mkdir()
        raise TimeoutError

    monkeypatch.setattr(trial, "measure", measure)
    bench = gpu.GpuBenchmark(options(root), tmp_path, print)
    bench.clips = bench.options.clips
    bench.measure_whole("h264", 2, 3)
    assert bench.left_out == ["whole, h264, 2 sources, batch 3: stopped at the time limit"]
    assert bench.rows == []
    assert not (tmp_path / "out").exists()
    bench._last["whole"] = bench.options.max_s  # the first of a kind is thought to take as long as one of the whole
    bench.measure_whole("h264", 1, 0, "paced")
    assert bench.left_out[1:] == ["paced, h264, 1 sources, batch by default"]


def test_the_number_of_processes_is_set_in_every_run(root, tmp_path, monkeypatch):
    runs = []

    def measure(spec, until_s):
        runs.append((spec.device, spec.set_))
        raise TimeoutError

    monkeypatch.setattr(trial, "measure", measure)
    bench = gpu.GpuBenchmark(options(root, set_={"stages.detect.top_k": "5"}), tmp_path, print)
    bench.clips = bench.options.clips
    bench.measure_whole("h264", 2, 3)
    bench.measure_whole("h264", 2, 3, processes=3)
    bench.measure_whole("h264", 2, 3, "decode + preprocess")
    automatic = {"device.processes": "auto"}
    assert [set_ for _, set_ in runs] == [
        {"stages.detect.top_k": "5", **automatic},
        {"stages.detect.top_k": "5", "device.processes": "3"},
        automatic,
    ]
    assert {device for device, _ in runs} == {bench.options.device}


@pytest.mark.parametrize(
    ("what", "sources", "seconds", "times"),
    [
        ("whole", 10, 7.0, (7.0, trial.TrialSpec("p").warmup_s, trial.TrialSpec("p").start_s)),
        ("paced", 10, 7.0, (7.0, 2.0, 62.5)),  # sources that start one after the other
        ("paced", 300, 0.3, (5.0, 2.0, 135.0)),
    ],
)
def test_paced_runs_have_time_to_start_and_to_settle(what, sources, seconds, times, root, tmp_path, monkeypatch):
    specs = []

    def measure(spec, until_s):
        specs.append((spec.seconds, spec.warmup_s, spec.start_s))
        raise TimeoutError

    monkeypatch.setattr(trial, "measure", measure)
    benchmark = gpu.GpuBenchmark(options(root, seconds=seconds), tmp_path, print)
    benchmark.clips = benchmark.options.clips
    benchmark.measure_whole("h264", sources, 3, what)
    assert specs == [times]


@pytest.mark.long
def test_a_row_has_the_number_of_processes(root, tmp_path):
    messages = []
    bench = gpu.GpuBenchmark(options(root, processes=(2,), seconds=1.0), tmp_path, messages.append)
    bench.clips = bench.options.clips
    for processes in (None, 1, "auto"):
        bench.measure_whole("h264", 2, 2, processes=processes)
    whole = [row for row in bench.rows if row.what == "whole"]
    assert [(row.processes, row.found.error) for row in whole] == [(2, None), (1, None), (1, None)]
    assert [line.split()[4] for line in messages if line.startswith("whole")] == ["2", "1", "1"]
    assert whole[0].found.fps > 0


def test_paced_runs_come_before_those_of_the_whole(root, tmp_path, monkeypatch):
    runs = []
    monkeypatch.setattr(gpu.GpuBenchmark, "measure_parts", lambda self: None)
    monkeypatch.setattr(
        gpu.GpuBenchmark,
        "measure_whole",
        lambda self, codec, sources, batch, what="whole", decoders=None, processes=None: runs.append(
            (what, sources, processes)
        ),
    )
    gpu.GpuBenchmark(
        options(root, batches=(2,), sources=(1,), realtime=(5, 9), processes=("auto", 3)), tmp_path, print
    ).all()
    assert runs[:4] == [("paced", 5, "auto"), ("paced", 9, "auto"), ("paced", 5, 3), ("paced", 9, 3)]
    assert runs[4] == ("whole", 1, None)
    assert ("whole", 1, 3) in runs
    assert len(runs) == 4 + 1 + 3 + 1


def test_a_killed_bench_keeps_its_rows(root, tmp_path):
    out = tmp_path / "bench.json"
    command = [
        sys.executable,
        str(root / "run.py"),
        "bench",
        "gpu",
        "--device",
        "cpu",
        "--models",
        "demo",
        "--clip",
        f"h264={root / 'samples' / 'street.mp4'}",
        "--seconds",
        "0.3",
        "--sources",
        "1,2",
        "--batches",
        "2,3",
        "--out",
        str(out),
    ]
    running = subprocess.Popen(
        command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        until_s = time.monotonic() + 60
        while not (out.exists() and json.loads(out.read_text())["rows"]):
            assert running.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.02)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    report = json.loads(out.read_text())
    assert report["rows"][0]["what"] == "decode"
    assert report["complete"] is False
    assert report["schema"] == "streamkit-bench/1"


def test_a_missing_record_is_an_error(root, tmp_path):
    bench = gpu.GpuBenchmark(options(root), tmp_path, print)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "s000.jsonl").write_text("{}\n{}\n")
    trial_result = gpu.trial.TrialResult(frames_in_all=3)
    bench._check_records(trial_result)
    assert trial_result.error == "2 records of 3 frames were written"
    assert not (tmp_path / "out").exists()


def test_the_base_is_the_smallest_sufficient_number_of_sources(root, tmp_path):
    bench = gpu.GpuBenchmark(options(root), tmp_path, print)
    speeds = {1: 1300, 7: 7900, 14: 8000, 32: 7990}
    bench.rows = [Measurement("decode", fps, "hevc", sources) for sources, fps in speeds.items()]
    assert bench._base("hevc") == 7


def test_the_best_batch_is_that_of_the_fastest_run(root, tmp_path):
    bench = gpu.GpuBenchmark(options(root), tmp_path, print)
    assert bench._best_batch("hevc") == 2
    bench.rows = [Measurement("whole", fps, "hevc", 7, batch) for batch, fps in {8: 3000, 64: 7000, 128: 6500}.items()]
    assert bench._best_batch("hevc") == 64


def test_the_quick_form_has_a_single_batch_size():
    quick = gpu.GpuBenchOptions({}).quick()
    assert (quick.batches, quick.sources, quick.seconds) == ((64,), (14,), 1.5)


def test_a_misspelled_option_is_reported_before_the_run(root, tmp_path):
    with pytest.raises(ConfigError, match="cuda_grap"):
        gpu.bench(options(root, set_={"stages.detect.cuda_grap": "true"}), None, print)


def test_a_missing_gpu_is_explained(root):
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:
        with pytest.raises(DeviceError, match=r"streamkit doctor` shows details"):
            gpu.bench(options(root, device="cuda"), None, print)
        assert Nvml(0).use() == GpuUtilization()
    else:
        pytest.skip("there is a GPU")


@pytest.mark.gpu
def test_the_gpu_load_is_read_from_the_driver():
    nvml = Nvml(0)
    use = nvml.use()
    nvml.close()
    assert use.gpu is not None
    assert 0 <= use.gpu <= 1
    assert use.decoder is not None
    assert 0 <= use.decoder <= 1
    assert nvml.use() == GpuUtilization()


@pytest.mark.gpu
def test_a_run_on_the_gpu_is_measured(root, tmp_path):
    bench = gpu.GpuBenchmark(options(root, device="cuda", batches=(8,), sources=(2,), seconds=0.5), tmp_path, print)
    bench.clips = {"h264": root / "samples" / "street.mp4"}
    bench.measure_parts()
    bench.measure_whole("h264", 2, 8)
    trial_result = bench.rows[-1].found
    assert trial_result.error is None
    assert trial_result.device_mb > 100
    assert 0 < trial_result.to_device < 2_000
    assert 0 < trial_result.to_host < 20_000
    assert trial_result.counts.get("pixels to host", 0) == 0


def test_decoding_alone_is_also_measured_in_as_many_processes_as_the_pipeline_uses(root, tmp_path, monkeypatch):
    bench = gpu.GpuBenchmark(options(root, seconds=0.2), tmp_path, lambda _text: None)
    bench.clips = bench.options.clips
    bench.rows = [Measurement("decode", 1.0, "h264", 2)]
    trial_result = gpu.trial.TrialResult(fps=100.0, processes=2)
    monkeypatch.setattr(trial, "measure", lambda spec, until_s: trial_result)
    monkeypatch.setattr(bench, "_check_records", lambda figures: None)
    bench.measure_whole("h264", 2, 2)
    bench.measure_whole("h264", 2, 4)
    decoded = [row for row in bench.rows if row.what == "decode"]
    assert [(row.sources, row.processes) for row in decoded] == [(2, 1), (2, 2)]
    assert decoded[1].fps > 1.0
    assert "2" in str(decoded[1]).split()[3]
