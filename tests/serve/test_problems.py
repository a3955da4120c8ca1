"""What is wrong, from each cause: of real runs where a run can be brought to it, else of a run that says so."""

import time
from collections import Counter
from types import SimpleNamespace

import pytest
from support.servers import SECRET, served

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.errors import OutputError
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe.health import HealthSnapshot
from streamkit.serve.api_models import RaisedAlarm
from streamkit.serve.problems import Problems


class Run:
    """A run whose states and counters a test sets."""

    def __init__(self, tmp_path):
        text = f"sources: {{gate: 'rtsp://127.0.0.1:9/x'}}\nstages: {{jsonl: {{path: '{tmp_path}/x.jsonl'}}}}"
        self.graph = build(read(tmp_path / "x.yaml", text=text))
        self.states, self.addresses = {}, {"gate": "rtsp://127.0.0.1:9/x"}
        self.events, self.fatal, self.facts = Counter(), None, HealthSnapshot()
        self.stages, self.counters, self.raised = {}, Counter(), []
        self.rejected = self.not_stored = ""
        self.problems = Problems(self, lambda: self.raised, lambda: self.not_stored)
        self.not_audited = ""
        self.problems.follow_audit(lambda: self.not_audited)
        self.problems._disk = SimpleNamespace(snapshot=HealthSnapshot)
        self.now_s = 1000.0
        self.look()

    def source(self, id_, state, since_s=0.0, **values):
        made = self.states[id_] = SourceState(begun=True, state=state, since_s=time.time() - since_s, **values)
        return made

    def look(self, after_s=1.0):
        self.now_s += after_s
        self.problems.sample(self.now_s)
        return [(one.severity, one.kind, one.text) for one in self.problems.current()]

    def health(self):
        return self.facts

    def meters(self):
        return {id_: dict(meter) for id_, meter in self.stages.items()}

    def counts(self):
        return dict(self.counters)


@pytest.fixture(name="run")
def run_fixture(tmp_path):
    return Run(tmp_path)


def test_nothing_is_wrong(run):
    run.source("gate", "running", frames=100)
    run.source("yard", "paused")
    run.source("film", "ended")
    run.source("new", "connecting", since_s=1)
    assert run.look() == []


@pytest.mark.parametrize("state", ["reconnecting", "failed", "connecting"])
def test_a_source_is_down(run, state):
    run.source("street", "running")
    run.source("gate", state, since_s=31, cause="not_found")
    assert run.look() == [("error", "source_down", 'camera "gate" has been down for 31 s (not found)')]
    (one,) = run.problems.current()
    assert (one.source, one.link, round(one.since_s)) == ("gate", "#/home?source=gate", 31)
    run.states["gate"].removed = True
    assert run.look() == []


def test_a_source_that_failed_without_a_cause_says_why_without_its_address(run):
    run.source("gate", "failed", since_s=3, error=f"rtsp://u:{SECRET}@host/x: no frames\nmore")
    ((_, _, text),) = run.look()
    assert text == 'camera "gate" has been down for 3 s: rtsp://...: no frames'


def test_all_sources_are_down(run):
    run.source("a", "failed", since_s=10, cause="auth")
    run.source("b", "reconnecting", since_s=20, cause="lost")
    run.source("c", "paused")
    found = run.look()
    assert found[0] == ("error", "all_down", "no source is running: all 2 are down")
    assert [kind for _, kind, _ in found] == ["all_down", "source_down", "source_down"]
    assert run.problems.current()[0].since_s == pytest.approx(10, abs=0.5)


def test_an_alarm_is_raised_and_acknowledged(run):
    run.raised = [RaisedAlarm("low", "pipeline", 12.0, "few frames", False)]
    assert run.look() == [("error", "alarm", "alarm low: few frames")]
    run.raised = [RaisedAlarm("low", "gate", 12.0, "few frames", True)]
    assert run.look() == [("warning", "alarm", "alarm low: few frames")]
    (one,) = run.problems.current()
    assert (one.acknowledged, one.source, one.link, one.since_s) == (True, "gate", "#/alarms", 12.0)


def test_frames_are_dropped_within_the_last_minute(run):
    gate = run.source("gate", "running", frames=1000)
    run.look()
    gate.frames, gate.drops.values["frames dropped: too old"] = 1100, 12
    text = '12 frames of "gate" were dropped in the last minute (too old)'
    assert run.look() == [("error", "drops", text)]
    assert run.look(30) == [("error", "drops", text)]
    assert run.problems.current()[0].since_s == 30
    assert run.look(31) == []
    gate.frames, gate.drops.values["frames dropped: too many"] = 3000, 1
    text = '1 frame of "gate" was dropped in the last minute (too many)'
    assert run.look() == [("warning", "drops", text)]  # one in a thousand


def test_a_stage_fails_and_hangs(run):
    run.stages["detect"] = {"frames": 10, "failed": 3}
    run.look()
    run.stages["detect"] = {"frames": 20, "failed": 4}
    assert ("error", "failed_frames", "stage detect failed on 4 frames in the last minute") in run.look()
    assert run.problems.current()[0].link == "#/pipeline?stage=detect"
    assert run.look(59)[0][1] == "failed_frames"
    assert run.look(5) == []
    run.facts = HealthSnapshot(pipeline={"stage_call_s": 11.0}, about={"stage_call_s": "detect"})
    assert run.look() == [("error", "stage_hangs", "stage detect has been in one call for 11 s")]


def test_a_spool_grows_fills_and_nothing_is_delivered(run):
    def facts(**values):
        run.facts = HealthSnapshot(pipeline=values, about=dict.fromkeys(values, "mqtt"))
        return run.look()

    for n in range(12):
        found = facts(spool_records=100.0 + 40 * n)
    assert found == [("warning", "spool", "the spool of mqtt grows: 540 records wait")]
    for n in range(12):
        found = facts(spool_records=500.0 + 40 * (n % 3))
    assert found == []
    found = facts(spool_records=600.0, spool_share=0.93)
    assert found == [("error", "spool", "the spool of mqtt is 93% full")]
    found = facts(undelivered_s=12.0)
    assert found == [("error", "undelivered", "mqtt has delivered nothing for 12 s, and records wait")]


@pytest.mark.parametrize(("free_gb", "severity"), [(0.4, "error"), (4.0, "warning"), (6.0, None)])
def test_a_disk_fills(run, free_gb, severity):
    snapshot = HealthSnapshot(pipeline={"disk_free_gb": free_gb}, about={"disk_free_gb": "out"})
    run.problems._disk = SimpleNamespace(snapshot=lambda: snapshot)
    text = f"{free_gb} GB are free on the disk of out"
    assert run.look() == ([(severity, "disk", text)] if severity else [])


def test_events_cannot_be_stored(run):
    run.not_stored = "the disk is full"
    assert run.look() == [("error", "store", "events are not stored: the disk is full")]
    run.not_stored = ""
    assert run.look() == []


def test_the_audit_log_cannot_be_written(run):
    run.not_audited = "2 entries wait: the disk is full"
    assert run.look() == [("error", "audit", "the audit log is not written: 2 entries wait: the disk is full")]
    run.not_audited = ""
    assert run.look() == []


def test_an_edit_of_the_yaml_is_rejected(run):
    run.rejected = "rtsp://user:secret@host is no path"
    assert run.look() == [("warning", "edit_rejected", "the last edit of the YAML is not applied")]


def test_a_network_is_tuned_and_a_process_dies(run):
    run.counters["batches before tuning"] = 5
    assert run.look() == [("warning", "untuned", "a network is still being tuned, and is slow until then")]
    assert run.look(4)[0][1] == "untuned"
    assert run.look(3) == []
    run.events["restarted"] += 1
    assert run.look()[0][1] == "restarted"
    assert run.look(65) == []


def test_the_run_ends_with_an_error(run):
    run.source("gate", "failed", since_s=3)
    run.fatal = OutputError(f"cannot write to rtsp://u:{SECRET}@host/x")
    assert run.look()[0] == ("error", "run_failed", "the pipeline ends: cannot write to rtsp://...")


# ---------------------------------------------------------------------------------------------------------- real runs

REAL = f"""
plugins: [PLUGIN]
sources:
  gate: {{uri: "rtsp://operator:{SECRET}@127.0.0.1:9/stream1"}}
  bars: {{uri: "test://?width=96&height=64&frames=0", pace: 20}}
stages:
  breaks: {{}}
alarms:
  slow: total_fps < 1e6
"""
PLUGIN = """
from streamkit import stage

@stage("breaks")
def breaks(frame, *, always: bool = True):
    if frame.source == "bars" and frame.index % 10 == 3:
        raise ValueError("this frame is bad")
"""


@pytest.mark.parametrize("device", ["", "device: {use: cpu, processes: 2}\n"])
def test_the_server_tells_what_is_wrong_with_a_run(root, tmp_path, device):
    plugin = tmp_path / "breaks.py"
    plugin.write_text(PLUGIN)
    with served(device + REAL.replace("PLUGIN", str(plugin)), root) as server:
        kinds = {"source_down", "alarm", "failed_frames"}
        server.until(lambda: kinds <= {one["kind"] for one in server.open.get("/api/v1/problems").json()})
        answer = server.open.get("/api/v1/problems")
        found = {one["kind"]: one for one in answer.json()}
        assert found["source_down"]["text"].startswith('camera "gate" has been down for')
        assert found["failed_frames"]["text"].startswith("stage breaks failed on ")
        assert found["alarm"]["severity"] == "error"
        assert SECRET not in answer.text
        assert "127.0.0.1" not in answer.text
        status = server.open.get("/api/v1/status").json()
        assert {one["kind"] for one in status["problems"]} >= kinds
        assert [one["severity"] for one in answer.json()] == sorted(one["severity"] for one in answer.json())
        server.client.delete("/api/v1/sources/bars")
        server.client.post("/api/v1/sources/gate/pause")
        server.until(lambda: "source_down" not in {one["kind"] for one in server.open.get("/api/v1/problems").json()})
