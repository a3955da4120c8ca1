"""The runner of each kind of stage."""

import threading

import numpy as np
import pytest
from support.one_stage import Log, Numbers, OneEach, Picky, Rig, Writer, batch, frames, key

from streamkit.config.plan import Node, RunOptions
from streamkit.core.counters import Counters
from streamkit.core.crops import LazyRows
from streamkit.core.data import Batch, Detections, Frame, FrameState
from streamkit.core.stage import BatchStage, Collecting, Context, FrameStage, Registry, Sink, stage
from streamkit.runtime.execution.runners import (
    DROPPED,
    BatchRunner,
    FrameRunner,
    LossySinkRunner,
    SinkRunner,
    StreamRunner,
    runner,
)


def test_every_kind_of_stage_sets_its_id_and_counters_on_each_frame():
    for kind, options in ((Picky, {}), (Numbers, {"log": []}), (OneEach, {"log": []}), (Writer, {"log": []})):
        rig = Rig(kind, **options)
        input_batch = batch("a0")
        input_batch.failed = [Frame("a", 1, 0.0, 64, 48, error="bad", _state=FrameState(position=1))]
        rig(input_batch)
        for frame in input_batch.frames + (input_batch.failed if kind is Writer else []):
            assert frame._state.stage == "it"
            assert frame._state.counters is rig.runner.counters


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


def test_each_kind_of_stage_has_a_runner_class():
    kinds = [
        (NoTensor, BatchRunner),
        (Numbers, StreamRunner),
        (OneEach, FrameRunner),
        (Writer, SinkRunner),
        (MayDrop, LossySinkRunner),
    ]
    for kind, wanted in kinds:
        assert type(runner_of(kind, runner)[0]) is wanted


@pytest.mark.parametrize(("kind", "whole"), [(TensorReader, True), (TensorSplitter, False), (NoTensor, False)])
def test_a_stage_that_needs_a_tensor_gets_an_array_and_others_lazy_rows(kind, whole):
    rig = Rig(kind)
    seen = []
    rig.runner.isolated = False
    rig.runner.stage.process = lambda batch: (seen.append(batch.tensor), batch)[1]
    input_batch = batch("a0 a1")
    input_batch.tensor = rows = LazyRows(lambda rows: rows * 10.0, (3, 1, 1, 1), np.dtype(np.float32))
    rig(input_batch)
    assert (seen[0] is rows) is not whole
    assert seen[0][:].tolist() == [0.0, 10.0, 20.0]


def test_a_batch_broken_by_a_plugin_is_restored_before_the_retry():
    rig = Rig(NoTensor)
    input_batch = batch("a0 a1")

    def drops(batch):
        for frame in batch.frames:
            frame.emit("seen")
        return batch if len(batch.frames) == 1 else Batch([])

    rig.runner.stage.process = drops
    assert [len(frame.events) for frame in rig(input_batch).frames] == [1, 1]


def test_states_are_created_once_per_source_and_removed_at_its_end():
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


def test_states_are_restored_before_a_failed_batch_is_retried():
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


@pytest.mark.parametrize("isolated", [True, False])
def test_frames_have_the_tables_of_their_batch_instead_of_earlier_tables(isolated):
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
def test_a_failed_frame_gets_its_tables_back_and_the_others_their_new_tables(isolated):
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
def test_frames_of_a_frame_stage_are_checked_if_it_is_a_plugin(isolated):
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


@pytest.mark.parametrize(("path", "probed"), [("{source}.txt", ["a.txt"]), ("one.txt", [])])
def test_outputs_per_source_are_probed_and_shared_outputs_opened_at_the_start(path, probed, monkeypatch):
    seen = []
    monkeypatch.setattr(Writer, "probe", lambda self: seen.append(self.path))
    log: Log = []
    Rig(Writer, log=log, path=path)
    assert (seen, log) == (probed, [] if probed else ["open one.txt"])


def test_frames_of_other_sources_are_written_after_an_output_failed():
    log: Log = []
    rig = Rig(Writer, log=log, path="{source}", bad=("a0",))
    rig(batch("a0 a1 b0 a2 b1"))
    rig(batch("a3 b2"))
    assert [entry[1] for entry in log if isinstance(entry, tuple)] == ["b0", "b1", "b2"]
    rig(batch("b3", ended="z"))  # a source without an output
    assert (len(rig.failures), rig.runner.meter.other_errors, rig.logged) == (1, 0, [])


def test_a_batch_encoded_as_a_whole_is_not_split():
    log: Log = []
    rig = Rig(Encodes, log=log)
    input_batch = batch("a0 b0")
    input_batch.failed = [*frames("a7")]
    input_batch.failed[0]._state.position = 9
    assert rig(input_batch) is input_batch
    assert log == [("encoded 0", "a0", 0), ("encoded 1", "b0", 0), ("write", "a7", 0)]


@pytest.mark.parametrize("encode", [lambda batch: None, lambda batch: ["one"], lambda batch: [1 / 0]])
def test_a_batch_that_cannot_be_encoded_as_a_whole_is_written_frame_by_frame(encode, monkeypatch):
    monkeypatch.setattr(Encodes, "encode", staticmethod(encode))
    log: Log = []
    Rig(Encodes, log=log)(batch("a0 b0"))
    assert log == [("write", "a0", 1), ("write", "b0", 1)]


@pytest.mark.parametrize(("on_frame", "ofbatch", "at_once"), [(1, 1, True), (1, 0, False), (0, 1, True), (0, 0, True)])
def test_tables_of_single_frames_prevent_encoding_of_the_whole_batch(on_frame, ofbatch, at_once):
    log: Log = []
    input_batch = batch("a0 b0")
    if not ofbatch:
        input_batch.tables = {}
    if on_frame:
        input_batch.frames[1].tables = {"own": Detections.empty()}
    Rig(Encodes, log=log)(input_batch)
    assert [entry[0] for entry in log] == (["encoded 0", "encoded 1"] if at_once else ["write"] * 2)


class Held(MayDrop):
    """Waits at its first frame."""

    def __init__(self):
        super().__init__()
        self.started = threading.Event()
        self.go_on = threading.Event()
        self.written = []

    def write(self, frame):
        self.started.set()
        assert self.go_on.wait(60)
        self.written.append(frame.index)


def test_the_queue_of_a_lossy_sink_holds_eight_frames():
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
