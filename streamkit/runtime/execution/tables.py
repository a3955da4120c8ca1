# SPDX-License-Identifier: Apache-2.0
"""Creates batches, splits their tables by frame and joins them again, and merges forks where branches meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streamkit.core.data import Batch, Detections, Frame, merge


def new_batch(frames: Sequence[Frame], xp: Any, *, sequence: int = 0, ended: tuple[str, ...] = ()) -> Batch:
    """Create a batch of decoded frames; those with an error have already failed."""
    made = Batch([], xp, sequence=sequence, ended=ended)
    for position, frame in enumerate(frames):
        frame._state.position = position
        (made.frames if frame.error is None else made.failed).append(frame)
    return made


def split(batch: Batch) -> None:
    """Give every frame its rows of the batch's tables."""
    for name in batch.tables:
        table = batch.table(name)
        for frame, part in zip(batch.frames, table.split(len(batch.frames)), strict=True):
            frame.tables[name] = part


def join(batch: Batch, before: list[dict[str, Detections]]) -> None:
    """Rebuild the batch's tables from those of the frames, where a stage replaced them."""
    names = {**batch.tables}
    for frame in batch.frames:
        names.update(frame.tables)
    for name in names:
        pairs = zip(batch.frames, before, strict=True)
        if any(frame.tables.get(name) is not old.get(name) for frame, old in pairs):
            found = [frame.tables.get(name) for frame in batch.frames]
            parts = [Detections.empty() if table is None else table for table in found]
            batch.tables[name] = Detections.concat(parts, rows=range(len(parts)), exact=True)


def merge_batches(batches: Sequence[Batch]) -> Batch:
    """Merge forks of one batch, as branches left them: equal tables are kept once, and so are events.

    A frame that failed in one of the forks has failed; it keeps the events of all forks.
    """
    first = batches[0]
    lost = {frame._state.position for batch in batches for frame in batch.failed}
    result, *others = [_without(batch, lost) for batch in batches]
    for other in others:
        for name in other.tables:
            mine = result.table(name) if name in result.tables else None
            result.tables[name] = other.table(name) if mine is None else merge(mine, other.table(name))
        for frame, twin in zip(result.frames, other.frames, strict=True):
            _add_events(frame, twin)
    failed = {frame._state.position: frame for batch in reversed(batches) for frame in batch.failed}
    for frame in [frame for batch in batches if failed for frame in [*batch.failed, *batch.frames]]:
        known = failed.get(frame._state.position, frame)
        if known is not frame:  # it failed in another branch, or in both; its events are kept
            _add_events(known, frame)
    result.failed, result.ended, result.sequence = list(failed.values()), first.ended, first.sequence
    result.ready, result.lines, result.trace = first.ready, None, first.trace
    return result


def _add_events(frame: Frame, twin: Frame) -> None:
    frame._state.skipped_detectors |= twin._state.skipped_detectors
    frame.shown |= twin.shown
    known = {event.key: place for place, event in enumerate(frame.events)}
    for event in twin.events:
        place = known.get(event.key)
        if place is None:
            frame.events.append(event)
        elif (mine := frame.events[place]) is not event:  # a stage of a branch has added to it
            frame.events[place] = replace(mine, data={**event.data, **mine.data})
    for key, fact in twin.facts.items():  # each branch may add its own keys to a fact
        mine = frame.facts.setdefault(key, fact)
        if mine is not fact and isinstance(mine, dict) and isinstance(fact, dict):
            frame.facts[key] = {**fact, **mine}


def _without(batch: Batch, lost: set[int]) -> Batch:
    """The batch without the frames at these positions."""
    kept = [row for row, frame in enumerate(batch.frames) if frame._state.position not in lost]
    if len(kept) == len(batch.frames):
        return batch
    return batch.take(kept) if kept else Batch([], batch.xp)
