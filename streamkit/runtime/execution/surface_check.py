"""Protects the pixels of frames while a plugin stage runs, and validates the surfaces that it leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from streamkit.core.data import Frame, Surface, array_module
from streamkit.runtime.execution.output_check import type_text

COPIED = "pixels copied: memory shared with a decoded frame"


def pixels_of(frame: Frame) -> tuple[Surface | None, int, int]:
    """Surface, width and height of a frame; `PixelGuard.restore` restores them."""
    return frame.surface, frame.width, frame.height


class PixelGuard:
    """The pixels of frames while a plugin stage runs.

    Other branches read the same surfaces, so host arrays are read-only meanwhile. CuPy arrays have no such flag and are
    not protected. The surfaces stay alive until their arrays are writeable again: a pool may give the buffer of a
    surface that the stage drops to a decoder at once.

    Args:
        frames: the frames that the stage gets.
        freeze: make the host arrays read-only.
        on_host: the stage runs on a host lane, whose CUDA stream is not ordered after those of other lanes.
    """

    def __init__(self, frames: Sequence[Frame], *, freeze: bool = True, on_host: bool = True) -> None:
        self._frames = [(frame, pixels_of(frame)) for frame in frames]
        self._given = {
            frame._state.position: (frame.surface, frame.surface.data) for frame in frames if frame.surface is not None
        }
        arrays = [data for _, data in self._given.values()]
        on_device = bool(arrays) and array_module(arrays[0]) is not np
        self._frozen = [] if on_device or not freeze else [data for data in arrays if data.flags.writeable]
        self._stream = array_module(arrays[0]).cuda.get_current_stream() if on_device and on_host else None

    def __enter__(self) -> PixelGuard:
        if self._stream is not None:
            from streamkit.ops.cuda import driver

            driver.wait_for(self._stream, [surface for surface, _ in self._given.values()])
        for data in self._frozen:
            data.flags.writeable = False
        return self

    def __exit__(self, *error: object) -> None:
        if self._stream is not None:  # the stage may have queued work that reads the old pixels or writes new ones
            self._stream.synchronize()
        for data in self._frozen:
            data.flags.writeable = True

    def restore(self, rows: Iterable[int] | None = None) -> None:
        """Restore the surfaces and sizes of the frames in these rows; by default, of all."""
        for row in range(len(self._frames)) if rows is None else rows:
            frame, pixels = self._frames[row]
            frame.surface, frame.width, frame.height = pixels

    def take(self, frames: Sequence[Frame], xp: Any) -> int:
        """Validate the surfaces that the stage left, and make replaced ones safe for later stages.

        Args:
            frames: the frames to check, any of those given.
            xp: the pipeline's array module.

        Returns:
            Number of surfaces that were copied because they share memory with a given one.

        Raises:
            TypeError: a surface has the wrong type, or is on the wrong device.
            ValueError: a surface does not have the frame's size, or is not contiguous.
        """
        known, copied = {id(surface) for surface, _ in self._given.values()}, 0
        for frame in frames:
            old, data = self._given.get(frame._state.position, (None, None))
            if old is not None and old.data is not data:
                old.data = data
                raise ValueError("surface.data must not be assigned to; write frame.surface = Surface(array, color)")
            check_surface(frame, xp)
            new = frame.surface
            if new is None or id(new) in known:
                continue
            if any(xp.may_share_memory(new.data, data) for _, data in self._given.values()):
                frame.surface = new = Surface(new.data.copy(), new.color)
                copied += 1
            if xp is np and not new.pooled:
                new.data.flags.writeable = False  # or `draw` could draw on what the stage returns a second time
        return copied


def check_surface(frame: Frame, xp: Any) -> None:
    """Validate the type, device and size of a frame's surface.

    Raises TypeError or ValueError as `PixelGuard.take` does.
    """
    surface = frame.surface
    if surface is None:
        return
    if not isinstance(surface, Surface):
        raise TypeError(
            f"frame.surface must be a Surface or None, got {type_text(surface)}; "
            "write frame.surface = Surface(array, frame.surface.color) with an NV12 array"
        )
    if array_module(surface.data) is not xp:
        raise TypeError(f"frame.surface.data must be an array of {xp.__name__}, got {type_text(surface.data)}")
    if not surface.data.flags.c_contiguous:
        raise ValueError("frame.surface.data must be C-contiguous; copy it: numpy.ascontiguousarray(array)")
    wanted = frame.width + frame.width % 2, frame.height + frame.height % 2
    if (surface.width, surface.height) != wanted:
        raise ValueError(
            f"frame.surface is {surface.width}x{surface.height}, but the frame is {frame.width}x{frame.height}; "
            "set frame.width and frame.height with the surface, and scale the boxes of frame.detections"
        )
