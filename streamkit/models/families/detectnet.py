# SPDX-License-Identifier: Apache-2.0
"""DetectNet_v2 of NVIDIA's TAO toolkit: PeopleNet, TrafficCamNet, DashCamNet, FaceDetect, LPDNet.

Each class has a map of scores and four maps of distances on a grid of 16 pixels. A distance is in units of 35 pixels,
from the grid's point (16 x + 0.5, 16 y + 0.5) to the left, upper, right and lower edge. A box is then found at many
points; where NVIDIA's tools cluster them, non-max suppression takes the best, as with `cluster-mode=2` of DeepStream.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from streamkit.core.data import array_module
from streamkit.models.families.base import (
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Shapes,
    Size,
    Values,
    authors_input,
    fits,
    listed,
    network_family,
)
from streamkit.models.families.rules import not_scores
from streamkit.models.network_file import ModelInfo
from streamkit.ops.candidates import check_scores, labeled_class, upload

_STRIDE = 16
_UNIT = 35.0
"""Pixels of a distance of 1."""
_OFFSET = 0.5
_EDGES = np.array([-_UNIT, -_UNIT, _UNIT, _UNIT], np.float32)


def _maps(outputs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the scores and of the distances; empty if they are not there."""
    names = [[name for name in outputs if part in name.lower()] for part in ("cov", "bbox")]
    return tuple(fitting[0] for fitting in names) if all(len(fitting) == 1 for fitting in names) else ()


def _is_grid(info: ModelInfo, size: Size) -> bool:
    """Whether the maps have a value for each 16 pixels of the input."""
    cells = [-(-side // _STRIDE) for side in reversed(size)]
    shape = info.output_dims[_maps(info.output_dims)[0]]
    return all(fits(side, expected) for side, expected in zip(shape[2:], cells, strict=True))


def _not_coverage(values: Values, size: Size, classes: int | None) -> str:
    return not_scores(values[_maps(values)[0]][0])


def _reference_detectnet(image: PlainImage) -> np.ndarray:
    scores, distances = (image.outputs[name] for name in _maps(image.outputs))
    rows = []
    for label, row, column in np.ndindex(*scores.shape):
        left, upper, right, lower = distances[4 * label : 4 * label + 4, row, column] * 35
        x = column * 16 + 0.5
        y = row * 16 + 0.5
        rows.append([x - left, y - upper, x + right, y + lower, scores[label, row, column], label])
    return np.array(rows, np.float64).reshape(-1, 6)


@network_family(
    "detectnet",
    FamilyTraits(
        formats=(
            OutputFormat(
                "`output_cov` (N, C, h, w), `output_bbox` (N, 4 C, h, w)",
                "a score for each class; distances of the edges from each 16th pixel, in units of 35 pixels. "
                "DetectNet_v2 of NVIDIA TAO, such as PeopleNet (`output_cov/Sigmoid:0`, `output_bbox/BiasAdd:0`), read "
                "as nvidia-tao-deploy 7.3 does with non-max suppression, in place of clustering; export unverified",
            ),
        ),
        line=authors_input("DetectNet_v2", 0.4, 0.5, resize="stretch", antialias=True),
        plausible=_is_grid,
        doubt=_not_coverage,
        reference=_reference_detectnet,
    ),
)
class DetectNet(Family):
    """A score and a box for each class and point of a grid."""

    suppress = True

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        names = _maps(outputs)
        if not names or any(len(outputs[name]) != 4 for name in names):
            raise ValueError(
                f"family {self.name} reads scores (N, classes, h, w) and distances (N, 4 x classes, h, w), with cov "
                f"and bbox in their names; the network has {listed(outputs)}"
            )
        scores, distances = (outputs[name] for name in names)
        self._check_classes(names[0], scores, 1, 0, classes)
        self._check_size(names[1], distances, 1, 4 * classes, "four distances for each class")
        for axis in (2, 3):
            if isinstance(scores[axis], int):
                self._check_size(names[1], distances, axis, scores[axis], f"as of {names[0]}")

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(_maps(outputs))

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        scores, distances = (outputs[name][:n] for name in _maps(outputs))
        xp = array_module(scores)
        classes, high, wide = scores.shape[1:]
        check_scores(classes, min_score)
        cells = high * wide
        edges, points, labels = (
            values if xp is np else upload(values) for values in (_EDGES, _points(high, wide), _labels(classes, cells))
        )
        sides = distances.reshape(n, classes, 4, cells).transpose(0, 1, 3, 2).astype(np.float32)
        boxes = sides * edges + points
        anchors = classes * cells
        return labeled_class(
            boxes.reshape(n, anchors, 4),
            scores.reshape(n, anchors),
            xp.broadcast_to(labels, (n, anchors)),
            min_score=min_score,
        )


@lru_cache(maxsize=32)
def _points(high: int, wide: int) -> np.ndarray:
    """Return x, y, x, y of the points of a grid, row by row: (high x wide, 4) float32."""
    y, x = np.mgrid[:high, :wide] * _STRIDE + _OFFSET
    return np.stack([x.ravel(), y.ravel()] * 2, axis=1).astype(np.float32)


@lru_cache(maxsize=32)
def _labels(classes: int, cells: int) -> np.ndarray:
    """Return the class of each value of the scores: (classes x cells,) int32."""
    return np.repeat(np.arange(classes, dtype=np.int32), cells)
