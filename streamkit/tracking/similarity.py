# SPDX-License-Identifier: Apache-2.0
"""Similarity of objects and tracks: overlap, direction, appearance. A track is a record of `track_state.TRACK`."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.tracking.jit import compiled
from streamkit.tracking.track_state import HISTORY

_HEADING_S = 0.1
"""Over how long a track's direction is taken: three frames at 30 a second."""
_SLACK_S = 1e-6


@compiled
def overlap(a: np.ndarray, i: int, b: np.ndarray, j: int) -> float:
    """Intersection over union of two non-empty boxes.

    Args:
        a: (n, 4) boxes x1, y1, x2, y2. Indexed here, since taking a row out of an array costs more than the result.
        i: row of `a`.
        b: (m, 4) boxes.
        j: row of `b`.
    """
    width = min(a[i, 2], b[j, 2]) - max(a[i, 0], b[j, 0])
    height = min(a[i, 3], b[j, 3]) - max(a[i, 1], b[j, 1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    union = (a[i, 2] - a[i, 0]) * (a[i, 3] - a[i, 1]) + (b[j, 2] - b[j, 0]) * (b[j, 3] - b[j, 1]) - both
    return float(both / union)


@compiled
def box_similarity(a: np.ndarray, i: int, b: np.ndarray, j: int) -> float:
    """Similarity of two boxes: their IoU, times the third power of the share of height that they have in common.

    People side by side overlap, but stand at different depths; swinging legs change a box's width, not its height.
    The idea is that of Yang et al., "Hybrid-SORT", 2024. Arguments as in `overlap`.
    """
    like = overlap(a, i, b, j)
    if like <= 0:
        return 0.0
    height = min(a[i, 3], b[j, 3]) - max(a[i, 1], b[j, 1])
    shared = height / (max(a[i, 3], b[j, 3]) - min(a[i, 1], b[j, 1]))
    return float(like * shared * shared * shared)


@compiled
def straightness(track: Any, box: np.ndarray) -> float:
    """How well moving on to `box` keeps a track's direction: 1 straight on, 0.5 sideways, 0 backwards.

    The momentum of Cao et al., "Observation-Centric SORT", 2023: the angle between the track's direction over its last
    `_HEADING_S` seconds and the direction from there to the box. A track without a direction gets 0.5 for every box, so
    that it neither wins nor loses against one that has a direction.
    """
    if track.steps < 2:
        return 0.5
    path = track.path
    last = (track.steps - 1) % HISTORY
    earlier = last
    for back in range(1, min(track.steps, HISTORY)):
        earlier = (track.steps - 1 - back) % HISTORY
        if path[last, 0] - path[earlier, 0] >= _HEADING_S - _SLACK_S:
            break
    x = path[last, 1] - path[earlier, 1]
    y = path[last, 2] - path[earlier, 2]
    to_x = (box[0] + box[2]) / 2 - path[earlier, 1]
    to_y = (box[1] + box[3]) / 2 - path[earlier, 2]
    lengths = np.sqrt((x * x + y * y) * (to_x * to_x + to_y * to_y))
    if lengths < 1e-9:
        return 0.5
    return 1 - float(np.arccos(min(1.0, max(-1.0, (x * to_x + y * to_y) / lengths)))) / np.pi


@compiled
def cosine_similarity(a: np.ndarray, b: np.ndarray) -> float:
    """Cosine of two embeddings; -1 if one is unknown."""
    both = aa = bb = 0.0
    for i in range(len(a)):
        both += a[i] * b[i]
        aa += a[i] * a[i]
        bb += b[i] * b[i]
    return float(both / np.sqrt(aa * bb)) if aa > 0 and bb > 0 else -1.0  # neither holds for a NaN
