# SPDX-License-Identifier: Apache-2.0
"""Semantic segmentation: a class for each place of a map, in one of these formats:

| output | format |
| --- | --- |
| (N, C, h, w) or (N, h, w, C) | a score per class, such as DeepLab's, sampled at each pixel; the best wins |
| (N, h, w) or (N, 1, h, w), integers | the class itself |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families.base import (
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    Shapes,
    Size,
    Values,
    fits,
    network_family,
)
from streamkit.models.families.rules import SLACK, holds_integers, in_shape
from streamkit.models.network_file import ModelInfo
from streamkit.ops.class_maps import best_classes

_MAX_CLASSES = 256  # a map has a byte a place
_OTHER_MAPS = re.compile("heat|depth|disp|anomaly|keypoint|flow|mask", re.IGNORECASE)
"""Names of maps that are no classes."""


def _is_map(info: ModelInfo, size: Size) -> bool:
    """Whether the output is a map in the shape of the input, of scores of classes, or of classes as integers."""
    ((name, dims),) = [(name, dims) for name, dims in info.output_dims.items() if len(dims) in (3, 4)]
    if _OTHER_MAPS.search(name):
        return False
    if holds_integers(info):
        return in_shape(dims[-2:], size)
    return len(dims) == 4 and any(
        values != 1 and in_shape(place, size) for values, place in ((dims[1], dims[2:4]), (dims[3], dims[1:3]))
    )


def _not_class_maps(values: Values, size: Size, classes: int | None) -> str:
    """Exclude heat maps and detectors on a grid: small values that are no probabilities of classes."""
    name, array = next(iter(values.items()))
    if array.dtype.kind != "f" or array.ndim != 4 or "logits" in name or not array.any():
        return ""
    scores = array[0].astype(np.float64)
    probabilities = any(np.abs(scores.sum(axis=axis) - 1).max() < 0.05 for axis in (0, 2))
    logits = np.abs(scores).max() > 1 + SLACK
    return "" if logits or probabilities else "its values are neither logits nor probabilities of classes"


@network_family(
    "semantic",
    FamilyTraits(
        formats=(
            OutputFormat("(N, C, h, w) or (N, h, w, C)", "a score for each class, of which the best wins"),
            OutputFormat("(N, h, w) or (N, 1, h, w), integers", "the class"),
        ),
        plausible=_is_map,
        doubt=_not_class_maps,
        meaning="if the map has the score of each class at each place",
        ultralytics=("semantic",),
        hugging_face="SemanticSegmentation",
    ),
)
class Semantic(Family):
    """One map per frame, no objects."""

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

    def certain(self, info: ModelInfo, classes: int | None, labeled: bool) -> bool:
        """See `Family.certain`: numbers may be key points or distances; as many labels as values say classes."""
        return holds_integers(info) or (labeled and (classes or 0) > 1)

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """Raise ValueError: there are no objects; use `maps`."""
        raise ValueError(f"family {self.name} has no objects to read")

    def maps(self, outputs: Outputs, classes: int) -> Array:
        """Return the class of each place, (N, h, w) uint8, on the outputs' device."""
        scores = self.scores(outputs, classes)
        if scores is not None:
            return best_classes(scores, 1)
        output = self._map(outputs)[1]
        return (output[:, 0] if output.ndim == 4 else output).astype(np.uint8)

    def scores(self, outputs: Outputs, classes: int) -> Array | None:
        """Return the score of each class at each place, a view (N, C, h, w); None if the map has the class itself."""
        output = self._map(outputs)[1]
        if output.ndim == 3 or (output.shape[1] == 1 and classes > 1):
            return None
        return output if output.shape[1] == classes else output.transpose(0, 3, 1, 2)

    def _map(self, outputs: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the only output that is a map: its name, and its shape or array."""
        return self._single(outputs, lambda shape: len(shape) in (3, 4), "map, (N, C, h, w)")
