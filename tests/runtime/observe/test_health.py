"""What alarms are about, made of the counts of a run."""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.cameras import registry

from streamkit.config.alarms import FACTS, STATES
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest import source_status as states_module
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe import health as module
from streamkit.runtime.observe.alarms import _TEXTS, AlarmSubject, alarm_text, duration_text, recovery_text
from streamkit.runtime.observe.health import HealthSnapshot, Observer, folders, merge_snapshots

NOW = 1000.0


def observed(state, wanted=FACTS):
    return Observer(wanted, lambda: {"gate": state}, [])


def started_source(state="running", **more):
    return SourceState(started=True, state=state, **more)


def test_each_fact_has_a_description_and_a_source():
    assert STATES == states_module.STATES
    assert _TEXTS.keys() == FACTS.keys()
    state = started_source(latency=Histogram())
    snapshot = Observer(FACTS, lambda: {"gate": state}, [], [Path()]).snapshot(NOW)
    fact_names = snapshot.sources["gate"].keys() | snapshot.pipeline.keys()
    assert FACTS.keys() - fact_names == {"gpu_memory_share"}
    for name, text in _TEXTS.items():
        values = {name: "lost" if FACTS[name].values else 0.5}
        assert "{" not in alarm_text([name], values, AlarmSubject("gate", "camera", {})), text


def test_drop_and_failure_shares_cover_the_last_seconds():
    state = started_source()
    observer = observed(state)
    state.set_state("running")
    for n in range(60):
        state.frames += 10
        if 20 <= n < 40:
            state.drops.add("frames dropped: over age", 5)
            state.failed += 1
        facts = observer.snapshot(NOW + n).sources["gate"]
        if n == 19:
            assert (facts["drop_rate"], facts["fail_rate"]) == (0, 0)
        if n == 39:
            assert (facts["drop_rate"], facts["fail_rate"]) == (0.5, 0.1)
    assert (facts["drop_rate"], facts["fail_rate"]) == (0, 0)
    assert len(observer._histories["gate"]._counts) <= 12


def test_latency_covers_the_last_seconds():
    state = started_source(latency=Histogram())
    observer = observed(state)
    assert math.isnan(observer.snapshot(NOW).sources["gate"]["latency_p95_s"])
    for n in range(60):
        for _ in range(10):
            state.latency.add(3.0 if n < 20 and n % 2 == 0 else 0.1)
        facts = observer.snapshot(NOW + n).sources["gate"]
        if n == 15:
            assert facts["latency_p95_s"] == pytest.approx(3.0, rel=0.05), "one second is too short"
    assert facts["latency_p95_s"] == pytest.approx(0.1, rel=0.05)
    assert "latency_p95_s" not in observed(state, {"down_s"}).snapshot(NOW).sources["gate"], "nobody asks for it"


def test_reconnections_count_for_an_hour():
    state = started_source()
    observer = observed(state)
    reconnects = []
    for minute in range(70):
        state.reconnects += minute == 5
        reconnects.append(observer.snapshot(NOW + 60 * minute).sources["gate"]["reconnects_1h"])
    assert reconnects == [0.0] * 5 + [1.0] * 60 + [0.0] * 5


def test_removed_sources_leave_no_state():
    states = {}
    observer = Observer(FACTS, lambda: states, [])
    for n in range(50):
        states = {f"cam{n}": started_source()}
        assert observer.snapshot(NOW + n).sources.keys() == states.keys()
    assert len(observer._histories) == 1


def test_folders_written_by_a_pipeline_are_listed():
    text = (
        "sources: {gate: {stage: camera}}\n"
        "state: var/state.db\n"
        "stages:\n"
        '  a: {stage: jsonl, path: "out/{source}.jsonl"}\n'
        '  b: {stage: jsonl, path: "-"}\n'
        "  c: {stage: sqlite, path: db/x.db, spool: {path: spools/c}}\n"
        '  d: {stage: stream, url: "rtsp://h/{source}"}\n'
    )
    paths = folders(build(read_text(text, registry=registry())))
    assert paths == [Path(name) for name in ("out", "db", "spools/c", "var")]


def test_the_undelivered_time_of_emitters_is_measured(monkeypatch):
    def emitter(share=0.0, waiting=0):
        sender = SimpleNamespace(delivered=0, undelivered=0)
        return SimpleNamespace(queue=SimpleNamespace(fill_level=share, waiting=waiting), sender=sender)

    idle = emitter(0.5, 7)
    busy = emitter(0.25, 9)
    monkeypatch.setattr(module, "emitters", lambda runners: [("idle", idle), ("table", busy)])
    observer = Observer(FACTS, dict, [])

    def look(later_s, **sender):
        vars(busy.sender).update(sender)
        snapshot = observer.snapshot(NOW + later_s)
        names = ("undelivered_s", "spool_share", "spool_records")
        return snapshot.pipeline["undelivered_s"], [snapshot.about[name] for name in names]

    assert look(0) == (0.0, ["idle", "idle", "table"])
    assert look(100)[0] == 0.0, "there is nothing to deliver"
    assert look(110, undelivered=5) == (10.0, ["table", "idle", "table"])
    assert look(125)[0] == 25.0
    assert look(126, delivered=1)[0] == 0.0
    assert look(150)[0] == 24.0
    assert look(151, undelivered=0)[0] == 0.0


def test_the_last_frame_and_the_rates_of_a_source_are_reported(monkeypatch):
    monkeypatch.setattr(SourceState, "fps_in", 25.0)
    monkeypatch.setattr(SourceState, "fps_out", 20.0)
    monkeypatch.setattr(SourceState, "rated", True)
    gate = started_source()
    removed_source = started_source()
    gate.facts.update(width=64, height=48)
    gate.frames = 7
    gate.pts_s = 0.24
    removed_source.removed = True
    observer = Observer(FACTS, lambda: {"gate": gate, "gone": removed_source}, [])
    gate.set_state("running")
    snapshot = observer.snapshot(NOW)
    assert snapshot.last_frames == {"gate": (6, 0.24, 64, 48)}
    assert (snapshot.sources["gate"]["fps_in"], snapshot.sources["gate"]["fps_out"]) == (25.0, 20.0)
    gate.set_state("paused")
    assert math.isnan(observer.snapshot(NOW + 1).sources["gate"]["fps_in"])
    assert snapshot.pipeline["sources"] == 1
    gate.set_state("ended")
    assert observer.snapshot(NOW + 2).pipeline["sources"] == 0
    gate.frames = 0
    assert observer.snapshot(NOW + 3).last_frames["gate"][0] == 0


def test_facts_of_silent_or_ended_processes_are_aged():
    facts_of_a = {"state": "running", "cause": "", "down_s": 0.0, "quiet_s": 1.0, "fps_in": 25.0, "fps_out": 25.0}
    snapshot = HealthSnapshot(
        {"a": facts_of_a, "b": {**facts_of_a, "state": "ended"}},
        {"total_fps": 50.0, "sources_down": 0.0, "sources": 1.0},
    )
    silent = snapshot.aged(9.0, gone=False)
    assert (silent.sources["a"]["quiet_s"], silent.sources["a"]["down_s"]) == (10.0, 0.0)
    ended = snapshot.aged(9.0, gone=True)
    assert (ended.sources["a"]["state"], ended.sources["a"]["down_s"]) == ("failed", 9.0)
    assert ended.pipeline["sources_down"] == 1
    assert ended.sources["b"]["state"] == "ended"
    assert snapshot.sources["a"] is facts_of_a
    assert facts_of_a["state"] == "running"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (31.2, "31 s"),
        (99, "99 s"),
        (150, "2 min"),
        (3600, "60 min"),
        (7200, "2 h"),
        (12_000, "3 h 20 min"),
        (187_200, "2 d 4 h"),
        (172_800, "2 d"),
    ],
)
def test_times_are_formatted_for_people(seconds, text):
    assert duration_text(seconds) == text


def test_a_recovery_text_is_given_for_rules_about_outages_only():
    about = AlarmSubject("gate", "camera", {})
    assert recovery_text(["down_s"], {"down_s": 31.0}, {"down_s": 310.0}, 14.0, about) is None
    assert (
        recovery_text(["down_s"], {"down_s": 31.0}, {"down_s": 0.0}, 14.0, about) == 'camera "gate" is back after 45 s'
    )
    assert recovery_text(["drop_rate"], {}, {}, 14.0, about) is None


@pytest.mark.gpu
def test_the_used_share_of_gpu_memory_is_measured():
    snapshot = Observer({"gpu_memory_share"}, dict, [], [], Device("cuda", 0)).snapshot(NOW)
    assert 0 < snapshot.pipeline["gpu_memory_share"] < 1
    assert snapshot.about["gpu_memory_share"] == "cuda:0"


RUNNING = {"state": "running", "cause": "", "down_s": 0.0, "quiet_s": 1.0, "fps_in": 25.0, "fps_out": 20.0}


class Clock:
    """Both clocks: the monotonic one, and the time of day."""

    def __init__(self) -> None:
        self.now_s = NOW
        self.time_s = 1e9

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.time_s


@pytest.fixture
def clock(monkeypatch):
    fake_clock = Clock()
    monkeypatch.setattr(module, "time", fake_clock)
    return fake_clock


def facts_at(state, wanted=FACTS):
    """A function that observes one source at a time, and returns its facts."""
    observer = Observer(wanted, lambda: {"gate": state}, [])
    return lambda now_s: observer.snapshot(now_s).sources["gate"]


def test_shares_are_between_0_and_1():
    state = started_source()
    look = facts_at(state)
    assert (look(NOW)["drop_rate"], look(NOW)["fail_rate"]) == (0.0, 0.0)
    state.frames = 1
    state.failed = 1
    state.drops.add("frames dropped: over age", 1)
    assert (look(NOW + 1)["drop_rate"], look(NOW + 1)["fail_rate"]) == (1.0, 1.0)
    state.frames = 2
    state.failed = 5
    state.drops.add("frames dropped: over age", 5)
    assert (look(NOW + 2)["drop_rate"], look(NOW + 2)["fail_rate"]) == (1.0, 1.0), "those that came before count too"


def test_a_source_is_down_since_its_state_change(clock):
    state = started_source(since_s=clock.time_s)
    look = facts_at(state)
    assert look(NOW)["down_s"] == 0.0
    state.state = "reconnecting"
    state.since_s = clock.time_s
    clock.time_s += 2.5
    assert look(NOW + 10)["down_s"] == 2.5
    clock.time_s += 50.0
    assert look(NOW + 11)["down_s"] == 3.5, "from now on by the monotonic clock"
    state.state = "running"
    assert look(NOW + 12)["down_s"] == 0.0
    state.state = "failed"
    state.since_s = clock.time_s + 100
    assert look(NOW + 13)["down_s"] == 0.001, "it is down, if only just"
    assert look(NOW + 14)["down_s"] == 1.0


@pytest.mark.parametrize(
    ("state", "turn_came", "down", "quiet_s"),
    [
        ("connecting", False, False, 0.0),
        ("connecting", True, True, 5.0),
        ("running", True, False, 5.0),
        ("reconnecting", True, True, 5.0),
        ("failed", True, True, 5.0),
        ("failed", False, True, 0.0),
        ("paused", True, False, 0.0),
        ("ended", True, False, 0.0),
    ],
)
def test_the_state_decides_whether_a_source_is_down_or_quiet(clock, state, turn_came, down, quiet_s):
    source_state = SourceState(started=turn_came, state=state, since_s=clock.time_s, cause="lost")
    look = facts_at(source_state)
    assert look(NOW)["quiet_s"] == 0.0
    facts = look(NOW + 5)
    assert (facts["state"], facts["cause"]) == (state, "lost")
    assert (facts["down_s"] > 0, facts["quiet_s"]) == (down, quiet_s)
    source_state.frames += 1
    assert look(NOW + 8)["quiet_s"] == 0.0
    assert look(NOW + 9)["quiet_s"] == (1.0 if quiet_s else 0.0)


def test_rates_are_nan_before_two_samples():
    state = started_source(frames=0)
    look = facts_at(state)
    assert [math.isnan(look(NOW)[name]) for name in ("fps_in", "fps_out")] == [True, True]
    state.sample(NOW)
    state.frames = 50
    state.out = 40
    state.sample(NOW + 2)
    assert (look(NOW)["fps_in"], look(NOW)["fps_out"]) == (25.0, 20.0)
    for still in ("paused", "ended"):
        state.state = still
        assert [math.isnan(look(NOW)[name]) for name in ("fps_in", "fps_out")] == [True, True]
    state.state = "running"
    state.started = False
    assert [math.isnan(look(NOW)[name]) for name in ("fps_in", "fps_out")] == [True, True]


def test_only_facts_of_the_rules_are_computed():
    state = started_source(latency=Histogram())
    assert not {"reconnects_1h", "latency_p50_s", "latency_p95_s"} & facts_at(state, {"down_s"})(NOW).keys()
    assert {"latency_p50_s", "latency_p95_s"} < facts_at(state, {"latency_p50_s"})(NOW).keys()
    assert {"latency_p50_s", "latency_p95_s"} < facts_at(state, {"latency_p95_s"})(NOW).keys()
    assert "reconnects_1h" in facts_at(state, {"reconnects_1h"})(NOW)
    assert "latency_p50_s" not in facts_at(started_source())(NOW), "it has no latency"

    def machine(wanted):
        return Observer(wanted, dict, [], [Path()]).snapshot(NOW).pipeline.keys() & {"disk_free_gb", "memory_gb"}

    assert machine({"down_s"}) == set()
    assert machine({"disk_free_gb"}) == machine({"disk_used_share"}) == {"disk_free_gb"}
    assert machine({"memory_gb"}) == {"memory_gb"}


def test_a_readded_source_starts_over():
    states = {"gate": started_source(reconnects=3)}
    observer = Observer(FACTS, lambda: states, [])
    observer.snapshot(NOW)
    states["gate"].reconnects = 5
    assert observer.snapshot(NOW + 5).sources["gate"]["reconnects_1h"] == 2.0
    states["gate"] = started_source(reconnects=8)
    facts = observer.snapshot(NOW + 10).sources["gate"]
    assert (facts["reconnects_1h"], facts["quiet_s"]) == (0.0, 0.0)


def test_the_facts_of_the_pipeline_cover_all_its_sources(clock):
    clock.now_s = NOW - 40
    lost = started_source(state="reconnecting", since_s=clock.time_s)
    states = {
        "a": started_source(),
        "b": lost,
        "c": started_source(state="ended"),
        "d": started_source(state="failed", removed=True),
    }
    for fps, state in zip((25, 5, 10, 100), states.values(), strict=True):
        for second in (0, 1):
            state.out = fps * second
            state.sample(second)
    observer = Observer(FACTS, lambda: states, [])
    snapshot = observer.snapshot(NOW)
    names = ("sources", "sources_down", "total_fps", "uptime_s", "stage_call_s")
    assert [snapshot.pipeline[name] for name in names] == [2, 1, 40.0, 40.0, 0.0]
    assert snapshot.sources.keys() == {"a", "b", "c"}
    clock.now_s = NOW + 2
    assert observer.snapshot().pipeline["uptime_s"] == 42.0
    assert observer.snapshot(0.0).pipeline["uptime_s"] == 40 - NOW


def test_the_longest_running_call_of_a_stage_is_reported():
    calls = {"idle": None, "short": (NOW - 2, 1), "long": (NOW - 7, 2), "later": (NOW - 7, 3), "last": (NOW, 4)}
    runners = [SimpleNamespace(call=call, node=SimpleNamespace(id=id_), instances=list) for id_, call in calls.items()]
    snapshot = Observer(FACTS, dict, runners).snapshot(NOW)
    assert (snapshot.pipeline["stage_call_s"], snapshot.about["stage_call_s"]) == (7.0, "long")
    snapshot = Observer(FACTS, dict, runners[:1]).snapshot(NOW)
    assert snapshot.pipeline["stage_call_s"] == 0.0
    assert "stage_call_s" not in snapshot.about
    snapshot = Observer(FACTS, dict, runners[-1:]).snapshot(NOW)
    assert (snapshot.pipeline["stage_call_s"], snapshot.about["stage_call_s"]) == (0.0, "last")


def test_an_unresponsive_disk_is_skipped(monkeypatch, tmp_path):
    answers = {"lost": None, "empty": (0, 0), "full": (400, 100), "same": (200, 100), "roomy": (1000, 900)}
    for name in answers:
        (tmp_path / name).mkdir()

    def usage(path):
        if answers[path.name] is None:
            raise OSError("it is gone")
        total, free = answers[path.name]
        return SimpleNamespace(total=total * 10**9, used=0, free=free * 10**9)

    monkeypatch.setattr(module.shutil, "disk_usage", usage)

    def disks(*names):
        snapshot = Observer({"disk_used_share"}, dict, [], [tmp_path / name for name in names]).snapshot(NOW)
        return [snapshot.pipeline.get("disk_free_gb"), snapshot.pipeline.get("disk_used_share"), snapshot.about]

    about = {name: str(tmp_path / "full") for name in ("disk_free_gb", "disk_used_share")}
    assert disks("lost", "empty", "roomy", "full", "same") == [100.0, 0.75, about]
    assert disks("lost", "empty") == [None, None, {}]


def test_merged_facts_are_sums_or_the_worst_of_all():
    parts = [
        HealthSnapshot(
            {name: RUNNING},
            {"memory_gb": memory, "disk_free_gb": free, "undelivered_s": late},
            {"disk_free_gb": f"disk {name}", "undelivered_s": f"hook {name}"},
            {name: (1, 2.0, 3, 4)},
        )
        for name, memory, free, late in (("a", 1.0, 9.0, 5.0), ("b", 2.0, 3.0, 8.0), ("c", 4.0, 7.0, 6.0))
    ]
    parts.append(HealthSnapshot(pipeline={"undelivered_s": 8.0}, about={"undelivered_s": "hook d"}))
    merged = merge_snapshots(parts)
    assert merged.pipeline == {"memory_gb": 7.0, "disk_free_gb": 3.0, "undelivered_s": 8.0}
    assert merged.about == {"disk_free_gb": "disk b", "undelivered_s": "hook b"}
    assert merged.sources == dict.fromkeys("abc", RUNNING)
    assert merged.last_frames == dict.fromkeys("abc", (1, 2.0, 3, 4))
    assert merge_snapshots([]) == HealthSnapshot()
    assert merge_snapshots([HealthSnapshot(pipeline={"uptime_s": 3.0})]).about == {}
