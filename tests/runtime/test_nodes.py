"""One stage at a time: what it raises, whose state it keeps, when it is opened and closed."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from streamkit.counters import Counters
from streamkit.data import Batch, Detections, Frame
from streamkit.errors import OutputError, SourceError, StageError
from streamkit.plan import Node, RunOptions
from streamkit.runtime.nodes import Runner
from streamkit.runtime.runners import runner
from streamkit.runtime.tables import merge_batches
from streamkit.stage import BatchStage, Collecting, Context, FrameStage, Registry, Sink, Stage, StreamStage, stage
from streamkit.testing import detections

Log = list[Any]


class Rig:
    """A runner of one stage, with what it says and fails with."""

    def __init__(self, kind: type[Stage], sources="ab", on_error="skip", **options: Any) -> None:
        self.failures: list[BaseException] = []
        self.said: list[str] = []
        node = Node("it", kind, options, [], RunOptions(on_error=on_error), None)
        self.runner: Runner = runner(node, self.context, self.failures.append, list(sources))
        self.runner.open()

    def context(self, id_: str) -> Context:
        return Context(id_, counters=Counters(), say=self.said.append)

    def __call__(self, batch: Batch) -> Batch:
        return self.runner.run(batch)


def frames(text: str) -> list[Frame]:
    """`a0 b0 a1`: frames of the sources a, b, a; the digits are their indices."""
    made = [Frame(word[0], int(word[1:]), int(word[1:]) / 10, 64, 48) for word in text.split()]
    for position, frame in enumerate(made):
        frame.position = position
    return made


def batch(text: str, ended: str = "", rows: tuple[int, ...] | None = None) -> Batch:
    """A batch of these frames; frame i has `rows[i]` objects whose score tells frame and object."""
    listed = frames(text)
    made = Batch(listed, sequence=5, ended=tuple(ended))
    n = len(listed)
    made.tensor = np.arange(n + 2, dtype=np.float32)[:, None] * np.ones((1, 3), np.float32)  # two rows of padding
    made.geometry = np.arange(n * 4, dtype=np.float32).reshape(n, 4)
    made.outputs = {"scores": np.arange(n + 2) * 10}
    counts = rows or (1,) * n
    parts = [
        detections([[i, k, i + 5, k + 5] for k in range(count)], score=[i + k / 10 for k in range(count)])
        for i, count in enumerate(counts)
    ]
    made.tables["detect"] = Detections.concat(parts, rows=range(n)) if n else Detections.empty()
    return made


def key(listed: list[Frame]) -> str:
    return " ".join(f"{frame.source}{frame.index}" for frame in listed)


with Collecting(Registry()):

    @stage("picky")
    class Picky(BatchStage):
        """Raises where a frame is among `bad`, or where a batch is larger than `most`."""

        bad: tuple[str, ...] = ()
        most: int = 99
        raises: Any = ZeroDivisionError

        def open(self) -> None:
            self.calls: list[str] = []

        def process(self, batch: Batch) -> Batch:
            self.calls.append(key(batch.frames))
            if len(batch) > self.most or set(key(batch.frames).split()) & set(self.bad):
                raise self.raises("no")
            table = batch.table("detect")
            batch.tables["twice"] = table.with_columns(score=table.score * 2)
            batch.outputs = {**batch.outputs, "sum": batch.tensor.sum(axis=1)[: len(batch)]}
            return batch

    @stage("numbers")
    class Numbers(StreamStage):
        """Counts the frames of each source."""

        log: Any

        def new_state(self, source: str) -> list[int]:
            self.log.append(f"new {source}")
            return []

        def process(self, batch: Batch, states: Any) -> Batch:
            for frame in batch.frames:
                states[frame.source].append(frame.index)
                frame.emit("seen", n=len(states[frame.source]))
            self.log.append(sorted(states))
            return batch

        def close(self) -> None:
            self.log.append("close")

    @stage("one_each")
    class OneEach(FrameStage):
        """Keeps count of its frames; raises on those of `bad`; drops objects below `least`."""

        log: Any
        bad: tuple[str, ...] = ()
        least: float | None = None

        def open(self) -> None:
            self.count = 0
            self.log.append("open")

        def process(self, frame: Frame) -> None:
            self.count += 1
            self.log.append((id(self), frame.source, frame.index, self.count))
            if key([frame]) in self.bad:
                raise ValueError("bad picture")
            if self.least is not None:
                frame.detections = frame.detections[frame.detections.score >= self.least]

        def close(self) -> None:
            self.log.append(f"close after {self.count}")

    @stage("writer")
    class Writer(Sink):
        """Notes what is written where; raises on those of `bad`, or in a method named in `trouble`."""

        log: Any
        path: str | None = None
        bad: tuple[str, ...] = ()
        trouble: str = ""
        raises: Any = OutputError

        def open(self) -> None:
            self.log.append(f"open {self.path}")
            self._perhaps("open")

        def write(self, frame: Frame) -> None:
            if key([frame]) in self.bad:
                raise self.raises("cannot write")
            self.log.append((self.path, key([frame]), frame.error, len(frame.detections)))

        def end(self, source: str) -> None:
            self.log.append(f"end {source} {self.path}")
            self._perhaps("end")

        def close(self) -> None:
            self.log.append(f"close {self.path}")
            self._perhaps("close")

        def _perhaps(self, where: str) -> None:
            if self.trouble == f"{where} {self.path}":
                raise self.raises(f"in {where}")


# ------------------------------------------------------------------------------------------------ batches that raise


def test_a_good_batch_goes_through_in_one_call():
    rig = Rig(Picky)
    given = batch("a0 b0 a1")
    assert rig(given) is given
    assert rig.runner.stage.calls == ["a0 b0 a1"]
    assert (rig.runner.meter.frames, rig.runner.meter.batches, rig.runner.meter.failed) == (3, 1, 0)
    assert rig.runner.meter.seconds > 0


def test_a_batch_that_raises_is_tried_frame_by_frame_and_joined():
    rig = Rig(Picky, most=1)
    given = batch("a0 b0 a1", ended="b", rows=(2, 0, 3))
    lost = Frame("b", 7, 0.0, 64, 48, error="before", position=3)
    given.failed = [lost]
    found = rig(given)
    assert rig.runner.stage.calls == ["a0 b0 a1", "a0", "b0", "a1"]
    assert found.frames == given.frames
    assert (found.sequence, found.ended, found.failed) == (5, ("b",), [lost])
    np.testing.assert_array_equal(found.tensor, given.tensor[:3])
    np.testing.assert_array_equal(found.geometry, given.geometry)
    np.testing.assert_array_equal(found.outputs["scores"], [0, 10, 20])
    np.testing.assert_array_equal(found.outputs["sum"], [0, 3, 6])
    for name, factor in (("detect", 1), ("twice", 2)):
        table, before = found.table(name), given.table("detect")
        np.testing.assert_array_equal(table.batch_row, [0, 0, 2, 2, 2])
        np.testing.assert_array_equal(table.xyxy, before.xyxy)
        np.testing.assert_array_equal(table.score, before.score * factor)
        np.testing.assert_array_equal(table.row_id, before.row_id)
    assert rig.said == []


@pytest.mark.parametrize(
    ("bad", "left", "rows"),
    [(["b0"], "a0 a1", [0, 0, 1, 1, 1]), (["a0"], "b0 a1", [0, 1, 1, 1]), (["a1", "a0"], "b0", [0])]
)  # fmt: skip
def test_frames_that_raise_leave_the_rows(bad, left, rows):
    rig = Rig(Picky, bad=tuple(bad))
    given = batch("a0 b0 a1", ended="a", rows=(2, 1, 3))
    scores = {
        key([f]): given.table("detect").score[given.table("detect").batch_row == i] for i, f in enumerate(given.frames)
    }
    positions = {key([f]): i for i, f in enumerate(given.frames)}
    found = rig(given)
    assert key(found.frames) == left
    assert sorted(key([f]) for f in found.failed) == sorted(bad)
    assert {key([f]): f.position for f in [*found.frames, *found.failed]} == positions
    assert (found.sequence, found.ended) == (5, ("a",))
    kept = [positions[name] for name in left.split()]
    np.testing.assert_array_equal(found.tensor[: len(kept)], given.tensor[kept])
    np.testing.assert_array_equal(found.geometry, given.geometry[kept])
    np.testing.assert_array_equal(found.outputs["scores"], np.array(kept) * 10)
    np.testing.assert_array_equal(found.table("twice").batch_row, rows)
    np.testing.assert_array_equal(found.table("twice").score, np.concatenate([scores[n] * 2 for n in left.split()]))
    for frame in found.failed:
        assert frame.error == (
            f"it failed on {frame.source} frame {frame.index} ({frame.pts_s:.2f} s): ZeroDivisionError: no"
        )
    assert (rig.runner.meter.failed, rig.runner.counters["frames failed"]) == (len(bad), len(bad))
    assert sorted(rig.said) == sorted(frame.error for frame in found.failed)
    assert rig.failures == []


def test_when_every_frame_fails_the_batch_goes_on_empty():
    rig = Rig(Picky, bad=("a0", "b0"))
    found = rig(batch("a0 b0", ended="a"))
    assert (found.frames, key(found.failed), found.ended, found.sequence) == ([], "a0 b0", ("a",), 5)
    assert rig(found) is found  # and later stages pass it by
    assert rig.runner.stage.calls == ["a0 b0", "a0", "b0"]


def test_on_error_stop_ends_the_run_with_stage_source_and_frame():
    rig = Rig(Picky, bad=("b3",), on_error="stop")
    found = rig(batch("a0 b3"))
    (error,) = rig.failures
    assert isinstance(error, StageError)
    assert str(error) == "it failed on b frame 3 (0.30 s): ZeroDivisionError: no"
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert (key(found.frames), key(found.failed)) == ("a0", "b3")  # what went well goes on to the outputs


def test_a_stage_that_always_fails_is_told_a_few_times():
    rig = Rig(Picky, bad=tuple(f"a{i}" for i in range(30)))
    for i in range(30):
        rig(batch(f"a{i}"))
    assert len(rig.said) == 21
    assert rig.said[-1] == "it: further frames fail; the report counts them"
    assert rig.runner.meter.failed == 30


@pytest.mark.parametrize("kind", [Picky, OneEach])
def test_errors_of_the_program_itself_are_no_frames_fault(kind):
    options = {"raises": SourceError} if kind is Picky else {"log": []}
    rig = Rig(kind, bad=("a0",), **options)
    if kind is OneEach:
        rig(batch("a0"))
        assert rig.runner.meter.failed == 1
    else:
        with pytest.raises(SourceError):
            rig(batch("a0 b0"))
        assert rig.runner.stage.calls == ["a0 b0"]


def test_every_kind_of_stage_knows_itself_and_its_counters_on_each_frame():
    for kind, options in ((Picky, {}), (Numbers, {"log": []}), (OneEach, {"log": []}), (Writer, {"log": []})):
        rig = Rig(kind, **options)
        given = batch("a0")
        given.failed = [Frame("a", 1, 0.0, 64, 48, error="bad", position=1)]
        rig(given)
        for frame in given.frames + (given.failed if kind is Writer else []):
            assert frame.stage == "it"
            assert frame.counters is rig.runner.counters


# -------------------------------------------------------------------------------------------------- frame by frame


def test_a_frame_stage_has_an_instance_a_source_closed_at_its_end():
    log: Log = []
    rig = Rig(OneEach, log=log)
    assert log == []  # made when the first frame comes
    rig(batch("a0 b0 a1"))
    calls = [entry for entry in log if isinstance(entry, tuple)]
    assert [entry[1:] for entry in calls] == [("a", 0, 1), ("b", 0, 1), ("a", 1, 2)]
    assert len({entry[0] for entry in calls}) == 2
    assert log.count("open") == 2
    rig(batch("a2", ended="a"))
    assert log[-1] == "close after 3"
    assert not any(entry == "close after 1" for entry in log)
    rig.runner.close()
    assert [entry for entry in log if str(entry).startswith("close")] == ["close after 3", "close after 1"]
    rig.runner.close()
    assert sum(str(entry).startswith("close") for entry in log) == 2


def test_what_a_frame_stage_changes_becomes_the_batchs_table():
    rig = Rig(OneEach, log=[], least=0.1)
    given = batch("a0 b0 a1", rows=(2, 0, 2))
    found = rig(given)
    np.testing.assert_allclose(found.table("detect").score, [0.1, 2.0, 2.1])
    np.testing.assert_array_equal(found.table("detect").batch_row, [0, 2, 2])
    np.testing.assert_array_equal(found.table("detect").row_id, [1, 0, 1])


def test_a_table_that_nothing_changes_stays_the_same_object():
    rig = Rig(OneEach, log=[])
    given = batch("a0 b0")
    table = given.table("detect")
    assert rig(given).table("detect") is table


def test_a_frame_that_fails_in_a_frame_stage_costs_the_others_nothing():
    log: Log = []
    rig = Rig(OneEach, log=log, bad=("b0",), least=0.0)
    found = rig(batch("a0 b0 a1", rows=(1, 2, 3)))
    assert [entry[1:3] for entry in log if isinstance(entry, tuple)] == [("a", 0), ("b", 0), ("a", 1)]  # no second try
    assert (key(found.frames), key(found.failed)) == ("a0 a1", "b0")
    np.testing.assert_array_equal(found.table("detect").batch_row, [0, 1, 1, 1])
    stopping = Rig(OneEach, log=[], bad=("b0",), on_error="stop")
    stopping(batch("a0 b0"))
    assert ["bad picture" in str(error) for error in stopping.failures] == [True]


def test_a_stream_stages_state_is_made_once_and_dropped_with_its_source():
    log: Log = []
    rig = Rig(Numbers, log=log)
    first = rig(batch("a0 b0 a1"))
    assert [frame.events[0].data["n"] for frame in first.frames] == [1, 1, 2]
    second = rig(batch("a2", ended="a"))
    assert second.frames[0].events[0].data["n"] == 3
    rig(batch("b1", ended="ab"))  # told twice: no harm
    assert sorted(rig.runner.states) == []
    rig(batch("a9"))  # a source of that name again begins anew
    assert log == ["new a", "new b", ["a", "b"], ["a", "b"], ["b"], "new a", ["a"]]
    rig.runner.close()
    assert log[-1] == "close"


# ------------------------------------------------------------------------------------------------------------ sinks


def test_a_sink_has_an_instance_a_path():
    log: Log = []
    rig = Rig(Writer, log=log, path="out/{source}.txt")
    assert log == []
    rig(batch("a0 b0 a1"))
    rig(batch("b1", ended="a"))
    rig.runner.close()
    assert log == [
        "open out/a.txt", ("out/a.txt", "a0", None, 1), "open out/b.txt", ("out/b.txt", "b0", None, 1),
        ("out/a.txt", "a1", None, 1), ("out/b.txt", "b1", None, 1), "end a out/a.txt", "close out/a.txt",
        "close out/b.txt",
    ]  # fmt: skip


@pytest.mark.parametrize("path", ["one.txt", "-", None])
def test_a_sink_of_all_sources_is_opened_first_and_closed_with_the_run(path):
    log: Log = []
    rig = Rig(Writer, log=log, **({} if path is None else {"path": path}))
    assert log == [f"open {path}"]  # before any frame: a folder that cannot be written is known early
    rig(batch("a0 b0", ended="a"))
    assert f"close {path}" not in log
    rig(batch("b1", ended="b"))
    rig(batch("c0", ended="c"))  # one that came while the pipeline ran
    assert log[-1] == f"end c {path}"
    rig.runner.close()
    assert log[-1] == f"close {path}"
    assert (log.count(f"open {path}"), log.count(f"close {path}")) == (1, 1)


def test_failed_frames_are_written_too_in_order():
    log: Log = []
    rig = Rig(Writer, log=log)
    given = batch("a0 a2 b0")
    for position, frame in zip((0, 2, 3), given.frames, strict=True):
        frame.position = position
    given.failed = [
        Frame("b", 9, 0.0, 64, 48, error="late", position=4),
        Frame("a", 1, 0.1, 64, 48, error="broken", position=1),
    ]
    assert rig(given) is given
    assert [entry[1:3] for entry in log[1:]] == [
        ("a0", None), ("a1", "broken"), ("a2", None), ("b0", None), ("b9", "late")
    ]  # fmt: skip


def test_a_batch_of_failed_frames_alone_is_written_and_ends_its_sources():
    log: Log = []
    rig = Rig(Writer, log=log, path="{source}")
    given = Batch([], failed=[Frame("a", 1, 0.1, 64, 48, error="broken")], ended=("a",))
    rig(given)
    assert log == ["open a", ("a", "a1", "broken", 0), "end a a", "close a"]


@pytest.mark.parametrize("alone", [True, False])
def test_a_failed_frame_that_cannot_be_written_either_is_counted_and_told(alone):
    log: Log = []
    rig = Rig(Writer, log=log, bad=("b9",), raises=RuntimeError)
    lost = Frame("b", 9, 0.9, 64, 48, error="late", position=3)
    found = rig(Batch([], failed=[lost]) if alone else dataclasses.replace(batch("a0 a1"), failed=[lost]))
    assert [entry[1] for entry in log[1:]] == ([] if alone else ["a0", "a1"])
    assert found.failed == [lost]
    assert lost.error == "late"  # the first reason stays
    assert (rig.runner.meter.failed, rig.runner.counters["frames failed"]) == (1, 1)
    assert rig.said == ["it failed on b frame 9 (0.90 s): RuntimeError: cannot write"]


def test_a_frame_that_cannot_be_written_is_marked_and_the_rest_written():
    log: Log = []
    rig = Rig(Writer, log=log, bad=("b0",), raises=RuntimeError)
    found = rig(batch("a0 b0 a1"))
    assert [entry[1] for entry in log[1:]] == ["a0", "a1"]
    assert (key(found.frames), key(found.failed)) == ("a0 a1", "b0")
    assert rig.failures == []


def test_a_file_that_cannot_be_written_is_given_up_and_the_others_are_written():
    log: Log = []
    rig = Rig(Writer, log=log, path="{source}", bad=("a0",))
    rig(batch("a0 b0 a1"))
    rig(batch("b1 a2"))
    assert [str(error) for error in rig.failures] == ["cannot write"]
    assert [entry[1] for entry in log if isinstance(entry, tuple)] == ["b0", "b1"]
    rig.runner.close()
    assert {"close a", "close b"} <= set(log)


@pytest.mark.parametrize("where", ["end", "close"])
def test_a_file_that_cannot_be_ended_stops_no_other(where):
    log: Log = []
    rig = Rig(Writer, log=log, path="{source}", trouble=f"{where} a")
    rig(batch("a0 b0", ended="a"))
    rig(batch("b1", ended="b"))
    rig.runner.close()
    assert next(str(error) for error in rig.failures if isinstance(error, OutputError)) == f"in {where}"
    assert {"close a", "close b", "end b b"} <= set(log)
    assert [entry[1] for entry in log if isinstance(entry, tuple)] == ["a0", "b0", "b1"]


@pytest.mark.parametrize("raises", [OutputError, RuntimeError])
def test_close_always_runs_for_every_path(raises):
    log: Log = []
    rig = Rig(Writer, log=log, path="{source}", trouble="close a", raises=raises)
    rig(batch("a0 b0"))
    rig.runner.close()
    assert log[-2:] == ["close a", "close b"]
    assert [type(error) for error in rig.failures] == [OutputError]


# --------------------------------------------------------------------------------------------------------- branches


def fork_pair(change: Callable[[Batch], Any]) -> tuple[Batch, Batch]:
    given = batch("a0 b0", ended="b", rows=(2, 1))
    other = given.fork()
    change(other)
    return given, other


def test_equal_tables_are_one_where_branches_meet():
    one, other = fork_pair(lambda b: None)
    table = one.table("detect")
    found = merge_batches([one, other])
    assert found.table("detect") is table
    assert list(found.tables) == ["detect"]
    assert (found.sequence, found.ended, key(found.frames)) == (5, ("b",), "a0 b0")


def test_columns_and_tables_of_every_branch_are_there():
    def change(b: Batch) -> None:
        table = b.table("detect")
        b.tables["detect"] = table[1:].with_columns(speed=np.array([7, 8], np.float32))
        b.tables["faces"] = detections([[1, 1, 2, 2]])

    one, other = fork_pair(change)
    found = merge_batches([one, other])
    np.testing.assert_array_equal(found.table("detect").extra["speed"], [np.nan, 7, 8])
    np.testing.assert_array_equal(found.table("detect").batch_row, [0, 0, 1])
    assert list(found.tables) == ["detect", "faces"]


def test_events_from_above_the_branches_are_kept_once():
    given = batch("a0")
    given.frames[0].emit("above")
    forks = [given, given.fork(), given.fork()]
    for number, one in enumerate(forks[1:]):
        one.frames[0].emit("own", n=number)
    found = merge_batches(forks)
    assert [event.kind for event in found.frames[0].events] == ["above", "own", "own"]


def test_a_frame_that_failed_in_one_branch_has_failed_where_they_meet():
    given = batch("a0 b0 a1", ended="a", rows=(1, 2, 1))
    given.ready = ready = object()
    forks = [given, given.fork(), given.fork()]
    found = merge_batches([forks[0], Rig(Picky, bad=("b0",))(forks[1]), Rig(Picky, bad=("b0", "a1"))(forks[2])])
    assert (key(found.frames), sorted(key([f]) for f in found.failed)) == ("a0", ["a1", "b0"])
    assert all(frame.error for frame in found.failed)
    np.testing.assert_array_equal(found.table("detect").batch_row, [0])
    assert (found.ended, found.sequence) == (("a",), 5)
    assert found.ready is ready  # whoever reads on must still wait for the device


def test_a_frame_that_failed_keeps_the_events_of_every_branch():
    given = batch("a0 b0 a1", rows=(1, 1, 1))
    given.frames[1].emit("above")
    forks = [given, given.fork(), given.fork(), given.fork()]
    for number, one in enumerate(forks[1:]):
        for frame in one.frames:
            frame.emit("own", n=number)
    broken = [Rig(Picky, bad=("b0",))(one) for one in forks[1:3]]
    found = merge_batches([forks[0], *broken, forks[3]])
    (lost,) = found.failed
    assert lost.error
    told = [(event.kind, event.data.get("n")) for event in lost.events]
    assert sorted(told, key=str) == sorted([("above", None), ("own", 0), ("own", 1), ("own", 2)], key=str)
    assert [[event.data.get("n") for event in frame.events] for frame in found.frames] == [[0, 1, 2]] * 2


def test_when_the_branches_have_lost_every_frame_between_them():
    given = batch("a0 b0", ended="ab")
    other = given.fork()
    found = merge_batches([Rig(Picky, bad=("b0",))(given), Rig(Picky, bad=("a0",))(other)])
    assert (found.frames, sorted(key([f]) for f in found.failed), found.ended) == ([], ["a0", "b0"], ("a", "b"))
