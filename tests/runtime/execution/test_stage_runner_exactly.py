"""A runner step by step: how it opens, what it counts and marks, and what it does with each error."""

from types import SimpleNamespace

import pytest
from support.one_stage import Rig, batch, frames, key

from streamkit.core.data import Batch
from streamkit.core.errors import OutputError, StreamkitError
from streamkit.core.stage import BatchStage, FrameStage
from streamkit.runtime.execution import stage_runner
from streamkit.runtime.execution.isolation import COPIED

STOP = "".join(["st", "op"])  # equal to the word and another object, as from a file


class Acts(BatchStage):
    """Calls `what` with each batch."""

    what: object = None

    def process(self, batch):
        returned = self.what(batch)
        return batch if returned is None else returned


class Opens(FrameStage):
    """Notes that it is opened, and raises."""

    opened = 0
    error: object = RuntimeError("cannot open")

    def open(self):
        type(self).opened += 1
        raise self.error

    def process(self, frame):
        """Never called."""


def acting(what, **options) -> Rig:
    rig = Rig(Acts, **options)
    rig.runner.stage.what = what
    return rig


# ---------------------------------------------------------------------------------------------------------- opening


@pytest.mark.parametrize("in_place", [True, False])
def test_an_instance_knows_whether_it_may_draw_on_its_surfaces(in_place):
    rig = Rig(Acts)
    rig.runner.node.in_place = in_place
    assert rig.runner.make().context.runtime.draws_in_place is in_place


@pytest.mark.parametrize("line", [True, False])
def test_an_instance_that_cannot_be_opened_is_tried_once_and_every_frame_has_the_reason(monkeypatch, line):
    kind = type("Shut", (Opens,), {"opened": 0})
    if not line:
        monkeypatch.setattr(stage_runner, "line_of", lambda error, kind: "")
    rig = Rig(kind)
    errors = [frame.error for index in range(3) for frame in rig(batch(f"a{index}")).failed]
    at = f" (test_stage_runner_exactly.py:{Opens.open.__code__.co_firstlineno + 2})" if line else ""
    assert errors == [
        f"it failed on a frame {index} (0.{index}0 s): {again}RuntimeError: cannot open{at}"
        for index, again in enumerate(["", "NotOpenedError: ", "NotOpenedError: "])
    ]
    assert kind.opened == 1
    rig(batch("a3", ended="a"))
    rig(batch("a4"))  # a source of that name again
    assert kind.opened == 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (None, None),
        (SystemExit(3), "it failed as it was opened: SystemExit: 3 (test_stage_runner_exactly.py:"),
        (StreamkitError("not there"), "not there"),
    ],
)
def test_a_stage_is_opening_while_it_is_opened_and_not_afterwards(error, message):
    runner, seen, instance = Rig(Acts).runner, [], Acts()

    def open_():
        seen.append(runner.opening)
        if error is not None:
            raise error

    instance.open, runner.make = open_, lambda **replaced: instance
    runner._instances.clear()
    assert not runner.opening
    if error is None:
        runner.start()
    else:
        with pytest.raises(StreamkitError) as caught:
            runner.start()
        assert str(caught.value).startswith(message)
    assert (seen, runner.opening) == ([True], False)


# ---------------------------------------------------------------------------------------------------------- batches


def test_the_time_of_all_calls_is_added_up(monkeypatch):
    ticks = iter([2.0, 10.5, 3.0, 7.0])
    clock = SimpleNamespace(perf_counter=lambda: next(ticks), monotonic=lambda: 1.25)
    monkeypatch.setattr(stage_runner, "time", clock)
    calls = []
    rig = acting(lambda batch: calls.append(rig.runner.call[0]))
    assert rig.runner.call is None
    rig(batch("a0"))
    assert rig.runner.meter.seconds == 8.5
    rig(batch("a1 a2"))
    meter = rig.runner.meter
    assert (meter.seconds, meter.batches, meter.frames) == (12.5, 2, 3)
    assert (calls, rig.runner.call) == ([1.25] * 2, None)


def test_frames_know_the_stage_and_its_counters_while_it_runs():
    rig = acting(lambda batch: [frame.emit("seen") for frame in batch.frames] and None)
    output_batch = rig(batch("a0 b0"))
    assert [frame.events[0].stage for frame in output_batch.frames] == ["it", "it"]
    assert all(frame._state.counters is rig.runner.counters for frame in output_batch.frames)


def test_an_empty_batch_is_not_processed_and_ends_its_sources():
    called, ended = [], []
    rig = acting(called.append)
    rig.runner.end = ended.append
    output_batch = rig(Batch([], ended=("a", "b")))
    assert (called, ended, output_batch.ended) == ([], ["a", "b"], ("a", "b"))
    assert (rig.runner.meter.batches, rig.runner.meter.seconds) == (0, 0)


def test_an_output_that_cannot_be_written_ends_the_run_and_batches_skip_the_stage():
    error, called = OutputError("full"), []

    def what(batch):
        called.append(len(batch))
        raise error

    rig = acting(what)
    input_batch = batch("a0 b0")
    assert rig(input_batch) is input_batch
    assert rig.runner.dead
    assert rig(batch("a1")).frames
    assert (called, rig.failures) == ([2], [error])


def test_copied_surfaces_are_counted_where_there_are_any():
    rig = Rig(Acts)
    rig.runner.count_copies(0)
    assert COPIED not in rig.runner.counters.values
    rig.runner.count_copies(3)
    rig.runner.count_copies(2)
    assert rig.runner.counters[COPIED] == 5


def test_a_single_frame_that_fails_leaves_the_batch_and_is_not_tried_again():
    calls = []

    def what(batch):
        calls.append(key(batch.frames))
        raise ValueError("no")

    rig = acting(what)
    rig.runner.snapshot = lambda batch: pytest.fail("nothing is restored for a single frame")
    input_batch = batch("a0")
    frame = input_batch.frames[0]
    output_batch = rig(input_batch)
    assert (output_batch.frames, output_batch.failed, calls) == ([], [frame], ["a0"])
    assert rig.runner.meter.failed == 1


@pytest.mark.parametrize("text", ["a0 b0", "a0 b0 a1"])
def test_what_a_stage_has_done_before_it_raised_is_undone_before_the_second_try(text):
    def what(batch):
        for frame in batch.frames:
            frame.emit("seen")
        if len(batch) > 1:
            raise ValueError("no")

    output_batch = acting(what)(batch(text))
    assert key(output_batch.frames) == text
    assert [len(frame.events) for frame in output_batch.frames] == [1] * len(output_batch.frames)


def test_a_stage_that_returns_no_batch_is_told_what_it_must_return():
    (failed,) = acting(lambda batch: batch.frames)(batch("a0")).failed
    message = "it failed on a frame 0 (0.00 s): TypeError: Acts.process must return a Batch, got list"
    assert failed.error.startswith(f"{message} (test_stage_runner_exactly.py:")


@pytest.mark.parametrize(
    ("input_event", "output_event", "wanted"), [("g", None, "g"), (None, "m", "m"), ("g", "m", "m")]
)
def test_a_new_batch_is_ready_with_its_own_event_or_with_that_of_the_old_one(input_event, output_event, wanted):
    rig = acting(lambda batch: Batch(list(batch.frames), ready=output_event))
    before = batch("a0 b0")
    before.ready = input_event
    assert rig(before).ready == wanted


def test_a_batch_without_the_frames_that_failed_has_its_event_and_its_number():
    def what(batch):
        if any(frame.source == "a" for frame in batch.frames):
            raise ValueError("no")

    for text, left in (("a0", ""), ("a0 b0", "b0")):
        input_batch = batch(text, ended="b")
        input_batch.ready = "event"
        rig = acting(what)
        marked = rig.runner.failed(input_batch, {0: ValueError("no")})
        assert (key(marked.frames), marked.ready, marked.sequence, marked.ended) == (left, "event", 5, ("b",))


# ----------------------------------------------------------------------------------------------------------- errors


def test_the_line_of_an_error_is_told_of_plugins_only():
    def what(batch):
        raise ValueError("no")

    line = what.__code__.co_firstlineno + 1
    for isolated, at in ((True, f" (test_stage_runner_exactly.py:{line})"), (False, "")):
        rig = acting(what)
        rig.runner.isolated = isolated
        (failed,) = rig(batch("a0")).failed
        assert failed.error == f"it failed on a frame 0 (0.00 s): ValueError: no{at}"


@pytest.mark.parametrize("on_error", ["skip", STOP])
def test_an_error_outside_of_frames_is_counted_and_told_or_ends_the_run(on_error):
    rig, error = Rig(Acts, on_error=on_error), ValueError("no")
    for _ in range(2):
        rig.runner.report_error(error, " as it slept")
    assert (rig.runner.meter.other_errors, rig.runner.counters["errors outside of frames"]) == (2, 2)
    assert [error.__cause__ for error in rig.failures] == ([] if on_error == "skip" else [error, error])
    assert len(rig.logged) == (on_error == "skip")


@pytest.mark.parametrize("on_error", ["skip", STOP])
def test_a_frame_that_fails_is_told_or_ends_the_run(on_error):
    def what(batch):
        raise ValueError("no")

    rig = acting(what, on_error=on_error)
    rig(batch("a0"))
    assert (len(rig.failures), len(rig.logged)) == ((0, 1) if on_error == "skip" else (1, 0))


def test_a_source_counts_its_failures_and_keeps_the_first():
    rig = Rig(Acts)
    source = SimpleNamespace(failures=0, first_failure=None)
    listed = frames("a0 a1 a2")
    for frame in listed:
        frame._state.source_state = source
        rig.runner._frame_failed(frame, ValueError("no"))
    assert (source.failures, source.first_failure) == (3, listed[0].error)
    assert listed[0].error.startswith("it failed on a frame 0 (0.00 s): ValueError: no")
    rig.runner._frame_failed(listed[0], ValueError("again"))
    assert listed[0].error == source.first_failure


@pytest.mark.parametrize(("count", "logged_count"), [(20, 20), (21, 21), (22, 21)])
def test_the_twenty_first_frame_that_fails_is_the_last_that_is_told(count, logged_count):
    rig = Rig(Acts)
    for frame in frames(" ".join(f"a{index}" for index in range(count))):
        rig.runner._frame_failed(frame, ValueError("no"))
    assert len(rig.logged) == logged_count
    assert (rig.logged[-1] == "it: further frames fail; they are counted in the report") is (count > 20)
