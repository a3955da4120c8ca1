"""`track` with a camera that moves: tracks move with the picture, and cameras that stand still cost next to nothing."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.textures import as_surface, seen_through, similarity, texture
from support.walkers import ids, walkers

from streamkit.core.data import Batch, Detections, Surface
from streamkit.core.stage import Collecting, Context, Registry
from streamkit.ops import traffic
from streamkit.plugin_api import tracker
from streamkit.stages.analytics.camera_motion import COMPENSATED, MEASURED, NO_PIXELS, UNKNOWN
from streamkit.stages.analytics.track import Track
from streamkit.testing.kit import plugin_trackers, run_stage

PLACES = [(60, 40), (180, 60), (300, 150), (420, 40), (520, 200)]


def filmed(cameras, source="a", seed=0, places=PLACES):
    """Frames of people who stand before a textured wall, as a camera sees them through each transform."""
    wall = texture(seed)
    footage = walkers(len(cameras), places, source, speed=0)
    for frame, camera in zip(footage, cameras, strict=True):
        frame.surface = as_surface(seen_through(wall, camera))
        corners = frame.detections.xyxy.reshape(-1, 2, 2) @ camera[:, :2].T + camera[:, 2]
        frame.detections = frame.detections.with_columns(xyxy=corners.reshape(-1, 4).astype(np.float32))
    return footage


def shaken(count, seed=0, pixels=12):
    rng = np.random.default_rng(seed)
    return [similarity(*rng.normal(0, pixels, 2), zoom=rng.uniform(0.96, 1.04)) for _ in range(count)]


def counted(footage, batch=4, **options):
    """The ids of each frame, and the counts of the stage."""
    stage = Track(**options)
    processed = run_stage(stage, footage, batch=batch)
    counts = {name: stage.context.counters[name] for name in (MEASURED, COMPENSATED, UNKNOWN, NO_PIXELS)}
    return ids(processed), counts


@pytest.mark.parametrize("options", [{"method": "botsort"}, {"method": "auto"}, {"camera_motion": True}])
def test_tracks_last_while_the_camera_shakes(options):
    footage = filmed(shaken(40))
    ids_by_frame, counts = counted(footage, **options)
    assert ids_by_frame == [[1, 2, 3, 4, 5]] * 40
    assert counts == {MEASURED: 40, COMPENSATED: 39, UNKNOWN: 0, NO_PIXELS: 0}


@pytest.mark.parametrize("options", [{}, {"method": "botsort", "camera_motion": False}])
def test_tracks_break_without_compensation(options):
    ids_by_frame, counts = counted(filmed(shaken(40)), **options)
    assert max(map(max, ids_by_frame)) > 5
    assert not any(counts.values())


@pytest.mark.parametrize("method", ["bytetrack", "botsort", "ocsort", "sort"])
def test_a_hidden_object_is_found_where_the_camera_has_moved_it(method):
    cameras = [similarity(dx=min(0, 200 - 10 * number)) for number in range(40)]
    footage = filmed(cameras, places=[(400, 100), (500, 100)])
    for frame in footage[22:36]:
        frame.detections = frame.detections[:1]
    assert counted(footage, method=method, camera_motion=True)[0][-1] == [1, 2]


def test_predicted_boxes_move_with_the_picture():
    cameras = [similarity(dx=-6.0 * number) for number in range(30)]
    footage = filmed(cameras, places=[(300, 100)])
    for frame in footage[20:]:
        frame.detections = frame.detections[:0]
    for frame in run_stage(Track(method="botsort", predicted=True), footage)[20:]:
        np.testing.assert_allclose(frame.detections.xyxy[0, 0], 300 - 6 * frame.index, atol=3)


def test_a_still_camera_is_measured_five_times_a_second():
    """After two seconds; `true` measures every frame."""
    footage = filmed([similarity()] * 150)
    for options, measured in (({"method": "botsort"}, 50 + 20), ({"camera_motion": True}, 150)):
        ids_by_frame, counts = counted(footage, **options)
        assert ids_by_frame == [[1, 2, 3, 4, 5]] * 150
        assert counts[MEASURED] == pytest.approx(measured, abs=1)


def test_a_still_camera_changes_no_track():
    rng = np.random.default_rng(3)
    footage = filmed([similarity()] * 80)
    for frame in footage:
        boxes = frame.detections.xyxy + rng.normal(0, 2, (5, 4)).astype(np.float32)
        frame.detections = frame.detections.with_columns(xyxy=boxes)
    with_, without = (
        run_stage(Track(method="botsort", camera_motion=camera_motion), footage) for camera_motion in ("auto", False)
    )
    for frame, other in zip(with_, without, strict=True):
        np.testing.assert_array_equal(frame.detections.xyxy, other.detections.xyxy)


@pytest.mark.parametrize("first", [101, 102, 103])
def test_tracks_that_are_lost_as_a_camera_begins_to_move_are_found_again(first):
    """It is noticed up to 0.2 s later; tracks that were lost meanwhile move by the whole of its motion."""
    pan = [similarity(dx=42 + 3 * number) for number in range(40)]
    ids_by_frame, counts = counted(filmed([similarity()] * first + pan), method="botsort")
    assert ids_by_frame[first - 1] == [1, 2, 3, 4, 5]
    assert ids_by_frame[-1] == [1, 2, 3, 4, 5]
    assert 35 <= counts[COMPENSATED] <= 41


def test_pictures_without_corners_are_counted_and_change_nothing():
    footage = filmed([similarity()] * 30)
    dark = as_surface(np.full((360, 640), 16, np.uint8))
    for frame in footage:
        frame.surface = dark
    ids_by_frame, counts = counted(footage, camera_motion=True)
    assert ids_by_frame == [[1, 2, 3, 4, 5]] * 30
    assert counts == {MEASURED: 30, COMPENSATED: 0, UNKNOWN: 29, NO_PIXELS: 0}


def test_frames_without_pixels_are_counted():
    counts = counted(walkers(10, PLACES), camera_motion=True)[1]
    assert counts == {MEASURED: 0, COMPENSATED: 0, UNKNOWN: 0, NO_PIXELS: 10}


def test_batches_and_other_sources_change_no_motion():
    alone = {name: filmed(shaken(20, seed), name, seed) for name, seed in (("a", 1), ("b", 2))}
    mixed = [frame for pair in zip(alone["a"], alone["b"], strict=True) for frame in pair]
    tracked = run_stage(Track(method="botsort"), mixed, batch=[1, 7, 3])
    for name, footage in alone.items():
        expected = run_stage(Track(method="botsort"), footage, batch=1)
        for frame, other in zip([f for f in tracked if f.source == name], expected, strict=True):
            np.testing.assert_array_equal(frame.detections.xyxy, other.detections.xyxy)


def test_a_source_that_restarts_or_changes_its_size_has_no_motion_across_it():
    footage = filmed(shaken(20))
    for frame in footage[10:]:
        frame._state.epoch = 1
    assert counted(footage, camera_motion=True)[1][COMPENSATED] == 18
    smaller = filmed(shaken(20))
    for frame in smaller[10:]:
        frame.surface = as_surface(texture(0, 320, 180))
        frame.width = 320
        frame.height = 180
    assert counted(smaller, camera_motion=True)[1][UNKNOWN] == 1


def test_a_source_that_ends_is_forgotten():
    stage = Track(method="botsort")
    stage.context = Context("track")
    stage.open()
    footage = filmed(shaken(4))
    for frame in (footage[0], footage[1]):
        states = {"a": stage.new_state("a")}
        table = frame.tables["detect"]
        stage.process(Batch([frame], tables={"detect": Detections.concat([table], rows=[0])}), states)
    assert stage.context.counters[COMPENSATED] == 0


def test_a_picture_of_another_size_than_the_first_moves_tracks_in_pixels_of_the_first():
    """A source that halves its size on the way: tracks are in pixels of its first frame."""
    cameras = shaken(40)
    large = filmed(cameras)
    wall = texture(0, 320, 180)
    for frame, camera in zip(large[20:], cameras[20:], strict=True):
        half = np.concatenate([camera[:, :2], camera[:, 2:] / 2], axis=1)
        frame.surface = as_surface(seen_through(wall, half))
        frame.width = 320
        frame.height = 180
        frame._state.shape_size = (640, 360)
        frame.detections = frame.detections.with_columns(xyxy=frame.detections.xyxy / 2)
    ids_by_frame, counts = counted(large, method="botsort")
    assert ids_by_frame[22:] == [ids_by_frame[22]] * 18
    assert counts[UNKNOWN] == 1


def test_a_method_without_a_motion_model_is_refused():
    with pytest.raises(ValueError, match="method iou has no motion model for the camera to move"):
        Track(method="iou", camera_motion=True)
    assert Track(method="iou", camera_motion=False).camera_motion is False


# ---------------------------------------------------------------------------------------- trackers of plugins


@pytest.fixture
def followed():
    """A method that asks for the motion of the camera, and what its tracker receives: (motion, first box) a frame."""
    calls = []

    class Following:
        """Number the objects of each frame in their order."""

        def __init__(self, settings):
            pass

        def update(self, objects, frame):
            calls.append((frame.camera, objects.box[:1]))
            return 1 + np.arange(len(objects.box))

    with Collecting(Registry()) as registry:
        tracker("following", camera_motion="auto")(Following)
    return registry.trackers["following"], calls


def test_a_tracker_of_a_plugin_receives_the_motion_that_it_asks_for(followed):
    method, calls = followed
    assert counted(filmed(shaken(20)), method=method)[1][COMPENSATED] == 19
    assert calls[0][0] is None
    for (_, before), (camera, box) in pairwise(calls):
        np.testing.assert_allclose(camera.moved(before), box, atol=1)


def test_a_tracker_of_a_plugin_receives_the_motion_since_its_last_call(followed):
    """Of the frames that the detector skips, too: their motions are put together."""
    method, calls = followed
    footage = filmed(shaken(21))
    for frame in footage:
        if frame.index % 4:
            frame.detections = frame.detections[:0]
            frame._state.skipped_detectors = frozenset(["detect"])
    tables = [frame.detections for frame in run_stage(Track(method=method), footage, batch=3)]
    assert len(calls) == 6
    for (_, before), (camera, box) in pairwise(calls):
        np.testing.assert_allclose(camera.moved(before), box, atol=2)
    for table, frame in zip(tables, filmed(shaken(21)), strict=True):
        np.testing.assert_allclose(table.xyxy, frame.detections.xyxy, atol=2)


def test_a_tracker_of_a_plugin_receives_no_motion_without_the_option(followed):
    method, calls = followed
    assert not any(counted(filmed(shaken(5)), method=method, camera_motion=False)[1].values())
    assert [camera for camera, _ in calls] == [None] * 5


@pytest.mark.parametrize("first", [101, 102, 103])
def test_a_tracker_of_a_plugin_reads_that_the_camera_began_to_move_earlier(followed, first):
    method, calls = followed
    pan = [similarity(dx=42 + 3 * number) for number in range(20)]
    counted(filmed([similarity()] * first + pan), method=method)
    assert [camera.since_earlier for camera, _ in calls if camera is not None][:3] == [True, False, False]


def test_cbiou_follows_objects_while_the_camera_shakes():
    cbiou = plugin_trackers(Path(__file__).resolve().parents[3] / "plugins")["cbiou"]
    footage = filmed(shaken(40, pixels=16))
    assert counted(footage, method=cbiou, confirm=0.0)[0] == [[1, 2, 3, 4, 5]] * 40
    assert max(map(max, counted(footage, method=cbiou, confirm=0.0, camera_motion=False)[0])) > 5


@pytest.mark.gpu
def test_frames_on_a_device_give_the_same_tracks_and_copy_no_pixels():
    import cupy

    footage = [*filmed(shaken(40), "a"), *filmed([similarity()] * 80, "b")]
    on_host, counts = counted(footage, method="botsort")
    for frame in footage:
        frame.surface = Surface(cupy.asarray(frame.surface.data), frame.surface.color)
    before = traffic.so_far()
    assert counted(footage, method="botsort") == (on_host, counts)
    assert traffic.so_far().to_host - before.to_host <= 4096 * counts[MEASURED]
