"""What is wrong, from each cause: of real runs where a run can be brought to it, else of a run that says so."""

import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.servers import SECRET, served

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.core.errors import OutputError
from streamkit.core.stage import Source
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe.health import HealthSnapshot
from streamkit.serve.api_models import RaisedAlarm, RequestRejected
from streamkit.serve.problems import Problems


class Run:
    """A run whose states and counters a test sets."""

    def __init__(self, tmp_path):
        text = f"sources: {{gate: 'rtsp://127.0.0.1:9/x'}}\nstages: {{jsonl: {{path: '{tmp_path}/x.jsonl'}}}}"
        self.graph = build(read(tmp_path / "x.yaml", text=text))
        self.states = {}
        self.addresses = {"gate": "rtsp://127.0.0.1:9/x"}
        self.events = Counter()
        self.fatal = None
        self.facts = HealthSnapshot()
        self.stages = {}
        self.counters = Counter()
        self.raised = []
        self.rejected = self.not_stored = ""
        self.alarm_facts = {}
        self.problems = Problems(
            self, lambda: self.raised, lambda: self.not_stored, lambda name: self.alarm_facts.get(name, [])
        )
        self.not_audited = ""
        self.problems.follow_audit(lambda: self.not_audited)
        self.problems._disk = SimpleNamespace(snapshot=HealthSnapshot)
        self.now_s = 1000.0
        self.look()

    def source(self, id_, state, since_s=0.0, **values):
        source_state = SourceState(started=True, state=state, since_s=time.time() - since_s, **values)
        self.states[id_] = source_state
        return source_state

    def look(self, after_s=1.0):
        self.now_s += after_s
        self.problems.sample(self.now_s)
        return [(problem.severity, problem.kind, problem.text) for problem in self.problems.current()]

    def health(self):
        return self.facts

    def lost_nodes(self):
        return []

    def meters(self):
        return {id_: dict(meter) for id_, meter in self.stages.items()}

    def counts(self):
        return dict(self.counters)


@pytest.fixture(name="run")
def run_fixture(tmp_path):
    return Run(tmp_path)


def test_a_healthy_run_has_no_problems(run):
    run.source("gate", "running", frames=100)
    run.source("yard", "paused")
    run.source("film", "ended")
    run.source("new", "connecting", since_s=1)
    assert run.look() == []


@pytest.mark.parametrize("state", ["reconnecting", "failed", "connecting"])
def test_a_source_that_is_down_is_a_problem(run, state):
    run.source("street", "running")
    run.source("gate", state, since_s=31, cause="not_found")
    assert run.look() == [("error", "source_down", 'camera "gate" has been down for 31 s (not found)')]
    (problem,) = run.problems.current()
    assert (problem.source, problem.link, round(problem.since_s)) == ("gate", "#/home?source=gate", 31)
    run.states["gate"].removed = True
    assert run.look() == []


def test_a_failure_without_cause_shows_its_message_without_the_address(run):
    run.source("gate", "failed", since_s=3, error=f"rtsp://u:{SECRET}@host/x: no frames\nmore")
    ((_, _, text),) = run.look()
    assert text == 'camera "gate" has been down for 3 s: rtsp://...: no frames'


def test_all_sources_down_are_a_single_problem(run):
    run.source("a", "failed", since_s=10, cause="auth")
    run.source("b", "reconnecting", since_s=20, cause="lost")
    run.source("c", "paused")
    assert run.look() == [("error", "all_down", "no source is running: all 2 are down")]
    (problem,) = run.problems.current()
    assert problem.since_s == pytest.approx(10, abs=0.5)
    assert (problem.id, problem.source, problem.sources) == ("all_down", None, ["a", "b"])


def test_sources_down_for_the_same_reason_are_grouped(run):
    run.addresses |= {"yard": "rtsp://127.0.0.1:9/y", "hall": "rtsp://127.0.0.1:9/z"}
    run.source("street", "running")
    run.source("gate", "reconnecting", since_s=31, cause="timeout")
    run.source("yard", "reconnecting", since_s=40, cause="timeout")
    run.source("hall", "failed", since_s=3, cause="auth")
    assert run.look() == [
        ("error", "source_down", '2 cameras are down (timeout): "gate" and "yard"'),
        ("error", "source_down", 'camera "hall" has been down for 3 s (auth)'),
    ]
    together, alone = run.problems.current()
    assert (together.id, together.source, together.sources) == ("source_down:timeout", None, ["gate", "yard"])
    assert (alone.id, alone.source, alone.sources) == ("source_down:auth", "hall", ["hall"])
    assert (together.since_s, together.link, alone.link) == (pytest.approx(40, abs=0.5), "#/home", "#/home?source=hall")


def test_a_text_names_the_first_of_many_sources(run):
    run.source("street", "running")
    for n in range(6):
        run.source(f"gate{n}", "failed", since_s=3, cause="refused")
    assert run.look() == [
        ("error", "source_down", '6 sources are down (refused): "gate0", "gate1", "gate2" and 3 more')
    ]


def test_a_source_and_its_alarm_are_a_single_problem(run):
    run.alarm_facts = {"camera_down": ["down_s"], "slow": ["latency_p95_s"]}
    run.source("street", "running")
    run.source("gate", "failed", since_s=31, cause="auth")
    down = RaisedAlarm("camera_down", "gate", 21.0, "it has been down", False)
    run.raised = [down, RaisedAlarm("slow", "street", 5.0, "frames are late", False)]
    assert run.look() == [
        ("error", "source_down", 'camera "gate" has been down for 31 s (auth)'),
        ("error", "alarm", "alarm slow: frames are late"),
    ]
    assert [problem.alarms for problem in run.problems.current()] == [["camera_down"], ["slow"]]
    run.raised = [replace(down, acknowledged=True)]
    assert run.look() == [("warning", "source_down", 'camera "gate" has been down for 31 s (auth)')]
    (problem,) = run.problems.current()
    assert problem.acknowledged


@pytest.mark.parametrize(
    ("fact", "source", "kind"),
    [
        ("drop_rate", "gate", "drops"),
        ("drop_rate", "street", "alarm"),
        ("sources_down", "pipeline", "source_down"),
        ("total_fps", "pipeline", "alarm"),  # one camera does not explain why no frame comes
        ("fps_out", "yard", "source_down"),
        ("memory_gb", "pipeline", "alarm"),
    ],
)
def test_an_alarm_belongs_to_the_problem_that_raised_it(run, fact, source, kind):
    run.alarm_facts = {"it": [fact]}
    gate = run.source("gate", "running", frames=100)
    run.source("street", "running")
    run.source("yard", "failed", since_s=31, cause="auth")
    run.look()
    gate.drops.values["frames dropped: too old"] = 1
    run.raised = [RaisedAlarm("it", source, 1.0, "it is so", False)]
    run.look()
    assert [problem.kind for problem in run.problems.current() if problem.alarms] == [kind]


def test_an_alarm_about_no_frames_belongs_to_all_sources_that_are_down(run):
    run.alarm_facts = {"no_frames": ["total_fps"]}
    run.source("gate", "failed", since_s=31, cause="auth")
    run.source("yard", "failed", since_s=31, cause="lost")
    run.raised = [RaisedAlarm("no_frames", "pipeline", 1.0, "nothing comes", False)]
    assert [kind for _, kind, _ in run.look()] == ["all_down"]


def test_an_acknowledged_problem_is_a_warning_until_another_source_joins(run):
    run.source("street", "running")
    run.source("gate", "failed", since_s=31, cause="auth")
    run.look()
    (problem,) = run.problems.current()
    noted, alarms = run.problems.acknowledge(problem.id)
    assert (noted.id, noted.severity, noted.acknowledged, alarms) == ("source_down:auth", "warning", True, [])
    assert run.problems.current() == [noted]
    assert run.look()[0][0] == "warning"
    yard = run.source("yard", "failed", since_s=2, cause="auth")
    assert run.look()[0][0] == "error"
    yard.state = "running"
    assert run.look()[0][0] == "warning"
    with pytest.raises(RequestRejected, match="there is no problem 'drops'; it may be over"):
        run.problems.acknowledge("drops")


def test_two_alarms_of_a_source_are_acknowledged_separately(run):
    run.source("gate", "running")
    run.raised = [RaisedAlarm(name, "gate", 5.0, "it is so", False) for name in ("slow", "hot")]
    run.look()
    run.problems.acknowledge("alarm:slow")
    assert {problem.id: problem.severity for problem in run.problems.current()} == {
        "alarm:slow": "warning",
        "alarm:hot": "error",
    }


def test_each_lost_node_is_a_problem_with_its_start_time(run):
    run.lost_nodes = lambda: ["node a is lost"]
    run.look()
    run.lost_nodes = lambda: ["node a is lost", "node b is lost"]
    assert run.look(9) == [("error", "node_lost", "node a is lost"), ("error", "node_lost", "node b is lost")]
    assert [problem.since_s for problem in run.problems.current()] == [9, 0]
    run.problems.acknowledge("node_lost:node b is lost")
    assert [(problem.text, problem.severity) for problem in run.problems.current()] == [
        ("node a is lost", "error"),
        ("node b is lost", "warning"),
    ]


@pytest.mark.parametrize(("away_s", "severity"), [(30.0, "warning"), (90.0, "error")])
def test_a_brief_reconnection_keeps_the_acknowledgement(run, away_s, severity):
    run.source("street", "running")
    gate = run.source("gate", "failed", since_s=31, cause="auth")
    run.look()
    run.problems.acknowledge("source_down:auth")
    gate.state = "running"
    assert run.look() == []
    run.look(away_s)
    gate.state = "failed"
    assert run.look()[0][0] == severity


def test_a_stalled_camera_is_a_problem_after_five_seconds(run):
    gate = run.source("gate", "running", frames=1)
    for _ in range(4):
        gate.frames += 25
        assert run.look() == []
    for _ in range(5):
        assert run.look() == []
    assert run.look() == [("error", "no_frames", 'camera "gate" has sent no frame for 6 s')]
    (problem,) = run.problems.current()
    assert (problem.source, problem.link) == ("gate", "#/home?source=gate")
    run.problems.acknowledge(problem.id)
    gate.state = "reconnecting"
    gate.cause = "timeout"
    gate.since_s = time.time()
    run.source("street", "running")
    assert run.look() == [("warning", "source_down", 'camera "gate" has been down for 0 s (timeout)')]


def test_an_irregular_plugin_source_is_not_a_problem(run):
    (camera,) = run.graph.sources
    run.graph = replace(run.graph, sources=[replace(camera, type=Source)])
    gate = run.source("gate", "running", frames=1)
    for _ in range(4):
        gate.frames += 25
        run.look()
    assert run.look(60) == []


def test_stalled_cameras_are_grouped(run):
    cameras = [run.source(id_, "running", frames=1) for id_ in ("gate", "yard")]
    for camera in cameras * 2:
        camera.frames += 25
        run.look()
    assert run.look(9) == [("error", "no_frames", '2 sources have sent no frame for up to 10 s: "gate" and "yard"')]


def test_a_raised_alarm_is_a_problem_until_acknowledged(run):
    run.raised = [RaisedAlarm("low", "pipeline", 12.0, "few frames", False)]
    assert run.look() == [("error", "alarm", "alarm low: few frames")]
    run.raised = [RaisedAlarm("low", "gate", 12.0, "few frames", True)]
    assert run.look() == [("warning", "alarm", "alarm low: few frames")]
    (problem,) = run.problems.current()
    assert (problem.acknowledged, problem.source, problem.link, problem.since_s) == (True, "gate", "#/alarms", 12.0)


def drop(run, source, count, after_s=1.0, cause="too old"):
    source.drops.values[f"frames dropped: {cause}"] += count
    return run.look(after_s)


def test_drops_within_the_last_minute_are_a_problem(run):
    gate = run.source("gate", "running", frames=1000)
    run.look()
    gate.frames = 1100
    text = '12 frames of "gate" were dropped in the last minute (too old)'
    assert drop(run, gate, 12) == [("warning", "drops", text)]
    gate.frames = 1850
    assert run.look(30) == [("warning", "drops", text)]
    assert run.problems.current()[0].since_s == 30
    gate.frames = 2600
    assert run.look(31) == []
    gate.frames = 3000
    text = '1 frame of "gate" was dropped in the last minute (too many)'
    assert drop(run, gate, 1, cause="too many") == [("warning", "drops", text)]


def test_continuing_drops_are_an_error(run):
    gate = run.source("gate", "running", frames=1000)
    run.look()
    severities = []
    for _ in range(14):
        gate.frames += 25
        severities.append(drop(run, gate, 5)[0][0])
    assert severities == ["warning"] * 10 + ["error"] * 4
    quiet = []
    for _ in range(12):
        gate.frames += 25
        quiet.append(run.look()[0][0])
    assert quiet == ["error"] * 9 + ["warning"] * 3


def test_a_few_drops_at_the_start_are_a_warning(run):
    gate = run.source("gate", "running", frames=5)
    run.look()
    gate.frames = 30
    assert drop(run, gate, 3)[0][0] == "warning"
    for _ in range(20):
        gate.frames += 25
        assert run.look()[0][0] == "warning"


def test_drops_of_up_to_1_percent_are_a_warning(run):
    gate = run.source("gate", "running", frames=1000)
    run.look()
    for _ in range(20):
        gate.frames += 100
        assert drop(run, gate, 1)[0][0] == "warning"


def test_drops_while_a_network_is_tuned_are_a_warning(run):
    gate = run.source("gate", "running", frames=1000)
    run.look()
    for _ in range(20):
        gate.frames += 25
        run.counters["batches before tuning"] += 1
        assert {severity for severity, *_ in drop(run, gate, 5)} == {"warning"}


def test_drops_of_several_cameras_are_grouped(run):
    cameras = [run.source(id_, "running", frames=1000) for id_ in ("a", "b", "c", "d")]
    run.look()
    for camera in cameras:
        camera.drops.values["frames dropped: too old"] = 2
    assert run.look() == [
        ("warning", "drops", '8 frames of 4 sources were dropped in the last minute: "a", "b", "c" and "d"')
    ]


def test_failing_and_hanging_stages_are_problems(run):
    run.stages["detect"] = {"frames": 10, "failed": 3}
    run.look()
    run.stages["detect"] = {"frames": 20, "failed": 4}
    assert ("error", "failed_frames", "stage detect failed on 4 frames in the last minute") in run.look()
    assert run.problems.current()[0].link == "#/pipeline?stage=detect"
    assert run.look(59)[0][1] == "failed_frames"
    assert run.look(5) == []
    run.facts = HealthSnapshot(pipeline={"stage_call_s": 11.0}, about={"stage_call_s": "detect"})
    assert run.look() == [("error", "stage_hangs", "stage detect has been in one call for 11 s")]


def test_growing_full_and_undelivered_spools_are_problems(run):
    def facts(**values):
        run.facts = HealthSnapshot(pipeline=values, about=dict.fromkeys(values, "mqtt"))
        return run.look()

    for n in range(12):
        problems = facts(spool_records=100.0 + 40 * n)
    assert problems == [("warning", "spool", "the spool of mqtt grows: 540 records wait")]
    for n in range(12):
        problems = facts(spool_records=500.0 + 40 * (n % 3))
    assert problems == []
    problems = facts(spool_records=600.0, spool_share=0.93)
    assert problems == [("error", "spool", "the spool of mqtt is 93% full")]
    problems = facts(undelivered_s=12.0)
    assert problems == [("error", "undelivered", "mqtt has delivered nothing for 12 s, and records wait")]


@pytest.mark.parametrize(("free_gb", "severity"), [(0.4, "error"), (4.0, "warning"), (6.0, None)])
def test_a_nearly_full_disk_is_a_problem(run, free_gb, severity):
    snapshot = HealthSnapshot(pipeline={"disk_free_gb": free_gb}, about={"disk_free_gb": "out"})
    run.problems._disk = SimpleNamespace(snapshot=lambda: snapshot)
    text = f"{free_gb} GB are free on the disk of out"
    assert run.look() == ([(severity, "disk", text)] if severity else [])


def test_events_that_cannot_be_stored_are_a_problem(run):
    run.not_stored = "events are not stored: out/serve/events.db cannot be written: the disk is full"
    assert run.look() == [("error", "store", run.not_stored)]  # once, as the store says it
    run.not_stored = ""
    assert run.look() == []


def test_an_unwritable_audit_log_is_a_problem(run):
    run.not_audited = "2 entries wait: the disk is full"
    assert run.look() == [("error", "audit", "the audit log is not written: 2 entries wait: the disk is full")]
    run.not_audited = ""
    assert run.look() == []


def test_a_rejected_edit_of_the_yaml_is_a_problem(run):
    run.rejected = "rtsp://user:secret@host is no path"
    assert run.look() == [("warning", "edit_rejected", "the last edit of the YAML is not applied")]


def test_tuning_networks_and_dead_processes_are_problems(run):
    run.counters["batches before tuning"] = 5
    assert run.look() == [("warning", "untuned", "a network is still being tuned, and is slow until then")]
    assert run.look(4)[0][1] == "untuned"
    assert run.look(3) == []
    run.events["restarted"] += 1
    assert run.look()[0][1] == "restarted"
    assert run.look(65) == []


def test_a_run_that_ends_with_an_error_is_a_problem(run):
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
def test_the_server_lists_the_problems_of_a_run(root, tmp_path, device):
    plugin = tmp_path / "breaks.py"
    plugin.write_text(PLUGIN)
    with served(device + REAL.replace("PLUGIN", str(plugin)), root) as server:
        kinds = {"source_down", "alarm", "failed_frames"}
        server.until(lambda: kinds <= {problem["kind"] for problem in server.open.get("/api/v1/problems").json()})
        answer = server.open.get("/api/v1/problems")
        problem_by_kind = {problem["kind"]: problem for problem in answer.json()}
        assert problem_by_kind["source_down"]["text"].startswith('camera "gate" has been down for')
        assert problem_by_kind["failed_frames"]["text"].startswith("stage breaks failed on ")
        assert problem_by_kind["alarm"]["severity"] == "error"
        assert SECRET not in answer.text
        assert "127.0.0.1" not in answer.text
        status = server.open.get("/api/v1/status").json()
        assert {problem["kind"] for problem in status["problems"]} >= kinds
        assert [problem["severity"] for problem in answer.json()] == sorted(
            problem["severity"] for problem in answer.json()
        )
        answer = server.client.post("/api/v1/problems/acknowledge", json={"id": "alarm:slow"})
        assert (answer.status_code, answer.json()["severity"]) == (200, "warning")
        assert server.open.get("/api/v1/alarms").json()[0]["raised"][0]["acknowledged"]
        assert server.open.post("/api/v1/problems/acknowledge", json={"id": "alarm:slow"}).status_code == 401
        assert server.client.post("/api/v1/problems/acknowledge", json={"id": "alarm:fast"}).status_code == 404
        server.client.delete("/api/v1/sources/bars")
        server.client.post("/api/v1/sources/gate/pause")
        server.until(
            lambda: "source_down" not in {problem["kind"] for problem in server.open.get("/api/v1/problems").json()}
        )
