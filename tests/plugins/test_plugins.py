"""The worked plugins, tested as a stage author would: no pipeline, no video, no YAML."""

from pathlib import Path

import pytest

from streamkit.testing.kit import detections, frames, plugin_stages, run_stage

STAGES = plugin_stages(Path(__file__).resolve().parents[2] / "plugins")
Tripwire = STAGES["tripwire"]
SimpleTrack = STAGES["simple_track"]
CountObjects = STAGES["count_objects"]
HideRegion = STAGES["hide_region"]


def walk(*feet, track=7, source="test"):
    """Frames of one track whose foot point is at these places, None where it is not seen."""
    video = frames(len(feet), source)
    for frame, foot in zip(video, feet, strict=True):
        boxes = [] if foot is None else [[foot[0] - 5, foot[1] - 30, foot[0] + 5, foot[1]]]
        frame.detections = detections(boxes, track_id=[track] * len(boxes))
    return video


def crossings(line, video):
    processed = run_stage(Tripwire(line=line), video)
    return [(e.frame, e.track_id, e.data["direction"]) for frame in processed for e in frame.events]


UP = ((100, 200), (100, 100))  # from below to above: the picture's left is on its left
ACROSS = ((0, 150), (300, 150))  # from left to right: below is on its right


@pytest.mark.parametrize(
    ("line", "feet", "expected"),
    [
        (UP, [(80, 150), (120, 150)], [(1, 7, "in")]),
        (UP, [(120, 150), (80, 150)], [(1, 7, "out")]),
        (ACROSS, [(50, 140), (50, 160)], [(1, 7, "in")]),
        (ACROSS, [(50, 160), (50, 140)], [(1, 7, "out")]),
        (UP[::-1], [(80, 150), (120, 150)], [(1, 7, "out")]),
        (UP, [(80, 150), (90, 150), (99, 150)], []),
        (UP, [(80, 50), (120, 50)], []),  # beyond the line's end
        (UP, [(80, 250), (120, 250)], []),
        (UP, [(80, 150), (120, 150), (80, 150)], [(1, 7, "in"), (2, 7, "out")]),
        (UP, [(80, 150), None, (120, 150)], [(2, 7, "in")]),
        (UP, [(80, 150), (100, 150), (120, 150)], [(2, 7, "in")]),  # once, though it stood on the line
        (UP, [], []),
    ],
)
def test_crossings_and_their_direction_are_counted(line, feet, expected):
    assert crossings(line, walk(*feet)) == expected


def test_tracks_and_sources_are_separate():
    video = frames(2)
    video[0].detections = detections([[75, 120, 85, 150], [115, 120, 125, 150]], track_id=[1, 2])
    video[1].detections = detections([[115, 120, 125, 150], [75, 120, 85, 150]], track_id=[2, 1])
    assert crossings(UP, video) == []
    other = walk((120, 150), source="other")
    assert crossings(UP, [*walk((80, 150)), *other]) == []


def test_untracked_rows_are_ignored():
    assert crossings(UP, walk((80, 150), (120, 150), track=-1)) == []


def test_long_unseen_tracks_are_forgotten():
    counter = Tripwire(line=UP)
    video = frames(3)
    for i, frame in enumerate(video):
        first = i * 6000
        frame.detections = detections([[75, 120, 85, 150]] * 6000, track_id=range(first, first + 6000))
    run_stage(counter, video)
    assert len(counter.feet) == 10_000
    assert min(counter.feet) == 8000


def test_the_tracker_follows_moving_boxes():
    video = frames(4)
    for i, frame in enumerate(video):
        boxes = [[10 + 8 * i, 10, 50 + 8 * i, 50], [200 - 8 * i, 10, 240 - 8 * i, 50]]
        frame.detections = detections(boxes if i % 2 else boxes[::-1])
    processed = run_stage(SimpleTrack(), video, batch=3)
    assert [f.detections.track_id.tolist() for f in processed] == [[0, 1], [1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(("gap", "expected"), [(2, 0), (3, 0), (4, 1)])
def test_a_track_is_remembered_for_the_configured_time(gap, expected):
    video = frames(gap + 2)
    for i in (0, gap + 1):
        video[i].detections = detections([[10, 10, 50, 50]])
    processed = run_stage(SimpleTrack(max_age=3), video)
    assert processed[-1].detections.track_id.tolist() == [expected]


def test_sources_have_separate_tracks_and_frames_may_be_empty():
    video = [*frames(2, "a"), *frames(1, "b")]
    video[1].detections = detections([[10, 10, 50, 50]])
    video[2].detections = detections([[10, 10, 50, 50], [90, 90, 99, 99]])
    processed = run_stage(SimpleTrack(), video)
    assert [f.detections.track_id.tolist() for f in processed] == [[], [0], [0, 1]]


def test_boxes_with_little_overlap_start_new_tracks():
    video = frames(2)
    video[0].detections = detections([[0, 0, 10, 10]])
    video[1].detections = detections([[6, 0, 16, 10]])  # IoU 4 / 16
    processed = run_stage(SimpleTrack(min_iou=0.3), video)
    assert processed[1].detections.track_id.tolist() == [1]
    processed = run_stage(SimpleTrack(min_iou=0.2), video)
    assert processed[1].detections.track_id.tolist() == [0]


def test_a_crowd_is_reported_once():
    video = frames(6)
    for frame, n in zip(video, [1, 3, 4, 3, 2, 3], strict=True):
        frame.detections = detections([[0, 0, 9, 9]] * n + [[0, 0, 5, 5]], label=["person"] * n + ["car"])
    processed = run_stage(CountObjects(label="person", more_than=2, margin=1), video)
    assert [(e.frame, e.kind, e.data["count"]) for f in processed for e in f.events] == [(1, "crowded", 3)]
    video[4].detections = detections()
    processed = run_stage(CountObjects(more_than=3), video)
    assert [(e.frame, e.kind, e.data["count"]) for f in processed for e in f.events] == [
        (1, "crowded", 4),
        (4, "cleared", 0),
        (5, "crowded", 4),
    ]


def test_a_region_is_hidden_from_the_network():
    import numpy as np

    from streamkit import Batch

    tensor = np.zeros((4, 3, 48, 64), np.float32)  # a partial batch: its last row belongs to no frame
    geometry = np.array([[0.5, 0.5, 0, 4], [1, 1, 0, 0], [0.1, 0.1, 0, 0]], np.float32)
    batch = Batch(frames(3), tensor=tensor, geometry=geometry)
    out = HideRegion(region=((60, 40), (20, 8)), value=0.25).process(batch).tensor
    assert (out[0, :, 8:24, 10:30] == 0.25).all()
    assert out[0].sum() == pytest.approx(3 * 16 * 20 * 0.25)
    assert out[1].sum() == pytest.approx(3 * 32 * 40 * 0.25)
    assert out[2].sum() == pytest.approx(3 * 3 * 4 * 0.25)
    assert out[3].sum() == 0


def test_a_region_needs_channels_first():
    import numpy as np

    from streamkit import Batch

    batch = Batch(frames(1), tensor=np.zeros((1, 48, 64, 3)), geometry=np.ones((1, 4), np.float32))
    with pytest.raises(ValueError, match=r"takes \(B, 3, H, W\), got \(1, 48, 64, 3\)"):
        HideRegion(region=((0, 0), (1, 1))).process(batch)
