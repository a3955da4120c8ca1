"""What a plugin's stage may do to tables, which are immutable, and to the states of its sources."""

import copy
import re
import sys
import time
from types import ModuleType

import numpy as np
import pytest
from support.one_stage import Rig, batch

from streamkit.core.data import Batch, Color, Device, Frame, FrameState
from streamkit.core.stage import BatchStage, Collecting, FrameStage, Registry, StreamStage, stage
from streamkit.media.surfaces import SurfacePool
from streamkit.runtime.execution.isolation import StateCopies
from streamkit.runtime.execution.tables import split

with Collecting(Registry()):

    @stage("does_batch")
    class DoesBatch(BatchStage):
        """Does to the table what `what` does."""

        what: object

        def process(self, batch: Batch) -> Batch:
            self.what(batch)
            return batch

    @stage("does_frame")
    class DoesFrame(FrameStage):
        """The same, to each frame."""

        what: object

        def process(self, frame: Frame) -> None:
            self.what(frame)

    @stage("keeps")
    class Keeps(StreamStage):
        """Keeps what `make` makes in its states, and raises at the batches of `bad`."""

        make: object
        bad: tuple[int, ...] = ()

        def new_state(self, source: str) -> dict:
            return {"n": 0, "kept": self.make()}

        def process(self, batch: Batch, states: dict) -> Batch:
            for frame in batch.frames:
                states[frame.source]["n"] += 1
            if len(batch) > 1 and batch.frames[0].index in self.bad:
                raise ValueError("no")
            return batch


def of(holder):
    """The table of a batch, or of a frame."""
    return holder.table("detect") if isinstance(holder, Batch) else holder.tables["detect"]


def nothing(holder):
    assert len(of(holder)) >= 1


def looks(holder):
    assert np.isfinite(of(holder).score.sum())


def writes(holder):
    of(holder).score[:] = 0.5


def replaces_a_column(holder):
    of(holder).score = of(holder).score + np.float32(0.25)


def adds_a_column(holder):
    of(holder).extra["foo"] = np.ones(len(of(holder)), np.float32)


def labels(holder):
    of(holder).labels = ("cat",)


def replaces(holder):
    holder.tables["detect"] = of(holder).with_columns(score=of(holder).score * 2)


def removes_rows(holder):
    holder.tables["detect"] = of(holder)[of(holder).score >= 1]


@pytest.mark.parametrize("kind", [DoesBatch, DoesFrame])
@pytest.mark.parametrize("coming", [False, True])
@pytest.mark.parametrize("what", [nothing, looks])
def test_an_unchanged_table_is_the_same_object(kind, coming, what):
    input_batch = batch("a0 b0 a1")
    table = input_batch.tables["detect"]
    if coming:
        input_batch.tables["detect"] = lambda: table
    output_batch = Rig(kind, what=what)(input_batch)
    assert output_batch.table("detect") is table


@pytest.mark.parametrize("kind", [DoesBatch, DoesFrame])
@pytest.mark.parametrize("what", [replaces, removes_rows])
def test_a_replaced_table_is_visible_in_its_batch_only(kind, what):
    input_batch = batch("a0 b0 a1", rows=(2, 1, 3))
    wanted = batch("a0 b0 a1", rows=(2, 1, 3))
    table = input_batch.tables["detect"]
    other = input_batch.fork()
    before = copy.deepcopy(table)
    what(wanted)
    output_batch = Rig(kind, what=what)(input_batch).table("detect")
    assert len(output_batch) == len(wanted.table("detect"))
    for name in ("score", "xyxy", "class_id", "batch_row", "row_id"):
        np.testing.assert_array_equal(getattr(output_batch, name), getattr(wanted.table("detect"), name))
        np.testing.assert_array_equal(getattr(table, name), getattr(before, name))
    assert other.table("detect") is table


@pytest.mark.parametrize("kind", [DoesBatch, DoesFrame])
@pytest.mark.parametrize(
    ("what", "why"),
    [
        (writes, "ValueError: assignment destination is read-only"),
        (
            replaces_a_column,
            "AttributeError: Detections are immutable; write frame.detections = "
            "frame.detections.with_columns(score=array)",
        ),
        (
            adds_a_column,
            "TypeError: the columns of Detections are read-only; write table = table.with_columns(name=array)",
        ),
        (
            labels,
            "AttributeError: Detections are immutable; write frame.detections = "
            "frame.detections.with_columns(labels=array)",
        ),
    ],
)
def test_a_stage_that_writes_to_a_table_fails_the_frame_with_the_fix(kind, what, why):
    input_batch = batch("a0 b0", rows=(2, 1))
    before = copy.deepcopy(input_batch.tables["detect"])
    output_batch = Rig(kind, what=what)(input_batch)
    assert [frame.error for frame in output_batch.failed] == [
        frame.error for frame in output_batch.failed if why in frame.error
    ]
    assert len(output_batch.failed) == 2
    np.testing.assert_array_equal(input_batch.fork().table("detect").score, before.score)


def test_a_table_not_requested_by_a_stage_passes_unchanged():
    input_batch = batch("a0 b0")
    calls = []
    table = input_batch.tables["detect"]
    input_batch.tables["detect"] = coming = lambda: calls.append("") or table
    output_batch = Rig(DoesBatch, what=lambda batch: None)(input_batch)
    assert output_batch.tables["detect"] is coming
    assert calls == []


@pytest.mark.parametrize("value", [np.array([np.nan, 1], np.float32), np.array([{"a": 1}, None]), np.array(["x", "y"])])
def test_columns_of_every_type_are_recognized_after_a_stage(value):
    input_batch = batch("a0 b0")
    input_batch.tables["detect"] = table = input_batch.tables["detect"].with_columns(foo=value)
    assert Rig(DoesFrame, what=looks)(input_batch).tables["detect"] is table


def test_reordered_rows_keep_their_frames():
    input_batch = batch("a0 b0")
    input_batch.tables["detect"] = input_batch.tables["detect"][np.array([1, 0])]
    output_batch = Rig(DoesFrame, what=lambda frame: halves(frame) if frame.source == "b" else None)(input_batch).table(
        "detect"
    )
    assert dict(zip(output_batch.batch_row.tolist(), output_batch.score.tolist(), strict=True)) == {0: 0.0, 1: 0.5}


def halves(frame):
    frame.detections = frame.detections.with_columns(score=np.full(len(frame.detections), 0.5, np.float32))


@pytest.mark.parametrize("anew", [lambda batch: batch.take(range(len(batch))), lambda batch: Batch(batch.frames)])
@pytest.mark.parametrize("sequence", [0, 5])
def test_a_rebuilt_batch_keeps_the_runners_state(anew, sequence):
    input_batch = batch("a0 b0", ended="a")
    input_batch.sequence = sequence
    rig = Rig(DoesBatch, what=None)
    rig.runner.stage.process = anew
    output_batch = rig(input_batch)
    assert (output_batch.ended, output_batch.sequence) == (("a",), sequence)


# ---------------------------------------------------------------------------------------------------------- states


def test_pixels_kept_in_a_state_are_not_copied():
    pool = SurfacePool(Device("cpu"))
    others = [pool.surface(64, 48, Color()) for _ in range(5)]
    del others
    rig = Rig(Keeps, sources="a", make=lambda: pool.surface(64, 48, Color()), bad=(4,))
    for index in range(0, 8, 2):
        rig(batch(f"a{index} a{index + 1}"))
    assert rig.runner.states["a"]["n"] == 8
    assert pool.held == {"64x48": 1}
    assert pool.allocated == 5 * 64 * 72
    state = FrameState(source_state=object(), packet_ref=object())
    frame = Frame("a", 0, 0.0, 64, 48, rig.runner.states["a"]["kept"], _state=state)
    twin = copy.deepcopy(frame)
    assert (twin.surface, twin._state.source_state, twin._state.packet_ref) == (
        frame.surface,
        frame._state.source_state,
        frame._state.packet_ref,
    )
    twin.events.append("x")
    assert frame.events == []


def test_a_frame_kept_in_a_state_is_restored_with_its_table():
    seen = []

    class Last(Keeps):
        def process(self, batch, states):
            last = states["a"]["kept"]
            if last:
                table = last[0].tables["detect"]
                seen.append(table.score.tolist())
                last[0].tables["detect"] = table.with_columns(score=table.score + 1)
            if len(batch) > 1:
                raise ValueError("no")
            states["a"]["kept"] = list(batch.frames)
            return batch

    rig = Rig(Last, sources="a", make=list)
    for text in ("a0", "a1 a2"):
        input_batch = batch(text)
        split(input_batch)
        rig(input_batch)
    assert seen == [[0.0], [0.0], [0.0]]


def test_cuda_handles_are_not_copied(monkeypatch):
    ended = []

    class Handle:
        def __del__(self):
            ended.append(self)

    cupy = ModuleType("cupy")
    cupy.cuda = ModuleType("cuda")
    cupy.cuda.Event = Handle
    cupy.cuda.Stream = type("Stream", (), {})
    cupy.ndarray = type("ndarray", (), {})
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    rig = Rig(Keeps, sources="a", make=lambda: [Handle()], bad=(2,))
    rig(batch("a0 a1"))
    handle = rig.runner.states["a"]["kept"][0]
    rig(batch("a2 a3"))
    rig(batch("a4 a5"))
    assert rig.runner.states["a"]["kept"][0] is handle
    assert rig.runner.states["a"]["n"] == 6
    assert ended == []


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: (time.sleep(0), (n for n in ()))[1], r"its states cannot be copied \(TypeError: cannot pickle 'gener"),
        (lambda: [[[n] for n in range(50)] for _ in range(100)], r"its states take [\d.]+ ms per batch to copy"),
    ],
)
def test_states_that_are_not_copied_are_reported_if_relevant(make, why):
    rig = Rig(Keeps, sources="a", make=make, bad=(60,))
    for index in range(0, 60, 2):
        rig(batch(f"a{index} a{index + 1}"))
    assert rig.logged == []
    for _ in range(3):
        rig(batch("a60 a61"))
    assert rig.runner.states["a"]["n"] == 60 + 3 * (2 + 2)
    assert len(rig.logged) == 1
    assert [text for text in rig.logged if "include the frames of this batch twice" in text] == rig.logged
    assert re.search(why, rig.logged[0])
    assert rig.runner.counters["batches without state rollback"] == 3


def test_large_states_are_not_copied():
    states = {"a": [[n] for n in range(20_000)]}
    copies = StateCopies(states, print)
    for _ in range(30):
        copies.copied({"a"})
    restore = copies.copied({"a"})
    states["a"].append([-1])
    restore()
    assert states["a"][-1] == [-1]
