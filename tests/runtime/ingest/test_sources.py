"""Files that wait for their turn: one that is paused keeps no other from beginning."""

import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.cameras import REGISTRY, WRITTEN, going, pipeline, registry, source, until

from streamkit.config.pipeline_config import read_text
from streamkit.config.plan import SourceConfig
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Collecting, Source, stage
from streamkit.core.tracing import Spans
from streamkit.runtime.ingest import sources as sources_module
from streamkit.runtime.ingest.sources import DROPPED_BY_ABORT, Sources, in_realtime

NICE: dict[str, int] = {}  # of the thread that reads a source, as the system counts it
OPENED: list[str] = []

with Collecting(REGISTRY):

    @stage("noted")
    class Noted(Source):
        """One frame; notes in what order sources begin, and how nice their threads are."""

        camera: bool = False

        @property
        def unbounded(self) -> bool:
            return self.camera

        def frames(self):
            OPENED.append(self.context.id)
            NICE[self.context.id] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
            yield Frame(self.context.id, 0, 0.0, 16, 16)


FILE, LONG = (f"'test://?width=16&height=16&frames={count}'" for count in (5, 1_000_000))


@pytest.fixture(autouse=True)
def _clean():
    WRITTEN.clear()
    OPENED.clear()
    NICE.clear()


def files(*uris: str) -> str:
    return "sources:\n" + "".join(f"  f{n}: {uri}\n" for n, uri in enumerate(uris)) + "stages: {slow: {}, note: {}}"


def test_files_paused_before_their_turn_are_skipped():
    running, _ = pipeline(files(*[FILE] * 6), parallel_files=2)
    for id_ in ("f0", "f1", "f2", "f4"):
        running.pause(id_)
    with going(running) as codes:
        until(lambda: running.states["f3"].done and running.states["f5"].done)
        assert [running.states[f"f{n}"].state for n in (0, 1, 2, 4)] == ["paused"] * 4
        assert not any(running.states[f"f{n}"].started for n in (0, 1, 2, 4))
        until(lambda: not running.sources.threads)
        running.resume("f2")
        running.resume("f0")
        until(lambda: running.states["f0"].done and running.states["f2"].done)
        running.remove("f1")
        assert codes == []
    assert running.states["f4"].state == "ended"
    assert {id_: len(indices) for id_, indices in WRITTEN.items()} == {"f0": 5, "f2": 5, "f3": 5, "f5": 5}


def test_a_paused_file_lets_the_next_file_start():
    running, _ = pipeline(files(LONG, FILE, LONG, FILE), parallel_files=1)
    with going(running):
        until(lambda: WRITTEN.get("f0"))
        assert not running.states["f1"].started
        running.pause("f0")
        until(lambda: running.states["f1"].done and WRITTEN.get("f2"))
        assert not running.states["f3"].started
        running.resume("f0")  # two are read for now: nobody is sent away
        so_far = len(WRITTEN["f0"])
        until(lambda: len(WRITTEN["f0"]) > so_far + 5)
        running.pause("f2")
        assert not running.states["f3"].started
        running.remove("f0")
        until(lambda: running.states["f3"].done)
        running.pause("f2")
        assert len(running.sources.threads) == 1
    assert all(indices == list(range(len(indices))) for indices in WRITTEN.values())


def noted(**sources: bool) -> str:
    lines = (f"  {id_}: {{stage: noted, camera: {str(camera).lower()}}}\n" for id_, camera in sources.items())
    return "sources:\n" + "".join(lines) + "stages: {note: {}}"


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no niceness of its own")
@pytest.mark.parametrize("keep_running", [False, True])
def test_files_beside_cameras_are_read_at_a_lower_priority(keep_running):
    process_nice = os.getpriority(os.PRIO_PROCESS, 0)
    running, _ = pipeline(noted(film=False, gate=True), keep_running=keep_running)
    with going(running):
        until(lambda: running.states["film"].done and running.states["gate"].done)
    assert (NICE["film"], NICE["gate"]) == (max(10, process_nice), process_nice)
    assert os.getpriority(os.PRIO_PROCESS, 0) == process_nice


def test_files_without_cameras_are_read_at_normal_priority():
    running, _ = pipeline(noted(film=False, other=False), keep_running=False)
    with going(running):
        until(lambda: running.states["film"].done and running.states["other"].done)
    assert set(NICE.values()) == {os.getpriority(os.PRIO_PROCESS, 0)}


def test_cameras_begin_before_files():
    running, _ = pipeline(noted(a=False, b=False, gate=True, c=False), parallel_files=1)
    with going(running):
        until(lambda: len(OPENED) == 4)
        assert [id_ for id_ in OPENED if id_ != "gate"] == ["a", "b", "c"]
    assert list(running.states) == ["a", "b", "gate", "c"]


@pytest.mark.parametrize(
    ("source_yaml", "pace"),
    [
        ("clip.mp4", "realtime"),
        ("{uri: clip.mp4, loop: true, fps: 2}", "realtime"),
        ("{uri: clip.mp4, pace: unpaced}", "unpaced"),
        ("{uri: clip.mp4, pace: 5}", 5.0),
        ("{uri: clip.mp4, decoders: 2}", None),
        ("{uri: clip.mp4, decoders: auto}", "realtime"),
        ("'rtsp://host/a'", "realtime"),  # which does nothing to what is live
        ("'test://?frames=5'", "realtime"),
        ("{stage: camera}", None),
    ],
)
def test_recordings_are_paced_in_real_time_mode(source_yaml, pace):
    config = read_text(f"sources: {{a: {source_yaml}}}\nstages: {{note: {{}}}}", folder=Path(), registry=registry())
    (source,) = config.sources
    changed = in_realtime(source)
    assert changed.options.get("pace") == pace
    assert {**changed.options, "pace": None} == {**source.options, "pace": None}
    changed.type(**changed.options)  # goes with its other options


def test_sources_added_in_real_time_mode_are_paced():
    running, _ = pipeline("sources: {a: 'test://?fps=10&frames=3'}\nstages: {note: {}}", realtime=True)
    with going(running):
        running.add(read_text("sources: {b: 'test://?fps=10&frames=3'}\nstages: {note: {}}").sources[0])
        until(lambda: running.states["a"].done and running.states["b"].done)
        assert running.states["a"].live
        assert running.states["b"].live
    assert "pace" not in running.graph.sources[0].options


def test_latency_counts_from_the_due_time_to_the_end_of_the_graph():
    """Frames that were due three seconds ago are three seconds late, for the source, for the end, and in the report."""
    running, _ = pipeline("sources: {a: {stage: camera, late_s: 3}}\nbatch: {max_latency: 1min}\nstages: {note: {}}")
    with going(running):
        until(lambda: running.states["a"].out >= 50)
    report = running.report(0)
    for latency in (report["latency"]["note"], running.states["a"].latency.summary()):
        assert 2.95 <= latency["p50_ms"] / 1e3 < 4.4
        assert 2.95 <= latency["p50_ms"] / 1e3 <= latency["p95_ms"] / 1e3 <= latency["p99_ms"] / 1e3
    counts = running.states["a"].latency.counts.sum()
    assert counts == running.states["a"].out == running.latency["note"].counts.sum()


def test_latency_is_the_end_time_minus_the_due_time():
    """What is counted for a source is the time at its end less the time it was due, both given."""
    running, _ = pipeline("sources: {a: {stage: camera}}\nstages: {note: {}}")
    state = running.states["a"]
    frames = [Frame("a", n, n / 10, 16, 16, due_s=100.0 + n) for n in range(3)]
    for frame in [*frames, other := Frame("a", 3, 0.3, 16, 16)]:
        frame._state.source_state = state
    running.sources.count([*frames, other], (), 104.0)
    assert (state.out, state.pts_s, int(state.latency.counts.sum())) == (4, 0.3, 3)
    for share, wanted_s in ((0.1, 2.0), (0.5, 3.0), (1.0, 4.0)):
        assert state.latency.quantile(share) == pytest.approx(wanted_s, rel=0.02)


def test_a_source_that_is_removed_before_the_run_is_not_counted():
    running, _ = pipeline(files(FILE, FILE), keep_running=False)
    running.remove("f0")
    with going(running) as codes:
        until(lambda: codes)
    assert list(running.states) == ["f1"]
    assert "removed" not in running.report(codes[0])
    assert WRITTEN == {"f1": [0, 1, 2, 3, 4]}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_pipeline_that_keeps_running_waits_for_more_sources(count):
    running, _ = pipeline(files(*[FILE] * count))
    with going(running) as codes:
        until(lambda: all(state.done for state in running.states.values()))
        running.add(source(running, "late", uri="test://?width=16&height=16&frames=5"))
        until(lambda: len(WRITTEN.get("late", [])) == 5)
        assert not codes


def test_a_source_refused_before_the_run_is_not_opened_and_the_others_run():
    running, logged = pipeline(
        "sources: {a: {stage: noted, camera: true}, b: {stage: noted, camera: true}, c: {stage: noted}}\n"
        "stages: {note: {}}",
        refused={"b": "no session is left", "another": "unknown"},
        keep_running=False,
    )
    assert running.run() == 1
    assert sorted(OPENED) == ["a", "c"]
    assert sorted(WRITTEN) == ["a", "c"]
    state = running.states["b"]
    assert (state.state, state.cause, state.error, state.started) == ("failed", "codec", "no session is left", False)
    assert logged.count("source b failed: no session is left") == 1


def test_a_refused_source_can_be_removed_and_added_again():
    running, _ = pipeline(
        "sources: {a: {stage: noted, camera: true}, b: {stage: noted, camera: true}}\nstages: {note: {}}",
        refused={"b": "no session is left"},
        keep_running=True,
    )
    with going(running):
        until(lambda: running.states["a"].done)
        running.remove("b")
        running.add(source(running, "b", stage="noted", camera=True))
        until(lambda: "b" in WRITTEN)
        running.stop()


class ScriptedSource(Source):
    """A few frames, or what a test gives."""

    def __init__(self, id_, frames=2, camera=False):
        self._id = id_
        self._frames = frames
        self._camera = camera

    @property
    def unbounded(self):
        return self._camera

    def frames(self):
        if callable(self._frames):
            self._frames()
            return
        for index in range(self._frames):
            yield Frame(self._id, index, index / 25, 16, 16)


def config(id_, frames=2, camera=False):
    return SourceConfig(id_, ScriptedSource, {"id_": id_, "frames": frames, "camera": camera}, None)


class Batcher:
    """Takes all frames, and notes how many sources it is to expect."""

    def __init__(self):
        self.expected = []
        self.open = True
        self.frames = []
        self.started = []
        self.ended = []

    def expect(self, count):
        self.expected.append(count)
        return self.open

    def begin(self, source, drops):
        self.started.append(source)
        return SimpleNamespace(put=self.frames.append, end=lambda: self.ended.append(source))


class Run:
    """Sources, and the threads that they would start."""

    def __init__(self, monkeypatch, *configs, parallel_files=1, **options):
        self.batcher = Batcher()
        self.threads = []
        self.failed = []
        self.read = []
        self.closed = []
        self.lowered = []
        monkeypatch.setattr(sources_module, "start", self._start)
        monkeypatch.setattr(sources_module, "lower_priority", lambda: self.lowered.append(len(self.read)))
        trimmer = SimpleNamespace(count_close=lambda: self.closed.append(len(self.read)))
        monkeypatch.setattr(sources_module, "heap_trimmer", trimmer)
        self.sources = Sources(
            configs,
            self.batcher,
            lambda config, state, status: config.type(**config.options),
            limit=None,
            parallel_files=parallel_files,
            read=lambda *done: self.read.append(done),
            fail=self.failed.append,
            spans=Spans,
            **options,
        )

    def _start(self, name, target):
        self.threads.append((name, target))
        return threading.current_thread()

    def go(self, number=0):
        """Run a thread to its end."""
        self.threads[number][1]()

    @property
    def names(self):
        return [name for name, _ in self.threads]

    @property
    def states(self):
        return {id_: state.state for id_, state in self.sources.states.items()}


@pytest.fixture
def make_run(monkeypatch):
    return lambda *configs, **options: Run(monkeypatch, *configs, **options)


def test_files_are_read_in_order_by_a_limited_number_of_threads(make_run):
    run = make_run(*(config(f"f{number}") for number in range(5)), parallel_files=2)
    run.sources.start()
    assert run.names == ["source/0", "source/1"]
    assert run.sources.threads == {threading.current_thread()}
    run.go(0)
    assert run.batcher.started == ["f0", "f2", "f3", "f4"]
    assert run.sources.threads == set()
    run.go(1)
    states = run.sources.states
    assert run.read == [(id_, states[id_]) for id_ in ("f0", "f2", "f3", "f4", "f1")]
    assert run.closed == [0, 1, 2, 3, 4]
    assert run.lowered == []
    assert len(run.names) == 2
    assert run.batcher.ended == run.batcher.started
    assert len(run.batcher.frames) == 10
    assert not run.failed


@pytest.mark.parametrize("keep_running", [False, True])
def test_a_run_is_over_when_all_sources_are_done_unless_it_keeps_running(make_run, keep_running):
    run = make_run(config("a"), config("b"), keep_running=keep_running)
    run.sources.states["a"].done = True
    assert run.sources.over is False
    run.sources.states["b"].done = True
    assert run.sources.over is not keep_running
    run.sources.stop()
    assert run.sources.over is True


def test_a_source_cannot_be_added_when_the_run_has_ended(make_run):
    run = make_run(config("a"))
    run.sources.start()
    run.batcher.open = False
    with pytest.raises(ConfigError, match="source late cannot be added: the run has ended"):
        run.sources.add(config("late"))
    run = make_run(config("a"))
    run.sources.stop()
    with pytest.raises(ConfigError, match="source late cannot be added: the run has ended"):
        run.sources.add(config("late"))
    assert list(run.sources.states) == ["a"]


def test_duplicate_and_unknown_ids_are_refused(make_run):
    run = make_run(config("gate"))
    with pytest.raises(ConfigError) as raised:
        run.sources.add(config("gate"))
    assert str(raised.value) == "there is a source 'gate' already; remove it first, or choose another id"
    for call in (run.sources.remove, run.sources.pause):
        with pytest.raises(ConfigError) as raised:
            call("gates")
        assert str(raised.value) == "there is no source 'gates'; did you mean 'gate'?"


def test_a_file_that_is_removed_before_its_turn_is_not_read(make_run):
    run = make_run(config("a"), config("b"), config("c"))
    run.sources.start()
    before = run.sources.states
    state = run.sources.states["b"]
    run.sources.remove("b")
    assert run.batcher.expected == [3, -1]
    assert (state.state, state.done, state.removed) == ("ended", True, True)
    assert list(run.sources.states) == ["a", "c"]
    assert list(before) == ["a", "b", "c"], "replaced, never changed"
    assert run.sources.removed.sources == 1
    run.go()
    assert run.batcher.started == ["a", "c"]
    run.sources.add(config("b"))
    assert list(run.sources.states) == ["a", "c", "b"]


def test_a_removed_source_is_stopped_and_counted_after_its_last_frame(make_run):
    run = make_run()

    def film():
        run.sources.remove("a")

    run.sources.add(config("a", film))
    run.sources.start()
    state = run.sources.states["a"]
    state.frames = 2
    frames = [Frame("a", index, index / 25, 16, 16) for index in range(2)]
    for frame in frames:
        frame._state.source_state = state
    run.go()
    assert run.batcher.expected == [1]
    assert (state.removed, state.done, run.sources.removed.sources) == (True, True, 0)
    run.sources.count(frames[:1], (), 0.0)
    assert run.sources.removed.sources == 0
    run.sources.count(frames[1:], (), 0.0)
    assert (run.sources.removed.sources, run.sources.removed.frames, run.sources.removed.out) == (1, 2, 2)


@pytest.mark.parametrize("keep_running", [False, True])
def test_a_stop_ends_running_sources_and_cancels_waiting_ones(make_run, keep_running):
    run = make_run(config("a"), config("b"), config("gate", camera=True), keep_running=keep_running)
    run.sources.start()
    run.sources.stop()
    run.sources.stop()
    assert run.sources.stopping is True
    assert run.batcher.expected == [3 + keep_running, -1, -keep_running]
    assert run.states == {"a": "connecting", "b": "ended", "gate": "connecting"}
    for number in range(2):
        run.go(number)
    assert run.states == {"a": "ended", "b": "ended", "gate": "ended"}
    assert run.batcher.frames == []


def test_a_stop_before_the_start_leaves_nothing_to_read(make_run):
    run = make_run(config("a"), config("gate", camera=True), keep_running=True)
    run.sources.stop()
    assert run.states == {"a": "connecting", "gate": "connecting"}
    run.sources.start()
    assert run.states == {"a": "ended", "gate": "ended"}
    assert (run.names, run.batcher.expected) == ([], [])


def test_finished_frames_are_counted_for_their_source(make_run):
    run = make_run(config("a"), config("b"))
    a, b = run.sources.states.values()
    frames = [Frame("a", 0, 0.5, 16, 16), Frame("made", 0, 9.0, 16, 16), Frame("b", 0, 0.25, 16, 16, error="odd")]
    frames += [Frame("b", 1, 0.75, 16, 16, due_s=98.0), Frame("b", 2, 1.0, 16, 16, due_s=99.0)]
    for frame in frames:
        frame._state.source_state = {"a": a, "b": b}.get(frame.source)
    run.sources.count(frames, (), 100.0)
    assert (a.out, a.pts_s, a.failed, a.latency) == (1, 0.5, 0, None)
    assert (b.out, b.pts_s, b.failed, int(b.latency.counts.sum())) == (3, 1.0, 1, 2)
    assert b.latency.total_s() == pytest.approx(3.0, rel=0.02)


def test_frames_that_never_reached_the_end_are_counted_as_dropped(make_run):
    run = make_run(config("a"), config("b"), config("c"))
    a, b, c = run.sources.states.values()
    a.frames = 10
    a.out = 3
    a.drops.add("frames dropped: over age", 2)
    b.frames = b.out = 4
    c.frames = 1
    c.removed = True
    run.sources.account()
    assert dict(a.drops.values) == {"frames dropped: over age": 2, DROPPED_BY_ABORT: 5}
    assert (dict(b.drops.values), dict(c.drops.values)) == ({}, {DROPPED_BY_ABORT: 1})
    assert DROPPED_BY_ABORT == "frames dropped: run aborted"
    assert (run.sources.removed.sources, run.sources.removed.drops[DROPPED_BY_ABORT]) == (1, 1)
    run.sources.account()
    assert run.sources.removed.sources == 1
