import gc

import numpy as np
import pytest

from streamkit.core.data import Color, Device
from streamkit.core.errors import DeviceError
from streamkit.media.surfaces import SurfacePool, shared_pool

CPU = Device()
COLOR = Color()


def test_a_buffer_is_reused_once_its_surface_is_released():
    pool = SurfacePool(CPU)
    first = pool.surface(64, 48, COLOR)
    address = first.data.ctypes.data
    assert pool.held == {"64x48": 1}
    del first
    assert pool.held == {}
    second = pool.surface(64, 48, COLOR)
    assert second.data.ctypes.data == address
    assert pool.allocated == 64 * 48 * 3 // 2
    assert second.data.ctypes.data % 64 == 0


def test_a_retained_surface_keeps_its_pixels():
    pool = SurfacePool(CPU, poison=True)
    held = [pool.surface(8, 6, COLOR) for _ in range(3)]
    for i, surface in enumerate(held):
        surface.data[:] = i
    for _ in range(10):
        pool.surface(8, 6, COLOR).data[:] = 99
    assert [int(s.data.max()) for s in held] == [0, 1, 2]


def test_poisoning_reveals_late_reads():
    pool = SurfacePool(CPU, poison=True)
    surface = pool.surface(8, 6, COLOR)
    data = surface.data
    data[:] = 1
    del surface
    assert (data == 0x5A).all()


def test_odd_sizes_are_padded_to_even():
    surface = SurfacePool(CPU).surface(7, 5, COLOR)
    assert surface.data.shape == (9, 8)


def test_the_limit_names_the_holders():
    pool = SurfacePool(CPU, limit=3 * 64 * 48 * 3 // 2)
    held = [pool.surface(64, 48, COLOR) for _ in range(3)]
    with pytest.raises(
        DeviceError, match=r"no room for a surface of 64x48 on cpu: the limit .* held .*: 3 of 64x48\. Use"
    ):
        pool.surface(64, 48, COLOR)
    del held[0]
    held.append(pool.surface(64, 48, COLOR))
    del held


def test_free_buffers_of_other_sizes_are_released():
    pool = SurfacePool(CPU, limit=64 * 48 * 3 // 2)
    del [pool.surface(64, 48, COLOR)][0]
    held = pool.surface(32, 48, COLOR)
    assert pool.allocated == 32 * 48 * 3 // 2
    assert pool.held == {"32x48": 1}
    del held


def test_the_shared_pool_lives_as_long_as_its_surfaces():
    surface = shared_pool(CPU).surface(10, 10, COLOR)
    address = surface.data.ctypes.data
    gc.collect()
    del surface
    pool = shared_pool(CPU)
    assert pool is shared_pool(CPU)
    assert address


@pytest.mark.gpu
def test_surfaces_are_pooled_on_the_device():
    import cupy

    pool = SurfacePool(Device("cuda"), poison=True)
    surface = pool.surface(640, 360, COLOR)
    assert isinstance(surface.data, cupy.ndarray)
    surface.data.fill(1)
    data = surface.data
    del surface
    assert (data.get() == 0x5A).all()
    again = pool.surface(640, 360, COLOR)
    assert again.data.data.ptr == data.data.ptr
    assert np.prod(again.data.shape) == pool.allocated


@pytest.mark.gpu
def test_the_device_limit_names_the_holders():
    pool = SurfacePool(Device("cuda"), limit=640 * 360 * 3)
    held = [pool.surface(640, 360, COLOR) for _ in range(2)]
    with pytest.raises(DeviceError, match=r"on cuda:0: .* 2 of 640x360"):
        pool.surface(640, 360, COLOR)
    del held
