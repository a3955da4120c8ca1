"""How a sink is called: what it may do for a whole batch at once, and what becomes of its errors there."""

import pytest

from streamkit.data import Frame
from streamkit.errors import OutputError
from streamkit.stage import Collecting, Sink, default_registry, stage
from streamkit.testing import frames, run_stage


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
                taken, self.taken = self.taken, []
                self.batches.append(len(taken))
                if fail:
                    raise KeyError("nothing")
                for frame in taken:
                    frame.emit("gathered", batch=len(taken))

    return Gather()


def test_flush_comes_once_behind_each_batch_and_may_emit():
    sink = gathering()
    found = run_stage(sink, frames(7), batch=3)
    assert sink.batches == [3, 3, 1]
    assert [frame.events[0].data["batch"] for frame in found] == [3, 3, 3, 3, 3, 3, 1]


def test_an_error_in_flush_ends_the_output_and_is_not_tried_again():
    sink = gathering(fail=True)
    with pytest.raises(OutputError, match="nothing"):
        run_stage(sink, frames(6), batch=3)
    assert sink.batches == [3]
