"""The queue before a Python loop: files wait, live frames replace older ones."""

import threading

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Frame
from streamkit.core.errors import ConfigError
from streamkit.runtime.frame_queue import FrameQueue, with_frame_queue


def frame(source, index, live=False):
    new_frame = Frame(source, index, index / 25, 64, 36, due_s=1.0 if live else None)
    new_frame.emit("crossed", number=index)
    return new_frame


def waiting(queue):
    queue.close()
    frames = []
    while (queued := queue.get()) is not None:
        frames.append(queued)
    return frames


def test_live_frames_replace_the_oldest_of_their_source_and_keep_its_events():
    queue = FrameQueue()
    assert [queue.put([frame("cam", index, live=True)]) for index in range(7)] == [(0, 0)] * 4 + [(1, 0)] * 3
    assert queue.put([frame("other", 0, live=True)]) == (0, 0)
    frames = waiting(queue)
    assert [(queued.source, queued.index) for queued in frames] == [
        ("cam", 3),
        ("cam", 4),
        ("cam", 5),
        ("cam", 6),
        ("other", 0),
    ]
    assert [event.data["number"] for event in frames[0].events] == [0, 1, 2, 3]
    assert [event.data["number"] for event in frames[1].events] == [4]
    assert queue.dropped == {"cam": 3}


def test_live_frames_do_not_use_the_capacity_of_files():
    queue = FrameQueue()
    for index in range(4):
        queue.put([frame("cam", index, live=True)])
    for index in range(32):
        assert not queue.full
        queue.put([frame("file", index)])
    assert queue.full
    assert len(waiting(queue)) == 36


def full():
    queue = FrameQueue()
    queue.put([frame("file", index) for index in range(40)])
    return queue


def test_a_file_waits_until_the_loop_reads():
    queue = full()
    put = []
    thread = threading.Thread(target=lambda: put.append(queue.put([frame("file", 40), frame("file", 41)])))
    thread.start()
    for index in range(8):
        assert queue.get().index == index
        thread.join(0.02)
        assert put == []  # 32 are left
    assert queue.get().index == 8
    thread.join(10)
    assert put == [(0, 0)]
    assert [queued.index for queued in waiting(queue)] == list(range(9, 42))


def test_live_frames_of_a_batch_do_not_wait_for_its_files():
    queue = full()
    put = []
    for _ in range(4):
        queue.get()
    batch = [frame("file", 40), frame("cam", 0, live=True), frame("file", 41), frame("cam", 1, live=True)]
    thread = threading.Thread(target=lambda: put.append(queue.put(batch)))
    thread.start()
    frames = [queue.get() for _ in range(40)]
    thread.join(10)
    assert put == [(0, 0)]
    names = [(queued.source, queued.index) for queued in frames]
    assert names == [("file", index) for index in range(4, 40)] + [("cam", 0), ("cam", 1), ("file", 40), ("file", 41)]


@pytest.mark.parametrize("end", [FrameQueue.refuse, FrameQueue.abort])
def test_waiting_frames_are_refused_at_the_end(end):
    queue = full()
    put = []
    batch = [frame("cam", 0, live=True), frame("file", 40), frame("file", 41)]
    thread = threading.Thread(target=lambda: put.append(queue.put(batch)))
    thread.start()
    thread.join(0.02)
    end(queue)
    thread.join(10)
    assert put == [(0, 2)]
    assert queue.put(batch) == (0, 3)
    assert len(waiting(queue)) == (41 if end is FrameQueue.refuse else 0)


def test_the_error_comes_after_the_last_frame():
    queue = FrameQueue()
    queue.put([frame("file", 0)])
    queue.close(ArithmeticError())
    assert queue.get().index == 0
    with pytest.raises(ArithmeticError):
        queue.get()


def looped(root, *stages):
    """The sink of the loop, in a pipeline with these stages."""
    text = "sources: {street: samples/street.mp4}\nstages:\n" + "".join(f"  {line}\n" for line in stages)
    return with_frame_queue(build(read_text(text, folder=root)), FrameQueue()).nodes["(loop)"]


CLEAR = "clear: {stage: draw, from: detect, thickness: 1}"
FIRST = "first: {stage: draw, from: detect, blur: [person]}"
SECOND = "second: {stage: draw, from: %s, blur: [car]}"


@pytest.mark.parametrize("branches", [(CLEAR, FIRST), (FIRST, CLEAR)], ids=["clear first", "blurred first"])
def test_frames_have_the_pixels_of_the_branch_that_hides_objects(branches, root):
    assert looped(root, "detect: {model: demo}", *branches).inputs == ["first", "clear"]


def test_frames_have_the_pixels_of_the_branch_with_all_hiding_stages(root):
    stages = ("detect: {model: demo}", FIRST, "jsonl: {from: first, path: out/a.jsonl}", SECOND % "first")
    assert looped(root, *stages).inputs == ["second", "jsonl"]


def test_branches_that_reveal_what_another_hides_are_refused(root):
    with pytest.raises(ConfigError) as caught:
        looped(root, "detect: {model: demo}", FIRST, SECOND % "detect")
    assert str(caught.value) == (
        "the frames of the loop would show what second hides: frames come from one branch, first; put the stages that "
        "hide objects one after another, or remove the blur"
    )
