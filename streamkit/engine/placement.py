# SPDX-License-Identifier: Apache-2.0
"""Which tensors share a buffer: the parts of a concatenation are written where the whole is read.

A buffer is a line of channels, repeated for each pixel. `ChannelLines` holds which tensor begins at which channel of
which line, and joins two lines where one tensor must lie within another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from streamkit.engine.program import VECTOR, View, padded


@dataclass(slots=True)
class _Line:
    """One line.

    Attributes:
        starts: the first channel of each tensor.
        written: first channel and end of what each step writes, with its padding.
        size_hw: rows, columns of all tensors.
    """

    starts: dict[str, int]
    written: dict[str, tuple[int, int]]
    size_hw: tuple[int, int]


class ChannelLines:
    """The places of tensors."""

    def __init__(self) -> None:
        self._line_of: dict[str, _Line] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._line_of

    def add(self, name: str, channels: int, size_hw: tuple[int, int], *, written: bool = True) -> None:
        """Put a tensor on a line of its own.

        Args:
            name: of the tensor.
            channels: how many it has.
            size_hw: its rows and columns.
            written: whether one step writes all of it, with its padding; a concatenation is written in parts.
        """
        interval = {name: (0, padded(channels))} if written else {}
        self._line_of[name] = _Line({name: 0}, interval, size_hw)

    def join(self, inner: str, outer: str, channel: int) -> bool:
        """Put the tensor `inner` at a channel of `outer`; return False if either cannot lie so.

        Both lines become one. What different steps write must not overlap, and all tensors must begin at multiples of 8
        channels.
        """
        target = self._line_of[outer]
        source = self._line_of[inner]
        place = target.starts[outer] + channel
        if source is target:
            return source.starts[inner] == place
        shift = place - source.starts[inner]
        if shift % VECTOR or source.size_hw != target.size_hw:
            return False
        moved = {name: (first + shift, end + shift) for name, (first, end) in source.written.items()}
        for first, end in moved.values():
            if any(first < other_end and other_first < end for other_first, other_end in target.written.values()):
                return False
        target.written.update(moved)
        for name, start in source.starts.items():
            target.starts[name] = start + shift
            self._line_of[name] = target
        return True

    def reserve(self, name: str, owner: str, channel: int, channels: int) -> None:
        """Note that a step `owner` writes exactly these channels of a tensor."""
        line = self._line_of[name]
        first = line.starts[name] + channel
        line.written[owner] = first, first + channels

    def release(self, name: str, owner: str) -> None:
        """Undo a reservation on the line of a tensor."""
        del self._line_of[name].written[owner]

    def views(self, batch: int, channels: Mapping[str, int]) -> tuple[dict[str, View], tuple[int, ...]]:
        """Return the view of each tensor, and the size of each buffer in elements.

        Args:
            batch: images.
            channels: of each tensor.
        """
        numbers = dict[int, int]()
        views = dict[str, View]()
        sizes = list[int]()
        for name, line in self._line_of.items():
            first = min(line.starts.values())
            end = max(line.starts[other] + channels[other] for other in line.starts)
            end = max([end, *(stop for _, stop in line.written.values())])
            first = min([first, *(start for start, _ in line.written.values())])
            pitch = padded(end - first)
            rows, columns = line.size_hw
            if id(line) not in numbers:
                numbers[id(line)] = len(sizes)
                sizes.append(batch * rows * columns * pitch)
            strides = rows * columns * pitch, columns * pitch, pitch
            shape = batch, rows, columns, channels[name]
            views[name] = View(numbers[id(line)], line.starts[name] - first, shape, strides)
        return views, tuple(sizes)
