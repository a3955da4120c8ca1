"""What the runner does so that a mistake of a plugin's stage stays its own.

The stages that ship keep the contract by their tests. A plugin's is given tables of its own and pictures that, on the
host, cannot be written; it is looked at in what it gives back, and finds frames and states as they were when it is
called a second time. Python's own cost a frame is what limits a fast pipeline, so this is done a batch at a time.
"""

from __future__ import annotations

import copy
import copyreg
import operator
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.data import Batch, Detections, Event, Frame, Surface, array_module
from streamkit.errors import describe
from streamkit.stage import Stage

__all__ = [
    "COPIED",
    "Before",
    "Own",
    "Pixels",
    "States",
    "check_batch",
    "check_frame",
    "check_tables",
    "line_of",
    "parts_of",
    "same",
    "touched",
]

COPIED = "pixels copied: a surface of a stage's own had the memory of a decoded frame"


_MOST_S = 0.0005  # a batch, to copy the states of its sources: 5 % of Python's time at a hundred batches a second
_LEAST = 20  # batches before that is judged


class Before:
    """What frames, and the states of their sources, were like before a stage was called.

    Args:
        frames: the batch's.
        states: copies of the sources' states are made here, and put back there; None where there are none.
    """

    def __init__(self, frames: Sequence[Frame], states: States | None = None) -> None:
        self._frames = [
            (frame, _pixels_of(frame), dict(frame.tables), list(frame.events), dict(frame.facts), frame.skipped)
            for frame in frames
        ]
        self._put_back = None if states is None else states.copied({frame.source for frame in frames})

    def restore(self) -> None:
        """Put everything back; sources that had no state have none again."""
        for frame, pixels, tables, events, facts, skipped in self._frames:
            frame.surface, frame.width, frame.height = pixels
            frame.tables, frame.events, frame.facts, frame.skipped = tables, events, facts, skipped
        if self._put_back is not None:
            self._put_back()


def _pixels_of(frame: Frame) -> tuple[Surface | None, int, int]:
    return frame.surface, frame.width, frame.height


class States:
    """The states of a stream stage's sources, of which copies are kept while a batch is under way.

    That is given up where a copy cannot be made, or takes too long for what it is good for.

    Args:
        all_: the states by source.
        lost: told why, once a stage has raised and its states could not be put back.
    """

    def __init__(self, all_: dict[str, Any], lost: Callable[[str], None]) -> None:
        _keep_handles()
        self._all, self._lost = all_, lost
        self._copies, self._seconds = 0, 0.0
        self._without: str | None = None  # why no copies are made

    def copied(self, sources: set[str]) -> Callable[[], None]:
        """Copy the states of these sources; return what puts them back."""
        new, kept = sources - self._all.keys(), dict[str, Any]()
        if self._without is None:
            begun_s = time.thread_time()
            try:
                kept = {source: copy.deepcopy(self._all[source]) for source in sources - new}
            except Exception as error:
                self._without = f"cannot be copied ({describe(error)})"
            self._copies += 1
            self._seconds += time.thread_time() - begun_s
            if self._copies >= _LEAST and self._seconds > self._copies * _MOST_S:
                self._without = f"take {1000 * self._seconds / self._copies:.2g} ms a batch to be copied"

        def put_back() -> None:
            for source in new:
                self._all.pop(source, None)
            self._all.update(kept)
            if len(kept) < len(sources - new):
                self._lost(f"its states {self._without}, so they have seen the frames of this batch twice")

        return put_back


def _keep_handles() -> None:
    """CUDA's events and streams are not copied with what holds them: each destroys on its end what both stand for."""
    if (cupy := sys.modules.get("cupy")) is not None:
        for kind in (cupy.cuda.Event, cupy.cuda.Stream):
            copyreg.pickle(kind, lambda handle: type(handle).__name__)  # a name stands for the object itself


class Own:
    """A batch for a stage, with tables that nobody else reads.

    Attributes:
        batch: what the stage is to be given.
    """

    def __init__(self, batch: Batch) -> None:
        self._given = dict(batch.tables)
        self._mine = {name: _copied(table) for name, table in batch.tables.items()}
        self.batch = replace(batch, frames=list(batch.frames), outputs=dict(batch.outputs), tables=dict(self._mine))

    def give_back(self, made: Batch) -> None:
        """Put the given tables back where the stage has left them as they were: branches that meet know them again."""
        for name, table in made.tables.items():
            mine = self._mine.get(name)
            if isinstance(mine, _Coming) and table is mine:  # nobody has asked for it
                made.tables[name] = mine.given
                continue
            own, given = (mine.made, mine.table) if isinstance(mine, _Coming) else (mine, self._given.get(name))
            if table is own and isinstance(own, Detections) and isinstance(given, Detections) and same(own, given):
                made.tables[name] = given


class _Coming:
    """A table of one's own that is still on its way; copied when it is asked for, and once."""

    def __init__(self, given: Callable[[], Detections]) -> None:
        self.given = given
        self.table: Detections | None = None
        self.made: Detections | None = None

    def __call__(self) -> Detections:
        if self.made is None:
            self.table = self.given()
            self.made = self.table.copy()
        return self.made


def _copied(table: Detections | Callable[[], Detections]) -> Detections | _Coming:
    return table.copy() if isinstance(table, Detections) else _Coming(table)


def same(first: Detections, second: Detections) -> bool:
    """Whether two tables on the host say the same; of objects, whether they are the very same."""
    one, other = _columns(first), _columns(second)
    known = (first.labels, first.private, first.skeleton, *first.extra)
    return known == (second.labels, second.private, second.skeleton, *second.extra) and all(map(_equal, one, other))


def _columns(table: Detections) -> list[Any]:
    fixed = table.xyxy, table.score, table.class_id, table.batch_row, table.row_id, table.track_id
    return [*fixed, *table.extra.values()]


def _equal(first: Any, second: Any) -> bool:
    if first is None or second is None or first is second:
        return first is second
    if array_module(first) is not np or array_module(second) is not np:
        return False  # on the device: to look would be to wait
    if first.dtype != second.dtype or first.shape != second.shape:
        return False
    if first.dtype == object:
        return all(map(operator.is_, first.ravel(), second.ravel()))
    return np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")


class Pixels:
    """The pixels of frames while a plugin's stage has them.

    Other branches read the same surfaces, so host arrays are read-only meanwhile. CuPy arrays have no such flag:
    nothing keeps a stage from writing those. The surfaces stay alive until their arrays are writeable again: a pool may
    give the buffer of a surface that the stage drops to a decoder at once.

    Args:
        frames: the frames that the stage gets.
        freeze: make the host arrays read-only.
        on_host: the stage runs on a host lane, whose CUDA stream is not ordered behind those of other lanes.
    """

    def __init__(self, frames: Sequence[Frame], *, freeze: bool = True, on_host: bool = True) -> None:
        self._frames = [(frame, _pixels_of(frame)) for frame in frames]
        self._given = {
            frame.position: (frame.surface, frame.surface.data) for frame in frames if frame.surface is not None
        }
        arrays = [data for _, data in self._given.values()]
        on_device = bool(arrays) and array_module(arrays[0]) is not np
        self._frozen = [] if on_device or not freeze else [data for data in arrays if data.flags.writeable]
        self._stream = _current_stream() if on_device and on_host else None

    def __enter__(self) -> Pixels:
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
        """Put back the surfaces and sizes of the frames in these rows, of all by default."""
        for row in range(len(self._frames)) if rows is None else rows:
            frame, pixels = self._frames[row]
            frame.surface, frame.width, frame.height = pixels

    def take(self, frames: Sequence[Frame], xp: Any) -> int:
        """Check the surfaces that the stage left, and make those that it replaced safe to hand on.

        Args:
            frames: the frames to look at, any of those given.
            xp: the pipeline's array module.

        Returns:
            How many surfaces had to be copied, as they had the memory of a given one: that is the given one's alone.

        Raises:
            TypeError: one is no surface, or on the wrong side.
            ValueError: one does not have the frame's size, or is not contiguous.
        """
        known, copied = {id(surface) for surface, _ in self._given.values()}, 0
        for frame in frames:
            old, data = self._given.get(frame.position, (None, None))
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
                new.data.flags.writeable = False  # or `draw` could draw on what the stage hands on a second time
        return copied


def _current_stream() -> Any:
    import cupy

    return cupy.cuda.get_current_stream()


def check_surface(frame: Frame, xp: Any) -> None:
    """Check the type, place and size of a frame's surface. Raises TypeError or ValueError as `Pixels.take` does."""
    surface = frame.surface
    if surface is None:
        return
    if not isinstance(surface, Surface):
        raise TypeError(
            f"frame.surface must be a Surface or None, got {_type_text(surface)}; "
            "write frame.surface = Surface(array, frame.surface.color) with an NV12 array"
        )
    if array_module(surface.data) is not xp:
        raise TypeError(f"frame.surface.data must be an array of {xp.__name__}, got {_type_text(surface.data)}")
    if not surface.data.flags.c_contiguous:
        raise ValueError("frame.surface.data must be C-contiguous; copy it: numpy.ascontiguousarray(array)")
    wanted = frame.width + frame.width % 2, frame.height + frame.height % 2
    if (surface.width, surface.height) != wanted:
        raise ValueError(
            f"frame.surface is {surface.width}x{surface.height}, but the frame is {frame.width}x{frame.height}; "
            "set frame.width and frame.height with the surface, and scale the boxes of frame.detections"
        )


def check_batch(made: Batch, given: Batch, kind: type[Stage]) -> None:
    """Look at what a stage gives back, except for pixels.

    Raises:
        TypeError: a table of it is none, or what a frame holds has the wrong type.
        ValueError: frames are missing or out of order, or rows belong to none of them.
    """
    count = len(made.frames) + len(made.failed) - len(given.failed)
    if count != len(given.frames):
        raise ValueError(
            f"{kind.__name__}.process must hand on every frame that it is given, got {count} of {len(given.frames)}; "
            "to leave out objects select rows of a table"
        )
    check_tables(made.tables, "batch.tables")
    for name, table in made.tables.items():
        rows = table.batch_row if isinstance(table, Detections) else np.zeros(0)
        if array_module(rows) is np and len(rows) and not 0 <= rows.min() <= rows.max() < len(made.frames):
            raise ValueError(
                f"tables[{name!r}].batch_row must be from 0 to {len(made.frames) - 1}, a frame's place in the batch; "
                f"got {rows.min()} to {rows.max()}"
            )
    for frame in made.frames:
        check_frame(frame)
    order = {(frame.source, frame.position): place for place, frame in enumerate(given.frames)}
    places = [order.get((frame.source, frame.position), -1) for frame in made.frames]
    if places and (min(places) < 0 or places != sorted(set(places))):
        raise ValueError(f"{kind.__name__}.process must hand on the frames that it is given, in their order")
    _check_arrays(made, given)


def _check_arrays(made: Batch, given: Batch) -> None:
    """Check the tensor and the outputs that a stage has replaced. Raises TypeError or ValueError."""
    arrays = {
        f"outputs[{name!r}]": array for name, array in made.outputs.items() if array is not given.outputs.get(name)
    }
    if made.tensor is not None and made.tensor is not given.tensor:
        arrays["tensor"] = made.tensor
    for name, array in arrays.items():
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise TypeError(f"batch.{name} must be an array of {made.xp.__name__}, got {_type_text(array)}")
    rows = len(made.frames) if made.rows is None else len(made.rows)
    shape = arrays["tensor"].shape if "tensor" in arrays else (rows, 0, 0, 0)
    if len(shape) != 4 or shape[0] < rows:
        raise ValueError(f"batch.tensor must have 4 axes and {rows} rows, one a frame, got shape {list(shape)}")


def check_frame(frame: Frame) -> None:
    """Check the events and facts that a stage left on a frame; `check_tables` and `Pixels.take` look at the rest.

    Raises:
        TypeError: one has the wrong type, or there is no frame.
    """
    if not isinstance(frame, Frame):
        raise TypeError(f"batch.frames must hold Frame, got {_type_text(frame)}")
    if not isinstance(frame.events, list):
        raise TypeError(f"frame.events must be a list, got {_type_text(frame.events)}; use frame.emit(kind, ...)")
    for event in frame.events:
        if not isinstance(event, Event):
            raise TypeError(f"frame.events must hold Event, got {_type_text(event)}; use frame.emit(kind, ...)")
        if not isinstance(event.kind, str) or not isinstance(event.data, dict):
            raise TypeError(
                f"an Event's kind must be a str and its data a dict, got {event.kind!r} and {_type_text(event.data)}"
            )
    if not isinstance(frame.facts, dict) or not all(isinstance(name, str) for name in frame.facts):
        raise TypeError(f"frame.facts must be a dict with str keys, got {_type_text(frame.facts)}")


def check_tables(tables: Mapping[str, Any], where: str = "frame.tables", only: Collection[str] | None = None) -> None:
    """Check the tables that a stage leaves, all of them or those of these names.

    Raises:
        TypeError: one is none, or there is no dict of them.
        ValueError: the columns of one do not fit each other.
    """
    if not isinstance(tables, dict):
        raise TypeError(f"{where} must be a dict of Detections, got {_type_text(tables)}")
    for name, table in tables.items():
        if only is not None and name not in only:
            continue
        if isinstance(table, Detections):
            table.check()
        elif not callable(table):
            raise TypeError(f"tables[{name!r}] must be a Detections, got {_type_text(table)}")


def _type_text(value: Any) -> str:
    """`numpy.ndarray`, `dict`, `NoneType`."""
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def parts_of(table: Detections) -> list[Any]:
    """All that a table is made of; `is` tells whether one of it was replaced since."""
    fixed = table.labels, table.private, table.skeleton
    return [*_columns(table), *fixed, *table.extra]


def touched(table: Detections, before: list[Any]) -> bool:
    """Whether something of a table was replaced, added or removed since `parts_of` was asked."""
    now = parts_of(table)
    return len(now) != len(before) or not all(map(operator.is_, now, before))


def line_of(error: BaseException, kind: type[Stage]) -> str:
    """The line of the stage's own file where an error came from, as `mine.py:12`; "" where it is not known.

    What the stage left behind is found wrong only after its call: then the line is that of its `process`.
    """
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
    if file and lines:
        return f"{Path(file).name}:{lines[-1]}"
    code = getattr(getattr(kind, "process", None), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else ""
