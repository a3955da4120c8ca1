"""Isolates the pipeline from mistakes in plugin stages.

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
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streamkit.core.data import Frame
from streamkit.core.errors import describe
from streamkit.core.stage import Stage
from streamkit.runtime.execution.surface_check import pixels_of

__all__ = ["BatchSnapshot", "StateCopies", "line_of"]


_MOST_S = 0.0005  # a batch, to copy the states of its sources: 5 % of Python's time at a hundred batches a second
_LEAST = 20  # batches before that is judged


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
                pixels_of(frame),
                dict(frame.tables),
                list(frame.events),
                dict(frame.facts),
                dict(frame.shown),
                frame._state.skipped_detectors,
            )
            for frame in frames
        ]
        self._put_back = None if states is None else states.copied({frame.source for frame in frames})

    def restore(self) -> None:
        """Restore everything; sources that had no state have none again."""
        for frame, pixels, tables, events, facts, shown, skipped in self._frames:
            frame.surface, frame.width, frame.height = pixels
            frame.tables, frame.events, frame.facts, frame._state.skipped_detectors = tables, events, facts, skipped
            frame.shown = shown
        if self._put_back is not None:
            self._put_back()


class StateCopies:
    """States of a stream stage's sources; copies are kept while a batch is processed.

    Copying stops for good if a state cannot be copied or copying takes too long.

    Args:
        all_: the states by source.
        lost: receives the reason if a stage raised and its states could not be restored.
    """

    def __init__(self, all_: dict[str, Any], lost: Callable[[str], None]) -> None:
        _keep_handles()
        self._all, self._lost = all_, lost
        self._copies, self._seconds = 0, 0.0
        self._without: str | None = None  # why no copies are made

    def copied(self, sources: set[str]) -> Callable[[], None]:
        """Copy the states of these sources; return a function that restores them."""
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
    """Share CUDA events and streams between copies: a copied handle would be destroyed twice."""
    if (cupy := sys.modules.get("cupy")) is not None:
        for kind in (cupy.cuda.Event, cupy.cuda.Stream):
            copyreg.pickle(kind, lambda handle: type(handle).__name__)  # a name stands for the object itself


def line_of(error: BaseException, kind: type[Stage]) -> str:
    """The line in the stage's own file where an error came from, as `mine.py:12`; "" if unknown.

    An invalid result is detected only after the call; the line is then that of `process`.
    """
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == file]
    if file and lines:
        return f"{Path(file).name}:{lines[-1]}"
    code = getattr(getattr(kind, "process", None), "__code__", None)
    return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else ""
