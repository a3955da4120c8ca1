# SPDX-License-Identifier: Apache-2.0
"""Reused host memory.

Fresh memory costs a page fault per 4 kB, and the allocator returns large arrays to the system as soon as they are
freed: for a frame's intermediate arrays this takes longer than the arithmetic on them.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

_ALIGN = 64
_TENSORS_KEPT = 4


class Scratch:
    """Allocates consecutive arrays from one buffer. Set `used` back to free later arrays."""

    __slots__ = ("_buffer", "_most", "used")

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.uint8)
        self._most = 0
        self.used = 0

    def __call__(self, shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> np.ndarray:
        """Return an uninitialised array."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        start = self.used
        self.used = start + -(-size // _ALIGN) * _ALIGN
        self._most = max(self._most, self.used)
        if self.used > len(self._buffer):
            return np.empty(shape, dtype)  # this time; `reset` makes room for the next
        return self._buffer[start : start + size].view(dtype).reshape(shape)

    def reset(self) -> None:
        """Free everything, and grow to the largest size requested."""
        if self._most > len(self._buffer):
            self._buffer = np.empty(self._most, np.uint8)
        self.used = 0


_scratches: deque[Scratch] = deque()


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Yield a `Scratch` for one call; its arrays must not be used afterwards. Thread-safe: deques are atomic."""
    try:
        mine = _scratches.pop()
    except IndexError:
        mine = Scratch()
    try:
        yield mine
    finally:
        mine.reset()
        _scratches.append(mine)


_tensors: dict[tuple[tuple[int, ...], np.dtype], deque[np.ndarray]] = {}


def tensor(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialised array for a caller to keep; reuses one made here once it has no other references."""
    kept = _tensors.setdefault((shape, dtype), deque(maxlen=_TENSORS_KEPT))
    for _ in range(len(kept)):
        try:
            array = kept.popleft()  # out of other threads' sight while it is looked at
        except IndexError:
            break
        free = sys.getrefcount(array) <= 2  # this variable and the call's argument
        kept.append(array)
        if free:
            return array
    array = np.empty(shape, dtype)
    kept.append(array)
    return array
