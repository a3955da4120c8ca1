"""The queue before a Python loop: files wait, live frames replace older ones."""

import threading

import pytest

from streamkit.core.data import Frame
from streamkit.runtime.execution.channel import Aborted
from streamkit.runtime.frame_queue import FrameQueue


def frame(source, index, live=False):
    made = Frame(source, index, index / 25, 64, 36, due_s=1.0 if live else None)
    made.emit("crossed", number=index)
    return made


def waiting(queue):
    queue.close()
    found = []
    while (one := queue.get()) is not None:
        found.append(one)
    return found


def test_live_frames_replace_the_oldest_of_their_source_which_leave_their_events():
    queue = FrameQueue()
    assert [queue.put(frame("cam", index, live=True)) for index in range(7)] == [False] * 4 + [True] * 3
    assert not queue.put(frame("other", 0, live=True))
    found = waiting(queue)
    assert [(one.source, one.index) for one in found] == [("cam", 3), ("cam", 4), ("cam", 5), ("cam", 6), ("other", 0)]
    assert [event.data["number"] for event in found[0].events] == [0, 1, 2, 3]
    assert [event.data["number"] for event in found[1].events] == [4]
    assert queue.dropped == {"cam": 3}


def test_live_frames_do_not_take_the_room_of_files():
    queue = FrameQueue()
    for index in range(4):
        queue.put(frame("cam", index, live=True))
    for index in range(16):
        assert not queue.full
        queue.put(frame("file", index))
    assert queue.full
    assert len(waiting(queue)) == 20


def test_a_file_waits_until_the_loop_reads():
    queue, put = FrameQueue(), []
    for index in range(16):
        queue.put(frame("file", index))
    thread = threading.Thread(target=lambda: put.append(queue.put(frame("file", 16))))
    thread.start()
    thread.join(0.1)
    assert put == []
    assert queue.get().index == 0
    thread.join(10)
    assert put == [False]


@pytest.mark.parametrize("end", [FrameQueue.refuse, FrameQueue.abort])
def test_a_frame_that_waits_is_refused_at_the_end(end):
    queue, refused = FrameQueue(), []
    for index in range(16):
        queue.put(frame("file", index))

    def put():
        try:
            queue.put(frame("file", 16))
        except Aborted:
            refused.append(True)

    thread = threading.Thread(target=put)
    thread.start()
    end(queue)
    thread.join(10)
    assert refused == [True]
    assert len(waiting(queue)) == (16 if end is FrameQueue.refuse else 0)


def test_the_error_comes_after_the_last_frame():
    queue = FrameQueue()
    queue.put(frame("file", 0))
    queue.close(ArithmeticError())
    assert queue.get().index == 0
    with pytest.raises(ArithmeticError):
        queue.get()
