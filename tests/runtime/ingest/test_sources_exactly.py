"""The sources of a run without a run: a test runs their threads, and a made-up batcher notes what it is told."""

import threading
from types import SimpleNamespace

import pytest

from streamkit.config.plan import SourceConfig
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Source
from streamkit.core.tracing import Spans
from streamkit.runtime.ingest import sources as sources_module
from streamkit.runtime.ingest.sources import GIVEN_UP, Sources, is_unbounded, stream_numbers


class ScriptedSource(Source):
    """A few frames, or what a test gives."""

    def __init__(self, id_, frames=2, camera=False):
        self._id, self._frames, self._camera = id_, frames, camera

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
        self.expected, self.open, self.frames, self.started, self.ended = [], True, [], [], []

    def expect(self, count):
        self.expected.append(count)
        return self.open

    def begin(self, source, drops):
        self.started.append(source)
        return SimpleNamespace(put=self.frames.append, end=lambda: self.ended.append(source))


class Run:
    """Sources, and the threads that they would start."""

    def __init__(self, monkeypatch, *configs, parallel_files=1, **options):
        self.batcher, self.threads, self.failed, self.read, self.closed, self.lowered = Batcher(), [], [], [], [], []
        monkeypatch.setattr(sources_module, "start", self._start)
        monkeypatch.setattr(sources_module, "lower_priority", lambda: self.lowered.append(len(self.read)))
        trimmer = SimpleNamespace(count_close=lambda: self.closed.append(len(self.read)))
        monkeypatch.setattr(sources_module, "heap_trimmer", trimmer)
        self.sources = Sources(
            configs, self.batcher, lambda config, state, status: config.type(**config.options), limit=None,
            parallel_files=parallel_files, read=lambda *done: self.read.append(done), fail=self.failed.append,
            spans=Spans, **options,
        )  # fmt: skip

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


# ------------------------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize("keep_running", [False, True])
def test_the_batcher_expects_each_source_and_one_more_if_the_run_is_kept(make_run, keep_running):
    run = make_run(config("a"), config("b"), config("c"), keep_running=keep_running)
    assert run.batcher.expected == []
    run.sources.start()
    assert run.batcher.expected == [3 + keep_running]
    assert not run.sources.stopping


def test_cameras_start_first_on_threads_of_their_own(make_run):
    run = make_run(config("a"), config("gate", camera=True), config("b"), config("yard", camera=True), parallel_files=2)
    run.sources.start()
    assert run.names == ["source/gate", "source/yard", "source/0", "source/1"]
    readers = [run.sources._readers[id_] for id_ in ("gate", "yard", "a", "b")]
    line = readers[0].start_line
    assert [(reader.start_line, reader.start_number) for reader in readers] == [
        (line, 0), (line, 1), (None, 0), (None, 0)
    ]  # fmt: skip
    assert line._left == 2
    for number in range(4):
        run.go(number)
    assert run.batcher.started == ["gate", "yard", "a", "b"]
    assert line._left == 0


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


@pytest.mark.parametrize("options", [{"keep_running": True}, {"gate": config("gate", camera=True)}])
def test_next_to_cameras_files_are_decoded_at_low_priority(make_run, options):
    cameras = [options.pop("gate")] if "gate" in options else []
    run = make_run(config("a"), config("b"), *cameras, **options)
    run.sources.start()
    run.go(len(cameras))
    assert run.lowered == [0, 1]
    if cameras:
        run.go(0)
    assert run.lowered == [0, 1]


def test_an_error_that_ends_the_run_is_reported_and_so_is_the_source(make_run):
    error = SystemExit(3)

    def fail():
        raise error

    run = make_run(config("a", fail), config("b"))
    run.sources.start()
    run.go()
    assert run.failed == [error]
    assert [id_ for id_, _ in run.read] == ["a", "b"]


def test_a_paused_file_has_no_turn_and_occupies_no_slot(make_run):
    run = make_run(config("a"), config("b"), config("c"))
    run.sources.pause("b")
    assert run.states == {"a": "connecting", "b": "paused", "c": "connecting"}
    assert run.names == []
    run.sources.start()
    assert run.names == ["source/0"]
    run.sources.pause("a")
    assert run.names == ["source/0", "source/1"]
    assert [reader.config.id for reader in run.sources._files] == ["b"]
    run.sources.pause("b", False)
    assert len(run.names) == 2, "c is read"
    run.go(1)
    assert run.batcher.started == ["c", "b"]
    run.sources.pause("a", False)
    run.go(0)
    assert run.batcher.started == ["c", "b", "a"]


def test_whether_a_source_sets_its_own_pace():
    assert is_unbounded(config("a", camera=True)) is True
    assert is_unbounded(config("a")) is False
    assert is_unbounded(SourceConfig("a", SimpleNamespace, {}, None)) is False


def test_a_pipeline_in_real_time_paces_recordings_only_when_asked(make_run, monkeypatch):
    monkeypatch.setattr(
        sources_module, "in_realtime", lambda config: SourceConfig("a", ScriptedSource, {"paced": 1}, None)
    )
    assert make_run(config("a")).sources._readers["a"].config.options["id_"] == "a"
    assert make_run(config("a"), realtime=True).sources._readers["a"].config.options == {"paced": 1}


# ------------------------------------------------------------------------------------------------------- come and go


@pytest.mark.parametrize("keep_running", [False, True])
def test_a_run_is_over_when_all_sources_are_done_unless_it_is_kept(make_run, keep_running):
    run = make_run(config("a"), config("b"), keep_running=keep_running)
    run.sources.states["a"].done = True
    assert run.sources.over is False
    run.sources.states["b"].done = True
    assert run.sources.over is not keep_running
    run.sources.stop()
    assert run.sources.over is True


def test_a_source_is_added_before_the_run_and_while_it_runs(make_run):
    run = make_run(config("a"), parallel_files=3)
    run.sources.add(config("b"))
    assert (run.names, run.batcher.expected) == ([], [])
    run.sources.start()
    assert (run.names, run.batcher.expected) == (["source/0", "source/1"], [2])
    run.sources.add(config("c"))
    assert (run.names, run.batcher.expected) == (["source/0", "source/1", "source/2"], [2, 1])
    run.sources.add(config("gate", camera=True))
    assert run.names[3:] == ["source/gate"]
    assert list(run.sources.states) == ["a", "b", "c", "gate"]


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


def test_an_id_is_taken_once(make_run):
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
    before, state = run.sources.states, run.sources.states["b"]
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


def test_a_removed_source_is_stopped_and_counted_once_its_frames_are_through(make_run):
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
    assert run.sources._open == {}


def test_a_source_that_was_removed_and_has_ended_is_counted_at_once(make_run):
    run = make_run(config("a", 0), config("b", 0), parallel_files=2)
    run.sources.start()
    run.go(0)
    assert run.sources.removed.sources == 0
    run.sources.remove("a")
    assert run.sources.removed.sources == 1
    run.sources.states["b"].removed = True
    run.go(1)
    assert run.sources.removed.sources == 2


def test_the_end_of_the_last_batch_counts_a_removed_source_too(make_run):
    run = make_run(config("a", 0))
    state = run.sources.states["a"]
    state.removed = state.done = True
    run.sources.count((), ("a",), 0.0)
    assert run.sources.removed.sources == 1
    run.sources.count((), ("a",), 0.0)
    assert run.sources.removed.sources == 1


def test_a_successor_with_the_same_id_is_not_counted_as_removed(make_run):
    run = make_run(config("a"))
    first = run.sources.states["a"]
    run.sources.start()
    run.sources.remove("a")
    first.frames = 1
    run.sources.add(config("a"))
    second = run.sources.states["a"]
    assert second is not first
    assert run.sources._open["a"] == [first, second]
    first.done, first.out = True, 1
    run.sources.count_removed("a")
    assert run.sources._open["a"] == [second]
    assert run.sources.removed.sources == 1


@pytest.mark.parametrize("keep_running", [False, True])
def test_a_stop_ends_what_is_read_and_cancels_what_waits(make_run, keep_running):
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


# ----------------------------------------------------------------------------------------------------------- counting


def test_frames_count_for_their_source(make_run):
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
    a.frames, a.out = 10, 3
    a.drops.add("frames dropped: over age", 2)
    b.frames = b.out = 4
    c.frames, c.removed = 1, True
    run.sources.account()
    assert dict(a.drops.values) == {"frames dropped: over age": 2, GIVEN_UP: 5}
    assert (dict(b.drops.values), dict(c.drops.values)) == ({}, {GIVEN_UP: 1})
    assert GIVEN_UP == "frames dropped: run aborted"
    assert (run.sources.removed.sources, run.sources.removed.drops[GIVEN_UP]) == (1, 1)
    run.sources.account()
    assert run.sources.removed.sources == 1


def test_numbers_of_streams_are_those_that_are_set():
    configs = [
        SourceConfig(f"s{n}", ScriptedSource, options, None) for n, options in enumerate([{"stream": 0}, {"stream": 2}])
    ]
    configs += [SourceConfig("none", ScriptedSource, {"stream": None}, None), config("a")]
    assert stream_numbers(configs) == {"s0": 0, "s1": 2}
