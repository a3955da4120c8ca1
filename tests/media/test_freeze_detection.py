import numpy as np
import pytest

from streamkit.core.data import Color, Surface
from streamkit.media.freeze_detection import FreezeDetector


def surface(value, xp=np):
    data = xp.zeros((96, 64), np.uint8)
    data[8, 16] = value
    if xp is not np:
        xp.cuda.get_current_stream().synchronize()  # it has no event to wait for
    return Surface(data, Color())


def when(still, values, xp=np):
    """The seconds at which it says so, where a frame comes each second."""
    return [now for now, value in enumerate(values) if still(surface(value, xp), float(now))]


def test_a_frozen_image_is_detected():
    assert when(FreezeDetector(4.0), [1] * 10) == [4]
    assert when(FreezeDetector(4.0), [1, 2, 2, 2, 2, 2, 2]) == [5]
    assert when(FreezeDetector(4.0), list(range(50))) == []
    assert when(FreezeDetector(4.0), [1, 1, 1, 2] * 5) == []


def test_the_tolerated_time_of_a_still_scene_grows():
    still = FreezeDetector(4.0)
    assert when(still, [1] * 6) == [4]
    still.reset()  # connected again: the same scene, decoded a little differently
    assert when(still, [2] * 18) == [16]
    still.reset()
    assert when(still, [3] * 60) == []
    assert when(FreezeDetector(4.0), [1] * 6) == [4]


def test_movement_resets_the_tolerated_time():
    still = FreezeDetector(4.0)
    when(still, [1] * 6)
    still.reset()
    assert when(still, [2, 3, 3, 3, 3, 3, 3]) == [5]


def test_images_are_compared_once_a_second():
    still = FreezeDetector(60.0)
    seen = []
    for n in range(100):
        frame = surface(n)
        still._fingerprint = lambda frame_surface: seen.append(frame_surface) or 0
        still(frame, n * 0.04)
    assert 4 <= len(seen) <= 5


@pytest.mark.gpu
def test_freezing_is_detected_on_a_device():
    import cupy

    assert when(FreezeDetector(4.0), [1] * 6, cupy) == [4]
    assert when(FreezeDetector(4.0), list(range(12)), cupy) == []
