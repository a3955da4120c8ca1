"""Which sources are refused before the run because their GPU has no NVDEC session for them."""

from pathlib import Path

import pytest
from support.clips import write
from support.messages import collect

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read, read_text
from streamkit.core.data import Device
from streamkit.media.gpu_figures import store_figure
from streamkit.runtime import prepare
from streamkit.runtime.multiprocess import session_limit
from streamkit.runtime.multiprocess.session_limit import SessionLimit, session_limits, sources_beyond

CAMERA = "'rtsp://h/#'"
FILE = "'#.mp4'"
PACED = "{uri: '#.mp4', pace: 30}"
LOOPED = "{uri: '#.mp4', loop: true}"
PATTERN = "{uri: 'test://?frames=0', pace: 30}"
GPU = {"cuda:0": SessionLimit("Test GPU", 3)}


def configs(*entries):
    listed = "".join(f"  s{n}: {entry.replace('#', str(n))}\n" for n, entry in enumerate(entries))
    return read_text(f"sources:\n{listed}stages: {{jsonl: {{path: x.jsonl}}}}", folder=Path.cwd()).sources


def refused(*entries, shares=None, limits=GPU, **options):
    sources = configs(*entries)
    shares = [("cuda:0", [source.id for source in sources])] if shares is None else shares
    return sources_beyond(sources, shares, limits, **options)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([CAMERA] * 3, []),
        ([CAMERA] * 5, ["s3", "s4"]),
        ([PACED, LOOPED, CAMERA, PACED], ["s3"]),
        ([FILE] * 40, []),  # they take turns
        ([CAMERA, FILE, CAMERA, CAMERA], ["s3"]),  # a file needs one as well
        ([CAMERA, *[FILE] * 40], ["s0"]),
        ([PATTERN] * 5, []),  # nothing is decoded
        ([PATTERN, *[CAMERA] * 4], ["s4"]),
        ([], []),
    ],
)
def test_the_last_sources_in_the_order_of_the_yaml_are_refused(entries, expected):
    assert list(refused(*entries)) == expected


def test_files_count_if_played_in_real_time():
    assert list(refused(*[FILE] * 5)) == []
    assert list(refused(*[FILE] * 5, realtime=True)) == ["s3", "s4"]


def test_processes_share_the_session_limit_of_a_gpu():
    shares = [("cuda:0", ["s0", "s2", "s4"]), ("cuda:0", ["s1", "s3"])]
    assert list(refused(*[CAMERA] * 5, shares=shares)) == ["s3", "s4"]
    shares = [("cuda:0", ["s0", "s2", "s4"]), ("cuda:1", ["s1", "s3"])]
    assert refused(*[CAMERA] * 5, shares=shares) == {}
    limits = {**GPU, "cuda:1": SessionLimit("Other GPU", 1)}
    assert list(refused(*[CAMERA] * 5, shares=shares, limits=limits)) == ["s3"]


def test_the_reason_states_the_limit_and_the_fix():
    assert set(refused(*[CAMERA] * 5).values()) == {
        "cuda:0 (Test GPU) opens 3 NVDEC sessions at once, and its sources need 5; read fewer sources on it, or add a "
        "GPU"
    }


def test_a_gpu_whose_limit_is_unknown_refuses_nothing():
    assert refused(*[CAMERA] * 5, limits={}) == {}


def test_limits_are_looked_up_by_the_name_of_the_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names = {0: "NVIDIA H200, CUDA 13.0", 1: "Another GPU, CUDA 13.0", 2: "", 3: "Measured GPU, CUDA 13.0"}
    monkeypatch.setattr(session_limit, "decoding_versions", names.get)
    devices = [Device("cpu"), *(Device("cuda", index) for index in names)]
    for _ in range(2):
        store_figure(names[3], "sessions", 64)
    assert session_limits(devices) == {
        "cuda:0": SessionLimit("NVIDIA H200", 286),
        "cuda:3": SessionLimit("Measured GPU", 64),
    }


@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_refuses_the_sources_beyond_the_limit_and_reads_the_others(tmp_path, monkeypatch, processes):
    clip = write(tmp_path / "a.mp4", frames=10)
    path = tmp_path / "pipeline.yaml"
    path.write_text(
        f"""
        device: {{use: cpu, processes: {processes}}}
        sources: {{a: {{uri: {clip}, pace: 50}}, b: {{uri: {clip}, pace: 50}}, c: {{uri: {clip}, pace: 50}}}}
        stages: {{jsonl: {{path: "{tmp_path}/{{source}}.jsonl"}}}}
        """
    )
    monkeypatch.setattr(prepare, "session_limits", lambda devices: {"cpu": SessionLimit("Test GPU", 2)})
    logged = collect()
    run = prepare.prepare(build(read(path)), path, {})
    assert run.run() == 1
    assert sorted(file.name for file in tmp_path.glob("*.jsonl")) == ["a.jsonl", "b.jsonl"]
    report = run.report(1)
    assert report["sources"]["c"]["error"].startswith("cpu (Test GPU) opens 2 NVDEC sessions at once")
    assert report["sources"]["a"]["frames"] == report["sources"]["b"]["frames"] == 10
    assert len([text for text in logged if text.startswith("source c failed: cpu (Test GPU) opens 2 NVDEC")]) == 1
