# SPDX-License-Identifier: Apache-2.0
"""Semantic segmentation: a class for each place of a map, in one of these formats:

| output | format |
| --- | --- |
| (N, C, h, w) or (N, h, w, C) | a score per class, such as DeepLab's; the best wins, of equal scores the first |
| (N, h, w) or (N, 1, h, w), integers | the class itself |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families.base import Family, Outputs, Shapes, Size, fits
from streamkit.ops.masks import best_classes

_MAX_CLASSES = 256  # a map has a byte a place


class Semantic(Family):
    """One map per frame, no objects."""

    name = "semantic"
    task = "segment"
    regions = True

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._map(outputs)
        if classes > _MAX_CLASSES:
            raise ValueError(
                f"family {self.name} takes at most {_MAX_CLASSES} classes, and the label list has {classes}"
            )
        if len(shape) == 4 and not fits(shape[1], classes) and not fits(shape[3], classes):
            if shape[1] == 1:
                return
            raise ValueError(
                f"family {self.name}: output {name!r} of shape {tuple(shape)} has {shape[1]} or {shape[3]} classes, "
                f"and the label list has {classes}; give the card the labels or the family of this network"
            )

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset([self._map(outputs)[0]])

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """Raise ValueError: there are no objects; use `maps`."""
        raise ValueError(f"family {self.name} has no objects to read")

    def maps(self, outputs: Outputs, classes: int) -> Array:
        """Return the class of each place, (N, h, w) uint8, on the outputs' device."""
        output = self._map(outputs)[1]
        if output.ndim == 4 and output.shape[1] == 1 and classes > 1:
            output = output[:, 0]
        if output.ndim == 3:
            return output.astype(np.uint8)
        return best_classes(output, 1 if output.shape[1] == classes else 3)

    def _map(self, outputs: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the only output that is a map: its name, and its shape or array."""
        return self._single(outputs, lambda shape: len(shape) in (3, 4), "map, (N, C, h, w)")
