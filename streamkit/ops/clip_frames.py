# SPDX-License-Identifier: Apache-2.0
"""Frames that clips are made of, kept as a network's input rows on their device."""

from __future__ import annotations

import heapq
import math
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.ops.transfer import to_device


class ClipFrames:
    """Rings of the last frames of several clips, in one array that grows and shrinks with their number.

    While it grows or shrinks, the old and the new array exist together.

    Args:
        window: number of frames of a clip, and of a ring.
        shape, dtype: of a frame.
        xp: the array module, `numpy` or `cupy`.
        max_bytes: maximum size of the array; at least one ring fits.
    """

    def __init__(self, window: int, shape: tuple[int, ...], dtype: np.dtype[Any], xp: Any, max_bytes: int) -> None:
        self._window = window
        self._shape = (window, *shape)
        self._dtype = dtype
        self._xp = xp
        self._max_rings = max(1, max_bytes // (math.prod(self._shape) * dtype.itemsize))
        self._rings: Array | None = None
        self._free: list[int] = []
        self._used: set[int] = set()

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return 0 if self._rings is None else int(self._rings.nbytes)

    def take(self) -> int | None:
        """Return the number of a free ring; None if there is no memory for one."""
        if not self._free:
            capacity = len(self._used)
            if capacity >= self._max_rings:
                return None
            self._resize(min(self._max_rings, 2 * capacity or 1))
        ring = heapq.heappop(self._free)
        self._used.add(ring)
        return ring

    def give_back(self, ring: int) -> None:
        """Free a ring; the array shrinks if three quarters of it, at its end, are free."""
        self._used.remove(ring)
        heapq.heappush(self._free, ring)
        if not self._used:
            self._rings = None
            self._free.clear()
            return
        assert self._rings is not None
        needed = max(self._used) + 1
        if 4 * needed <= len(self._rings):
            self._resize(2 * needed)

    def write(self, rings: np.ndarray, places: np.ndarray, rows: Array) -> None:
        """Store frames.

        Args:
            rings: (m,) int64, the ring of each.
            places: (m,) int64, its place in the ring. No two frames have the same ring and place.
            rows: (m, ...) the frames.
        """
        assert self._rings is not None
        self._rings[self._index(rings, places)] = rows

    def read(self, rings: np.ndarray, first: np.ndarray) -> Array:
        """Return whole rings as clips, (k, window, ...).

        Args:
            rings: (k,) int64.
            first: (k,) int64, the place of the first frame of each clip.
        """
        assert self._rings is not None
        places = (first[:, None] + np.arange(self._window)) % self._window
        return self._rings[self._index(np.broadcast_to(rings[:, None], places.shape), places)]

    def _resize(self, capacity: int) -> None:
        rings = self._xp.empty((capacity, *self._shape), self._dtype)
        if self._rings is not None:
            count = min(capacity, len(self._rings))
            rings[:count] = self._rings[:count]
        self._rings = rings
        self._free = [ring for ring in range(capacity) if ring not in self._used]

    def _index(self, rings: np.ndarray, places: np.ndarray) -> tuple[Array, Array]:
        """Return the index of frames on their device; to a GPU in one copy."""
        if self._xp is np:
            return rings, places
        first, second = (part.view(np.int64).reshape(places.shape) for part in to_device(rings, places))
        return first, second
