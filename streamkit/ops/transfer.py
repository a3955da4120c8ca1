"""Copies of small results from the device to the host: one packed copy, waited for only when it is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.ops import traffic


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
    import cupyx

    from streamkit.ops.cuda import driver

    flat = [xp.ascontiguousarray(a).reshape(-1).view(xp.uint8) for a in arrays]
    packed = flat[0] if len(flat) == 1 else xp.concatenate(flat)
    pinned = cupyx.empty_pinned(packed.shape, np.uint8)
    packed.get(out=pinned, blocking=False)
    traffic.fetched(packed.nbytes)
    done = xp.cuda.Event(block=True, disable_timing=True)
    driver.record(done, xp.cuda.get_current_stream())
    layouts = [(a.dtype, a.shape, a.nbytes) for a in arrays]
    device = [packed]  # held until the copy is over

    def wait() -> list[np.ndarray]:
        done.synchronize()
        device.clear()
        found, at = [], 0
        for dtype, shape, size in layouts:
            found.append(np.asarray(pinned)[at : at + size].view(dtype).reshape(shape))
            at += size
        return found

    return wait
