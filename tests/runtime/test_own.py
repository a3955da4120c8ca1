"""What a plugin's stage is given as its own: tables that become the batch's again where it leaves them as they were."""

import copy
import re
import sys
import time
from types import ModuleType

import numpy as np
import pytest
from runtime.one_stage import Rig, batch

from streamkit.data import Batch, Color, Device, Frame
from streamkit.media.surfaces import SurfacePool
from streamkit.runtime.apart import Own, States
from streamkit.runtime.tables import split
from streamkit.stage import BatchStage, Collecting, FrameStage, Registry, StreamStage, stage

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


def turns_a_column_round(holder):
    holder_table = of(holder)
    holder_table.score = holder_table.score[::-1] if isinstance(holder, Frame) else turned(holder_table)


def turned(table):
    return np.concatenate([table.score[table.batch_row == row][::-1] for row in range(3)])


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
def test_a_table_that_is_left_alone_is_the_same_object_again(kind, coming, what):
    given = batch("a0 b0 a1")
    table = given.tables["detect"]
    if coming:
        given.tables["detect"] = lambda: table
    made = Rig(kind, what=what)(given)
    assert made.table("detect") is table


@pytest.mark.parametrize("kind", [DoesBatch, DoesFrame])
@pytest.mark.parametrize(
    "what", [writes, replaces_a_column, turns_a_column_round, adds_a_column, labels, replaces, removes_rows]
)
def test_what_a_stage_does_to_its_tables_reaches_the_batch_and_nobody_else(kind, what):
    given, wanted = batch("a0 b0 a1", rows=(2, 1, 3)), batch("a0 b0 a1", rows=(2, 1, 3))
    table = given.tables["detect"]
    before = copy.deepcopy(table)
    what(wanted)
    made = Rig(kind, what=what)(given).table("detect")
    for name in ("score", "xyxy", "class_id", "batch_row", "row_id"):
        np.testing.assert_array_equal(getattr(made, name), getattr(wanted.table("detect"), name))
        np.testing.assert_array_equal(getattr(table, name), getattr(before, name))
    assert made.labels == wanted.table("detect").labels
    assert made.extra.keys() == wanted.table("detect").extra.keys()
    assert table.extra == {}
    assert made is not table


def test_a_stage_that_does_not_ask_leaves_a_table_on_its_way():
    given = batch("a0 b0")
    asked = []
    table = given.tables["detect"]
    given.tables["detect"] = coming = lambda: asked.append("") or table
    made = Rig(DoesBatch, what=lambda batch: None)(given)
    assert made.tables["detect"] is coming
    assert asked == []


def test_two_branches_of_a_table_on_its_way_get_one(monkeypatch):
    """Else every batch would be merged row by row where they meet."""
    table = batch("a0 b0").tables["detect"]
    own = Own(Batch(batch("a0 b0").frames, tables={"detect": lambda: table}))
    first, second = own.batch.fork(), own.batch.fork()
    assert first.table("detect") is second.table("detect")


@pytest.mark.parametrize("value", [np.array([np.nan, 1], np.float32), np.array([{"a": 1}, None]), np.array(["x", "y"])])
def test_columns_of_every_kind_are_known_again(value):
    given = batch("a0 b0")
    given.tables["detect"] = table = given.tables["detect"].with_columns(foo=value)
    assert Rig(DoesFrame, what=looks)(given).tables["detect"] is table


def test_rows_out_of_order_are_the_frames_own():
    given = batch("a0 b0")
    given.tables["detect"] = given.tables["detect"][np.array([1, 0])]
    made = Rig(DoesFrame, what=lambda frame: writes(frame) if frame.source == "b" else None)(given).table("detect")
    assert dict(zip(made.batch_row.tolist(), made.score.tolist(), strict=True)) == {0: 0.0, 1: 0.5}


class Holding:
    """Does things to a frame, and to the table that it has kept of the frame before."""

    def __init__(self, now=lambda table: None, before=lambda table: None):
        self.now, self.before, self.kept = now, before, None

    def __call__(self, frame):
        if self.kept is not None:
            self.before(self.kept)
        self.kept = of(frame)
        self.now(self.kept)


def set_score(value):
    def do(table):
        table.score[:] = value

    return do


def test_a_batch_that_was_handed_on_does_not_change_with_what_a_stage_has_kept():
    rig = Rig(DoesFrame, what=Holding(now=set_score(0.5), before=set_score(99)))
    one = rig(batch("a0"))
    rig(batch("a1"))
    assert one.table("detect").score.tolist() == [0.5]


def test_what_a_stage_does_to_an_earlier_frame_of_the_batch_counts():
    def numbered(table):
        table.track_id = np.full(len(table), 7)

    made = Rig(DoesFrame, what=Holding(before=numbered))(batch("a0 a1 a2")).table("detect")
    assert made.track_id.tolist() == [7, 7, -1]


def test_a_table_that_was_renamed_before_is_no_way_into_another_branch():
    def rename(batch):
        batch.tables["new"] = batch.tables.pop("detect")

    given = batch("a0 b0 a1")
    split(given)
    other = given.fork()
    made = Rig(DoesFrame, what=lambda frame: [set_score(9)(one) for one in frame.tables.values()])(
        Rig(DoesBatch, what=rename)(given)
    )
    assert other.table("detect").score.tolist() == [0, 1, 2]
    assert list(made.tables) == ["new"]
    assert made.table("new").score.tolist() == [9, 9, 9]


@pytest.mark.parametrize("anew", [lambda batch: batch.take(range(len(batch))), lambda batch: Batch(batch.frames)])
@pytest.mark.parametrize("sequence", [0, 5])
def test_a_batch_made_anew_keeps_what_the_runner_knows(anew, sequence):
    given = batch("a0 b0", ended="a")
    given.sequence = sequence
    rig = Rig(DoesBatch, what=None)
    rig.runner.stage.process = anew
    made = rig(given)
    assert (made.ended, made.sequence) == (("a",), sequence)


# ---------------------------------------------------------------------------------------------------------- states


def test_a_picture_that_is_kept_in_a_state_is_no_copy_and_comes_back_once():
    pool = SurfacePool(Device("cpu"))
    others = [pool.surface(64, 48, Color()) for _ in range(5)]
    del others
    rig = Rig(Keeps, sources="a", make=lambda: pool.surface(64, 48, Color()), bad=(4,))
    for index in range(0, 8, 2):
        rig(batch(f"a{index} a{index + 1}"))
    assert rig.runner.states["a"]["n"] == 8
    assert pool.held == {"64x48": 1}
    assert pool.allocated == 5 * 64 * 72
    kept = Frame("a", 0, 0.0, 64, 48, rig.runner.states["a"]["kept"], account=object(), packet=object())
    twin = copy.deepcopy(kept)
    assert (twin.surface, twin.account, twin.packet) == (kept.surface, kept.account, kept.packet)
    twin.events.append("x")
    assert kept.events == []


def test_a_frame_that_is_kept_in_a_state_is_put_back_with_its_table():
    seen = []

    class Last(Keeps):
        def process(self, batch, states):
            last = states["a"]["kept"]
            if last:
                seen.append(last[0].tables["detect"].score.tolist())
                last[0].tables["detect"].score += 1
            if len(batch) > 1:
                raise ValueError("no")
            states["a"]["kept"] = list(batch.frames)
            return batch

    rig = Rig(Last, sources="a", make=list)
    for text in ("a0", "a1 a2"):
        given = batch(text)
        split(given)
        rig(given)
    assert seen == [[0.0], [0.0], [0.0]]


def test_handles_of_cuda_are_not_copied(monkeypatch):
    ended = []

    class Handle:
        def __del__(self):
            ended.append(self)

    cupy = ModuleType("cupy")
    cupy.cuda = ModuleType("cuda")
    cupy.cuda.Event, cupy.cuda.Stream, cupy.ndarray = Handle, type("Stream", (), {}), type("ndarray", (), {})
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
        (lambda: [[[n] for n in range(50)] for _ in range(100)], r"its states take [\d.]+ ms a batch to be copied"),
    ],
)
def test_states_that_are_not_copied_are_told_where_it_matters(make, why):
    rig = Rig(Keeps, sources="a", make=make, bad=(60,))
    for index in range(0, 60, 2):
        rig(batch(f"a{index} a{index + 1}"))
    assert rig.said == []
    for _ in range(3):
        rig(batch("a60 a61"))
    assert rig.runner.states["a"]["n"] == 60 + 3 * (2 + 2)
    assert len(rig.said) == 1
    assert [text for text in rig.said if "seen the frames of this batch twice" in text] == rig.said
    assert re.search(why, rig.said[0])
    assert rig.runner.counters["batches whose states were not put back"] == 3


def test_states_that_are_large_are_no_longer_copied():
    states = {"a": [[n] for n in range(20_000)]}
    kept = States(states, print)
    for _ in range(30):
        kept.copied({"a"})
    begun_s = time.thread_time()
    kept.copied({"a"})
    assert time.thread_time() - begun_s < 0.001
