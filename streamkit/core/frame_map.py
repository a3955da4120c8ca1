# SPDX-License-Identifier: Apache-2.0
"""Values over a frame that stay on the device, such as depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamkit.core.detections import Array


@dataclass(frozen=True, slots=True, eq=False)
class FrameMap:
    """A value for each place of a frame, on the pipeline's device.

    Attributes:
        kind: `depth` in meters, `relative_depth` from 0, the frame's nearest place, to 1, or `anomaly`, a score.
        values: (h, w) float32; not finite where there is no value.
        levels: (h, w) uint8, what `draw` shows: 255 for the nearest or most unusual, 1 for the least, 0 for nothing.
        to_map: scale_x, scale_y, offset_x, offset_y: place of the map = source pixel x scale + offset, both counted
            from the edge.
        rect: left, top, right, bottom of the places that show the frame; others show padding.
    """

    kind: Literal["depth", "relative_depth", "anomaly"]
    values: Array
    levels: Array
    to_map: tuple[float, float, float, float]
    rect: tuple[int, int, int, int]
