import copy
import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Detections, Device, Event, EventFilter, Frame, FrameState, array_module
from streamkit.ops.color import rgb
from streamkit.testing.kit import detections, frames


def batch(n=3, **columns):
    filled = Batch(frames(n), **columns)
    table = detections([[i, 0, i + 1, 1] for i in range(n * 2)])
    filled.tables["detect"] = table.with_columns(batch_row=np.repeat(np.arange(n, dtype=np.int32), 2))
    return filled


def test_a_frame_returns_a_single_table_or_all_merged():
    (frame,) = frames(1)
    assert len(frame.detections) == 0
    frame._state.stage = "mine"
    frame.detections = detections([[0, 0, 1, 1]])
    assert list(frame.tables) == ["mine"]
    frame.detections = frame.detections[:0]
    assert list(frame.tables) == ["mine"]
    frame.tables["faces"] = detections([[0, 0, 2, 2]], track_id=[3])
    frame.tables["mine"] = detections([[0, 0, 1, 1]])
    assert len(frame.detections) == 2
    assert frame.detections.track_id.tolist() == [-1, 3]
    with pytest.raises(ValueError, match=r"this frame has the tables mine, faces: assign to frame.tables\[name\]"):
        frame.detections = detections()


def test_an_event_has_the_source_index_and_time_of_its_frame():
    frame = Frame("gate", 7, 0.28, 64, 48, _state=FrameState(stage="crossing"))
    frame.emit("crossed", np.int64(5), direction="in")
    frame.emit("opened")
    assert frame.events == [
        Event("crossed", "crossing", "gate", 7, 0.28, 5, {"direction": "in"}),
        Event("opened", "crossing", "gate", 7, 0.28, None, {}),
    ]
    assert type(frame.events[0].track_id) is int


@pytest.mark.parametrize("copied", [dataclasses.replace, copy.deepcopy, lambda frame: Batch([frame]).fork().frames[0]])
def test_a_copied_frame_has_a_separate_runner_state(copied):
    state = FrameState(stage="crossing", epoch=2, skipped_detectors=frozenset("a"))
    frame = Frame("gate", 7, 0.28, 64, 48, pixel_aspect=Fraction(2), _state=state)
    other = copied(frame)
    assert other.pixel_aspect == 2
    assert dataclasses.astuple(other._state) == dataclasses.astuple(frame._state)
    other._state.stage = "counting"
    assert frame._state.stage == "crossing"
    assert Frame("a", 0, 0.0, 1, 1)._state.stage == ""


def test_copying_missing_pixels_to_the_host_is_refused():
    with pytest.raises(ValueError, match="frame 0 of test has no pixels"):
        rgb(frames(1)[0])
    (frame,) = frames(1, width=6, height=4, pixels=True)
    frame._state.counters = Counters()
    assert rgb(frame).shape == (4, 6, 3)


def test_changes_in_a_fork_are_not_visible_in_the_other():
    first = batch()
    first.failed = frames(1, "bad")
    second = first.fork()
    second.frames[0].emit("seen")
    second.frames[0].tables["x"] = detections()
    second.tables["faces"] = Detections.empty()
    second.outputs["y"] = np.zeros(1)
    second.failed[0].emit("seen")
    second.frames.pop()
    assert len(first) == 3
    assert first.frames[0].events == first.failed[0].events == []
    assert first.frames[0].tables == {}
    assert list(first.tables) == ["detect"]
    assert first.outputs == {}
    assert second.tables["detect"] is first.tables["detect"]


@pytest.mark.parametrize("rows", [[0], [1, 2], [2], []])
def test_take_and_join_are_inverse(rows):
    whole = batch(
        tensor=np.arange(3 * 4, dtype=np.float32).reshape(3, 4), geometry=np.arange(12, dtype=np.float32).reshape(3, 4)
    )
    whole.outputs = {"out": np.arange(3)}
    part = whole.take(rows)
    assert [frame.index for frame in part.frames] == rows
    assert part.tensor[:, 0].tolist() == [row * 4 for row in rows]
    assert part.geometry[:, 0].tolist() == [row * 4 for row in rows]
    assert part.outputs["out"].tolist() == rows
    assert part.table("detect").xyxy[:, 0].tolist() == [x for row in rows for x in (row * 2, row * 2 + 1)]
    assert part.table("detect").batch_row.tolist() == [i for i in range(len(rows)) for _ in range(2)]
    if rows:
        back = Batch.join([whole.take([row]) for row in rows], whole)
        assert back.table("detect").batch_row.tolist() == part.table("detect").batch_row.tolist()
        assert back.table("detect").row_id.tolist() == part.table("detect").row_id.tolist()
        assert back.tensor.tolist() == part.tensor.tolist()


def test_join_drops_padding():
    whole = batch(2, tensor=np.arange(4, dtype=np.float32)[:, None])
    assert Batch.join([whole.take([0]), whole.take([1])], whole).tensor.tolist() == [[0], [1]]


def test_a_table_may_be_pending():
    pending = Batch(frames(1))
    calls = []

    def arrive():
        calls.append(1)
        return detections([[0, 0, 1, 1]])

    pending.tables["detect"] = arrive
    assert calls == []
    assert len(pending.table("detect")) == len(pending.table("detect")) == 1
    assert calls == [1]


def test_repr_shows_shapes_and_never_data():
    filled = batch(2, tensor=np.zeros((2, 3, 4, 5), np.float16))
    assert repr(filled) == "Batch(2 frames, tensor=float16[2, 3, 4, 5]@host, tables=['detect'], sequence=0)"


def test_repr_of_a_frame_counts_its_objects_by_label():
    (frame,) = frames(1, width=6, height=4, pixels=True, start=3)
    assert repr(frame) == "Frame('test', index=3, pts_s=0.120, 6x4, no objects, 0 events)"
    frame.tables = {
        "a": detections([[0, 0, 1, 1]] * 3, label=["car", "person", "person"]),
        "b": detections([[0, 0, 1, 1]] * 7, class_id=range(7)),
    }
    frame.emit("crossed")
    frame.surface = None
    frame.error = "StageError: no"
    assert repr(frame) == (
        "Frame('test', index=3, pts_s=0.120, 6x4, 2 person, 1 car, 1 0, 1 1, 1 2, 4 others, 1 event, no pixels, "
        "error='StageError: no')"
    )


def test_device_names_are_parsed():
    assert str(Device()) == "cpu"
    assert str(Device("cuda", 2)) == "cuda:2"
    assert Device().xp is np
    assert array_module(np.zeros(1)) is np


@pytest.mark.parametrize(
    ("when", "inside"),
    [
        ("line.crossed", True),
        ("line", True),
        (["x", "line.crossed"], True),
        ("line.returned", False),
        (None, False),
        ("line.cross", False),
        ("crossed", False),
    ],
)
def test_an_event_filter_matches_names_of_events(when, inside):
    assert (Event("crossed", "line", "gate", 3, 0.1) in EventFilter(when)) is inside
