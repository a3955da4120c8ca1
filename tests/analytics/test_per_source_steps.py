import numpy as np

from streamkit.analytics.per_source_steps import Clocks, Labels, PositionOptions, anchors, source_steps
from streamkit.analytics.track_store import TrackStore
from streamkit.core.data import Batch, Detections
from streamkit.testing.kit import detections, frames


def batch_of(sources, tables):
    last_index = {}
    footage = []
    for source in sources:
        index = last_index[source] = last_index.get(source, -1) + 1
        footage.append(frames(index + 1, source)[index])
    whole = Batch(footage)
    for name, parts in tables.items():
        whole.tables[name] = Detections.concat(parts, rows=range(len(parts)))
    return whole


def test_frames_of_each_source_are_stepped_in_order():
    parts = [detections([[i, 0, i + 2, 9]], track_id=[i]) for i in range(6)]
    batch = batch_of("abacab", {"detect": parts})
    steps = list(source_steps(batch, {"a": 0, "b": 1, "c": 2}, PositionOptions(), Labels(), Clocks()))
    assert [[frame.source for frame in step.frames] for step in steps] == [["a", "b", "c"], ["a", "b"], ["a"]]
    assert [step.slot.tolist() for step in steps] == [[0, 1, 2], [0, 1], [0]]
    assert [step.track.tolist() for step in steps] == [[0, 1, 3], [2, 5], [4]]
    assert [step.row.tolist() for step in steps] == [[0, 1, 3], [2, 5], [4]]
    assert [step.frame.tolist() for step in steps] == [[0, 1, 2], [0, 1], [0]]


def test_skipped_rows_are_excluded():
    first = detections([[0, 0, 2, 9]] * 4, track_id=[1, -1, 2, 1], label=["car", "car", "dog", "car"])
    boxes = first.xyxy.copy()
    boxes[2, 0] = np.nan
    first = first.with_columns(xyxy=boxes)
    second = detections([[0, 0, 4, 9]], track_id=[3], label=["car"])
    batch = batch_of("a", {"detect": [first], "untracked": [detections([[5, 5, 9, 9]])], "faces": [second]})
    (step,) = source_steps(batch, {"a": 0}, PositionOptions(), Labels(), Clocks())
    assert step.track.tolist() == [1, 3]
    assert step.row.tolist() == [0, 5]
    (step,) = source_steps(batch, {"a": 0}, PositionOptions(), Labels(["dog"]), Clocks())
    assert len(step) == 0


def test_an_empty_frame_is_included():
    (step,) = source_steps(batch_of("ab", {}), {"a": 0, "b": 1}, PositionOptions(), Labels(), Clocks())
    assert len(step.frames) == 2
    assert len(step) == 0


def test_class_numbers_are_stable_across_tables():
    labels = Labels()
    cars = detections([[0, 0, 1, 1]] * 2, label=["car", "dog"])
    dogs = detections([[0, 0, 1, 1]] * 2, label=["dog", "cat"])
    assert [labels[i] for i in labels.of(cars)] == ["car", "dog"]
    assert [labels[i] for i in labels.of(dogs)] == ["dog", "cat"]
    strange = detections([[0, 0, 1, 1]], class_id=[9], labels=("car",))
    assert [labels[i] for i in labels.of(strange)] == ["9"]


def test_anchors_are_points_of_the_box_within_the_image():
    size = np.array([[640.0, 360.0]])
    box = np.array([[-50.0, 300.0, 50.0, 400.0]])
    assert anchors(box, size, "foot").tolist() == [[25.0, 359.5]]
    assert anchors(box, size, "top").tolist() == [[25.0, 300.0]]
    assert anchors(box, size, "left").tolist() == [[0.5, 330.0]]
    assert anchors(box, size, "right").tolist() == [[50.0, 330.0]]


def test_a_time_jump_back_ends_all_earlier_tracks():
    footage = [frame for source in "ab" for frame in frames(4, source)]
    for frame, pts_s in zip(footage, (1, 2, 2, 0.5, 7, 8, 9, 10), strict=True):
        frame.pts_s = pts_s
    clocks = Clocks()
    steps = [
        step
        for part in (footage[:2] + footage[4:6], footage[2:4] + footage[6:])
        for step in source_steps(Batch(part), {"a": 0, "b": 2}, PositionOptions(), Labels(), clocks)
    ]
    assert [step.back.tolist() for step in steps] == [[False] * 2] * 3 + [[True, False]]
    tracks = TrackStore()
    tracks.find(np.array([0, 1, 2]), np.array([5, 6, 7]))
    tracks["seen_s"][:3] = 1.5, 0.0, 8.5
    assert tracks["track"][steps[2].unseen(tracks, 0.6)].tolist() == []
    assert tracks["track"][steps[2].unseen(tracks, 0.4)].tolist() == [5, 7]
    assert tracks["track"][steps[3].unseen(tracks, 2.0)].tolist() == [5]
    clocks.begin(2)  # another source has the number
    assert clocks.step(np.array([0, 2]), np.array([0.25, 0.25])).tolist() == [True, False]
