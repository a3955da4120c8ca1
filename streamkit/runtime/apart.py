"""What the runner does so that a mistake of a plugin's stage stays its own.

The stages that ship keep the contract by their tests. A plugin's is given tables of its own and pictures that cannot be
written, is looked at in what it gives back, and finds frames and states as they were when it is called a second time.
"""

from __future__ import annotations

import copy
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.data import Batch, Detections, Frame, array_module
from streamkit.stage import Stage

__all__ = ["Before", "check_batch", "check_tables", "line_of", "own", "read_only"]


class Before:
    """What frames, and the states of their sources, were like before a stage was called.

    Args:
        frames: the batch's.
        states: of the sources; one that cannot be copied is not put back.
    """

    def __init__(self, frames: Sequence[Frame], states: dict[str, Any] | None = None) -> None:
        self._frames = [
            (frame, dict(frame.tables), list(frame.events), dict(frame.facts), frame.skipped) for frame in frames
        ]
        self._all: dict[str, Any] = {} if states is None else states
        self._states: dict[str, Any] = {}
        self._new = {frame.source for frame in frames} - self._all.keys()
        for source in {frame.source for frame in frames} - self._new:
            try:
                self._states[source] = copy.deepcopy(self._all[source])
            except Exception:
                continue

    def restore(self) -> None:
        """Put everything back; sources that had no state have none again."""
        for frame, tables, events, facts, skipped in self._frames:
            frame.tables, frame.events, frame.facts, frame.skipped = tables, events, facts, skipped
        for source in self._new:
            self._all.pop(source, None)
        self._all.update(self._states)


def own(batch: Batch) -> Batch:
    """The batch with tables that nobody else reads; one that is still on its way is copied when it is asked for."""

    def copied(table: Any) -> Any:
        return table.copy() if isinstance(table, Detections) else lambda: table().copy()

    tables = {name: copied(table) for name, table in batch.tables.items()}
    return replace(batch, frames=list(batch.frames), outputs=dict(batch.outputs), tables=tables)


@contextmanager
def read_only(frames: Sequence[Frame]) -> Iterator[None]:
    """Pictures on the host cannot be written within: other branches read them, and a decoder's buffers come again."""
    pictures = [frame.surface.data for frame in frames if frame.surface is not None]
    pictures = [data for data in pictures if array_module(data) is np and data.flags.writeable]
    for data in pictures:
        data.flags.writeable = False
    try:
        yield
    finally:
        for data in pictures:
            data.flags.writeable = True


def check_batch(made: Any, given: Batch, kind: type[Stage]) -> None:
    """Look at what a stage gives back.

    Raises:
        TypeError: a table of it is none.
        ValueError: frames are missing, or rows belong to none of them.
    """
    if not isinstance(made, Batch):
        return  # which the runner refuses
    count = len(made.frames) + len(made.failed) - len(given.failed)
    if count != len(given.frames):
        raise ValueError(
            f"{kind.__name__}.process must hand on every frame that it is given, got {count} of {len(given.frames)}; "
            "to leave out objects select rows of a table"
        )
    check_tables(made.tables)
    for name, table in made.tables.items():
        rows = table.batch_row if isinstance(table, Detections) else np.zeros(0)
        if array_module(rows) is np and len(rows) and not 0 <= rows.min() <= rows.max() < len(made.frames):
            raise ValueError(
                f"tables[{name!r}].batch_row must be from 0 to {len(made.frames) - 1}, a frame's place in the batch; "
                f"got {rows.min()} to {rows.max()}"
            )


def check_tables(tables: Mapping[str, Any]) -> None:
    """Look at the tables that a stage leaves.

    Raises:
        TypeError: one is none.
        ValueError: the columns of one do not fit each other.
    """
    for name, table in tables.items():
        if isinstance(table, Detections):
            table.check()
        elif not callable(table):
            raise TypeError(f"tables[{name!r}] must be a Detections, got {type(table).__name__}")


def line_of(error: BaseException, kind: type[Stage]) -> str:
    """The line of the stage's own file where an error came from, as `mine.py:12`; "" where it is not known."""
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
    return f"{Path(file).name}:{lines[-1]}" if file and lines else ""
