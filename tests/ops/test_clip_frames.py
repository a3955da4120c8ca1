"""Rings of frames: what is read is what was written last, and memory follows the number of rings."""

import importlib

import numpy as np
import pytest

from streamkit.ops import traffic
from streamkit.ops.clip_frames import ClipFrames

SHAPE = (3, 4, 6)
RING_BYTES = 3 * 4 * 6 * 4 * 4


@pytest.fixture(params=["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
def xp(request):
    return importlib.import_module(request.param)


def rings(xp, max_rings=64):
    return ClipFrames(4, SHAPE, np.dtype(np.float32), xp, max_rings * RING_BYTES)


def on_host(array):
    return array.get() if hasattr(array, "get") else array


def test_clips_are_the_last_frames_in_their_order(xp):
    clips = rings(xp)
    random = np.random.default_rng(0)
    numbers = [clips.take() for _ in range(5)]
    video = random.random((5, 11, *SHAPE), np.float32)
    for index in range(11):
        clips.write(np.array(numbers), np.full(5, index % 4), xp.asarray(video[:, index]))
    read = on_host(clips.read(np.array(numbers[1:4]), np.full(3, 11 % 4)))
    np.testing.assert_array_equal(read, video[1:4, 7:])


def test_memory_grows_and_shrinks_with_the_rings_and_their_frames_stay(xp):
    clips = rings(xp)
    assert clips.nbytes == 0
    first = clips.take()
    frames = xp.asarray(np.random.default_rng(1).random((4, *SHAPE), np.float32))
    clips.write(np.full(4, first), np.arange(4), frames)
    others = [clips.take() for _ in range(19)]
    assert clips.nbytes == 32 * RING_BYTES
    for ring in others:
        clips.give_back(ring)
    assert clips.nbytes <= 4 * RING_BYTES
    np.testing.assert_array_equal(on_host(clips.read(np.array([first]), np.array([0])))[0], on_host(frames))
    clips.give_back(first)
    assert clips.nbytes == 0


def test_there_is_a_ring_at_least_and_none_beyond_the_memory(xp):
    clips = rings(xp, 0)
    ring = clips.take()
    assert ring is not None
    assert clips.take() is None
    clips.give_back(ring)
    assert clips.take() is not None
    full = rings(xp, 3)
    assert [full.take() is None for _ in range(4)] == [False, False, False, True]
    assert full.nbytes == 3 * RING_BYTES


@pytest.mark.gpu
def test_only_places_are_copied_to_the_device():
    import cupy

    clips = rings(cupy)
    ring = clips.take()
    frames = cupy.zeros((4, *SHAPE), np.float32)
    before = traffic.so_far()
    clips.write(np.full(4, ring), np.arange(4), frames)
    clips.read(np.array([ring]), np.array([0]))
    after = traffic.so_far()
    assert after.to_host == before.to_host
    assert after.to_device - before.to_device == 2 * 2 * 4 * 8
