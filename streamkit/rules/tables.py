"""The concatenated tables of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamkit.analytics.per_source_steps import Labels
from streamkit.core.data import Batch, Detections


class Tables:
    """All tables of a batch, one below the other: n objects.

    Attributes:
        names: the tables' names.
        tables: the tables.
        owner: (n,) int64, each object's frame; -1 for one that does not count.
        size: (n, 2) float64, the width and height of its frame.
        xyxy: (n, 4) float64, boxes clipped to their frames.
        score: (n,) float64.
        track: (n,) int64, -1 for none.
    """

    def __init__(self, batch: Batch, predicted: bool) -> None:
        self.names = list(batch.tables)
        self.tables = tables = [batch.table(name) for name in self.names]
        frames = batch.frames

        def column(make: Callable[[Detections], Any], none: Any) -> np.ndarray:
            return np.concatenate([make(one) for one in tables]) if tables else np.asarray(none)

        row = column(lambda one: one.batch_row, np.zeros(0, np.int64)).astype(np.int64)
        size = np.array([(frame.width, frame.height) for frame in frames], np.float64).reshape(-1, 2)
        self.size = size[row]
        xyxy = column(lambda one: one.xyxy, np.zeros((0, 4))).astype(np.float64)
        self.xyxy = np.clip(xyxy, 0.0, np.concatenate([self.size, self.size], axis=1))
        self.score = column(lambda one: one.score, np.zeros(0)).astype(np.float64)
        self.track = column(
            lambda one: np.full(len(one), -1, np.int64) if one.track_id is None else one.track_id, np.zeros(0, np.int64)
        )
        counts = ~np.isnan(xyxy.sum(axis=1))
        if not predicted:
            counts &= self.extra("predicted", lambda values: np.asarray(values) == 1, False) == 0
        self.owner = np.where(counts, row, -1)
        self._label: np.ndarray | None = None

    def extra(self, name: str, make: Callable[[Any], np.ndarray], unknown: Any) -> np.ndarray:
        """Return a further column, with `unknown` for tables without it."""
        parts = [make(t.extra[name]) if name in t.extra else np.full(len(t), unknown, np.float64) for t in self.tables]
        return np.concatenate(parts) if parts else np.zeros(0)

    def label(self, labels: Labels) -> np.ndarray:
        """Return (n,) int64, numbers of `labels`."""
        if self._label is None:
            found = [labels.of(one) for one in self.tables]
            self._label = np.concatenate(found) if found else np.zeros(0, np.int64)
        return self._label

    def label_names(self, labels: Labels) -> list[str]:
        """Return the names of the numbers."""
        self.label(labels)
        return labels.names
