# SPDX-License-Identifier: Apache-2.0
"""Isolates the pipeline from mistakes in plugin stages, and validates what they return.

Tests hold the built-in stages to the contract. A plugin stage receives its own tables and, on the host, read-only
pixels; its return value is validated; and before it is called a second time, frames and states are restored. This is
done per batch: Python's own cost per frame limits a fast pipeline.
"""

from __future__ import annotations

import copy
import copyreg
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.data import Batch, Detections, Event, Frame, Surface, array_module
from streamkit.core.errors import describe
from streamkit.core.stage import Stage

COPIED = "pixels copied: memory shared with a decoded frame"
_MAX_COPY_S = 0.0005  # per batch, to copy the states: 5 % of Python's time at 100 batches per second
_MIN_COPIES = 20  # batches before the time is checked


_Image = tuple[Surface | None, int, int, tuple[int, int] | None]

_image_of: Callable[[Frame], _Image] = attrgetter("surface", "width", "height", "_state.shape_size")
"""Returns the surface, width and height of a frame, and the size that shapes refer to; without a call in Python."""


def _restore_image(frame: Frame, image: _Image) -> None:
    frame.surface, frame.width, frame.height, frame._state.shape_size = image


class BatchSnapshot:
    """Snapshot of frames, and of the states of their sources, before a stage is called.

    Args:
        frames: the batch's frames.
        states: copies and restores the states of the sources; None for stages without states.
    """

    def __init__(self, frames: Sequence[Frame], states: StateCopies | None = None) -> None:
        self._frames = [
            (
                frame,
                _image_of(frame),
                frame._state.skipped_detectors,
                frame.tables.copy(),
                frame.events.copy(),
                frame.facts.copy(),
                frame.shown.copy(),
                frame.maps.copy(),
            )
            for frame in frames
        ]
        self._restore_states = None if states is None else states.copied({frame.source for frame in frames})

    def restore(self) -> None:
        """Restore everything; sources that had no state have none again."""
        for frame, image, skipped, tables, events, facts, shown, maps in self._frames:
            _restore_image(frame, image)
            frame._state.skipped_detectors = skipped
            frame.tables = tables
            frame.events = events
            frame.facts = facts
            frame.shown = shown
            frame.maps = maps
        if self._restore_states is not None:
            self._restore_states()


class StateCopies:
    """States of a stream stage's sources; copies are kept while a batch is processed.

    Copying stops for good if a state cannot be copied or copying takes too long.

    Args:
        all_: the states by source.
        lost: receives the reason if a stage raised and its states could not be restored.
    """

    def __init__(self, all_: dict[str, Any], lost: Callable[[str], None]) -> None:
        _keep_handles()
        self._all = all_
        self._lost = lost
        self._copies = 0
        self._seconds = 0.0
        self._without: str | None = None  # the reason why no copies are made

    def copied(self, sources: set[str]) -> Callable[[], None]:
        """Copy the states of these sources; return a function that restores them."""
        new = sources - self._all.keys()
        copies = dict[str, Any]()
        if self._without is None:
            start_s = time.thread_time()
            try:
                copies = {source: copy.deepcopy(self._all[source]) for source in sources - new}
            except Exception as error:
                self._without = f"cannot be copied ({describe(error)})"
            self._copies += 1
            self._seconds += time.thread_time() - start_s
            if self._copies >= _MIN_COPIES and self._seconds > self._copies * _MAX_COPY_S:
                self._without = f"take {1000 * self._seconds / self._copies:.2g} ms per batch to copy"

        def restore() -> None:
            for source in new:
                self._all.pop(source, None)
            self._all.update(copies)
            if len(copies) < len(sources - new):
                self._lost(f"its states {self._without}, so they include the frames of this batch twice")

        return restore


def _keep_handles() -> None:
    """Share CUDA events and streams between copies: a copied handle would be destroyed twice."""
    if (cupy := sys.modules.get("cupy")) is not None:
        for kind in (cupy.cuda.Event, cupy.cuda.Stream):
            copyreg.pickle(kind, lambda handle: type(handle).__name__)  # a name stands for the object itself


def line_of(error: BaseException, kind: type[Stage]) -> str:
    """The line in the stage's own file where an error came from, as `mine.py:12`; "" if unknown.

    An invalid result is detected only after the call; the line is then that of `process`.
    """
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    lines = [entry.lineno for entry in traceback.extract_tb(error.__traceback__) if entry.filename == file]
    if file and lines:
        return f"{Path(file).name}:{lines[-1]}"
    process = getattr(kind, "process", None)
    code = getattr(getattr(process, "__wrapped__", process), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else ""


def check_batch(processed: Batch, batch: Batch, kind: type[Stage]) -> None:
    """Validate the batch that a stage returned, except for pixels.

    Raises:
        TypeError: a table is not a Detections, or a field of a frame has the wrong type.
        ValueError: frames are missing or out of order, or rows refer to frames that do not exist.
    """
    count = len(processed.frames) + len(processed.failed) - len(batch.failed)
    if count != len(batch.frames):
        raise ValueError(
            f"{kind.__name__}.process must return every frame of the batch, got {count} of {len(batch.frames)}; "
            "to drop objects, select rows of a table"
        )
    check_tables(processed.tables, "batch.tables")
    for name, table in processed.tables.items():
        rows = table.batch_row if isinstance(table, Detections) else np.zeros(0)
        if array_module(rows) is np and len(rows) and not 0 <= rows.min() <= rows.max() < len(processed.frames):
            raise ValueError(
                f"tables[{name!r}].batch_row must be frame indices in the batch, from 0 to {len(processed.frames) - 1}"
                f"; got {rows.min()} to {rows.max()}"
            )
    for frame in processed.frames:
        check_frame(frame)
    order = {(frame.source, frame._state.position): place for place, frame in enumerate(batch.frames)}
    places = [order.get((frame.source, frame._state.position), -1) for frame in processed.frames]
    if places and (min(places) < 0 or places != sorted(set(places))):
        raise ValueError(f"{kind.__name__}.process must return the frames of the batch in their order")
    _check_arrays(processed, batch)


def _check_arrays(processed: Batch, batch: Batch) -> None:
    """Validate the tensor and the outputs that a stage replaced. Raises TypeError or ValueError."""
    arrays = {
        f"outputs[{name!r}]": array for name, array in processed.outputs.items() if array is not batch.outputs.get(name)
    }
    if processed.tensor is not None and processed.tensor is not batch.tensor:
        arrays["tensor"] = processed.tensor
    for name, array in arrays.items():
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise TypeError(f"batch.{name} must be an array of {processed.xp.__name__}, got {type_text(array)}")
    rows = len(processed.frames) if processed.rows is None else len(processed.rows)
    shape = arrays["tensor"].shape if "tensor" in arrays else (rows, 0, 0, 0)
    if len(shape) != 4 or shape[0] < rows:
        raise ValueError(f"batch.tensor must have 4 axes and {rows} rows, one per frame, got shape {list(shape)}")


def check_frame(frame: Frame) -> None:
    """Validate the events and facts of a frame; `check_tables` and `PixelGuard.take` validate the rest.

    Raises:
        TypeError: a value has the wrong type, or `frame` is not a Frame.
    """
    if not isinstance(frame, Frame):
        raise TypeError(f"batch.frames must hold Frame, got {type_text(frame)}")
    if not isinstance(frame.events, list):
        raise TypeError(f"frame.events must be a list, got {type_text(frame.events)}; use frame.emit(kind, ...)")
    for event in frame.events:
        if not isinstance(event, Event):
            raise TypeError(f"frame.events must hold Event, got {type_text(event)}; use frame.emit(kind, ...)")
        if not isinstance(event.kind, str) or not isinstance(event.data, dict):
            raise TypeError(
                f"an Event's kind must be a str and its data a dict, got {event.kind!r} and {type_text(event.data)}"
            )
    if not isinstance(frame.facts, dict) or (frame.facts and not all(isinstance(name, str) for name in frame.facts)):
        raise TypeError(f"frame.facts must be a dict with str keys, got {type_text(frame.facts)}")


def check_tables(tables: Mapping[str, Any], where: str = "frame.tables") -> None:
    """Validate the types of a stage's tables. Their columns were validated when the tables were made.

    Raises:
        TypeError: a table is not a Detections, or `tables` is not a dict.
    """
    if not isinstance(tables, dict):
        raise TypeError(f"{where} must be a dict of Detections, got {type_text(tables)}")
    for name, table in tables.items():
        if not isinstance(table, Detections) and not callable(table):
            raise TypeError(f"tables[{name!r}] must be a Detections, got {type_text(table)}")


def type_text(value: Any) -> str:
    """Name of a value's type: `numpy.ndarray`, `dict`, `NoneType`."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


class PixelGuard:
    """The pixels of frames while a plugin stage runs.

    Other branches read the same surfaces, so host arrays are read-only during the call. CuPy arrays are not
    protected. The surfaces stay alive until their arrays are writeable again: a pool may immediately give the buffer
    of a surface that the stage drops to a decoder.

    Args:
        frames: the frames that the stage gets.
        freeze: make the host arrays read-only.
        on_host: the stage runs on a host lane, whose CUDA stream is not ordered after those of other lanes.
    """

    def __init__(self, frames: Sequence[Frame], *, freeze: bool = True, on_host: bool = True) -> None:
        self._frames = [(frame, _image_of(frame)) for frame in frames]
        self._sizes: dict[int, tuple[int, int]] = {}
        self._surfaces: dict[int, tuple[Surface, Any]] = {}
        self._surface_ids: set[int] = set()  # the ids of the surfaces
        arrays = []
        for frame in frames:
            self._sizes[frame._state.position] = frame.width, frame.height
            if (surface := frame.surface) is not None:
                self._surfaces[frame._state.position] = surface, surface.data
                self._surface_ids.add(id(surface))
                arrays.append(surface.data)
        on_device = bool(arrays) and array_module(arrays[0]) is not np
        self._frozen = [] if on_device or not freeze else [data for data in arrays if data.flags.writeable]
        self._stream = array_module(arrays[0]).cuda.get_current_stream() if on_device and on_host else None

    def __enter__(self) -> PixelGuard:
        if self._stream is not None:
            from streamkit.ops.cuda import driver

            driver.wait_for(self._stream, [surface for surface, _ in self._surfaces.values()])
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
            _restore_image(*self._frames[row])

    def take(self, frames: Sequence[Frame], xp: Any) -> int:
        """Validate the surfaces that the stage left, and make replaced ones safe for later stages.

        Below a stage that changes a frame's size, shapes are in the pixels of the new size.

        Args:
            frames: the frames to check, any of those given.
            xp: the pipeline's array module.

        Returns:
            Number of surfaces that were copied because they share memory with a given one.

        Raises:
            TypeError: a surface has the wrong type, or is on the wrong device.
            ValueError: a surface does not have the frame's size, or is not contiguous.
        """
        copied = 0
        for frame in frames:
            old, data = self._surfaces.get(frame._state.position, (None, None))
            if old is not None and old.data is not data:
                old.data = data
                raise ValueError("surface.data must not be assigned to; write frame.surface = Surface(array, color)")
            if (new := frame.surface) is None:
                continue
            check_surface(frame, xp)
            if (frame.width, frame.height) != self._sizes.get(frame._state.position):
                frame._state.shape_size = None
            if id(new) in self._surface_ids:
                continue
            if any(xp.may_share_memory(new.data, data) for _, data in self._surfaces.values()):
                frame.surface = new = Surface(new.data.copy(), new.color)
                copied += 1
            if xp is np and not new.pooled:
                new.data.flags.writeable = False  # or `draw` could draw on what the stage returns a second time
        return copied


def check_surface(frame: Frame, xp: Any) -> None:
    """Validate the type, device and size of a frame's surface, which is not None.

    Raises TypeError or ValueError as `PixelGuard.take` does.
    """
    surface = frame.surface
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
