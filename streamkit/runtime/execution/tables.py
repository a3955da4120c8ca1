# SPDX-License-Identifier: Apache-2.0
"""Creates batches, splits their tables by frame and joins them again, and merges forks where branches meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from streamkit.core.data import Batch, Detections, Frame, merge


def new_batch(frames: Sequence[Frame], xp: Any, *, sequence: int = 0, ended: tuple[str, ...] = ()) -> Batch:
    """Create a batch of decoded frames; those with an error have already failed."""
    batch = Batch([], xp, sequence=sequence, ended=ended)
    for position, frame in enumerate(frames):
        frame._state.position = position
        (batch.frames if frame.error is None else batch.failed).append(frame)
    return batch


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
            tables = [frame.tables.get(name) for frame in batch.frames]
            parts = [Detections.empty() if table is None else table for table in tables]
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
            table = result.table(name) if name in result.tables else None
            result.tables[name] = other.table(name) if table is None else merge(table, other.table(name))
        for frame, twin in zip(result.frames, other.frames, strict=True):
            _add_events(frame, twin)
    failed = {frame._state.position: frame for batch in reversed(batches) for frame in batch.failed}
    for frame in [frame for batch in batches if failed for frame in [*batch.failed, *batch.frames]]:
        failed_frame = failed.get(frame._state.position, frame)
        if failed_frame is not frame:  # it failed in another branch, or in both; its events are kept
            _add_events(failed_frame, frame)
    result.failed = list(failed.values())
    result.ended = first.ended
    result.sequence = first.sequence
    result.ready = first.ready
    result.lines = None
    result.trace = first.trace
    return result


def _add_events(frame: Frame, twin: Frame) -> None:
    frame._state.skipped_detectors |= twin._state.skipped_detectors
    frame.shown |= twin.shown
    frame.maps |= twin.maps
    places = {event.key: place for place, event in enumerate(frame.events)}
    for event in twin.events:
        place = places.get(event.key)
        if place is None:
            frame.events.append(event)
        elif (old_event := frame.events[place]) is not event:  # a stage of a branch has added to it
            frame.events[place] = replace(old_event, data={**event.data, **old_event.data})
    for key, fact in twin.facts.items():  # each branch may add its own keys to a fact
        merged_fact = frame.facts.setdefault(key, fact)
        if merged_fact is not fact and isinstance(merged_fact, dict) and isinstance(fact, dict):
            frame.facts[key] = {**fact, **merged_fact}


def _without(batch: Batch, lost: set[int]) -> Batch:
    """The batch without the frames at these positions."""
    rows = [row for row, frame in enumerate(batch.frames) if frame._state.position not in lost]
    if len(rows) == len(batch.frames):
        return batch
    return batch.take(rows) if rows else Batch([], batch.xp)
