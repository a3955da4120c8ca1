"""One stage at a time: what it raises, whose state it keeps, when it is opened and closed."""

import re

import numpy as np
import pytest
from support.one_stage import Log, Numbers, OneEach, Picky, Rig, batch, key

from streamkit.config.plan import Node, RunOptions
from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Frame, FrameState
from streamkit.core.errors import OutputError, SourceError, StageError
from streamkit.core.stage import BatchStage, Context, FrameStage, StreamStage
from streamkit.runtime.execution.runners import runner

# ------------------------------------------------------------------------------------------------ batches that raise


def test_a_batch_without_errors_is_processed_in_a_single_call():
    rig = Rig(Picky)
    input_batch = batch("a0 b0 a1")
    output_batch = rig(input_batch)
    assert (output_batch.frames, output_batch.sequence) == (input_batch.frames, input_batch.sequence)
    assert all(
        left_frame is input_frame
        for left_frame, input_frame in zip(output_batch.frames, input_batch.frames, strict=True)
    )
    assert rig.runner.stage.calls == ["a0 b0 a1"]
    assert (rig.runner.meter.frames, rig.runner.meter.batches, rig.runner.meter.failed) == (3, 1, 0)
    assert rig.runner.meter.seconds > 0


def test_a_failed_batch_is_retried_frame_by_frame_and_joined():
    rig = Rig(Picky, most=1)
    input_batch = batch("a0 b0 a1", ended="b", rows=(2, 0, 3))
    lost = Frame("b", 7, 0.0, 64, 48, error="before", _state=FrameState(position=3))
    input_batch.failed = [lost]
    output_batch = rig(input_batch)
    assert rig.runner.stage.calls == ["a0 b0 a1", "a0", "b0", "a1"]
    assert output_batch.frames == input_batch.frames
    assert (output_batch.sequence, output_batch.ended, output_batch.failed) == (5, ("b",), [lost])
    np.testing.assert_array_equal(output_batch.tensor, input_batch.tensor[:3])
    np.testing.assert_array_equal(output_batch.geometry, input_batch.geometry)
    np.testing.assert_array_equal(output_batch.outputs["scores"], [0, 10, 20])
    np.testing.assert_array_equal(output_batch.outputs["sum"], [0, 3, 6])
    for name, factor in (("detect", 1), ("twice", 2)):
        table = output_batch.table(name)
        before = input_batch.table("detect")
        np.testing.assert_array_equal(table.batch_row, [0, 0, 2, 2, 2])
        np.testing.assert_array_equal(table.xyxy, before.xyxy)
        np.testing.assert_array_equal(table.score, before.score * factor)
        np.testing.assert_array_equal(table.row_id, before.row_id)
    assert rig.logged == []


class Anew(BatchStage):
    """Makes a batch of its own, with frames of its own that failed."""

    bad: int = 0
    keeps: bool = False

    def process(self, batch):
        well = batch.frames[self.bad :]
        bad = batch.frames[: self.bad]
        for frame in bad:
            frame.error = "it"
        return Batch(list(well), failed=[*(batch.failed if self.keeps else []), *bad])


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_new_batch_from_a_stage_keeps_the_frames_that_failed_earlier(bad, keeps):
    rig = Rig(Anew)
    rig.runner.isolated = False  # as a stage of streamkit's own
    rig.runner.stage.bad = bad
    rig.runner.stage.keeps = keeps
    input_batch = batch("a0 b0 a1", ended="b")
    before = [
        Frame("b", 7, 0.0, 64, 48, error="before", _state=FrameState(position=3)),
        Frame("a", 8, 0.0, 64, 48, error="too"),
    ]
    input_batch.failed = list(before)
    frames = list(input_batch.frames)
    output_batch = rig(input_batch)
    assert [id(frame) for frame in output_batch.frames] == [id(frame) for frame in frames[bad:]]
    assert [id(frame) for frame in output_batch.failed] == [id(frame) for frame in [*before, *frames[:bad]]]
    assert (output_batch.sequence, output_batch.ended) == (5, ("b",))


@pytest.mark.parametrize(
    ("bad", "left", "rows"),
    [(["b0"], "a0 a1", [0, 0, 1, 1, 1]), (["a0"], "b0 a1", [0, 1, 1, 1]), (["a1", "a0"], "b0", [0])],
)
def test_failed_frames_are_removed_with_their_rows(bad, left, rows):
    rig = Rig(Picky, bad=tuple(bad))
    input_batch = batch("a0 b0 a1", ended="a", rows=(2, 1, 3))
    scores = {
        key([f]): input_batch.table("detect").score[input_batch.table("detect").batch_row == i]
        for i, f in enumerate(input_batch.frames)
    }
    positions = {key([f]): i for i, f in enumerate(input_batch.frames)}
    output_batch = rig(input_batch)
    assert key(output_batch.frames) == left
    assert sorted(key([f]) for f in output_batch.failed) == sorted(bad)
    assert {key([f]): f._state.position for f in [*output_batch.frames, *output_batch.failed]} == positions
    assert (output_batch.sequence, output_batch.ended) == (5, ("a",))
    left_positions = [positions[name] for name in left.split()]
    np.testing.assert_array_equal(output_batch.tensor[: len(left_positions)], input_batch.tensor[left_positions])
    np.testing.assert_array_equal(output_batch.geometry, input_batch.geometry[left_positions])
    np.testing.assert_array_equal(output_batch.outputs["scores"], np.array(left_positions) * 10)
    np.testing.assert_array_equal(output_batch.table("twice").batch_row, rows)
    np.testing.assert_array_equal(
        output_batch.table("twice").score, np.concatenate([scores[n] * 2 for n in left.split()])
    )
    for frame in output_batch.failed:
        place = f"{frame.source} frame {frame.index} ({frame.pts_s:.2f} s)"
        assert re.fullmatch(
            re.escape(f"it failed on {place}: ZeroDivisionError: no") + r" \(one_stage\.py:\d+\)", frame.error
        )
    assert (rig.runner.meter.failed, rig.runner.counters["frames failed"]) == (len(bad), len(bad))
    assert sorted(rig.logged) == sorted(frame.error for frame in output_batch.failed)
    assert rig.failures == []


def test_a_batch_whose_frames_all_fail_continues_empty():
    rig = Rig(Picky, bad=("a0", "b0"))
    output_batch = rig(batch("a0 b0", ended="a"))
    assert (output_batch.frames, key(output_batch.failed), output_batch.ended, output_batch.sequence) == (
        [],
        "a0 b0",
        ("a",),
        5,
    )
    assert rig(output_batch) is output_batch  # and later stages pass it by
    assert rig.runner.stage.calls == ["a0 b0", "a0", "b0"]


@pytest.mark.parametrize("bad", [("a0",), ("b0",), ("a1", "b0"), ("a0", "b0", "a1")])
def test_a_failed_frame_is_listed_after_earlier_failures(bad):
    rig = Rig(Picky, bad=bad)
    input_batch = batch("a0 b0 a1", ended="b")
    input_batch.failed = [Frame("b", 7, 0.0, 64, 48, error="before", _state=FrameState(position=3))]
    output_batch = rig(input_batch)
    assert [key([frame]) for frame in output_batch.failed] == ["b7", *sorted(bad, key="a0 b0 a1".index)]
    assert len(output_batch.frames) == 3 - len(bad)
    assert (output_batch.failed[0].error, output_batch.ended, rig.runner.counters["frames failed"]) == (
        "before",
        ("b",),
        len(bad),
    )


class Tuned(FrameStage):
    """Has an option that may change while it runs, and refuses what is too large."""

    level: int = 1
    bad: str = ""

    def open(self):
        self.changes = []

    def changed(self):
        if self.level > 9:
            raise ValueError("too large")
        self.changes.append(self.level)

    def process(self, frame):
        frame.emit("level", level=self.level)


def test_changed_options_reach_every_instance_before_the_next_batch():
    rig = Rig(Tuned)
    rig(batch("a0 b0"))
    rig.runner.change({"level": 4})
    assert {stage.level for stage in rig.runner.instances()} == {1}
    output_batch = rig(batch("a1 b1"))
    assert [event.data["level"] for frame in output_batch.frames for event in frame.events] == [4, 4]
    assert [(stage.level, stage.changes) for stage in rig.runner.instances()] == [(4, [4])] * 2


@pytest.mark.parametrize("on_error", ["skip", "stop"])
def test_options_that_a_stage_rejects_are_restored_in_every_instance(on_error):
    rig = Rig(Tuned, on_error=on_error)
    refused = []
    rig(batch("a0 b0"))
    rig.runner.change({"level": 10}, lambda: refused.append(True))
    rig(batch("a1 b1"))
    assert [stage.level for stage in rig.runner.instances()] == [1, 1]
    assert refused == [True]
    assert rig.runner.meter.other_errors == 1
    messages = [str(error) for error in rig.failures] if on_error == "stop" else rig.logged
    assert len(messages) == 1
    assert "as level changed; the old values are kept: ValueError: too large" in messages[0]
    assert bool(rig.failures) == (on_error == "stop")


def test_a_stage_is_named_only_while_it_opens():
    opening_texts = []

    class Opens(BatchStage, name="opens", reads="detections"):
        """Notes how its runner names it."""

        def open(self) -> None:
            self.context.runtime.opening_note = "compiling"
            opening_texts.append(stage_runner.opening_text)

    node = Node("it", Opens, {}, [], RunOptions(), None)
    stage_runner = runner(node, lambda id_: Context(id_, counters=Counters()), pytest.fail, ["a"])
    opening_texts.append(stage_runner.opening_text)
    stage_runner.start()
    opening_texts.append(stage_runner.opening_text)
    assert opening_texts == ["", "it (compiling)", ""]


def test_on_error_stop_ends_the_run_with_stage_source_and_frame():
    rig = Rig(Picky, bad=("b3",), on_error="stop")
    output_batch = rig(batch("a0 b3"))
    (error,) = rig.failures
    assert isinstance(error, StageError)
    assert str(error).startswith("it failed on b frame 3 (0.30 s): ZeroDivisionError: no (one_stage.py:")
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert (key(output_batch.frames), key(output_batch.failed)) == ("a0", "b3")  # what went well goes on to the outputs


def test_errors_of_a_stage_are_logged_a_limited_number_of_times():
    rig = Rig(Picky, bad=tuple(f"a{i}" for i in range(30)))
    for i in range(30):
        rig(batch(f"a{i}"))
    assert len(rig.logged) == 21
    assert rig.logged[-1] == "it: further frames fail; they are counted in the report"
    assert rig.runner.meter.failed == 30


@pytest.mark.parametrize("kind", [Picky, OneEach])
def test_errors_of_streamkit_in_a_batch_stage_are_raised(kind):
    options = {"raises": SourceError} if kind is Picky else {"log": []}
    rig = Rig(kind, bad=("a0",), **options)
    if kind is OneEach:
        rig(batch("a0"))
        assert rig.runner.meter.failed == 1
    else:
        with pytest.raises(SourceError):
            rig(batch("a0 b0"))
        assert rig.runner.stage.calls == ["a0 b0"]


# -------------------------------------------------------------------------------------------------- frame by frame


def test_a_frame_stage_has_an_instance_per_source_closed_at_its_end():
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


def test_changes_of_a_frame_stage_are_in_the_table_of_the_batch():
    rig = Rig(OneEach, log=[], least=0.1)
    input_batch = batch("a0 b0 a1", rows=(2, 0, 2))
    output_batch = rig(input_batch)
    np.testing.assert_allclose(output_batch.table("detect").score, [0.1, 2.0, 2.1])
    np.testing.assert_array_equal(output_batch.table("detect").batch_row, [0, 2, 2])
    np.testing.assert_array_equal(output_batch.table("detect").row_id, [1, 0, 1])


def test_a_table_without_changes_stays_equal():
    rig = Rig(OneEach, log=[])
    input_batch = batch("a0 b0")
    table = input_batch.table("detect")
    output_batch = rig(input_batch).table("detect")
    for name in ("xyxy", "score", "class_id", "batch_row", "row_id"):
        np.testing.assert_array_equal(getattr(output_batch, name), getattr(table, name))


def test_a_frame_failed_in_a_frame_stage_is_not_retried_and_the_others_continue():
    log: Log = []
    rig = Rig(OneEach, log=log, bad=("b0",), least=0.0)
    output_batch = rig(batch("a0 b0 a1", rows=(1, 2, 3)))
    assert [entry[1:3] for entry in log if isinstance(entry, tuple)] == [("a", 0), ("b", 0), ("a", 1)]  # no second try
    assert (key(output_batch.frames), key(output_batch.failed)) == ("a0 a1", "b0")
    np.testing.assert_array_equal(output_batch.table("detect").batch_row, [0, 1, 1, 1])
    stopping = Rig(OneEach, log=[], bad=("b0",), on_error="stop")
    stopping(batch("a0 b0"))
    assert ["bad picture" in str(error) for error in stopping.failures] == [True]


def test_the_state_of_a_stream_stage_is_created_once_and_dropped_with_its_source():
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


class Ending(StreamStage):
    """Notes the sources that end, with what it kept of each."""

    def new_state(self, source):
        return [source]

    def process(self, batch, states):
        return batch

    def end(self, source, state):
        self.ended = [*getattr(self, "ended", []), (source, state)]


def test_a_stream_stage_gets_the_end_of_a_source_once_with_its_state():
    rig = Rig(Ending)
    rig(batch("a0 b0", ended="b"))
    rig(batch("a1", ended="a"))
    assert rig.runner.stage.ended == [("b", ["b"]), ("a", ["a"])]
    assert rig.runner.states == {}


def test_a_frame_failed_in_a_built_in_stage_keeps_its_input_table():
    class Halving(OneEach):
        def process(self, frame):
            frame.detections = frame.detections[:0]
            super().process(frame)

    rig = Rig(Halving, log=[], bad=("b0",))
    rig.runner.isolated = False
    input_batch = batch("a0 b0 a1", rows=(1, 2, 1))
    failed = input_batch.frames[1]
    rig(input_batch)
    assert len(failed.tables["detect"]) == 2


STOP = "".join(["st", "op"])  # equal to the word and another object, as from a file


class Acts(BatchStage):
    """Calls `action` with each batch."""

    action: object = None

    def process(self, batch):
        returned = self.action(batch)
        return batch if returned is None else returned


def acting(action, **options) -> Rig:
    rig = Rig(Acts, **options)
    rig.runner.stage.action = action
    return rig


def test_an_empty_batch_is_not_processed_and_ends_its_sources():
    called = []
    ended = []
    rig = acting(called.append)
    rig.runner.end = ended.append
    output_batch = rig(Batch([], ended=("a", "b")))
    assert (called, ended, output_batch.ended) == ([], ["a", "b"], ("a", "b"))
    assert (rig.runner.meter.batches, rig.runner.meter.seconds) == (0, 0)


def test_an_output_error_ends_the_run_and_later_batches_skip_the_stage():
    error = OutputError("full")
    called = []

    def action(batch):
        called.append(len(batch))
        raise error

    rig = acting(action)
    input_batch = batch("a0 b0")
    assert rig(input_batch) is input_batch
    assert rig.runner.dead
    assert rig(batch("a1")).frames
    assert (called, rig.failures) == ([2], [error])


def test_a_failed_frame_alone_in_its_batch_is_not_retried():
    calls = []

    def action(batch):
        calls.append(key(batch.frames))
        raise ValueError("no")

    rig = acting(action)
    rig.runner.snapshot = lambda batch: pytest.fail("nothing is restored for a single frame")
    input_batch = batch("a0")
    frame = input_batch.frames[0]
    output_batch = rig(input_batch)
    assert (output_batch.frames, output_batch.failed, calls) == ([], [frame], ["a0"])
    assert rig.runner.meter.failed == 1


@pytest.mark.parametrize("text", ["a0 b0", "a0 b0 a1"])
def test_events_of_a_failed_batch_are_removed_before_the_retry(text):
    def action(batch):
        for frame in batch.frames:
            frame.emit("seen")
        if len(batch) > 1:
            raise ValueError("no")

    output_batch = acting(action)(batch(text))
    assert key(output_batch.frames) == text
    assert [len(frame.events) for frame in output_batch.frames] == [1] * len(output_batch.frames)


def test_the_error_of_a_stage_that_returns_no_batch_states_the_rule():
    (failed,) = acting(lambda batch: batch.frames)(batch("a0")).failed
    message = "it failed on a frame 0 (0.00 s): TypeError: Acts.process must return a Batch, got list"
    assert failed.error.startswith(f"{message} (test_stage_runner.py:")


@pytest.mark.parametrize(
    ("input_event", "output_event", "wanted"), [("g", None, "g"), (None, "m", "m"), ("g", "m", "m")]
)
def test_a_new_batch_without_a_ready_event_gets_that_of_its_input(input_event, output_event, wanted):
    rig = acting(lambda batch: Batch(list(batch.frames), ready=output_event))
    before = batch("a0 b0")
    before.ready = input_event
    assert rig(before).ready == wanted


def test_an_error_has_the_line_of_plugin_code_only():
    def action(batch):
        raise ValueError("no")

    line = action.__code__.co_firstlineno + 1
    for isolated, at in ((True, f" (test_stage_runner.py:{line})"), (False, "")):
        rig = acting(action)
        rig.runner.isolated = isolated
        (failed,) = rig(batch("a0")).failed
        assert failed.error == f"it failed on a frame 0 (0.00 s): ValueError: no{at}"


@pytest.mark.parametrize("on_error", ["skip", STOP])
def test_an_error_outside_of_frames_is_counted_and_logged_or_ends_the_run(on_error):
    rig = Rig(Acts, on_error=on_error)
    error = ValueError("no")
    for _ in range(2):
        rig.runner.report_error(error, " as it slept")
    assert (rig.runner.meter.other_errors, rig.runner.counters["errors outside of frames"]) == (2, 2)
    assert [error.__cause__ for error in rig.failures] == ([] if on_error == "skip" else [error, error])
    assert len(rig.logged) == (on_error == "skip")
