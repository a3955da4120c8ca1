"""How a sink is called: an instance a path, what it may do for a whole batch, and what becomes of its errors."""

import dataclasses

import pytest
from support.one_stage import Log, Rig, Writer, batch, key

from streamkit.core.data import Batch, Frame, FrameState
from streamkit.core.errors import OutputError, StageError
from streamkit.core.stage import Collecting, Sink, default_registry, stage
from streamkit.testing.kit import frames, run_stage


def gathering(fail=False):
    """A sink that counts what it is given, and tells of it when a batch is over."""
    with Collecting(default_registry()):

        @stage("gather", writes="events")
        class Gather(Sink):
            """Gather frames."""

            def open(self) -> None:
                self.taken: list[Frame] = []
                self.batches: list[int] = []

            def write(self, frame: Frame) -> None:
                self.taken.append(frame)

            def flush(self) -> None:
                taken = self.taken
                self.taken = []
                self.batches.append(len(taken))
                if fail:
                    raise KeyError("nothing")
                for frame in taken:
                    frame.emit("gathered", batch=len(taken))

    return Gather()


def test_flush_is_called_once_after_each_batch_and_may_emit():
    sink = gathering()
    written = run_stage(sink, frames(7), batch=3)
    assert sink.batches == [3, 3, 1]
    assert [frame.events[0].data["batch"] for frame in written] == [3, 3, 3, 3, 3, 3, 1]


def test_an_error_in_flush_is_reported_and_the_batch_is_not_retried():
    sink = gathering(fail=True)
    with pytest.raises(StageError, match="gather failed as the batch was flushed: KeyError: 'nothing'"):
        run_stage(sink, frames(6), batch=3)
    assert sink.batches == [3]
    sink = gathering(fail=True)
    assert len(run_stage(sink, frames(6), batch=3, on_error="skip")) == 6
    assert sink.batches == [3, 3]


def test_a_sink_has_an_instance_per_path():
    log: Log = []
    rig = Rig(Writer, log=log, path="out/{source}.txt")
    assert log == []
    rig(batch("a0 b0 a1"))
    rig(batch("b1", ended="a"))
    rig.runner.close()
    assert log == [
        "open out/a.txt",
        ("out/a.txt", "a0", None, 1),
        "open out/b.txt",
        ("out/b.txt", "b0", None, 1),
        ("out/a.txt", "a1", None, 1),
        ("out/b.txt", "b1", None, 1),
        "end a out/a.txt",
        "close out/a.txt",
        "close out/b.txt",
    ]


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


def test_failed_frames_are_written_in_order():
    log: Log = []
    rig = Rig(Writer, log=log)
    input_batch = batch("a0 a2 b0")
    for position, frame in zip((0, 2, 3), input_batch.frames, strict=True):
        frame._state.position = position
    input_batch.failed = [
        Frame("b", 9, 0.0, 64, 48, error="late", _state=FrameState(position=4)),
        Frame("a", 1, 0.1, 64, 48, error="broken", _state=FrameState(position=1)),
    ]
    assert rig(input_batch) is input_batch
    assert [entry[1:3] for entry in log[1:]] == [
        ("a0", None),
        ("a1", "broken"),
        ("a2", None),
        ("b0", None),
        ("b9", "late"),
    ]


def test_a_batch_of_only_failed_frames_is_written_and_ends_its_sources():
    log: Log = []
    rig = Rig(Writer, log=log, path="{source}")
    input_batch = Batch([], failed=[Frame("a", 1, 0.1, 64, 48, error="broken")], ended=("a",))
    rig(input_batch)
    assert log == ["open a", ("a", "a1", "broken", 0), "end a a", "close a"]


@pytest.mark.parametrize("alone", [True, False])
def test_a_failed_frame_that_cannot_be_written_is_counted_and_reported(alone):
    log: Log = []
    rig = Rig(Writer, log=log, bad=("b9",), raises=RuntimeError)
    lost = Frame("b", 9, 0.9, 64, 48, error="late", _state=FrameState(position=3))
    output_batch = rig(Batch([], failed=[lost]) if alone else dataclasses.replace(batch("a0 a1"), failed=[lost]))
    assert [entry[1] for entry in log[1:]] == ([] if alone else ["a0", "a1"])
    assert output_batch.failed == [lost]
    assert lost.error == "late"  # the first reason stays
    assert (rig.runner.meter.failed, rig.runner.counters["frames failed"]) == (1, 1)
    (message,) = rig.logged
    assert message.startswith("it failed on b frame 9 (0.90 s): RuntimeError: cannot write (one_stage.py:")


def test_a_frame_that_cannot_be_written_is_marked_and_the_rest_written():
    log: Log = []
    rig = Rig(Writer, log=log, bad=("b0",), raises=RuntimeError)
    output_batch = rig(batch("a0 b0 a1"))
    assert [entry[1] for entry in log[1:]] == ["a0", "a1"]
    assert (key(output_batch.frames), key(output_batch.failed)) == ("a0 a1", "b0")
    assert rig.failures == []


def test_a_file_that_cannot_be_written_is_abandoned_and_the_others_continue():
    log: Log = []
    rig = Rig(Writer, log=log, path="{source}", bad=("a0",))
    rig(batch("a0 b0 a1"))
    rig(batch("b1 a2"))
    assert [str(error) for error in rig.failures] == ["cannot write"]
    assert [entry[1] for entry in log if isinstance(entry, tuple)] == ["b0", "b1"]
    rig.runner.close()
    assert {"close a", "close b"} <= set(log)


def test_a_file_that_cannot_be_written_is_not_flushed():
    rig = Rig(Writer, log=[], path="{source}", bad=("a0",), trouble="flush a")
    rig(batch("a0 b0"))
    rig(batch("b1"))
    assert [str(error) for error in rig.failures] == ["cannot write"]


@pytest.mark.parametrize("where", ["end", "close"])
def test_a_file_that_cannot_be_closed_stops_no_other(where):
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
    if raises is OutputError:
        assert [type(error) for error in rig.failures] == [OutputError]
    else:
        assert (rig.failures, rig.runner.meter.other_errors) == ([], 1)
        assert rig.logged[0].startswith("it failed as it was closed: RuntimeError: in close (one_stage.py:")
