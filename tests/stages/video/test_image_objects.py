"""Objects of a part of a frame: moved with it, clipped, or left out."""

import numpy as np

from streamkit.ops import rle
from streamkit.stages.video.image_objects import objects_within
from streamkit.testing.kit import detections

RECT = (40, 20, 140, 120)


def test_boxes_are_moved_and_clipped_and_those_outside_dropped():
    table = detections(
        [[50, 30, 90, 60], [120, 100, 150, 130], [100, 20, 200, 60], [200, 20, 240, 60], [130, 30, 150, 60]]
    )
    objects, rows = objects_within(table, RECT)
    assert rows.tolist() == [0, 4]
    assert objects.xyxy.tolist() == [[10, 10, 50, 40], [90, 10, 100, 40]]


def test_masks_keypoints_and_corners_move_along():
    whole = np.zeros((150, 200), bool)
    whole[25:70, 30:80] = True
    mask = np.full(2, None)
    mask[0] = rle.encode(whole, 200, 150)
    points = np.array([[[50, 30, 0.9], [30, 30, 0.8], [60, 50, 0.0]], [[np.nan] * 3] * 3], np.float32)
    corners = np.array([[[50, 30], [80, 40], [70, 60], [45, 50]], [[np.nan] * 2] * 4], np.float32)
    table = detections([[30, 25, 80, 70], [60, 30, 90, 60]], mask=mask, keypoints=points, corners=corners)
    objects, _ = objects_within(table, RECT)
    assert np.array_equal(rle.decode(objects.extra["mask"][0]), whole[20:120, 40:140])
    assert objects.extra["mask"][1] is None
    assert objects.extra["keypoints"][0].tolist() == [[10, 10, np.float32(0.9)], [0, 0, 0], [20, 30, 0]]
    assert np.isnan(objects.extra["keypoints"][1]).all()
    assert objects.extra["corners"][0].tolist() == [[10, 10], [40, 20], [30, 40], [5, 30]]
    assert np.isnan(objects.extra["corners"][1]).all()
