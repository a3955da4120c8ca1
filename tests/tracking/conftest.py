"""Detections that trackers are measured on, made once for all tests."""

import functools

import pytest


@pytest.fixture(scope="session")
def scene(tmp_path_factory):
    """Of a drawn scene, by its seed: the frames with the demo network's detections, and the truth."""
    from support import scenes

    return functools.cache(lambda seed: scenes.scene(seed, tmp_path_factory.mktemp("scene")))


@pytest.fixture(scope="session")
def campus(test_data):
    """The frames of vtest_480x360.mp4 with the people that YOLOX-nano finds there."""
    from support import scenes

    return scenes.campus(test_data)
