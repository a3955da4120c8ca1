"""Trackers of plugins behind `track`: what a tracker receives, and what `track` makes of its ids."""

import gc
import weakref

import numpy as np
import pytest
from support.walkers import ids, walkers, without

from streamkit.core.data import Batch
from streamkit.core.stage import Collecting, Context, Registry
from streamkit.plugin_api import tracker
from streamkit.stages.analytics.track import Track
from streamkit.testing.kit import detections, frames, run_stage


def method_of(tracker_class):
    with Collecting(Registry()) as registry:
        tracker("numbers")(tracker_class)
    return registry.trackers["numbers"]


class ByPlace:
    """Give objects their place in the first frame as an id."""

    def __init__(self, settings):
        self.settings = settings
        self.first_id = None

    def update(self, objects, frame):
        if self.first_id is None:
            self.first_id = frame.last_id + 1
        return self.first_id + np.arange(len(objects.box))


def returning(*answers):
    """A method whose tracker returns these arrays, one a frame."""

    class Scripted:
        def __init__(self, settings):
            self.answers = iter(answers)

        def update(self, objects, frame):
            return next(self.answers)

    return method_of(Scripted)


def track(video_frames, method=None, batch=4, **options):
    return run_stage(Track(method=method or method_of(ByPlace), **options), video_frames, batch=batch)


def test_each_source_has_a_tracker_and_counts_from_one():
    pairs = zip(walkers(4, [(0, 0)], "a"), walkers(4, [(0, 0), (0, 200)], "b"), strict=True)
    assert ids(track([frame for pair in pairs for frame in pair])) == [[1], [1, 2]] * 4


def test_two_detectors_of_a_source_share_no_id():
    video_frames = walkers(3, [(0, 0)])
    for frame in video_frames:
        frame.tables["faces"] = detections([[5, 5, 20, 20]], [0.9], labels=("face",))
    tables = [frame.tables for frame in track(video_frames)]
    assert [named["detect"].track_id.tolist() for named in tables] == [[1]] * 3
    assert [named["faces"].track_id.tolist() for named in tables] == [[2]] * 3


def test_a_long_gap_starts_a_tracker_whose_ids_go_on():
    video_frames = walkers(4, [(0, 0)], speed=0)
    for frame in video_frames[2:]:
        frame.pts_s += 20
    assert ids(track(video_frames)) == [[1], [1], [2], [2]]
    assert ids(track(video_frames, max_frame_gap=60.0)) == [[1]] * 4


def test_a_tracker_receives_the_options_of_track_and_the_frame():
    calls = []

    class Recording(ByPlace):
        def update(self, objects, frame):
            calls.append((self.settings.new_score, self.settings.track_ttl_s, frame, objects))
            return super().update(objects, frame)

    track(walkers(2, [(10, 20)], "gate"), method_of(Recording), new_score=0.7, track_ttl=3.0)
    new_score, ttl_s, frame, objects = calls[1]
    assert (new_score, ttl_s) == (0.7, 3.0)
    assert frame == ("gate", "detect", 0.04, 640, 360, 1, None)
    np.testing.assert_allclose(objects.box, [[12, 20, 52, 100]])
    assert (objects.box.dtype, objects.score.dtype, objects.class_id.dtype) == (np.float32, np.float32, np.int32)
    assert objects.embedding.shape == (1, 0)


def test_the_last_id_of_a_source_does_not_fall():
    last_ids = []

    class Leaving(ByPlace):
        def update(self, objects, frame):
            last_ids.append(frame.last_id)
            return super().update(objects, frame)

    video_frames = walkers(4, [(0, 0), (0, 200)])
    without(video_frames[1], 1)
    without(video_frames[2], 0, 1)
    track(video_frames, method_of(Leaving))
    assert last_ids == [0, 2, 2, 2]


def test_a_tracker_receives_no_empty_boxes():
    video_frames = frames(1)
    boxes = [[0, 0, 9, 9], [np.nan, 0, 5, 5], [50, 50, 50, 40], [20, 0, 29, 9]]
    video_frames[0].tables = {"detect": detections(boxes, [0.9] * 4, labels=("car",))}
    assert ids(track(video_frames)) == [[1, -1, -1, 2]]


@pytest.mark.parametrize("batch", [1, 5])
def test_objects_stay_where_they_were_on_frames_that_the_detector_skips(batch):
    video_frames = walkers(5, [(0, 0)], speed=100.0)
    for frame in video_frames[1:3]:
        without(frame, 0)
        frame._state.skipped_detectors = frozenset(["detect"])
    tables = [frame.detections for frame in track(video_frames, batch=batch)]
    assert [table.track_id.tolist() for table in tables] == [[1]] * 5
    assert [round(float(table.xyxy[0, 0])) for table in tables] == [0, 0, 0, 12, 16]
    assert tables[1].extra["predicted"].tolist() == [True]


def test_lost_tracks_are_shown_for_as_long_as_predicted_says():
    video_frames = walkers(8, [(0, 0)])
    for frame in video_frames[2:7]:
        without(frame, 0)
    shown = ids(track(video_frames, predicted=0.1))
    assert shown == [[1], [1], [1], [1], [], [], [], [1]]
    assert ids(track(video_frames)) == [[1], [1], [], [], [], [], [], [1]]


def test_a_lost_track_outside_the_frame_is_not_shown():
    video_frames = walkers(3, [(700, 0)])
    without(video_frames[2], 0)
    assert ids(track(video_frames, predicted=True)) == [[1], [1], []]


def test_trackers_of_sources_that_ended_are_dropped():
    trackers = weakref.WeakSet()

    class Counted(ByPlace):
        def __init__(self, settings):
            super().__init__(settings)
            trackers.add(self)

    stage = Track(method=method_of(Counted))
    stage.context = Context("track")
    stage.open()
    for n in range(5):
        states = {f"s{n}": stage.new_state(f"s{n}")}
        (frame,) = walkers(1, [(0, 0)], f"s{n}")
        stage.process(Batch([frame], tables=dict(frame.tables)), states)
    gc.collect()
    assert len(trackers) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([1, 2], r"update must return 2 integers, one for each object, got list"),
        (np.array([1.0, 2.0]), r"update must return 2 integers, one for each object, got an array of float64"),
        (np.array([1]), r"update must return 2 integers, one for each object, got the shape \(1,\)"),
        (np.array([0, 1]), r".*a track's id, from 1, or -1, got 0"),
        (np.array([3, 3]), r".*no two objects have the same id, got \[3, 3\]"),
    ],
    ids=["a list", "floats", "too few", "zero", "an id twice"],
)
def test_invalid_ids_name_the_tracker_and_the_rule(answer, message):
    with pytest.raises(Exception, match=rf"tracker numbers of .*test_plugin\.py: {message}"):
        track(walkers(1, [(0, 0), (0, 200)]), returning(answer))


def test_an_error_of_a_tracker_names_its_file_and_line():
    with pytest.raises(Exception, match=r"tracker numbers of .*test_plugin\.py:\d+: StopIteration"):
        track(walkers(2, [(0, 0)]), returning(np.array([1])))


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: tracker(ByPlace), r"@tracker needs the name that the YAML uses"),
        (lambda: tracker("numbers")(object), r"tracker 'numbers' must be a class with the method update"),
        (
            lambda: tracker("numbers", camera_motion="always"),
            r"camera_motion of tracker 'numbers' must be \"auto\", True or False, got 'always'",
        ),
    ],
    ids=["no name", "no update", "no such camera motion"],
)
def test_an_invalid_declaration_is_refused(declare, message):
    with pytest.raises(TypeError, match=message):
        declare()


def test_boxes_of_a_plugin_cannot_be_smoothed():
    with pytest.raises(ValueError, match="method numbers has no motion model to smooth boxes with"):
        Track(method=method_of(ByPlace), smooth=True)


def test_a_plugin_that_does_not_ask_for_camera_motion_gets_none():
    with pytest.raises(ValueError, match="method numbers does not ask for camera motion: leave out camera_motion"):
        Track(method=method_of(ByPlace), camera_motion=True)
    assert Track(method=method_of(ByPlace), camera_motion=False).camera_motion is False


def test_an_unknown_method_lists_the_built_in_ones():
    with pytest.raises(ValueError, match=r"method must be one of bytetrack, .*, iou, or a method of a plugin, got 'x'"):
        Track(method="x")
