"""The facts of alarms, number by number: at times that the tests set."""

import io
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.cameras import registry

from streamkit.config.alarms import FACTS
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.emit.emitter import Emitter
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.observe import health as module
from streamkit.runtime.observe import nvml
from streamkit.runtime.observe.health import HealthSnapshot, Observer, emitters, folders, merge_snapshots

NOW = 1000.0
RUNNING = {"state": "running", "cause": "", "down_s": 0.0, "quiet_s": 1.0, "fps_in": 25.0, "fps_out": 20.0}


class Clock:
    """Both clocks: the monotonic one, and the time of day."""

    def __init__(self) -> None:
        self.now_s, self.time_s = NOW, 1e9

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.time_s


@pytest.fixture
def clock(monkeypatch):
    fake_clock = Clock()
    monkeypatch.setattr(module, "time", fake_clock)
    return fake_clock


def started_source(state="running", **more):
    return SourceState(begun=True, state=state, **more)


def observed(state, wanted=FACTS):
    """A function that observes one source at a time, and returns its facts."""
    observer = Observer(wanted, lambda: {"gate": state}, [])
    return lambda now_s: observer.snapshot(now_s).sources["gate"]


def test_shares_are_of_ten_seconds():
    state = started_source()
    look, drops, fails = observed(state), [], []
    for second in range(16):
        state.frames += 10
        if second == 3:
            state.drops.add("frames dropped: over age", 5)
            state.failed += 2
        facts = look(NOW + second)
        drops.append(facts["drop_rate"])
        fails.append(facts["fail_rate"])
    frames = [40, 50, 60, 70, 80, 90, 100, 100, 100, 100]
    assert drops == [0.0] * 3 + [5 / count for count in frames] + [0.0] * 3
    assert fails == [0.0] * 3 + [2 / count for count in frames] + [0.0] * 3


def test_shares_of_snapshots_that_are_seldom_are_of_the_last_two():
    state = started_source(frames=10, failed=10)
    look = observed(state)
    assert look(NOW)["fail_rate"] == 1.0
    state.frames, state.failed = 20, 15
    assert look(NOW + 20)["fail_rate"] == 0.5
    state.frames = 30
    assert look(NOW + 40)["fail_rate"] == 0.0


def test_shares_lie_between_nothing_and_everything():
    state = started_source()
    look = observed(state)
    assert (look(NOW)["drop_rate"], look(NOW)["fail_rate"]) == (0.0, 0.0)
    state.frames, state.failed = 1, 1
    state.drops.add("frames dropped: over age", 1)
    assert (look(NOW + 1)["drop_rate"], look(NOW + 1)["fail_rate"]) == (1.0, 1.0)
    state.frames, state.failed = 2, 5
    state.drops.add("frames dropped: over age", 5)
    assert (look(NOW + 2)["drop_rate"], look(NOW + 2)["fail_rate"]) == (1.0, 1.0), "those that came before count too"


def test_a_source_is_down_from_when_its_state_changed(clock):
    state = started_source(since_s=clock.time_s)
    look = observed(state)
    assert look(NOW)["down_s"] == 0.0
    state.state, state.since_s = "reconnecting", clock.time_s
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
        ("connecting", False, False, 0.0), ("connecting", True, True, 5.0), ("running", True, False, 5.0),
        ("reconnecting", True, True, 5.0), ("failed", True, True, 5.0), ("failed", False, True, 0.0),
        ("paused", True, False, 0.0), ("ended", True, False, 0.0),
    ],
)  # fmt: skip
def test_which_sources_are_down_and_which_are_quiet(clock, state, turn_came, down, quiet_s):
    source_state = SourceState(begun=turn_came, state=state, since_s=clock.time_s, cause="lost")
    look = observed(source_state)
    assert look(NOW)["quiet_s"] == 0.0
    facts = look(NOW + 5)
    assert (facts["state"], facts["cause"]) == (state, "lost")
    assert (facts["down_s"] > 0, facts["quiet_s"]) == (down, quiet_s)
    source_state.frames += 1
    assert look(NOW + 8)["quiet_s"] == 0.0
    assert look(NOW + 9)["quiet_s"] == (1.0 if quiet_s else 0.0)


def test_a_source_without_a_cause_has_an_empty_one():
    assert observed(started_source())(NOW)["cause"] == ""


def test_rates_are_known_once_there_are_two_counts():
    state = started_source(frames=0)
    look = observed(state)
    assert [math.isnan(look(NOW)[name]) for name in ("fps_in", "fps_out")] == [True, True]
    state.sample(NOW)
    state.frames, state.out = 50, 40
    state.sample(NOW + 2)
    assert (look(NOW)["fps_in"], look(NOW)["fps_out"]) == (25.0, 20.0)
    for still in ("paused", "ended"):
        state.state = still
        assert [math.isnan(look(NOW)[name]) for name in ("fps_in", "fps_out")] == [True, True]
    state.state, state.begun = "running", False
    assert [math.isnan(look(NOW)[name]) for name in ("fps_in", "fps_out")] == [True, True]


def test_only_the_facts_that_are_wanted_are_computed():
    state = started_source(latency=Histogram())
    assert not {"reconnects_1h", "latency_p50_s", "latency_p95_s"} & observed(state, {"down_s"})(NOW).keys()
    assert {"latency_p50_s", "latency_p95_s"} < observed(state, {"latency_p50_s"})(NOW).keys()
    assert {"latency_p50_s", "latency_p95_s"} < observed(state, {"latency_p95_s"})(NOW).keys()
    assert "reconnects_1h" in observed(state, {"reconnects_1h"})(NOW)
    assert "latency_p50_s" not in observed(started_source())(NOW), "it has no latency"

    def machine(wanted):
        return Observer(wanted, dict, [], [Path()]).snapshot(NOW).pipeline.keys() & {"disk_free_gb", "memory_gb"}

    assert machine({"down_s"}) == set()
    assert machine({"disk_free_gb"}) == machine({"disk_used_share"}) == {"disk_free_gb"}
    assert machine({"memory_gb"}) == {"memory_gb"}


def test_latencies_are_of_ten_to_twenty_seconds():
    state = started_source(latency=Histogram())
    look, has_latency = observed(state), []
    for second in range(33):
        if second == 1:
            for latency_s in (1.0, 1.0, 1.0, 4.0):
                state.latency.add(latency_s)
        facts = look(NOW + second)
        has_latency.append(not math.isnan(facts["latency_p50_s"]))
        if has_latency[-1]:
            assert facts["latency_p50_s"] == pytest.approx(1.0, rel=0.02)
            assert facts["latency_p95_s"] == pytest.approx(4.0, rel=0.02)
    assert has_latency == [False] + [True] * 19 + [False] * 13


def test_reconnects_are_those_since_the_source_is_watched():
    state = started_source(reconnects=7)
    look = observed(state)
    assert look(NOW)["reconnects_1h"] == 0.0
    state.reconnects = 9
    assert look(NOW + 30)["reconnects_1h"] == 2.0
    reconnects = [look(NOW + 30 * half)["reconnects_1h"] for half in range(2, 130)]
    assert reconnects.index(0.0) + 2 == 122, "an hour after the next minute began"


def test_a_source_that_is_added_again_begins_anew():
    states = {"gate": started_source(reconnects=3)}
    observer = Observer(FACTS, lambda: states, [])
    observer.snapshot(NOW)
    states["gate"].reconnects = 5
    assert observer.snapshot(NOW + 5).sources["gate"]["reconnects_1h"] == 2.0
    states["gate"] = started_source(reconnects=8)
    facts = observer.snapshot(NOW + 10).sources["gate"]
    assert (facts["reconnects_1h"], facts["quiet_s"]) == (0.0, 0.0)


def test_the_facts_of_the_pipeline(clock):
    clock.now_s = NOW - 40
    lost = started_source("reconnecting", since_s=clock.time_s)
    states = {
        "a": started_source(),
        "b": lost,
        "c": started_source("ended"),
        "d": started_source("failed", removed=True),
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


def test_the_last_frame_of_a_source():
    fresh, seen = started_source(), started_source(frames=8, pts_s=0.28, facts={"width": 640.0, "height": None})
    snapshot = Observer(FACTS, lambda: {"fresh": fresh, "seen": seen}, []).snapshot(NOW)
    assert snapshot.last_frames == {"fresh": (0, 0.0, 0, 0), "seen": (7, 0.28, 640, 0)}


def test_the_longest_call_of_a_stage():
    calls = {"idle": None, "short": (NOW - 2, 1), "long": (NOW - 7, 2), "later": (NOW - 7, 3), "last": (NOW, 4)}
    runners = [SimpleNamespace(call=call, node=SimpleNamespace(id=id_), instances=list) for id_, call in calls.items()]
    snapshot = Observer(FACTS, dict, runners).snapshot(NOW)
    assert (snapshot.pipeline["stage_call_s"], snapshot.about["stage_call_s"]) == (7.0, "long")
    snapshot = Observer(FACTS, dict, runners[:1]).snapshot(NOW)
    assert snapshot.pipeline["stage_call_s"] == 0.0
    assert "stage_call_s" not in snapshot.about
    snapshot = Observer(FACTS, dict, runners[-1:]).snapshot(NOW)
    assert (snapshot.pipeline["stage_call_s"], snapshot.about["stage_call_s"]) == (0.0, "last")


def test_without_emitters_nothing_waits():
    snapshot = Observer(FACTS, dict, []).snapshot(NOW)
    assert [snapshot.pipeline[name] for name in ("spool_share", "spool_records", "undelivered_s")] == [0.0, 0.0, 0.0]
    assert snapshot.about == {}


def test_emitters_are_found_among_the_stages():
    class Post(Emitter):
        """Sends nothing."""

    posts = [object.__new__(Post) for _ in range(3)]
    runners = [
        SimpleNamespace(node=SimpleNamespace(id=id_), instances=lambda instances=instances: iter(instances))
        for id_, instances in (("draw", [object()]), ("hook", [posts[0], object(), posts[1]]), ("table", posts[2:]))
    ]
    assert emitters(runners) == [("hook", posts[0]), ("hook", posts[1]), ("table", posts[2])]


def test_the_memory_of_a_gpu_is_asked_for_where_it_is_wanted(monkeypatch):
    share = [0.25]
    opened = []

    class Gpu:
        def __init__(self, index):
            opened.append(index)

        def memory(self):
            return share[0]

    monkeypatch.setattr(nvml, "Nvml", Gpu)
    for device, wanted in ((None, FACTS), (Device("cpu"), FACTS), (Device("cuda", 1), {"down_s"})):
        assert "gpu_memory_share" not in Observer(wanted, dict, [], [], device).snapshot(NOW).pipeline
    assert opened == []
    observer = Observer({"gpu_memory_share"}, dict, [], [], Device("cuda", 1))
    snapshot = observer.snapshot(NOW)
    assert (opened, snapshot.pipeline["gpu_memory_share"], snapshot.about["gpu_memory_share"]) == ([1], 0.25, "cuda:1")
    share[0] = 0.0
    assert observer.snapshot(NOW).pipeline["gpu_memory_share"] == 0.0
    share[0] = None
    assert "gpu_memory_share" not in observer.snapshot(NOW).pipeline


def test_a_disk_that_does_not_answer_is_passed_over(monkeypatch, tmp_path):
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


def test_the_working_folder_is_named_so(monkeypatch):
    seen = []

    def usage(path):
        seen.append(path)
        return SimpleNamespace(total=10, used=0, free=5)

    monkeypatch.setattr(module.shutil, "disk_usage", usage)
    names = "disk_free_gb", "disk_used_share"
    assert Observer(FACTS, dict, [], [Path()]).snapshot(NOW).about == dict.fromkeys(names, "the working folder")
    assert Observer(FACTS, dict, [], [Path("not/there")]).snapshot(NOW).about == dict.fromkeys(names, "not/there")
    assert seen == [Path(), Path()]


def test_the_memory_of_a_process(monkeypatch):
    def opened(text):
        def open_(path, **options):
            if text is None:
                raise OSError("this is not Linux")
            return {"/proc/self/statm": io.StringIO(text)}[path]

        monkeypatch.setattr(module, "open", open_, raising=False)
        return Observer({"memory_gb"}, dict, []).snapshot(NOW).pipeline["memory_gb"]

    monkeypatch.setattr(module.os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096}[name])
    assert opened("900000 500000 300 20 0 10 0") == 2.048
    assert math.isnan(opened("a b c"))
    assert math.isnan(opened(None))


def placed(text: str) -> list[Path]:
    return folders(build(read_text("sources: {gate: {stage: camera}}\n" + text, registry=registry())))


def test_where_a_pipeline_writes_that_writes_nothing():
    assert placed("stages: {note: {}}") == [Path()]


def test_where_pipelines_write():
    text = (
        "stages:\n"
        "  slow: {}\n"
        '  hook: {stage: webhook, url: "http://h/x"}\n'
        '  a: {stage: jsonl, path: "here.jsonl"}\n'
        '  b: {stage: jsonl, path: "{source}/b.jsonl"}\n'
        '  c: {stage: jsonl, path: "out/{source}/c.jsonl"}\n'
        "  d: {stage: jsonl, path: out/d.jsonl}\n"
        "  e: {stage: jsonl, path: out/e.jsonl}\n"
        '  f: {stage: jsonl, path: "(old)/f.jsonl"}\n'
    )
    assert placed(text) == [Path(name) for name in ("spool/hook", ".", "x", "out/x", "out", "(old)")]


def test_silence_ages_what_is_known():
    snapshot = HealthSnapshot(
        {"a": RUNNING, "b": {**RUNNING, "state": "failed", "down_s": 4.0}, "c": {**RUNNING, "state": "paused"}},
        {"total_fps": 40.0, "sources_down": 1.0, "stage_call_s": 3.0, "memory_gb": 2.0, "uptime_s": 50.0},
        {"stage_call_s": "look"},
        {"a": (1, 2.0, 3, 4)},
    )
    aged = snapshot.aged(9.0, gone=False)
    assert aged.sources["a"] == {**RUNNING, "quiet_s": 10.0}
    assert aged.sources["b"] == {**RUNNING, "state": "failed", "quiet_s": 10.0, "down_s": 13.0}
    assert aged.sources["c"] == {**RUNNING, "state": "paused"}
    assert (aged.pipeline, aged.about, aged.last_frames) == (snapshot.pipeline, snapshot.about, snapshot.last_frames)


def test_a_process_that_is_gone_delivers_nothing():
    snapshot = HealthSnapshot(
        {"c": {**RUNNING, "state": "paused"}, "a": {**RUNNING, "cause": "x"}, "b": {**RUNNING, "down_s": 0.5}},
        {"total_fps": 40.0, "sources_down": 1.0, "stage_call_s": 3.0, "memory_gb": 2.0, "uptime_s": 50.0},
    )
    aged = snapshot.aged(9.0, gone=True)
    failed_facts = {"state": "failed", "cause": "", "quiet_s": 10.0, "fps_in": 0.0, "fps_out": 0.0}
    assert aged.sources == {
        "c": {**RUNNING, "state": "paused"}, "a": {**failed_facts, "down_s": 9.0}, "b": {**failed_facts, "down_s": 9.5}
    }  # fmt: skip
    assert aged.pipeline == {
        "total_fps": 0.0, "sources_down": 2, "stage_call_s": 0.0, "memory_gb": 0.0, "uptime_s": 50.0
    }  # fmt: skip


def test_merged_facts_are_sums_or_the_worst_of_all():
    parts = [
        HealthSnapshot(
            {name: RUNNING}, {"memory_gb": memory, "disk_free_gb": free, "undelivered_s": late},
            {"disk_free_gb": f"disk {name}", "undelivered_s": f"hook {name}"}, {name: (1, 2.0, 3, 4)},
        )
        for name, memory, free, late in (("a", 1.0, 9.0, 5.0), ("b", 2.0, 3.0, 8.0), ("c", 4.0, 7.0, 6.0))
    ]  # fmt: skip
    parts.append(HealthSnapshot(pipeline={"undelivered_s": 8.0}, about={"undelivered_s": "hook d"}))
    merged = merge_snapshots(parts)
    assert merged.pipeline == {"memory_gb": 7.0, "disk_free_gb": 3.0, "undelivered_s": 8.0}
    assert merged.about == {"disk_free_gb": "disk b", "undelivered_s": "hook b"}
    assert merged.sources == dict.fromkeys("abc", RUNNING)
    assert merged.last_frames == dict.fromkeys("abc", (1, 2.0, 3, 4))
    assert merge_snapshots([]) == HealthSnapshot()
    assert merge_snapshots([HealthSnapshot(pipeline={"uptime_s": 3.0})]).about == {}
