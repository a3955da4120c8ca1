"""Playing a file as a camera would."""

import time

from streamkit.data import Frame
from streamkit.media.pacing import Pacer


def handed_out(pacer: Pacer, index: int) -> Frame:
    due_s = pacer.due_s(index, index / 10)
    pacer.wait(due_s)
    assert time.monotonic() >= due_s
    return Frame("a", index, index / 10, 16, 16, due_s=due_s)


def test_a_frame_that_is_made_due_later_takes_those_behind_it_along():
    pacer = Pacer(100.0, 0.1, 0, "a")
    pacer.follow(Frame("a", 0, 0.0, 16, 16, due_s=5.0))  # of a live source, which has no pace
    first = handed_out(pacer, 0)
    pacer.follow(first)
    second = handed_out(pacer, 1)
    assert abs(second.due_s - first.due_s - 0.01) < 1e-9
    second.due_s += 0.5  # as by a pause
    pacer.follow(second)
    third, fourth = pacer.due_s(2, 0.2), pacer.due_s(3, 0.3)
    assert abs(third - first.due_s - 0.52) < 1e-9
    assert abs(fourth - third - 0.01) < 1e-9
