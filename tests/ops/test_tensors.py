"""Pixels through DLPack: values, memory that is shared and held, and what is refused."""

import gc
import importlib.util

import numpy as np
import pytest

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Device, Frame, Surface
from streamkit.media.surfaces import SurfacePool
from streamkit.ops import traffic
from streamkit.ops.color import to_rgb

COLOR = Color()


def noise(width, height, seed=0):
    shape = ((height + height % 2) * 3 // 2, width + width % 2)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def pooled(pool, width=64, height=48, seed=0):
    """A frame whose surface belongs to the pool, and its pixels."""
    surface = pool.surface(width, height, COLOR)
    data = noise(width, height, seed)
    surface.data[:] = pool.device.xp.asarray(data)
    if pool.device.kind == "cuda":
        pool.device.xp.cuda.get_current_stream().synchronize()
    return Frame("cam", 0, 0.0, width, height, surface), data


class OldConsumer:
    """What a consumer of DLPack before 1.0 sees: no version, no device."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, *, stream=None):
        return self.tensor.__dlpack__(stream=stream)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def frame_of(width=7, height=5):
    return Frame("cam", 3, 0.0, width, height, Surface(noise(width, height), COLOR))


def test_an_image_is_rgb_or_bgr():
    frame = frame_of()
    rgb = frame.image()
    bgr = frame.image(order="bgr")
    assert rgb.shape == (5, 7, 3)
    assert rgb.dtype == np.uint8
    np.testing.assert_array_equal(rgb, to_rgb(frame.surface, 7, 5))
    np.testing.assert_array_equal(bgr, rgb[..., ::-1])
    assert bgr.flags.c_contiguous  # OpenCV draws on no other
    assert rgb.flags.writeable
    with pytest.raises(ValueError, match="order must be 'rgb' or 'bgr', got 'gray'"):
        frame.image(order="gray")


def test_rgb_is_a_new_tensor_with_the_pixels_of_the_image():
    frame = frame_of()
    tensor = frame.rgb()
    assert (tensor.shape, tensor.dtype, tensor.device, tensor.nbytes) == ((5, 7, 3), np.uint8, "cpu", 105)
    assert repr(tensor) == "PixelTensor(uint8[5, 7, 3]@cpu)"
    array = np.from_dlpack(tensor)
    np.testing.assert_array_equal(array, frame.image())
    array[:] = 0  # it is the caller's own
    assert frame.rgb().__array__().any()


def test_nv12_is_the_surface_itself_without_its_padding():
    frame = frame_of()
    y, uv, color = frame.nv12()
    data = frame.surface.data
    assert color is COLOR
    np.testing.assert_array_equal(np.from_dlpack(y), data[:5, :7])
    np.testing.assert_array_equal(np.from_dlpack(uv), data[6:].reshape(3, 4, 2))
    assert np.from_dlpack(y).ctypes.data == data.ctypes.data
    assert np.from_dlpack(uv).ctypes.data == data[6:].ctypes.data


def test_numpy_cannot_write_to_a_surface():
    y = frame_of().nv12().y
    for array in (np.from_dlpack(y), np.asarray(y)):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1


def test_a_consumer_without_read_only_support_reads_the_same_memory():
    frame = frame_of()
    old = np.from_dlpack(OldConsumer(frame.nv12().uv))
    assert old.ctypes.data == frame.surface.data[6:].ctypes.data
    np.testing.assert_array_equal(old, frame.surface.data[6:].reshape(3, 4, 2))


VIEWS = {
    "numpy.from_dlpack": lambda planes: np.from_dlpack(planes.y),
    "a part of it": lambda planes: np.from_dlpack(planes.uv)[2:4, ::2],
    "numpy.asarray": lambda planes: np.asarray(planes.y),
    "DLPack before 1.0": lambda planes: np.from_dlpack(OldConsumer(planes.y)),
    "a capsule that is not used": lambda planes: planes.y.__dlpack__(max_version=(1, 0)),
    "the tensor": lambda planes: planes.uv,
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_surface_is_not_reused_while_a_view_of_it_lives(view):
    pool = SurfacePool(Device(), poison=True)
    frame, _ = pooled(pool)
    held = view(frame.nv12())
    before = held.copy() if isinstance(held, np.ndarray) else None
    del frame
    gc.collect()
    other = pool.surface(64, 48, COLOR)
    other.data[:] = 99
    assert pool.held == {"64x48": 2}
    if before is not None:
        np.testing.assert_array_equal(held, before)
    del held
    gc.collect()
    assert pool.held == {"64x48": 1}


def test_a_tensor_of_rgb_does_not_hold_the_surface():
    pool = SurfacePool(Device(), poison=True)
    frame, data = pooled(pool)
    array = np.from_dlpack(frame.rgb())
    del frame
    assert pool.held == {}
    np.testing.assert_array_equal(array, to_rgb(Surface(data, COLOR), 64, 48))


def test_another_device_is_refused():
    with pytest.raises(BufferError, match=r"these pixels are on cpu, .* frame.image\(\) copies to the host"):
        frame_of().rgb().__dlpack__(dl_device=(2, 0))
    assert frame_of().rgb().__dlpack__(dl_device=(1, 0)) is not None


@pytest.mark.parametrize("method", ["image", "rgb", "nv12"])
def test_a_frame_without_pixels_is_refused(method):
    with pytest.raises(ValueError, match="frame 0 of cam has no pixels: its source makes none, or a stage removed"):
        getattr(Frame("cam", 0, 0.0, 64, 48), method)()


# ------------------------------------------------------------------------------------------------------ on the GPU


def libraries():
    """`from_dlpack` of the libraries that are there, and how to read their arrays."""
    import cupy

    yield cupy.from_dlpack, lambda array: array.get()
    if importlib.util.find_spec("torch"):
        import torch

        yield torch.from_dlpack, lambda tensor: tensor.cpu().numpy()


@pytest.mark.gpu
def test_device_tensors_have_the_pixels_without_a_copy_to_the_host():
    pool = SurfacePool(Device("cuda"))
    frame, data = pooled(pool, 63, 47)
    counters = frame._state.counters = Counters()
    before = traffic.so_far()
    tensors = [frame.rgb(), *frame.nv12()[:2]]
    arrays = [[(take(tensor), read) for tensor in tensors] for take, read in libraries()]
    assert traffic.so_far().to_host == before.to_host
    assert counters["pixels to host"] == 0
    assert [tensor.device for tensor in tensors] == ["cuda:0"] * 3
    for (rgb, read), (y, _), (uv, _) in arrays:
        error = np.abs(read(rgb).astype(int) - to_rgb(Surface(data, COLOR), 63, 47))
        assert error.max() <= 1  # OpenCV on the host rounds intermediate values
        np.testing.assert_array_equal(read(y), data[:47, :63])
        np.testing.assert_array_equal(read(uv), data[48:].reshape(24, 32, 2))
    frame.image()
    assert traffic.so_far().to_host - before.to_host == data.nbytes
    assert counters["pixels to host"] == 1


@pytest.mark.gpu
def test_a_device_surface_is_not_reused_while_a_view_of_it_lives():
    pool = SurfacePool(Device("cuda"), poison=True)
    for take, read in libraries():
        frame, data = pooled(pool)
        view = take(frame.nv12().y)
        del frame
        gc.collect()
        assert pool.held == {"64x48": 1}
        np.testing.assert_array_equal(read(view), data[:48])
        del view
        gc.collect()
        assert pool.held == {}


@pytest.mark.gpu
@pytest.mark.parametrize("export", ["rgb", "nv12"])
@pytest.mark.parametrize("separate_stream", [False, True])
def test_the_next_writer_of_a_surface_waits_for_readers_on_the_gpu(export, separate_stream):
    """Work that reads a dropped frame is still queued behind a long kernel when its surface is written again."""
    import cupy

    pool = SurfacePool(Device("cuda"))
    writer = cupy.cuda.Stream(non_blocking=True)
    slow = cupy.random.random((3000, 3000), dtype=np.float32)
    reader = cupy.cuda.Stream(non_blocking=True) if separate_stream else cupy.cuda.Stream.null
    frame, data = pooled(pool, 640, 480)
    address = frame.surface.data.data.ptr
    with reader:
        for _ in range(20):
            slow = slow @ slow * np.float32(1e-4)
        if export == "rgb":
            result = cupy.from_dlpack(frame.rgb()).copy()
        else:
            view = cupy.from_dlpack(frame.nv12().y)
            result = view.copy()
            del view
    del frame
    gc.collect()
    with writer:
        again = pool.surface(640, 480, COLOR, writer)
        assert again.data.data.ptr == address
        again.data.fill(7)
        pool.written(again, writer)
    reader.synchronize()
    if export == "rgb":
        error = np.abs(result.get().astype(int) - to_rgb(Surface(data, COLOR), 640, 480))
        assert error.max() <= 1
    else:
        np.testing.assert_array_equal(result.get(), data[:480])


@pytest.mark.gpu
def test_device_pixels_go_to_the_host_by_image_only():
    frame, _ = pooled(SurfacePool(Device("cuda")))
    tensor = frame.rgb()
    with pytest.raises(TypeError, match=r"these pixels are on cuda:0: frame.image\(\) copies them"):
        np.asarray(tensor)
    with pytest.raises(BufferError, match=r"frame.image\(\) copies"):
        np.from_dlpack(tensor, device="cpu")
