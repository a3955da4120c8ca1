"""Host pictures to a GPU: what NVDEC cannot decode, pictures from files, test patterns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from streamkit.data import Device, Surface
from streamkit.media.surfaces import SurfacePool, shared_pool
from streamkit.ops import traffic

_BUFFERS = 4


class Upload:
    """Copies host surfaces to a CUDA device on a stream of its own, through a ring of pinned memory.

    Args:
        device: the GPU.
        pool: its surfaces.
    """

    def __init__(self, device: Device, pool: SurfacePool) -> None:
        self._cupy, self._index, self._pool = device.xp, device.index, pool
        with self._cupy.cuda.Device(self._index):
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._ring: list[tuple[Any, Any]] = [(None, None)] * _BUFFERS
        self._turn = 0

    def __call__(self, surface: Surface) -> Surface:
        """The same picture on the device; its `ready` says when."""
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
        """Wait for the copies under way."""
        self._stream.synchronize()
        self._ring = [(None, None)] * _BUFFERS

    def _staging(self, size: int) -> Any:
        """Pinned memory that no copy reads any more."""
        self._turn = (self._turn + 1) % _BUFFERS
        memory, event = self._ring[self._turn]
        if event is not None:
            event.synchronize()
        if memory is None or memory.size() < size:
            memory = self._cupy.cuda.alloc_pinned_memory(size)
        return memory


@contextmanager
def place(device: Device) -> Iterator[Callable[[Surface], Surface]]:
    """A function that puts a host surface on `device`; on the CPU it hands it back."""
    if device.kind == "cpu":
        yield lambda surface: surface
        return
    upload = Upload(device, shared_pool(device))
    try:
        yield upload
    finally:
        upload.close()
