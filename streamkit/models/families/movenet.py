# SPDX-License-Identifier: Apache-2.0
"""MoveNet for one person: (N, 1, 17, 3), each point's y and x as shares of the input, and its score.

The person's score is the mean of the points' scores. The network outputs no box: it is the bounding box of the points
with a score of 0.2 or more, the authors' threshold (https://www.tensorflow.org/hub/tutorials/movenet), or of all points
if there are none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.core.data import array_module
from streamkit.models.families.base import (
    Columns,
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Size,
    authors_input,
    network_family,
)
from streamkit.ops.candidates import labeled_class

SEEN = np.float32(0.2)


def _reference_movenet(image: PlainImage) -> np.ndarray:
    (output,) = image.outputs.values()
    points = output[0][:, [1, 0, 2]] * (*image.input_size, 1)
    seen = points[points[:, 2] >= 0.2] if (points[:, 2] >= 0.2).any() else points
    box = (*seen[:, :2].min(axis=0), *seen[:, :2].max(axis=0))
    return np.array([[*box, points[:, 2].mean(), 0, *points.ravel()]])


@network_family(
    "movenet",
    FamilyTraits(
        formats=(OutputFormat("(N, 1, 17, 3)", "y, x in shares of the input, score; one person"),),
        line=authors_input("MoveNet", 0.2, anchor="center", pad=0, scale=1),
        keypoints="coco",
        reference=_reference_movenet,
    ),
)
class Movenet(Family):
    """One person per image; the column `keypoints`."""

    task = "pose"
    columns: Columns = {"keypoints": (17, 3)}  # noqa: RUF012  # never changed
    rank = 4
    layout = "(N, 1, 17, 3)"
    sizes = ((1, 1, "one person"), (2, 17, "points"), (3, 3, "y, x, score"))
    label = "person"

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        output = self._only(outputs)[1]
        xp = array_module(output)
        y, x, score = (output[:n, :, :, i].astype(np.float32) for i in range(3))
        points = xp.stack([x * np.float32(input_size[0]), y * np.float32(input_size[1]), score], axis=3)
        xy = points[..., :2]
        seen = (score >= SEEN)[..., None]
        seen = seen | ~seen.any(axis=2, keepdims=True)
        low = xp.where(seen, xy, np.float32(np.inf)).min(axis=2)
        high = xp.where(seen, xy, np.float32(-np.inf)).max(axis=2)
        return labeled_class(
            xp.concatenate([low, high], axis=2),
            score.mean(axis=2),
            xp.zeros(score.shape[:2], np.int32),
            min_score=min_score,
            points=points.reshape(*points.shape[:2], -1),
            step=3,
        )
