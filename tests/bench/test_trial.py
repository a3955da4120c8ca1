"""A run measured in its stride, in this process and in one of its own."""

import json
from pathlib import Path

import pytest

from streamkit.bench import trial

PATTERN = "test://?width=64&height=48&fps=50&frames=0"


def pipeline(tmp_path, stages=None, uri=PATTERN, **source):
    stages = stages or {"jsonl": {"path": str(tmp_path / "{source}.jsonl")}}
    plan = {"device": "cpu", "sources": {"a": {"stage": "test_pattern", "uri": uri, **source}}, "stages": stages}
    path = tmp_path / "pipeline.yaml"
    path.write_text(json.dumps(plan))
    return str(path)


def came(report):
    """Frames a second that sources gave; on a busy machine some of them are dropped."""
    return report.fps + report.dropped / report.seconds


@pytest.mark.alone
def test_a_paced_trial_writes_every_frame_at_its_rate(tmp_path):
    spec = trial.TrialSpec(pipeline(tmp_path, pace="realtime"), seconds=1.0, warmup_s=0.2)
    report = trial.measure(spec)
    assert report.error is None
    assert came(report) == pytest.approx(50, rel=0.2)
    assert report.seconds == pytest.approx(1.0, abs=0.3)
    assert report.frames_in_all >= report.fps
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == report.frames_in_all
    assert report.processes == 1
    assert report.start_s > 0.1
    assert 0 < report.latency["p50_ms"] <= report.latency["p95_ms"] <= report.latency["p99_ms"]
    assert report.cores_used > 0
    assert report.host_mb > 20
    assert (report.to_device, report.to_host, report.gpu, report.device_mb) == (0, 0, None, None)
    assert set(report.stages) == {"jsonl"}


def test_several_processes_are_measured_together(tmp_path):
    plan = json.loads(Path(pipeline(tmp_path, pace="realtime")).read_text())
    plan["sources"]["b"] = plan["sources"]["a"]
    (tmp_path / "two.yaml").write_text(json.dumps(plan))
    set_ = {"device.processes": "2"}
    spec = trial.TrialSpec(str(tmp_path / "two.yaml"), set_, device="cpu", seconds=2.0, warmup_s=0.6)
    report = trial.measure(spec)
    assert report.error is None
    assert came(report) == pytest.approx(100, rel=0.2)
    assert sum(len((tmp_path / f"{id_}.jsonl").read_text().splitlines()) for id_ in "ab") == report.frames_in_all
    assert 0 < report.latency["p50_ms"] <= report.latency["p95_ms"]
    assert report.processes == 2
    assert report.lock_free is None, "each has its own"
    assert report.host_mb > 60, "all processes' memory"
    assert report.cores_used > 0


def test_copies_write_to_their_folder(tmp_path):
    outputs = tmp_path / "out"
    spec = trial.TrialSpec(pipeline(tmp_path), streams=3, pace=20.0, outputs=str(outputs), seconds=0.5, warmup_s=0.1)
    report = trial.run(spec)
    assert report.error is None
    assert came(report) == pytest.approx(60, rel=0.25)
    assert sorted(path.name for path in (outputs / "jsonl").iterdir()) == ["a-0.jsonl", "a-1.jsonl", "a-2.jsonl"]
    assert not list(tmp_path.glob("*.jsonl"))


def test_copies_reach_every_process_with_their_pace_and_outputs(tmp_path):
    plan = json.loads(Path(pipeline(tmp_path, every=9)).read_text())
    plan["device"] = {"use": "cpu", "processes": 2}
    plan["state"] = str(tmp_path / "state.db")
    plan["stages"]["mqtt"] = {"url": "mqtt://127.0.0.1:1", "topic": "a", "send": "events"}
    plan["stages"]["all"] = {"stage": "jsonl", "path": str(tmp_path / "all.jsonl")}
    plan["alarms"] = {"down": {"when": "down_s > 30", "to": "mqtt"}}
    (tmp_path / "two.yaml").write_text(json.dumps(plan))
    outputs = tmp_path / "out"
    set_ = {"sources.a.every": "2"}
    spec = trial.TrialSpec(str(tmp_path / "two.yaml"), set_, None, 3, 20.0, str(outputs), seconds=1.0, warmup_s=0.6)
    report = trial.run(spec)
    assert (report.error, report.processes) == (None, 2)
    assert came(report) == pytest.approx(30, rel=0.25)
    for stage in ("jsonl", "all"):
        written = {path.name: path.read_text().count("\n") for path in (outputs / stage).iterdir()}
        assert sorted(written) == ["a-0.jsonl", "a-1.jsonl", "a-2.jsonl"]
        assert sum(written.values()) == report.frames_in_all
    assert len([text for text in report.messages if "mqtt is removed" in text]) == 1
    assert set(report.stages) == {"jsonl", "all"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "pipeline.yaml", "two.yaml"]


@pytest.mark.parametrize(
    ("source", "start_s", "message"),
    [
        ({"uri": "test://?frames=3"}, 30.0, "before it could be measured"),
        ({"uri": PATTERN, "pace": 0.2}, 0.3, "1 of 1 sources delivered no frame within 0.3 s"),
    ],
)
def test_an_unmeasurable_run_is_reported(source, start_s, message, tmp_path):
    report = trial.run(trial.TrialSpec(pipeline(tmp_path, pace_seed=3, **source), seconds=0.5, start_s=start_s))
    assert report.fps == 0
    assert message in report.error


def test_an_error_of_the_child_is_returned(tmp_path):
    report = trial.measure(trial.TrialSpec(pipeline(tmp_path, stages={"detekt": {}})))
    assert "unknown stage 'detekt'" in report.error


def test_a_dead_child_is_reported(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    assert "ended with 3" in trial.measure(trial.TrialSpec("pipeline.yaml")).error


def test_the_end_of_a_dead_childs_output_is_shown(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("import sys\nsys.stderr.write('a' * 9000 + 'the end')\nraise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    error = trial.measure(trial.TrialSpec("pipeline.yaml")).error
    assert error.endswith("aaathe end")
    assert len(error) < 2100
