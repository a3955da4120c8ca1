"""The last frames of a file: held back only where something waits for them, and never lost."""

import pytest

from streamkit.runtime.execution.channel import Aborted
from streamkit.runtime.ingest.last_frames import LastFrames
from streamkit.testing.kit import frames


def follow(n):
    """Pass n frames on; what happens, in order: the index of each frame that leaves, and the wait."""
    seen = []
    last = LastFrames(lambda frame: seen.append(frame.index), lambda: seen.append("wait"))
    entered = frames(n)
    for frame in entered:
        last.put(frame)
    return last, seen, entered


@pytest.mark.parametrize(
    ("n", "before", "after", "closing"),
    [(0, [], [], []), (1, [], [0], [0]), (2, [], [0, "wait", 1], [0]), (4, [0, 1], [0, 1, 2, "wait", 3], [2])],
)
def test_the_last_frame_is_held_and_marked_at_the_end(n, before, after, closing):
    last, seen, entered = follow(n)
    assert (seen, len(last.held)) == (before, min(n, 2))
    last.finish()
    assert (seen, len(last.held)) == (after, 0)
    assert [frame.index for frame in entered if frame._state.closing] == closing


def test_frames_are_released_at_once_if_more_follow():
    last, seen, entered = follow(4)
    last.release()
    assert (seen, len(last.held)) == ([0, 1, 2, 3], 0)
    assert not any(frame._state.closing for frame in entered)


def test_an_aborted_run_ends_the_source():
    def put(frame):
        raise Aborted

    last = LastFrames(put, lambda: None)
    last.put(frames(1)[0])
    with pytest.raises(Aborted):
        last.finish()
