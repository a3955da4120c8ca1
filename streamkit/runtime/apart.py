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
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.data import Batch, Detections, Frame, array_module
from streamkit.errors import describe
from streamkit.runtime.pixels import pixels_of
from streamkit.stage import Stage

__all__ = ["Before", "Own", "States", "line_of", "parts_of", "same", "touched"]


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
            (
                frame,
                pixels_of(frame),
                dict(frame.tables),
                list(frame.events),
                dict(frame.facts),
                dict(frame.shown),
                frame.skipped,
            )
            for frame in frames
        ]
        self._put_back = None if states is None else states.copied({frame.source for frame in frames})

    def restore(self) -> None:
        """Put everything back; sources that had no state have none again."""
        for frame, pixels, tables, events, facts, shown, skipped in self._frames:
            frame.surface, frame.width, frame.height = pixels
            frame.tables, frame.events, frame.facts, frame.skipped = tables, events, facts, skipped
            frame.shown = shown
        if self._put_back is not None:
            self._put_back()


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
