# SPDX-License-Identifier: Apache-2.0
"""Places of buffers in one block of memory: buffers that are never used at the same time share it."""

from __future__ import annotations

from collections.abc import Sequence

from streamkit.engine.program import Buffer, Step, views_read

_ALIGNMENT = 128
"""Elements. cuDNN's fastest kernels want 16 bytes, cache lines have 128."""


def arrange(steps: Sequence[Step], sizes: Sequence[int]) -> tuple[tuple[Buffer, ...], int]:
    """Return the buffers with their places, and the size of the block in elements.

    Largest buffers first, each at the lowest place that is free while it is used.

    Args:
        steps: in order.
        sizes: of each buffer, in elements.
    """
    first = dict[int, int]()
    last = dict[int, int]()
    for index, step in enumerate(steps):
        target = getattr(step, "target", None)
        for view in (*views_read(step), *(() if target is None else (target,))):
            first.setdefault(view.buffer, index)
            last[view.buffer] = index
    offsets = dict[int, int]()
    for number in sorted(first, key=lambda number: (-sizes[number], number)):
        busy = sorted(
            (offsets[other], offsets[other] + _aligned(sizes[other]))
            for other in offsets
            if first[other] <= last[number] and first[number] <= last[other]
        )
        place = 0
        for start, end in busy:
            if place + _aligned(sizes[number]) <= start:
                break
            place = max(place, end)
        offsets[number] = place
    buffers = tuple(Buffer(size, offsets.get(number, 0)) for number, size in enumerate(sizes))
    arena = max((offsets[number] + _aligned(sizes[number]) for number in offsets), default=0)
    return buffers, arena


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
