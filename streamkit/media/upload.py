"""Copies host surfaces to a GPU: frames that NVDEC cannot decode, images, test patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from streamkit.core.data import Device, Surface
from streamkit.media.surfaces import SurfacePool, shared_pool
from streamkit.ops import traffic

_BUFFERS = 4


class Upload:
    """Copies host surfaces to a CUDA device on its own stream, through a ring of pinned buffers.

    Args:
        device: the GPU.
        pool: its surface pool.
    """

    def __init__(self, device: Device, pool: SurfacePool) -> None:
        self._cupy, self._index, self._pool = device.xp, device.index, pool
        with self._cupy.cuda.Device(self._index):
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._ring: list[tuple[Any, Any]] = [(None, None)] * _BUFFERS
        self._turn = 0

    def __call__(self, surface: Surface) -> Surface:
        """Copy a surface to the device; its `ready` is an event after the copy."""
        cupy, host = self._cupy, surface.data
        up = self._pool.surface(surface.width, surface.height, surface.color, self._stream)
        with cupy.cuda.Device(self._index):
            staging = self._staging(host.nbytes)
            staged = np.frombuffer(staging, np.uint8, host.nbytes).reshape(host.shape)
            staged[:] = host
            cupy.cuda.runtime.memcpyAsync(
                up.data.data.ptr, staged.ctypes.data, host.nbytes, cupy.cuda.runtime.memcpyHostToDevice,
                self._stream.ptr,
            )  # fmt: skip
            self._pool.written(up, self._stream)
            traffic.sent(host.nbytes)
            self._ring[self._turn] = staging, up.ready
        return up

    def close(self) -> None:
        """Wait for copies in progress."""
        self._stream.synchronize()
        self._ring = [(None, None)] * _BUFFERS

    def _staging(self, size: int) -> Any:
        """A pinned buffer that no copy reads."""
        self._turn = (self._turn + 1) % _BUFFERS
        memory, event = self._ring[self._turn]
        if event is not None:
            event.synchronize()
        if memory is None or memory.size() < size:
            memory = self._cupy.cuda.alloc_pinned_memory(size)
        return memory


@contextmanager
def place(device: Device) -> Iterator[Callable[[Surface], Surface]]:
    """Yield a function that copies a host surface to `device`; on the CPU it returns the surface itself."""
    if device.kind == "cpu":
        yield lambda surface: surface
        return
    upload = Upload(device, shared_pool(device))
    try:
        yield upload
    finally:
        upload.close()
