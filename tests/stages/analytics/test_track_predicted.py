"""`track` where the detector sees nothing: what is expected there, and what is found again by its looks."""

import numpy as np
import pytest
from support.walkers import METHODS, track, walkers, without

from streamkit.core.records import record
from streamkit.stages.analytics.track import Track
from streamkit.testing.kit import run_stage

# -------------------------------------------------------------------------------------------------------- predicted


def test_lost_objects_are_predicted_at_their_expected_position():
    footage = walkers(40, [(0, 0), (0, 200)])
    for frame in footage[20:30]:
        without(frame, 0)
    processed = run_stage(Track(predicted=True), footage)
    for frame in processed:
        table = frame.detections
        assert sorted(table.track_id.tolist()) == [1, 2]
        lost = table.track_id == 1
        assert table.extra["predicted"][lost].tolist() == [20 <= frame.index < 30]
        x = 50 * frame.pts_s
        np.testing.assert_allclose(table.xyxy[lost][0], [x, 0, x + 40, 80], atol=3)
        flags = {o["track_id"]: o.get("predicted") for o in record(frame)["objects"]}
        assert flags == {1: True if 20 <= frame.index < 30 else None, 2: None}


def test_predicted_objects_are_in_the_table_of_their_detector():
    walk = walkers(30, [(0, 0), (0, 200)])
    for frame in walk:
        cars = frame.detections[:1]
        people = frame.detections[1:]
        frame.tables = {
            "cars": cars[:0] if frame.index >= 20 else cars,
            "people": people[:0] if 10 <= frame.index < 20 else people,
        }
    for frame in run_stage(Track(predicted=True), walk, batch=4):
        cars = frame.tables["cars"]
        people = frame.tables["people"]
        assert (cars.track_id.tolist(), people.track_id.tolist()) == ([1], [2])
        assert cars.extra["predicted"].tolist() == [frame.index >= 20]
        assert people.extra["predicted"].tolist() == [10 <= frame.index < 20]


def test_predicted_may_be_a_duration():
    footage = walkers(40, [(0, 0), (0, 200)])
    for frame in footage[20:]:
        without(frame, 0)
    shown = [len(row) for row in track(footage, predicted=0.2)]
    assert shown == [2] * 25 + [1] * 15


def test_objects_outside_the_image_are_not_predicted():
    footage = walkers(60, [(500, 0), (0, 200)], speed=150)
    for frame in footage[20:]:
        without(frame, 0)
    processed = run_stage(Track(predicted=5), footage)
    assert len(processed[22].detections) == 2
    assert len(processed[-1].detections) == 1
    tables = [frame.detections for frame in processed]
    assert max(table.xyxy[table.extra["predicted"], 2].max(initial=0) for table in tables) == 640


@pytest.mark.parametrize("way", [(0, 1), (0, -1), (1, 0), (-1, 0)])
def test_objects_that_left_on_any_side_are_not_predicted(way):
    """It is in the middle of 640 x 360 pixels, and leaves at 300 pixels a second."""
    footage = walkers(60, [(300, 140)], speed=0)
    for frame in footage:
        boxes = frame.detections.xyxy + np.tile(np.array(way) * 300 * frame.pts_s, 2).astype(np.float32)
        frame.detections = frame.detections.with_columns(xyxy=boxes)
    for frame in footage[15:]:
        without(frame, 0)
    processed = run_stage(Track(predicted=5), footage)
    shown = [frame.detections.xyxy for frame in processed[15:]]
    assert len(shown[0]) == 1
    assert len(shown[-1]) == 0
    for boxes in shown:
        assert (boxes[:, 2:] - boxes[:, :2] >= 1).all()
        assert (boxes >= 0).all()
        assert (boxes <= [640, 360, 640, 360]).all()


def test_a_predicted_object_keeps_its_score_and_class():
    footage = walkers(20, [(0, 0)])
    for frame in footage:
        score = np.array([0.9 if frame.index < 9 else 0.7], np.float32)
        frame.detections = frame.detections.with_columns(score=score, class_id=np.array([1], np.int32))
    for frame in footage[10:]:
        without(frame, 0)
    table = run_stage(Track(predicted=True), footage)[12].detections
    assert table.score.tolist() == [np.float32(0.7)]
    assert table.label == ["person"]


def skipping(footage, n):
    for frame in footage:
        if frame.index % n:
            frame.tables = {"detect": frame.detections[:0]}
            frame._state.skipped_detectors = frozenset({"detect"})
    return footage


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [2, 3, 5])
def test_skipped_frames_have_predicted_objects(method, n):
    processed = run_stage(Track(method=method), skipping(walkers(40, [(0, 0), (0, 200)]), n), batch=7)
    for frame in processed:
        table = frame.detections
        assert table.track_id.tolist() == [1, 2]
        assert table.extra["predicted"].tolist() == [bool(frame.index % n)] * 2
        if frame.index > 20 and method != "iou":
            np.testing.assert_allclose(table.xyxy[:, 0], 50 * frame.pts_s, atol=2)


def test_a_searched_frame_without_objects_has_no_predictions():
    footage = walkers(10, [(0, 0)])
    for frame in footage[6:]:
        without(frame, 0)
    assert track(footage)[6:] == [[]] * 4


def test_predicted_rows_of_branches_are_merged():
    from streamkit.core.detections import merge

    processed = run_stage(Track(), skipping(walkers(8, [(0, 0), (0, 200)]), 2))
    table = processed[3].detections
    assert len(merge(table, table[1:])) == 2
    joined = merge(table[:1], table[1:])
    assert joined.extra["predicted"].tolist() == [True, True]


# ------------------------------------------------------------------------------------------------------------ looks


def dressed(footage, looks):
    """Give the objects of each frame embeddings, (frames, objects, d)."""
    for frame, look in zip(footage, looks, strict=True):
        frame.detections = frame.detections.with_columns(embedding=np.array(look, np.float32))
    return footage


def test_embeddings_recover_a_lost_object_anywhere():
    red = [1.0, 0.0, 0.1]
    blue = [0.0, 1.0, 0.1]
    last_ids = []
    for appearance in (False, True):
        footage = walkers(60, [(0, 0), (0, 200)], speed=0)
        dressed(footage, [[red, blue]] * 60)
        for frame in footage[20:40]:
            without(frame, 0)
        for frame in footage[40:]:
            boxes = frame.detections.xyxy.copy()
            boxes[0] += [400, 150, 400, 150]
            frame.detections = frame.detections.with_columns(xyxy=boxes)
        last_ids.append(track(footage, appearance=appearance)[-1])
    assert last_ids == [[3, 2], [1, 2]]


def test_objects_without_embeddings_are_matched_by_position():
    footage = walkers(10, [(0, 0), (0, 200)])
    dressed(footage, [[[np.nan, np.nan], [1, 0]]] * 10)
    assert track(footage, appearance=True) == [[1, 2]] * 10
    assert track(walkers(10, [(0, 0)]), appearance=True) == [[1]] * 10
