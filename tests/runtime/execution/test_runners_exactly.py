"""Each kind of runner step by step: states, instances, tables, encoded frames, the end of an emitter and of threads."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from support.messages import collect
from support.one_stage import Log, Numbers, OneEach, Rig, Writer, batch, frames, key

from streamkit.config.plan import Node, RunOptions
from streamkit.core.counters import Counters
from streamkit.core.crops import LazyOutputs, LazyRows
from streamkit.core.data import Batch, Detections, Device
from streamkit.core.errors import OutputError
from streamkit.core.stage import BatchStage, Collecting, Context, FrameStage, Registry, Sink, stage
from streamkit.emit.sender import GIVEN_UP
from streamkit.emit.spool import DROPPED as SPOOL_DROPPED
from streamkit.runtime.execution import runners
from streamkit.runtime.execution.isolation import COPIED, PixelGuard
from streamkit.runtime.execution.runners import (
    DROPPED,
    BatchRunner,
    EmitterRunner,
    FrameRunner,
    LossySinkRunner,
    LossySinkThread,
    SinkRunner,
    StreamRunner,
    _drain,
    runner,
)
from streamkit.testing.kit import gray

with Collecting(Registry()):

    @stage("tensor_reader", reads="tensor")
    class TensorReader(BatchStage):
        """Reads the tensor."""

    @stage("tensor_splitter", reads="tensor", splits_tensor=True)
    class TensorSplitter(BatchStage):
        """Reads the tensor part by part."""

    @stage("no_tensor")
    class NoTensor(BatchStage):
        """Reads no tensor."""

    @stage("acts_on_frames")
    class ActsOnFrames(FrameStage):
        """Calls `what` with each frame."""

        what: object

        def process(self, frame):
            self.what(frame)

    @stage("encodes")
    class Encodes(Sink):
        """Encodes a batch at once, and notes what it writes."""

        log: object
        path: str = "x"

        def write(self, frame):
            self.log.append(("write", key([frame]), len(frame.tables)))

        def write_encoded(self, frame, encoded):
            if encoded == "bad":
                raise ValueError("cannot write")
            self.log.append((encoded, key([frame]), len(frame.tables)))

        @staticmethod
        def encode(batch):
            return [f"encoded {row}" for row in range(len(batch))]

    @stage("may_drop", target="path", may_drop=True)
    class MayDrop(Sink):
        """A sink for which nobody waits."""

        path: str = "x"

        def write(self, frame):
            """Nothing is written."""


def runner_of(kind, called, *, on_error="skip", **options):
    """The runner of a stage, not open, and what it fails with."""
    failures = []
    node = Node("it", kind, options, [], RunOptions(on_error=on_error), None)
    context = lambda id_: Context(id_, counters=Counters())  # noqa: E731
    return called(node, context, failures.append, ["a"]), failures


def test_each_kind_of_stage_has_the_runner_of_its_kind():
    kinds = [(NoTensor, BatchRunner), (Numbers, StreamRunner), (OneEach, FrameRunner), (Writer, SinkRunner),
             (MayDrop, LossySinkRunner)]  # fmt: skip
    for kind, wanted in kinds:
        assert type(runner_of(kind, runner)[0]) is wanted


# ------------------------------------------------------------------------------------------------- batches and states


@pytest.mark.parametrize(("kind", "whole"), [(TensorReader, True), (TensorSplitter, False), (NoTensor, False)])
def test_a_stage_that_expects_a_tensor_gets_an_array_and_others_the_rows_on_demand(kind, whole):
    rig, seen = Rig(kind), []
    rig.runner.isolated = False
    rig.runner.stage.process = lambda batch: (seen.append(batch.tensor), batch)[1]
    input_batch = batch("a0 a1")
    input_batch.tensor = rows = LazyRows(lambda rows: rows * 10.0, (3, 1, 1, 1), np.dtype(np.float32))
    rig(input_batch)
    assert (seen[0] is rows) is not whole
    assert seen[0][:].tolist() == [0.0, 10.0, 20.0]


@pytest.mark.parametrize("next_splits", [True, False])
def test_outputs_that_are_not_yet_made_only_reach_a_stage_that_makes_them(next_splits):
    rig = Rig(NoTensor)
    rig.runner.isolated, rig.runner.splits_outputs = False, next_splits
    outputs = LazyOutputs(lambda rows: {"a": rows * 10.0}, [2, 2], 3)
    rig.runner.stage.process = lambda batch: replace(batch, outputs=outputs)
    outputs_after = rig.runner.process(batch("a0 a1")).outputs
    assert (outputs_after is outputs) is next_splits
    assert next_splits or outputs_after["a"].tolist() == [0.0, 10.0, 20.0]


@pytest.mark.parametrize("isolated", [True, False])
def test_only_a_plugin_gets_tables_of_its_own(isolated):
    rig, input_batch = Rig(NoTensor), batch("a0 a1")
    rig.runner.isolated = isolated
    seen, snapshots = [], []
    rig.runner.stage.process = lambda batch: (seen.append(batch), batch)[1]
    rig.runner.snapshot = snapshots.append
    rig(input_batch)
    (got,) = seen
    assert (
        (got is input_batch) is (got.tables is input_batch.tables) is (got.frames is input_batch.frames) is not isolated
    )
    assert snapshots == [input_batch] * isolated


@pytest.mark.parametrize(("kind", "in_place", "freeze", "on_host"), [
    (NoTensor, False, True, False), (NoTensor, True, False, False), (Numbers, False, True, True),
])  # fmt: skip
def test_pixels_are_guarded_by_what_the_node_says(monkeypatch, kind, in_place, freeze, on_host):
    seen = []

    def guard(frames, **options):
        seen.append(options)
        return PixelGuard(frames, **options)

    rig = Rig(kind, **({"log": []} if kind is Numbers else {}))
    rig.runner.node.in_place = in_place
    if kind is NoTensor:
        rig.runner.stage.process = lambda batch: batch
    monkeypatch.setattr(runners, "PixelGuard", guard)
    rig(batch("a0"))
    assert seen == [{"freeze": freeze, "on_host": on_host}]


def test_a_plugin_that_returns_no_batch_is_refused_and_one_that_breaks_it_restores_the_frames():
    rig = Rig(NoTensor)
    rig.runner.stage.process = lambda batch: None
    assert rig.runner.process(batch("a0")) is None

    def drops(batch):
        batch.frames[0].emit("seen")
        return Batch([])

    rig.runner.stage.process = drops
    input_batch = batch("a0")
    with pytest.raises(ValueError, match="must return every frame"):
        rig.runner.process(input_batch)
    assert input_batch.frames[0].events == []


def test_a_batch_that_a_plugin_breaks_is_restored_once_before_it_is_retried():
    rig, input_batch = Rig(NoTensor), batch("a0 a1")

    def drops(batch):
        for frame in batch.frames:
            frame.emit("seen")
        return batch if len(batch.frames) == 1 else Batch([])

    rig.runner.stage.process = drops
    assert [len(frame.events) for frame in rig(input_batch).frames] == [1, 1]


def test_a_batch_stage_is_closed_if_it_was_opened():
    stage_runner, _ = runner_of(Numbers, runner, log=[])
    stage_runner.close()
    log: Log = []
    rig = Rig(Numbers, log=log)
    rig.runner.close()
    assert log == ["close"]


def test_states_are_made_once_a_source_and_removed_at_its_end():
    log: Log = []
    rig = Rig(Numbers, log=log)
    ended = []
    rig.runner.stage.end = lambda source, state: ended.append((source, state))
    rig(batch("a0 b0 a1"))
    rig(batch("a2", ended="ab"))
    rig.runner.end("a")
    assert log == ["new a", "new b", ["a", "b"], ["a", "b"]]
    assert ended == [("a", [0, 1, 2]), ("b", [0])]
    assert (rig.runner.states, rig.logged, rig.runner.meter.other_errors) == ({}, [], 0)


def test_states_that_were_not_restored_are_told_once_and_counted_each_time():
    rig = Rig(Numbers, log=[])
    for why in ("first reason", "second reason", "third reason"):
        rig.runner._lost(why)
    assert rig.logged == ["it: first reason; further occurrences are counted in the report"]
    assert rig.runner.counters["batches without state rollback"] == 3


def test_a_batch_that_raises_has_its_states_again_for_the_second_try():
    rig = Rig(Numbers, log=[])
    inner = rig.runner.stage.process

    def process(batch, states):
        inner(batch, states)
        if len(batch) > 1:
            raise ValueError("no")
        return batch

    rig.runner.stage.process = process
    output_batch = rig(batch("a0 a1 b0"))
    assert [frame.events[0].data["n"] for frame in output_batch.frames] == [1, 2, 1]


# ---------------------------------------------------------------------------------------------------- frame by frame


@pytest.mark.parametrize("isolated", [True, False])
def test_frames_have_the_tables_of_the_batch_and_not_those_of_before(isolated):
    seen = []
    rig = Rig(ActsOnFrames, what=lambda frame: seen.append(sorted(frame.tables)))
    rig.runner.isolated = isolated
    input_batch = batch("a0 b0")
    for frame in input_batch.frames:
        frame.tables = {"old": Detections.empty()}
    rig(input_batch)
    input_batch = batch("a1 b1")
    input_batch.tables = {}
    for frame in input_batch.frames:
        frame.tables = {"own": Detections.empty()}
    rig(input_batch)
    assert seen == [["detect"], ["detect"], ["own"], ["own"]]


@pytest.mark.parametrize("isolated", [True, False])
def test_a_frame_that_fails_has_its_tables_again_and_the_others_their_new_ones(isolated):
    def what(frame):
        frame.detections = frame.detections[:0]
        if frame.source == "b":
            raise ValueError("no")

    rig = Rig(ActsOnFrames, what=what)
    rig.runner.isolated = isolated
    output_batch = rig(batch("a0 b0 a1"))
    assert (key(output_batch.frames), key(output_batch.failed)) == ("a0 a1", "b0")
    assert len(output_batch.failed[0].tables["detect"]) == 1
    assert len(output_batch.table("detect")) == 0
    input_batch = batch("a2")
    assert rig(input_batch) is input_batch


@pytest.mark.parametrize("isolated", [True, False])
def test_what_a_frame_stage_leaves_is_checked_if_it_is_a_plugins(isolated):
    def what(frame):
        if frame.index == 1:
            frame.emit("seen")
            frame.facts[7] = "no str"

    rig = Rig(ActsOnFrames, what=what)
    rig.runner.isolated = isolated
    output_batch = rig(batch("a0 a1 a2"))
    assert key(output_batch.failed) == ("a1" if isolated else "")
    for frame in output_batch.failed:
        assert (frame.events, frame.facts) == ([], {})
        assert "frame.facts must be a dict with str keys" in frame.error


def test_only_frames_that_fail_have_their_old_pixels_again():
    def what(frame):
        frame.surface = replacement
        if frame.source == "b":
            raise ValueError("no")

    replacement = gray(64, 48)
    rig = Rig(ActsOnFrames, what=what)
    input_batch = batch("a0 b0")
    for frame in input_batch.frames:
        frame.surface = gray(64, 48)
    old = input_batch.frames[1].surface
    output_batch = rig(input_batch)
    assert (output_batch.frames[0].surface, output_batch.failed[0].surface) == (replacement, old)
    assert rig.runner.counters[COPIED] == 0


def test_instances_of_frame_stages_are_closed_once_each():
    log: Log = []
    rig = Rig(OneEach, log=log)
    rig(batch("a0 b0 b1"))
    rig.runner.end("a")
    rig.runner.end("a")
    rig.runner.end("z")
    assert [entry for entry in log if isinstance(entry, str)] == ["open", "open", "close after 1"]
    rig.runner.close()
    assert log[-1] == "close after 2"
    rig.runner.close()
    assert log.count("close after 2") == 1
    assert rig.runner.meter.other_errors == 0


# -------------------------------------------------------------------------------------------------------------- sinks


@pytest.mark.parametrize(("path", "probed"), [("{source}.txt", ["a.txt"]), ("one.txt", [])])
def test_outputs_of_a_source_are_probed_and_shared_ones_are_opened_at_the_start(path, probed, monkeypatch):
    seen = []
    monkeypatch.setattr(Writer, "probe", lambda self: seen.append(self.path))
    log: Log = []
    Rig(Writer, log=log, path=path)
    assert (seen, log) == (probed, [] if probed else ["open one.txt"])


def test_frames_behind_one_whose_output_has_failed_are_written_to_theirs():
    log: Log = []
    rig = Rig(Writer, log=log, path="{source}", bad=("a0",))
    rig(batch("a0 a1 b0 a2 b1"))
    rig(batch("a3 b2"))
    assert [entry[1] for entry in log if isinstance(entry, tuple)] == ["b0", "b1", "b2"]
    rig(batch("b3", ended="z"))  # a source without an output
    assert (len(rig.failures), rig.runner.meter.other_errors, rig.logged) == (1, 0, [])


@pytest.mark.parametrize("error", [OSError("disk full"), OutputError("no room")])
def test_an_output_that_cannot_be_flushed_ends_the_run_with_its_error(error):
    rig = Rig(Writer, log=[], path="x")
    flushed = []

    def flush():
        flushed.append("")
        raise error

    rig.runner._instances["x"].flush = flush
    for index in range(2):
        rig(batch(f"a{index}"))
    (failure,) = rig.failures
    assert len(flushed) == 1
    assert (failure is error) is isinstance(error, OutputError)
    assert (type(failure), str(failure)) == (OutputError, "OSError: disk full" if failure is not error else "no room")


def test_a_batch_that_is_encoded_at_once_is_not_split():
    log: Log = []
    rig = Rig(Encodes, log=log)
    input_batch = batch("a0 b0")
    input_batch.failed = [*frames("a7")]
    input_batch.failed[0]._state.position = 9
    assert rig(input_batch) is input_batch
    assert log == [("encoded 0", "a0", 0), ("encoded 1", "b0", 0), ("write", "a7", 0)]


@pytest.mark.parametrize("encode", [lambda batch: None, lambda batch: ["one"], lambda batch: [1 / 0]])
def test_a_batch_that_cannot_be_encoded_at_once_is_written_frame_by_frame(encode, monkeypatch):
    monkeypatch.setattr(Encodes, "encode", staticmethod(encode))
    log: Log = []
    Rig(Encodes, log=log)(batch("a0 b0"))
    assert log == [("write", "a0", 1), ("write", "b0", 1)]


@pytest.mark.parametrize(("on_frame", "ofbatch", "at_once"), [(1, 1, True), (1, 0, False), (0, 1, True), (0, 0, True)])
def test_tables_that_only_the_frames_have_are_not_encoded_at_once(on_frame, ofbatch, at_once):
    log: Log = []
    input_batch = batch("a0 b0")
    if not ofbatch:
        input_batch.tables = {}
    if on_frame:
        input_batch.frames[1].tables = {"own": Detections.empty()}
    Rig(Encodes, log=log)(input_batch)
    assert [entry[0] for entry in log] == (["encoded 0", "encoded 1"] if at_once else ["write"] * 2)


def test_of_equal_frames_the_one_that_cannot_be_written_fails(monkeypatch):
    monkeypatch.setattr(Encodes, "encode", staticmethod(lambda batch: ["well", "bad"]))
    input_batch = batch("a0 a0")
    assert input_batch.frames[0] == input_batch.frames[1]
    first, second = input_batch.frames
    output_batch = Rig(Encodes, log=[])(input_batch)
    assert (output_batch.frames[0] is first, output_batch.failed[0] is second) == (True, True)


# ----------------------------------------------------------------------------------------------------------- emitters


@pytest.fixture
def clock(monkeypatch):
    """A clock that only moves while somebody sleeps; the sleeps."""
    sleeps = []

    def sleep(duration_s):
        sleeps.append(duration_s)
        assert len(sleeps) < 1000
        if hooks:
            hooks.pop(0)()

    hooks = []
    fake_time = SimpleNamespace(monotonic=lambda: 0.25 + sum(sleeps), sleep=sleep, sleeps=sleeps, hooks=hooks)
    monkeypatch.setattr(runners, "time", fake_time)
    return fake_time


def emitter(*, waiting=True, failing_since_s=None, drain_timeout=1.0):
    sender = SimpleNamespace(delivered=0, draining=False, failing_since_s=failing_since_s)
    return SimpleNamespace(sender=sender, queue=SimpleNamespace(waiting=waiting), drain_timeout=drain_timeout)


@pytest.mark.parametrize(("failing_since_s", "count"), [(None, 5), (0.75, 5), (-0.25, 3), (-1.25, 0)])
def test_a_drain_ends_when_nothing_was_accepted_for_longer_than_the_timeout(clock, monkeypatch, failing_since_s, count):
    monkeypatch.setattr(runners, "_POLL_S", 0.25)
    sink = emitter(failing_since_s=failing_since_s)
    _drain(sink)
    assert (clock.sleeps, sink.sender.draining) == ([0.25] * count, True)


def test_a_drain_looks_again_fifty_times_a_second_until_all_is_sent(clock):
    sink = emitter()
    clock.hooks += [lambda: None, lambda: setattr(sink.queue, "waiting", 0)]
    _drain(sink)
    assert clock.sleeps == [0.02, 0.02]
    _drain(emitter(waiting=0))
    assert len(clock.sleeps) == 2


def test_each_record_that_is_accepted_begins_the_timeout_anew(clock, monkeypatch):
    monkeypatch.setattr(runners, "_POLL_S", 0.25)
    sink = emitter()
    clock.hooks += [lambda: None, lambda: None, lambda: setattr(sink.sender, "delivered", 1)]
    clock.hooks += [lambda: setattr(sink.sender, "delivered", 0), lambda: setattr(sink.sender, "delivered", 1)]
    _drain(sink)
    assert len(clock.sleeps) == 3 + 5


@pytest.mark.parametrize("lost", [0, 1, 2000])
def test_an_emitter_is_flushed_drained_and_closed_and_tells_what_it_has_lost(clock, lost):
    logged, log = collect(), []
    stage_runner, failures = runner_of(Writer, EmitterRunner, log=[])
    sink = emitter(waiting=0)
    sink.flush, sink.close = lambda: log.append("flush"), lambda: log.append(f"close {sink.sender.draining}")
    stage_runner._instances["x"] = sink
    stage_runner.counters.add(SPOOL_DROPPED[0], lost)
    stage_runner.counters.add(GIVEN_UP[-1], lost and 3)
    stage_runner.close()
    assert log == ["flush", "close True"]
    assert (failures, stage_runner.meter.other_errors) == ([], 1 if lost else 0)
    message = f"it lost records: {lost:,} {SPOOL_DROPPED[0]}; 3 {GIVEN_UP[-1]}"
    assert logged == ([message] if lost else [])


def test_the_sender_of_an_emitter_is_stopped_before_its_sink_is_closed():
    stage_runner, _ = runner_of(Writer, EmitterRunner, log=[])
    log = []
    sink = emitter(waiting=0)
    sink.flush, sink.close = lambda: None, lambda: log.append("close")
    stage_runner._instances["x"], stage_runner._sending = sink, SimpleNamespace(drop=lambda: log.append("stop"))
    stage_runner.close()
    assert log == ["stop", "close"]


# --------------------------------------------------------------------------------------------- sinks that may drop


class Held(MayDrop):
    """Waits at its first frame."""

    def __init__(self):
        super().__init__()
        self.started, self.go_on, self.written = threading.Event(), threading.Event(), []

    def write(self, frame):
        self.started.set()
        assert self.go_on.wait(60)
        self.written.append(frame.index)


def test_eight_frames_wait_for_a_sink_that_may_drop():
    stage_runner, _ = runner_of(MayDrop, runner)
    sink = Held()
    sink.context = Context("it", counters=Counters())
    stage_runner._sink = lambda source: sink
    stage_runner.process(Batch(frames("a0")))
    assert sink.started.wait(60)
    thread = stage_runner._threads["a"].thread
    counts = []
    for index in range(1, 11):
        stage_runner.process(Batch(frames(f"a{index}")))
        counts.append(sink.context.counters[DROPPED])
    assert counts == [0] * 8 + [1, 2]
    assert list(stage_runner.instances()) == [sink]
    sink.go_on.set()
    stage_runner.end("a")
    stage_runner.end("a")
    stage_runner.close()
    assert not thread.is_alive()
    assert sink.written == [0, *range(3, 11)]
    assert list(stage_runner.instances()) == []


def test_the_end_waits_four_seconds_for_all_threads_together(clock):
    logged, waits = collect(), []

    def thread(name, takes_s, ends=False):
        def join(timeout_s):
            waits.append(timeout_s)
            clock.sleep(takes_s)

        fake_thread = SimpleNamespace(
            name=name, join=join, is_alive=lambda: not (ends and waits[-1:] and name in joined)
        )
        return SimpleNamespace(thread=fake_thread)

    joined = {"it/b"}
    stage_runner, _ = runner_of(MayDrop, runner)
    stage_runner._leaving = [
        thread("it/a", 3.0),
        thread("it/b", 0.5, ends=True),
        thread("it/c", 2.0),
        thread("it/d", 0.0),
    ]
    stage_runner.close()
    assert waits == [4.0, 1.0, 0.5, 0.0]
    assert logged == [f"it/{name} does not end and is abandoned" for name in "acd"]


def test_what_the_thread_of_a_sink_raises_counts_for_its_frame_or_its_instance():
    logged = collect()
    stage_runner, failures = runner_of(MayDrop, runner)
    (frame,) = frames("a0")
    stage_runner._on_failure(frame, ValueError("no"))
    stage_runner._on_failure(None, ValueError("nobody there"))
    assert stage_runner.counters.values == {"frames failed": 1, "instances failed": 1}
    assert frame.error is not None
    assert logged[-1] == "it failed: nobody there"
    assert (len(logged), failures) == (2, [])


def test_the_thread_of_a_sink_is_one_of_the_host(monkeypatch):
    calls, inner = [], runners.lane_device
    monkeypatch.setattr(runners, "lane_device", lambda *arguments: (calls.append(arguments), inner(*arguments))[1])
    failed = []
    thread = LossySinkThread(MayDrop(), Device(), "it/a", lambda *arguments: failed.append(arguments))
    thread.frames.close()
    thread.thread.join(60)
    assert (calls, failed, thread.thread.is_alive()) == ([(Device(), False)], [], False)


def test_a_sink_gets_frames_that_later_stages_do_not_change():
    stage_runner, _ = runner_of(MayDrop, runner)
    sink = Held()
    seen = []
    sink.write = seen.append
    sink.context = Context("it", counters=Counters())
    stage_runner._sink = lambda source: sink
    input_batch = batch("a0")
    stage_runner.process(input_batch)
    stage_runner.close()
    (frame,) = seen
    assert frame is not input_batch.frames[0]
    assert (frame.tables is input_batch.frames[0].tables, frame.events is input_batch.frames[0].events) == (
        False,
        False,
    )
    assert len(frame.detections) == 1
