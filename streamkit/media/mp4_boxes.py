# SPDX-License-Identifier: Apache-2.0
"""The top-level boxes of an MP4 file (ISO/IEC 14496-12, 4.2)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Box(NamedTuple):
    """A box at the top level of a file.

    Attributes:
        kind: its type, such as `moov`.
        start: position of its first byte.
        end: position after its last byte, which may be beyond the end of the file.
    """

    kind: bytes
    start: int
    end: int


def boxes(read: Callable[[int, int], bytes], size: int) -> Iterator[Box]:
    """Yield the boxes of a file, up to the first one that has no valid header.

    Args:
        read: reads the bytes from a position to before another.
        size: size of the file in bytes.
    """
    start = 0
    while start + 8 <= size:
        header = read(start, start + 16)
        length, kind = struct.unpack(">I4s", header[:8])
        if length == 1 and len(header) == 16:
            length = struct.unpack(">Q", header[8:])[0]
        elif length == 0:  # up to the end of the file
            length = size - start
        if length < 8:
            return
        yield Box(kind, start, start + length)
        start += length


def is_whole(read: Callable[[int, int], bytes], size: int) -> bool:
    """Whether a file ends with the end of a box; the arguments are those of `boxes`."""
    end = 0
    for box in boxes(read, size):
        end = box.end
    return end == size
