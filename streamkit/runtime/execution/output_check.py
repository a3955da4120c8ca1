"""Validates what a plugin stage returns: batch, frames and tables; `surface_check.py` validates surfaces."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Batch, Detections, Event, Frame, array_module
from streamkit.core.stage import Stage


def check_batch(made: Batch, given: Batch, kind: type[Stage]) -> None:
    """Validate the batch that a stage returned, except for pixels.

    Raises:
        TypeError: a table is not a Detections, or a field of a frame has the wrong type.
        ValueError: frames are missing or out of order, or rows refer to frames that do not exist.
    """
    count = len(made.frames) + len(made.failed) - len(given.failed)
    if count != len(given.frames):
        raise ValueError(
            f"{kind.__name__}.process must return every frame that it is given, got {count} of {len(given.frames)}; "
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
    order = {(frame.source, frame._state.position): place for place, frame in enumerate(given.frames)}
    places = [order.get((frame.source, frame._state.position), -1) for frame in made.frames]
    if places and (min(places) < 0 or places != sorted(set(places))):
        raise ValueError(f"{kind.__name__}.process must return the frames that it is given, in their order")
    _check_arrays(made, given)


def _check_arrays(made: Batch, given: Batch) -> None:
    """Validate the tensor and the outputs that a stage replaced. Raises TypeError or ValueError."""
    arrays = {
        f"outputs[{name!r}]": array for name, array in made.outputs.items() if array is not given.outputs.get(name)
    }
    if made.tensor is not None and made.tensor is not given.tensor:
        arrays["tensor"] = made.tensor
    for name, array in arrays.items():
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise TypeError(f"batch.{name} must be an array of {made.xp.__name__}, got {type_text(array)}")
    rows = len(made.frames) if made.rows is None else len(made.rows)
    shape = arrays["tensor"].shape if "tensor" in arrays else (rows, 0, 0, 0)
    if len(shape) != 4 or shape[0] < rows:
        raise ValueError(f"batch.tensor must have 4 axes and {rows} rows, one a frame, got shape {list(shape)}")


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
    if not isinstance(frame.facts, dict) or not all(isinstance(name, str) for name in frame.facts):
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
