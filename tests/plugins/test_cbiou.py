"""The plugin `cbiou`: C-BIoU behind the door of `track`, against the built-in methods and another implementation."""

from pathlib import Path

import pytest
from support import mot
from support.streets import seen_by_a_detector, street
from support.walkers import ids, walkers, without

from streamkit.stages.analytics.track import Track
from streamkit.testing.kit import plugin_trackers, run_stage

CBIOU = plugin_trackers(Path(__file__).resolve().parents[2] / "plugins")["cbiou"]


def track(video_frames, **options):
    return ids(run_stage(Track(method=CBIOU, **options), video_frames))


def test_objects_keep_their_ids():
    assert track(walkers(20, [(0, 0), (0, 200), (300, 100)]), confirm=0.0) == [[1, 2, 3]] * 20


def test_an_object_is_confirmed_after_the_minimum_time():
    shown = track(walkers(10, [(0, 0)]), confirm=0.1)
    assert shown == [[-1]] * 3 + [[1]] * 7


def test_a_brief_detection_gets_no_id():
    video_frames = walkers(20, [(0, 0), (0, 200)])
    for frame in video_frames:
        if frame.index not in (7, 8):
            without(frame, 1)
    assert {track_id for row in track(video_frames) for track_id in row} == {1, -1}


def test_a_hidden_object_continues_its_track_until_the_ttl():
    video_frames = walkers(60, [(0, 0), (0, 200)])
    for frame in video_frames[20:45]:
        without(frame, 0)
    assert track(video_frames, confirm=0.0)[-1] == [1, 2]
    assert track(video_frames, confirm=0.0, track_ttl=0.9)[-1] == [3, 2]


def test_the_margin_matches_boxes_that_do_not_overlap():
    """An object of 40 pixels jumps by 50: only with a margin does its box overlap that of its track."""
    video_frames = walkers(2, [(0, 0)], speed=50 / 0.04)
    assert track(video_frames, confirm=0.0) == [[1], [1]]
    assert ids(run_stage(Track(method="iou", confirm=0.0), video_frames)) == [[1], [2]]


def test_classes_have_separate_tracks_unless_ignored():
    video_frames = walkers(4, [(0, 0)])
    for frame in video_frames[2:]:
        frame.detections = frame.detections.with_columns(class_id=frame.detections.class_id + 1)
    assert track(video_frames, confirm=0.0) == [[1], [1], [2], [2]]
    assert track(video_frames, confirm=0.0, class_aware=False) == [[1]] * 4


@pytest.mark.parametrize(
    ("kind", "ahead"), [("crossing", 0.05), ("turning", 0.03)], ids=["people cross", "people turn suddenly"]
)
def test_irregular_motion_keeps_more_identities_than_sort(kind, ahead):
    pytest.importorskip("trackeval")
    truths = [street(kind, seed) for seed in range(3)]
    scenes = [
        mot.frames_with_detections(seen_by_a_detector(truth, seed), 1 / 25, 960, 540)
        for seed, truth in enumerate(truths)
    ]
    idf1 = {
        str(method): mot.scores(mot.together(truths), mot.together([mot.tracked(s, method=method) for s in scenes]))
        for method in ("sort", CBIOU)
    }
    assert idf1["cbiou"]["IDF1"] >= idf1["sort"]["IDF1"] + ahead


@pytest.mark.parametrize(("kind", "hota"), [("crossing", 0.893), ("turning", 0.874), ("stopping", 0.884)])
def test_hota_is_close_to_that_of_another_implementation(kind, hota):
    """`hota` is that of `CBIoUTracker` of the package trackers 2.6.1, with the same thresholds and margins.

    It also matches objects with a low score, which C-BIoU does not.
    """
    pytest.importorskip("trackeval")
    truths = [street(kind, seed) for seed in range(3)]
    detections = [seen_by_a_detector(truth, seed) for seed, truth in enumerate(truths)]
    scenes = [mot.frames_with_detections(rows, 1 / 25, 960, 540) for rows in detections]
    tracks = [mot.tracked(scene, method=CBIOU, confirm=1 / 25) for scene in scenes]
    assert mot.scores(mot.together(truths), mot.together(tracks))["HOTA"] >= hota - 0.02


def test_tracks_are_as_good_as_those_of_another_implementation(test_data):
    """`CBIoUTracker` of the package trackers 2.6.1 reaches HOTA 0.521 and IDF1 0.728 with 5 switches, with the same
    thresholds and margins.
    """
    pytest.importorskip("trackeval")
    folder = test_data / "mot" / "TUD-Campus"
    video_frames = mot.frames_with_detections(mot.read(folder / "det" / "det.txt"), 1 / 25, 640, 480)
    truth = mot.by_frame(mot.read(folder / "gt" / "gt.txt"), 71)
    scores = mot.scores(truth, mot.tracked(video_frames, method=CBIOU, confirm=1 / 25))
    assert scores["HOTA"] >= 0.521 - 0.025
    assert scores["IDF1"] >= 0.728 - 0.03
    assert scores["switches"] <= 5


def test_tracks_of_many_people_are_as_long_as_those_of_another_implementation(test_data):
    """`CBIoUTracker` of the package trackers 2.6.1 makes 45 tracks with a mean of 94.2 frames."""
    rows = mot.read(test_data / "mot" / "PETS09-S2L1" / "det" / "det.txt")
    lengths = mot.lengths(mot.tracked(mot.frames_with_detections(rows, 1 / 7, 768, 576), method=CBIOU))
    assert len(lengths) <= 45
    assert lengths.mean() >= 94.2
