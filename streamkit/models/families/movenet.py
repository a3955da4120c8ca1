"""MoveNet for one person: (N, 1, 17, 3), each point's y and x as shares of the input, and its score.

The person's score is the mean of the points' scores. The network outputs no box: it is the bounding box of the points
with a score of 0.2 or more, the authors' threshold (https://www.tensorflow.org/hub/tutorials/movenet), or of all points
if there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.models.families.base import Columns, Family
from streamkit.ops.candidates import given_class

SEEN = np.float32(0.2)


class Movenet(Family):
    """One person per image; the column `keypoints`."""

    name = "movenet"
    task = "pose"
    columns: Columns = {"keypoints": (17, 3)}  # noqa: RUF012  # never changed
    rank = 4
    layout = "(N, 1, 17, 3)"

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._only(outputs)
        for axis, size, what in ((1, 1, "one person"), (2, 17, "points"), (3, 3, "y, x, score")):
            self._check_size(name, shape, axis, size, what)
        self._check_one_class(classes, "person")

    def candidates(
        self, outputs: Mapping[str, Array], n: int, input_size: tuple[int, int], min_score: np.ndarray
    ) -> Any:
        """See `Family.candidates`."""
        output = self._only(outputs)[1]
        xp = array_module(output)
        y, x, score = (output[:n, :, :, i].astype(np.float32) for i in range(3))
        points = xp.stack([x * np.float32(input_size[0]), y * np.float32(input_size[1]), score], axis=3)
        place = points[..., :2]
        seen = (score >= SEEN)[..., None]
        seen = seen | ~seen.any(axis=2, keepdims=True)
        low = xp.where(seen, place, np.float32(np.inf)).min(axis=2)
        high = xp.where(seen, place, np.float32(-np.inf)).max(axis=2)
        return given_class(
            xp.concatenate([low, high], axis=2),
            score.mean(axis=2),
            xp.zeros(score.shape[:2], np.int32),
            min_score=min_score,
            points=points.reshape(*points.shape[:2], -1),
            step=3,
        )
