# SPDX-License-Identifier: Apache-2.0
"""Selection of the best view of each track so far, by size and sharpness, as `snapshot` does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamkit.core.data import Batch, Detections
from streamkit.core.units import Seconds
from streamkit.io.still_images import CropRequest
from streamkit.stages.inference.select_objects import SelectObjects
from streamkit.stages.video.best_view import ObjectView, measure

RATIO = 1.25
"""How many times better than the last one a view is for the network to run again: few runs a track."""


@dataclass(eq=False)
class SelectBestViews(
    SelectObjects,
    reads=("pixels", "track_id"),
    changeable=("track_ttl", "pad", "min_size"),
    device_copy="the sharpness of the views goes from device to host, 16 bytes each",
):
    """Choose each track when it is new, and when its view is better than all before; objects without a track never.

    Attributes:
        every: without an effect; a view is chosen by its quality only.
    """

    every: Seconds = float("inf")
    requery_ratio: float = RATIO
    untracked: bool = False

    def quality(
        self, batch: Batch, table: Detections, rects: np.ndarray, sides: np.ndarray, seen: np.ndarray
    ) -> np.ndarray:
        """See `SelectObjects.quality`: area x (1 + sharpness)."""
        quality = np.zeros(len(table))
        rows = [row for row in np.flatnonzero(seen).tolist() if batch.frames[table.batch_row[row]].surface is not None]
        views = []
        for row in rows:
            frame = batch.frames[table.batch_row[row]]
            x, y, right, bottom = rects[row].tolist()
            part = CropRequest(frame.surface, (frame.width, frame.height), (x, y, right, bottom))  # type: ignore[arg-type]
            views.append(ObjectView(frame.pts_s, frame.index, "", None, part, 0))
        measure(views)
        quality[rows] = [view.quality for view in views]
        return quality
