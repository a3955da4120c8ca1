# SPDX-License-Identifier: Apache-2.0
"""Why `collect` takes a frame: each function returns the objects of a frame for which it is worth labeling."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, Required

import numpy as np

from streamkit.core.data import Event, Frame
from streamkit.core.detections import Detections
from streamkit.core.units import Of, OptionGroup, Rate, Score
from streamkit.ops.disagreement import disagreements
from streamkit.stages.inference.select_objects import members
from streamkit.stages.video.known_images import KnownImages

_LONGEST_STEP_S = 60.0
"""A longer time between two frames counts as this long, so that a gap does not make a frame certain."""


class Subject(NamedTuple):
    """An object for which an image is collected: its row in the table of a detector."""

    stage: str
    row: int


class DisagreementOptions(OptionGroup, total=False):
    """When two detectors disagree.

    Keys:
        between: the two detectors, or some of their classes.
        iou: minimum IoU of two boxes of one object.
        min_score: minimum score of an object that counts.
    """

    between: Required[tuple[Of, Of]]
    iou: Score
    min_score: Score


def observed(table: Detections, of: Of | None = None) -> np.ndarray:
    """Return (n,) bool: the rows that a network found, and that are not only predicted by a tracker."""
    rows = np.ones(len(table), bool) if of is None else members(table, of)
    return rows & ~np.asarray(table.extra["predicted"], bool) if "predicted" in table.extra else rows


def tables_of(frame: Frame, of: Of | None = None) -> Iterator[tuple[str, Detections]]:
    """Yield name and table of the detectors that have seen this frame, or of that of `of`."""
    for name, table in frame.tables.items():
        if name not in frame._state.skipped_detectors and (of is None or of.stage == name):
            yield name, table


def low_scores(frame: Frame, of: Of | None, low: float, high: float) -> list[Subject]:
    """Return the objects with a score from `low` to `high`."""
    return [
        Subject(name, row)
        for name, table in tables_of(frame, of)
        for row in np.flatnonzero(observed(table, of) & (table.score >= low) & (table.score <= high)).tolist()
    ]


def disagreeing(frame: Frame, options: DisagreementOptions) -> list[Subject]:
    """Return the objects that only one of two detectors finds, or to which they give different labels."""
    both = []
    for of in options["between"]:
        table = dict(tables_of(frame)).get(of.stage)
        if table is None:  # it has not seen the frame
            return []
        both.append((of, np.flatnonzero(observed(table, of)), table))
    (first, first_rows, first_table), (second, second_rows, second_table) = both
    iou = options.get("iou", 0.5)
    min_score = options.get("min_score", 0.5)
    differences = disagreements(first_table[first_rows], second_table[second_rows], iou, min_score)
    return [
        *(
            Subject(first.stage, int(row))
            for row in first_rows[differences.first]
            if _compared(first_table, row, second)
        ),
        *(
            Subject(second.stage, int(row))
            for row in second_rows[differences.second]
            if _compared(second_table, row, first)
        ),
    ]


def _compared(table: Detections, row: int, other: Of) -> bool:
    """Whether the other detector's part of the comparison includes the class of an object."""
    return not other.labels or table.label[row] in other.labels


def novel(frame: Frame, of: Of | None, collected: KnownImages, distance: float) -> list[Subject]:
    """Return the objects whose vector is farther than `distance` from all that were collected."""
    return [
        Subject(name, row)
        for name, table in tables_of(frame, of)
        if "embedding" in table.extra and len(table)
        for row in np.flatnonzero(
            observed(table, of) & (collected.distances(name, vectors_of(table)) > distance)
        ).tolist()
    ]


def vectors_of(table: Detections) -> np.ndarray:
    """Return the vectors of a table's objects, (n, d) float32, NaN where there is none."""
    return np.asarray(table.extra["embedding"], np.float32)


def of_events(frame: Frame, events: Collection[Event]) -> list[Subject]:
    """Return the objects, on this frame, of the tracks of events."""
    tracks = {event.track_id for event in events if event.track_id is not None}
    return [
        Subject(name, row)
        for name, table in tables_of(frame)
        if table.track_id is not None
        for row in np.flatnonzero(np.isin(table.track_id, list(tracks))).tolist()
    ]


@dataclass(slots=True)
class RandomFrames:
    """Selects frames at random, of each source at a mean rate; the same ones of a video in each run.

    Attributes:
        rate: frames of each source, on average.
    """

    rate: Rate
    _last_s: dict[str, float] = field(default_factory=dict)

    def takes(self, frame: Frame) -> bool:
        """Whether the frame is one of them; called for each frame."""
        step_s = frame.pts_s - self._last_s.get(frame.source, frame.pts_s)
        self._last_s[frame.source] = frame.pts_s
        share = min(max(step_s, 0.0), _LONGEST_STEP_S) * self.rate.count / self.rate.period_s
        return drawn(frame) < share

    def end(self, source: str) -> None:
        """Forget a source."""
        self._last_s.pop(source, None)


def drawn(frame: Frame) -> float:
    """A number from 0 to 1 that is random, and the same each time for a frame."""
    digest = blake2b(f"{frame.source}\0{frame.index}".encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64
