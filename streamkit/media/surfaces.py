# SPDX-License-Identifier: Apache-2.0
"""Surface pool: NV12 buffers that are reused once their last reader has released them; and copies to a GPU.

Fresh memory is expensive: page faults on the host, an allocation that may stall every stream on a device. So a
surface's buffer returns to its pool when Python drops the surface, which the runtime does only after the GPU has passed
its last reader; a buffer from the pool may be written at once.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from streamkit.core.data import Array, Color, Device, Surface, array_module
from streamkit.core.errors import DeviceError
from streamkit.ops import traffic
from streamkit.ops.cuda import driver
from streamkit.ops.planes import nv12_shape

_POISON = 0x5A
_ALIGNMENT = 64


class SurfacePool:
    """Surfaces of any size on one device.

    Threads may share a pool: free buffers and counts are in deques, whose operations are atomic. The limit may be
    exceeded by one buffer per thread, but never by more.

    Args:
        device: device of the buffers.
        limit: maximum allocated bytes, in use or free; None for half of the memory.
        poison: fill a returned buffer with 0x5A, to detect readers that use pixels they no longer own. For tests; waits
            for the device.
    """

    def __init__(self, device: Device, *, limit: int | None = None, poison: bool = False) -> None:
        self.device = device
        self.limit = _half_of_memory(device) if limit is None else limit
        self.poison = poison
        self._free: dict[tuple[int, int], deque[Array]] = {}
        self._events: dict[int, Any] = {}  # on a device, each buffer's event after its last write, by address
        self._pending: dict[int, Any] = {}  # events of free buffers that are still pending
        self._turns = itertools.count()
        self._buffers: dict[tuple[int, int], deque[None]] = {}  # by shape, an item for each buffer alive, held or free

    def surface(self, width: int, height: int, color: Color, stream: Any = None) -> Surface:
        """Get a surface of this size with undefined pixels, for the caller to write.

        Args:
            width: in pixels.
            height: in pixels.
            color: color format of the pixels.
            stream: on a GPU, the CUDA stream that will write. Call `written` once the work is queued.

        Raises:
            DeviceError: the limit is reached, or memory is full; the text lists the surfaces in use by size.
        """
        shape = nv12_shape(width, height)
        try:
            data = self._free[shape].pop()
        except (KeyError, IndexError):
            data = self._allocate(shape)
        if stream is not None:
            # a surface that was dropped unread may still be being written by another stream
            pending = self._pending.pop(data.data.ptr, None)
            if pending is not None:
                driver.wait(stream, pending)
        return Surface(data, color, give_back=self._give_back)

    def written(self, surface: Surface, stream: Any) -> None:
        """Set `ready` to an event after all work that is queued on `stream` now.

        The event belongs to the buffer and is reused with it: only holders of the surface have it.
        """
        address = surface.data.data.ptr
        event = self._events.get(address)
        if event is None:
            with self.device.xp.cuda.Device(self.device.index):
                event = self._events[address] = self.device.xp.cuda.Event(disable_timing=True)
        driver.record(event, stream)
        surface.ready = event
        surface.turn = (stream.ptr, next(self._turns))

    @property
    def held(self) -> dict[str, int]:
        """Number of surfaces in use, by size."""
        counts = {
            shape: len(buffers) - len(self._free.get(shape, ())) for shape, buffers in list(self._buffers.items())
        }
        return {_size_text(shape): n for shape, n in sorted(counts.items()) if n > 0}

    @property
    def allocated(self) -> int:
        """Bytes in buffers, in use or free."""
        return sum(rows * columns * len(buffers) for (rows, columns), buffers in list(self._buffers.items()))

    def trim(self) -> None:
        """Free every unused buffer."""
        for shape, free in list(self._free.items()):
            with suppress(IndexError):  # it is empty, or another thread took the last one
                while True:
                    data = free.pop()
                    if self.device.kind != "cpu":
                        self._events.pop(data.data.ptr, None)
                        self._pending.pop(data.data.ptr, None)
                    self._buffers[shape].pop()

    def _give_back(self, data: Array, pending: Any) -> None:
        # runs in whichever thread dropped the surface, maybe inside the garbage collector: nothing here may block
        if self.poison:
            data.fill(_POISON)
            if array_module(data) is not np:
                array_module(data).cuda.get_current_stream().synchronize()
        if pending is not None:
            self._pending[data.data.ptr] = pending
        self._free.setdefault(data.shape, deque()).append(data)

    def _allocate(self, shape: tuple[int, int]) -> Array:
        size = shape[0] * shape[1]
        if self.allocated + size > self.limit:
            self.trim()  # sizes that are not in use
        if self.allocated + size > self.limit:
            raise DeviceError(self._full(shape, f"the limit of {self.limit / 1e6:,.0f} MB is reached"))
        buffers = self._buffers.setdefault(shape, deque())
        buffers.append(None)
        try:
            return self._new(shape)
        except MemoryError as error:  # CuPy's out of memory is one too
            buffers.pop()
            raise DeviceError(self._full(shape, "the memory is full")) from error

    def _new(self, shape: tuple[int, int]) -> Array:
        if self.device.kind == "cpu":
            raw = np.empty(shape[0] * shape[1] + _ALIGNMENT, np.uint8)
            first = -raw.ctypes.data % _ALIGNMENT
            return raw[first : first + shape[0] * shape[1]].reshape(shape)
        xp = self.device.xp
        with xp.cuda.Device(self.device.index):
            return xp.empty(shape, xp.uint8)

    def _full(self, shape: tuple[int, int], why: str) -> str:
        held = ", ".join(f"{n} of {size}" for size, n in self.held.items()) or "none"
        return (
            f"no room for a surface of {_size_text(shape)} on {self.device}: {why}. Surfaces held by stages, "
            f"queues and a program: {held}. Use fewer sources, smaller batches or shorter queues; in a Python loop, "
            "keep fewer frames"
        )


_shared: WeakValueDictionary[Device, SurfacePool] = WeakValueDictionary()


def shared_pool(device: Device) -> SurfacePool:
    """The pool of a device that all sources share; it lives as long as a source or a surface of it."""
    pool = _shared.get(device)
    if pool is None:
        pool = _shared[device] = SurfacePool(device, poison=bool(os.environ.get("STREAMKIT_POISON_SURFACES")))
    return pool


def _half_of_memory(device: Device) -> int:
    if device.kind == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    runtime: Any = device.xp.cuda.runtime
    with device.xp.cuda.Device(device.index):
        return int(runtime.memGetInfo()[1]) // 2


def _size_text(shape: tuple[int, int]) -> str:
    return f"{shape[1]}x{shape[0] * 2 // 3}"


_BUFFERS = 4


class Upload:
    """Copies host surfaces to a CUDA device on its own stream, through a ring of pinned buffers.

    Args:
        device: the GPU.
        pool: its surface pool.
    """

    def __init__(self, device: Device, pool: SurfacePool) -> None:
        self._cupy = device.xp
        self._index = device.index
        self._pool = pool
        with self._cupy.cuda.Device(self._index):
            self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._ring: list[tuple[Any, Any]] = [(None, None)] * _BUFFERS
        self._turn = 0

    def __call__(self, surface: Surface) -> Surface:
        """Copy a surface to the device; its `ready` is an event after the copy."""
        cupy = self._cupy
        host = surface.data
        up = self._pool.surface(surface.width, surface.height, surface.color, self._stream)
        with cupy.cuda.Device(self._index):
            staging = self._staging(host.nbytes)
            staged = np.frombuffer(staging, np.uint8, host.nbytes).reshape(host.shape)
            staged[:] = host
            cupy.cuda.runtime.memcpyAsync(
                up.data.data.ptr,
                staged.ctypes.data,
                host.nbytes,
                cupy.cuda.runtime.memcpyHostToDevice,
                self._stream.ptr,
            )
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
def uploader(device: Device) -> Iterator[Callable[[Surface], Surface]]:
    """Yield a function that copies a host surface to `device`; on the CPU it returns the surface itself."""
    if device.kind == "cpu":
        yield lambda surface: surface
        return
    upload = Upload(device, shared_pool(device))
    try:
        yield upload
    finally:
        upload.close()
