import random

import av
import numpy as np
import pytest

from streamkit.core.data import Color, Device, Surface
from streamkit.media.corruption import SurfaceCopies, add_noise_blocks, flip_bytes


def packet(size=1000):
    av_packet = av.Packet(bytes(range(250)) * 4 if size == 1000 else bytes(size))
    av_packet.pts = 7
    av_packet.dts = 5
    av_packet.is_keyframe = True
    return av_packet


def test_bytes_are_flipped_except_the_first():
    flipped = packet()
    before = bytes(packet())
    flip_bytes(flipped, 0.02, random.Random(1))
    changed = [i for i, (a, b) in enumerate(zip(bytes(flipped), before, strict=True)) if a != b]
    assert len(changed) == 20
    assert min(changed) >= 8
    assert (flipped.pts, flipped.dts, flipped.is_keyframe) == (7, 5, True)


def test_the_same_seed_flips_the_same_bytes():
    first = packet()
    same_seed = packet()
    other_seed = packet()
    flip_bytes(first, 0.02, random.Random(1))
    flip_bytes(same_seed, 0.02, random.Random(1))
    flip_bytes(other_seed, 0.02, random.Random(2))
    assert bytes(first) == bytes(same_seed) != bytes(other_seed)


@pytest.mark.parametrize(("size", "share", "changed"), [(1, 0.01, 1), (9, 1.0, 1), (9, 0.0, 1), (100, 1.0, 92)])
def test_the_share_sets_the_number_of_flipped_bytes(size, share, changed):
    flipped = packet(size)
    flip_bytes(flipped, share, random.Random(1))
    assert sum(byte != 0 for byte in bytes(flipped)) == changed


def damage(share, seed=1):
    return lambda data: add_noise_blocks(data, share, random.Random(seed))


@pytest.mark.parametrize(("share", "blocks"), [(0.0, 1), (0.1, 2), (1.0, 24)])
def test_blocks_are_corrupted_in_a_copy(share, blocks):
    surface = Surface(np.full((96, 64), 128, np.uint8), Color("bt601"))
    spoiled = SurfaceCopies(Device())(surface, damage(share))
    assert (surface.data == 128).all()
    assert spoiled.color == surface.color
    touched = (spoiled.data != 128).reshape(6, 16, 4, 16).mean((1, 3))
    assert (touched > 0).sum() == blocks
    assert touched[touched > 0].min() > 0.9
    assert (SurfaceCopies(Device())(surface, damage(share)).data == spoiled.data).all()
    assert (SurfaceCopies(Device())(surface, damage(share, 2)).data != spoiled.data).any()


def test_an_image_smaller_than_a_block_is_corrupted():
    spoiled = SurfaceCopies(Device())(Surface(np.full((6, 4), 128, np.uint8), Color()), damage(0.01))
    assert (spoiled.data != 128).any()


def test_a_copy_does_not_share_memory():
    surface = Surface(np.arange(96 * 64, dtype=np.uint8).reshape(96, 64), Color())
    copied = SurfaceCopies(Device())(surface)
    assert (copied.data == surface.data).all()
    copied.data[:] = 0
    assert surface.data.any()


@pytest.mark.gpu
def test_gpu_and_cpu_corrupt_the_same_blocks():
    import cupy

    host = np.arange(96 * 64, dtype=np.uint8).reshape(96, 64)
    surface = Surface(cupy.asarray(host), Color())
    cupy.cuda.get_current_stream().synchronize()
    copies = SurfaceCopies(Device("cuda"))
    spoiled = copies(surface, damage(0.2))
    plain = copies(surface)
    spoiled.ready.synchronize()
    expected = SurfaceCopies(Device())(Surface(host, Color()), damage(0.2))
    np.testing.assert_array_equal(spoiled.data.get(), expected.data)
    np.testing.assert_array_equal(plain.data.get(), host)
    np.testing.assert_array_equal(surface.data.get(), host)
