# SPDX-License-Identifier: Apache-2.0
"""Pixels of a frame for other libraries, on the frame's device, through DLPack (https://dmlc.github.io/dlpack).

An array that another library makes from a `PixelTensor` holds the memory until the library drops it, also when frame
and tensor are gone. A pooled surface returns to its pool then. On a GPU, a kernel may still read the memory at that
time. Work on the CUDA default stream, where PyTorch and CuPy run by default, is ordered before the next writer by an
event. If an array was made on another stream, dropping it waits for the device.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from streamkit.core.data import Array, Frame, Surface, array_module
from streamkit.core.dlpack import Nv12Planes
from streamkit.ops import color
from streamkit.ops.cuda import driver
from streamkit.ops.letterbox import InputSpec
from streamkit.ops.preprocess import preprocess

_DEFAULT_STREAMS = (None, 0, 1)  # DLPack's numbers for the legacy default stream


class PixelTensor:
    """An array of pixels that other libraries read without a copy to the host, by `from_dlpack`.

    `torch.from_dlpack`, `cupy.from_dlpack` and `numpy.from_dlpack` accept it; on the host, `numpy.asarray` does too.

    Attributes:
        shape: the lengths of its dimensions.
        dtype: uint8.
        device: `cpu`, or `cuda:N`.
        nbytes: its size in bytes.
    """

    def __init__(self, array: Array, hold: _Hold) -> None:
        self._array = array
        self._hold = hold
        self.shape: tuple[int, ...] = tuple(array.shape)
        self.dtype: np.dtype[Any] = array.dtype
        self.nbytes = int(array.nbytes)
        self._on_host = array_module(array) is np
        self.device = "cpu" if self._on_host else f"cuda:{array.device.id}"

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, index = self._array.__dlpack_device__()
        return int(kind), int(index)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export to DLPack; on a GPU, `stream` waits until the pixels are written.

        Raises:
            BufferError: another device is requested.
        """
        if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != self.__dlpack_device__():
            raise BufferError(
                f"these pixels are on {self.device}, and DLPack passes them on there only; frame.image() copies to the "
                "host"
            )
        if self._on_host:
            signals_read_only = max_version is not None and max_version[0] >= 1
            array = self._array if signals_read_only else self._hold.writable(self._array)
            return array.__dlpack__(max_version=max_version, copy=copy)
        with device_of(self._array):
            self._hold.wait(stream)
            return self._array.__dlpack__(stream=stream, max_version=max_version, copy=copy)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if not self._on_host:
            raise TypeError(
                f"these pixels are on {self.device}: frame.image() copies them to the host, torch.from_dlpack and "
                "cupy.from_dlpack read them there"
            )
        return np.array(self._array, dtype, copy=copy)

    def __repr__(self) -> str:
        return f"PixelTensor({self.dtype}{list(self.shape)}@{self.device})"


class _Hold:
    """Owns the memory of exported arrays: the base of each, so that it is deleted after the last one.

    Args:
        data: the memory, C-contiguous, on host or device.
        surface: the surface that `data` belongs to; None for memory of its own.
        ready: a CUDA event after the last write to memory of its own.
        ordered: whether freed memory is written again only after the work on the default stream.
    """

    def __init__(
        self, data: Array, surface: Surface | None = None, *, ready: Any = None, ordered: bool = False
    ) -> None:
        self._data = data
        self._surface = surface
        self._ready = ready
        self._ordered = ordered
        self._exported = self._elsewhere = False

    def array(self) -> Array:
        """The memory as an array that holds this object; read-only on the host if it belongs to a surface."""
        if array_module(self._data) is np:
            return np.asarray(self)
        import cupy

        memory = cupy.cuda.UnownedMemory(self._data.data.ptr, self._data.nbytes, self, self._data.device.id)
        return cupy.ndarray(self._data.shape, np.uint8, cupy.cuda.MemoryPointer(memory, 0))

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {**self._data.__array_interface__, "data": (self._data.ctypes.data, self._surface is not None)}

    def writable(self, array: np.ndarray) -> np.ndarray:
        """The same view without the read-only flag, which DLPack before 1.0 cannot express."""
        if array.flags.writeable:
            return array
        interface = {**array.__array_interface__, "data": (array.ctypes.data, False)}
        return np.asarray(_View(interface, self))

    def wait(self, stream: Any) -> None:
        """Make the current stream, for which DLPack makes the consumer wait, wait for the pixels."""
        import cupy

        self._exported = True
        self._elsewhere |= stream not in _DEFAULT_STREAMS
        ready = self._ready if self._surface is None else self._surface.ready
        if ready is not None:
            driver.wait(cupy.cuda.get_current_stream(), ready)

    def __del__(self, exits: Callable[[], bool] = sys.is_finalizing) -> None:
        if not getattr(self, "_exported", False) or exits():  # `sys` itself may be gone at the exit
            return
        if self._ordered and not self._elsewhere and self._surface is None:  # the stream's order is enough
            return
        import cupy

        with device_of(self._data):
            if self._elsewhere or not self._ordered:
                cupy.cuda.runtime.deviceSynchronize()
            elif self._surface is not None:
                mark_read(self._surface, cupy.cuda.Stream.null)


class _View:
    """A NumPy view of the memory of a `_Hold`."""

    def __init__(self, interface: dict[str, Any], hold: _Hold) -> None:
        self.__array_interface__ = interface
        self._hold = hold


def device_of(array: Array) -> AbstractContextManager[object]:
    """Make the device of an array current, for threads outside the pipeline; on the host it does nothing."""
    if array_module(array) is np:
        return nullcontext()
    from cupy.cuda import runtime

    index = array.data.device_id
    if runtime.getDevice() != index:
        return _switched(array)
    runtime.setDevice(index)  # a new thread has no context until then, and CUDA's driver needs one (`ops.cuda.driver`)
    return nullcontext()


@contextmanager
def _switched(array: Array) -> Iterator[None]:
    with array.device:
        yield


def mark_read(surface: Surface, stream: Any) -> None:
    """Make the next writer of a pooled surface wait for the work that is on `stream` now."""
    import cupy

    if surface.ready is not None:
        driver.wait(stream, surface.ready)
    event = cupy.cuda.Event(disable_timing=True)
    driver.record(event, stream)
    surface.ready = event
    surface.turn = None
    surface.awaited = False


def image(frame: Frame, order: Literal["rgb", "bgr"] = "rgb") -> np.ndarray:
    """See `Frame.image`."""
    if order not in ("rgb", "bgr"):
        raise ValueError(f"order must be 'rgb' or 'bgr', got {order!r}")
    rgb = color.rgb(frame)
    if order == "rgb":
        return rgb
    import cv2

    return np.asarray(cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR))


def rgb_tensor(frame: Frame) -> PixelTensor:
    """See `Frame.rgb`."""
    surface = color.surface_of(frame)
    if array_module(surface.data) is np:
        hold = _Hold(color.to_rgb(surface, frame.width, frame.height))
        return PixelTensor(hold.array(), hold)
    import cupy

    with device_of(surface.data):
        stream = cupy.cuda.get_current_stream()
        rgb = preprocess([surface], [(frame.width, frame.height)], _same_size(frame.width, frame.height))[0][0]
        if surface.pooled:
            mark_read(surface, stream)
            ready = surface.ready
        else:  # its memory returns to CuPy, whose allocator knows nothing of this stream
            stream.synchronize()
            ready = None
        hold = _Hold(rgb, ready=ready, ordered=stream.ptr == cupy.cuda.Stream.null.ptr)
    return PixelTensor(hold.array(), hold)


def nv12_planes(frame: Frame) -> Nv12Planes:
    """See `Frame.nv12`."""
    surface = color.surface_of(frame)
    width = frame.width
    height = frame.height
    color.check_size(surface.data.shape, width, height)
    hold = _Hold(surface.data, surface, ordered=surface.pooled)
    data = hold.array()
    rows = surface.height
    chroma = data[rows:].reshape(rows // 2, -1, 2)[: (height + 1) // 2, : (width + 1) // 2]
    return Nv12Planes(PixelTensor(data[:height, :width], hold), PixelTensor(chroma, hold), surface.color)


@lru_cache(maxsize=64)
def _same_size(width: int, height: int) -> InputSpec:
    return InputSpec((width, height), "stretch", layout="nhwc", dtype="u8")
