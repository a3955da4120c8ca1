"""Bytes between host and device are counted where the copies are made."""

import numpy as np
import pytest

from streamkit.core.data import Color, Device, Surface
from streamkit.ops import traffic
from streamkit.ops.letterbox import InputSpec
from streamkit.ops.planes import nv12_shape
from streamkit.ops.preprocess import preprocess
from streamkit.ops.transfer import fetch


def crossed(work):
    before = traffic.so_far()
    work()
    after = traffic.so_far()
    return after.to_device - before.to_device, after.to_host - before.to_host


def test_both_directions_are_counted():
    assert crossed(lambda: (traffic.sent(10), traffic.sent(5), traffic.fetched(7))) == (15, 7)


def test_nothing_is_counted_on_the_host():
    surface = Surface(np.zeros(nv12_shape(64, 48), np.uint8), Color())
    assert crossed(lambda: preprocess([surface], [(64, 48)], InputSpec((32, 32)))) == (0, 0)
    assert crossed(lambda: fetch([np.zeros(9)])()) == (0, 0)


@pytest.mark.gpu
def test_a_fetch_counts_its_bytes():
    import cupy

    arrays = [cupy.zeros((3, 4), np.float32), cupy.zeros(5, np.uint8)]
    assert crossed(lambda: fetch(arrays)()) == (0, 53)


@pytest.mark.gpu
def test_preprocess_sends_some_hundred_bytes_and_no_pixels():
    import cupy

    surfaces = [Surface(cupy.zeros(nv12_shape(640, 480), np.uint8), Color()) for _ in range(8)]
    to_device, to_host = crossed(lambda: preprocess(surfaces, [(640, 480)] * 8, InputSpec((320, 320))))
    assert 0 < to_device < 8 * 512
    assert to_host == 0


@pytest.mark.gpu
def test_an_uploaded_picture_is_counted():
    from streamkit.media.surfaces import uploader

    surface = Surface(np.zeros(nv12_shape(64, 48), np.uint8), Color())

    def upload():
        with uploader(Device("cuda")) as put:
            put(surface)

    assert crossed(upload) == (surface.data.nbytes, 0)
