# SPDX-License-Identifier: Apache-2.0
"""Copies between host and device: tables for kernels, small results (waited for only when they are read), pixels."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np

from streamkit.core.counters import Counters
from streamkit.core.data import Array, Surface, array_module
from streamkit.ops import traffic


def host_pixels(surface: Surface, counters: Counters | None = None, into: Array | None = None) -> np.ndarray:
    """Return the surface's NV12 array on the host; from a GPU a copy, counted under `pixels to host`.

    Args:
        surface: the surface.
        counters: counts the copy.
        into: pinned memory for the copy.
    """
    xp = array_module(surface.data)
    if xp is np:
        return surface.data  # type: ignore[no-any-return]
    with surface.data.device:
        stream = xp.cuda.get_current_stream()
        if surface.ready is not None:
            stream.wait_event(surface.ready)
        if counters is not None:
            counters.add("pixels to host")
        traffic.fetched(surface.data.nbytes)
        return surface.data.get(stream=stream, out=into)  # type: ignore[no-any-return]


def to_device(*tables: np.ndarray) -> list[Array]:
    """Copy tables to the current device in one copy, in the order of its current stream; return the bytes of each."""
    import cupy

    parts = [np.ascontiguousarray(table).reshape(-1).view(np.uint8) for table in tables]
    sent = cupy.asarray(np.concatenate(parts))  # staged by CuPy in pinned memory, so nothing waits here
    traffic.sent(sent.nbytes)
    return [sent[end - part.size : end] for part, end in zip(parts, accumulate(map(len, parts)), strict=True)]


def empty_pinned(shape: tuple[int, ...]) -> np.ndarray:
    """A host array of uint8 in pinned memory, which CUDA copies to and from without waiting.

    `cupyx.empty_pinned` is the same, but its package takes up to a second to import.
    """
    import cupy

    return np.ndarray(shape, np.uint8, buffer=cupy.cuda.alloc_pinned_memory(math.prod(shape)))


def fetch(arrays: Sequence[Array]) -> Callable[[], list[np.ndarray]]:
    """Begin to copy arrays to the host; return a function that waits for them and returns them.

    Device arrays are packed into one buffer and copied once, into pinned memory, on the current CUDA stream. Host
    arrays are returned unchanged.

    Args:
        arrays: arrays of any shapes and dtypes, all on one device.
    """
    xp = array_module(arrays[0])
    if xp is np:
        return lambda: list(arrays)
    from streamkit.ops.cuda import driver

    flat = [xp.ascontiguousarray(a).reshape(-1).view(xp.uint8) for a in arrays]
    packed = flat[0] if len(flat) == 1 else xp.concatenate(flat)
    pinned = empty_pinned(packed.shape)
    packed.get(out=pinned, blocking=False)
    traffic.fetched(packed.nbytes)
    done = xp.cuda.Event(block=True, disable_timing=True)
    driver.record(done, xp.cuda.get_current_stream())
    layouts = [(a.dtype, a.shape, a.nbytes) for a in arrays]
    on = packed.device
    device = [packed]  # held until the copy is over

    def wait() -> list[np.ndarray]:
        with on:  # any thread may wait
            done.synchronize()
        device.clear()
        copies = []
        at = 0
        for dtype, shape, size in layouts:
            copies.append(np.asarray(pinned)[at : at + size].view(dtype).reshape(shape))
            at += size
        return copies

    return wait


class LateArray:
    """An array that stays on its device until it is read, by any thread. On the host it is an array as any other.

    The work that writes it must be over before `read`; a copy to the host, queued after it, tells when.

    Args:
        array: the array.
    """

    def __init__(self, array: Array) -> None:
        self.array = array
        self.shape: tuple[int, ...] = array.shape

    def read(self, part: Any = ...) -> np.ndarray:
        """Return a part of the array, by its index, on the host."""
        array = self.array
        if array_module(array) is np:
            return np.asarray(array[part])
        with reading(array):
            return fetch_now(array[part])

    def to_host(self) -> None:
        """Move the array to the host, on the current stream, which may be the one that writes it."""
        if array_module(self.array) is not np:
            self.array = fetch_now(self.array)


@contextlib.contextmanager
def reading(array: Array) -> Iterator[None]:
    """Make the device of an array and a stream for late reads current on this thread, which may be any."""
    import cupy

    with array.device:
        # `Device` omits the call if the device is already current; then this thread may have no context for launches
        cupy.cuda.runtime.setDevice(array.device.id)
        with _late_stream(array.device.id):
            yield


@cache
def _late_stream(device: int) -> Any:
    """The stream of late reads of a device; not the default one, which would wait for those of other libraries."""
    import cupy

    return cupy.cuda.Stream(non_blocking=True)


def fetch_now(array: Array) -> np.ndarray:
    """Copy a device array to the host on the current stream, and wait for the copy."""
    traffic.fetched(array.nbytes)
    return array.get()  # type: ignore[no-any-return]
