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
_MAX_TENSORS = 4


class Scratch:
    """Allocates consecutive arrays from one buffer. Set `used` back to free later arrays."""

    __slots__ = ("_buffer", "_peak", "used")

    def __init__(self) -> None:
        self._buffer = np.empty(0, np.uint8)
        self._peak = 0
        self.used = 0

    def __call__(self, shape: tuple[int, ...], dtype: type[np.generic] = np.float32) -> np.ndarray:
        """Return an uninitialized array."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        start = self.used
        self.used = start + -(-size // _ALIGN) * _ALIGN
        self._peak = max(self._peak, self.used)
        if self.used > len(self._buffer):
            return np.empty(shape, dtype)  # this time; `reset` makes room for the next
        return self._buffer[start : start + size].view(dtype).reshape(shape)

    def reset(self) -> None:
        """Free everything, and grow to the largest size requested."""
        if self._peak > len(self._buffer):
            self._buffer = np.empty(self._peak, np.uint8)
        self.used = 0


_scratches: deque[Scratch] = deque()


@contextmanager
def scratch() -> Iterator[Scratch]:
    """Yield a `Scratch` for one call; its arrays must not be used afterwards. Thread-safe: deques are atomic."""
    try:
        memory = _scratches.pop()
    except IndexError:
        memory = Scratch()
    try:
        yield memory
    finally:
        memory.reset()
        _scratches.append(memory)


_tensors: dict[tuple[tuple[int, ...], np.dtype], deque[np.ndarray]] = {}


def tensor(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an uninitialized array for a caller to keep; reuses one made here once it has no other references."""
    cached = _tensors.setdefault((shape, dtype), deque(maxlen=_MAX_TENSORS))
    for _ in range(len(cached)):
        try:
            array = cached.popleft()  # out of other threads' sight while it is looked at
        except IndexError:
            break
        free = sys.getrefcount(array) <= 2  # this variable and the call's argument
        cached.append(array)
        if free:
            return array
    array = np.empty(shape, dtype)
    cached.append(array)
    return array
