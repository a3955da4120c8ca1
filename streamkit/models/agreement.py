# SPDX-License-Identifier: Apache-2.0
"""Whether a network in faster arithmetic finds what it finds in f32, on the same images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from streamkit.core.data import Array, Detections, array_module
from streamkit.models import families
from streamkit.models.card import Card, family_of
from streamkit.models.families.base import begin_table
from streamkit.ops import rle
from streamkit.ops.boxes import iou_matrix
from streamkit.ops.rle import Rle

MIN_OBJECTS = 200
"""Confident objects that decide. Fewer say nothing: boxes without objects are almost equal in any arithmetic."""
MIN_SHARE = 0.99
"""Least share of confident objects that are the same."""
MIN_IOU = 0.95
MAX_SCORE_ERROR = 0.02
MIN_MASK_IOU = 0.9
"""Of the masks of an object; a mask's border follows values near zero."""
MAX_POINT_ERROR = 0.025
"""Largest distance of an object's sure key points, in shares of the root of its area."""
_SURE_SCORE = 0.5
_MAX_PARTS = 64
"""Objects of a run whose masks and key points are compared, which takes some milliseconds each."""
MIN_IMAGES = 64
"""Images that decide for networks without objects: classes, vectors, maps."""
MAX_ERROR = 5e-3
"""Largest error of an output of such a network, by the norm: what f16 gives trained networks is 3e-4 to 5e-3."""

Verdict = Literal["same", "different", "unknown"]


class Images(NamedTuple):
    """What decoding needs to know of a run.

    Attributes:
        geometry: (n, 4) float32, see `Batch.geometry`; None for networks without objects.
        sizes_wh: (n, 2) int64, of the source images.
        labels: of the classes.
    """

    geometry: np.ndarray | None
    sizes_wh: np.ndarray
    labels: tuple[str, ...]


class ArithmeticAgreement:
    """Compares outputs of a network in faster arithmetic with those in f32, run by run.

    Attributes:
        images: number of images compared.
        objects: number of confident objects, in f32.
        error: largest error of an output so far, by the norm; infinite if a value is not finite.
    """

    def __init__(self, card: Card) -> None:
        self._card = card
        self._family = family_of(card)
        self._has_objects = card.task in ("detect", "segment", "pose") and not self._family.regions
        self._confident = 0  # in either arithmetic
        self._same = 0
        self._mismatched_output = ""  # an output whose shape differs
        self.images = 0
        self.objects = 0
        self.error = 0.0

    def add(self, reference: Mapping[str, Array], outputs: Mapping[str, Array], images: Images) -> None:
        """Compare the outputs of a run.

        Args:
            reference: in f32.
            outputs: from the other arithmetic, on the same device.
            images: of the run; outputs of further rows are padding.
        """
        count = len(images.sizes_wh)
        self.images += count
        for name, expected in reference.items():
            if expected.dtype.kind == "f":
                self._compare_values(name, expected[:count], outputs[name][:count])
        if self._has_objects and np.isfinite(self.error):
            before, after = (self._table(values, images) for values in (reference, outputs))
            self._count(before, after)
            self._count(after, before)
            self.objects += int((before.score >= self._card.score).sum())

    def _compare_values(self, name: str, expected: Array, values: Array) -> None:
        if expected.shape == values.shape:
            self.error = max(self.error, _error(expected, values))
        elif not self._has_objects:
            self._mismatched_output = name
        elif not bool(array_module(values).isfinite(values).all()):  # a network may select objects itself
            self.error = np.inf

    @property
    def share(self) -> float:
        """Share of the confident objects that are the same; 1 if there are none."""
        return self._same / self._confident if self._confident else 1.0

    @property
    def verdict(self) -> Verdict:
        """Whether both find the same; unknown until there was enough to tell."""
        if not np.isfinite(self.error) or self._mismatched_output:
            return "different"
        if self._has_objects:
            if self.objects < MIN_OBJECTS:
                return "unknown"
            return "same" if self.share >= MIN_SHARE else "different"
        if self.images < MIN_IMAGES:
            return "unknown"
        return "same" if self.error <= MAX_ERROR else "different"

    def __str__(self) -> str:
        if not np.isfinite(self.error):
            return "it gives values that are not finite"
        if self._mismatched_output:
            return f"its output {self._mismatched_output} has another shape"
        if not self._has_objects:
            return f"the outputs of {self.images} images differ by {self.error:.2g} (at most {MAX_ERROR:g})"
        if self.objects < MIN_OBJECTS:
            return f"{self.objects} confident objects in {self.images} images ({MIN_OBJECTS} are needed to compare)"
        return f"{self.share:.1%} of {self.objects} confident objects are the same (at least {MIN_SHARE:.0%})"

    def _table(self, outputs: Mapping[str, Array], images: Images) -> Detections:
        card = self._card
        count = len(images.sizes_wh)
        assert images.geometry is not None
        scores = np.full(max(1, len(images.labels)), max(0.0, card.score - MAX_SCORE_ERROR), np.float32)
        options = families.ReadOptions(scores, iou=card.iou)
        used = {
            name: values[:count] if values.ndim and len(values) >= count else values for name, values in outputs.items()
        }
        if self._family.host_only:
            used = {name: _on_host(values) for name, values in used.items()}
        table, _ = begin_table(
            self._family, used, images.geometry[:count], images.sizes_wh, card.input.size, options, images.labels
        )
        return table()[0]

    def _count(self, these: Detections, others: Detections) -> None:
        """Count the confident objects of one side, and those that the other side has."""
        pairs = [np.empty((2, 0), np.int64)]
        for image in np.unique(these.batch_row):
            confident = np.flatnonzero((these.batch_row == image) & (these.score >= self._card.score))
            near = np.flatnonzero(others.batch_row == image)
            self._confident += len(confident)
            same = iou_matrix(these.xyxy[confident], others.xyxy[near]) >= MIN_IOU
            same &= these.class_id[confident][:, None] == others.class_id[near][None]
            same &= np.abs(these.score[confident][:, None] - others.score[near][None]) <= MAX_SCORE_ERROR
            first, second = np.nonzero(same)
            pairs.append(np.stack([confident[first], near[second]]))
        self._same += _count_same(these, others, np.concatenate(pairs, axis=1))


def _count_same(these: Detections, others: Detections, pairs: np.ndarray) -> int:
    """Return how many objects are the same with their masks and key points.

    Args:
        these: objects of one side.
        others: objects of the other side.
        pairs: (2, n) rows of both whose boxes, classes and scores are the same.
    """
    objects = np.unique(pairs[0])
    columns = [name for name in ("mask", "keypoints") if name in these.extra]
    if not columns or not len(objects):
        return len(objects)
    examined = objects[:: -(-len(objects) // _MAX_PARTS)]
    pairs = pairs[:, np.isin(pairs[0], examined)]
    first = these[pairs[0]]
    second = others[pairs[1]]
    same = np.ones(pairs.shape[1], bool)
    for name in columns:
        is_same = _same_mask if name == "mask" else _same_points
        triples = zip(first.extra[name], second.extra[name], first.xyxy, strict=True)
        same &= np.array([is_same(*triple) for triple in triples], bool)
    return round(len(objects) * len(np.unique(pairs[0][same])) / len(examined))


def _same_mask(expected: Rle | None, mask: Rle | None, _: np.ndarray) -> bool:
    if expected is None or mask is None:
        return expected is mask
    return rle.iou(expected, mask) >= MIN_MASK_IOU


def _same_points(expected: np.ndarray, points: np.ndarray, xyxy: np.ndarray) -> bool:
    sure = expected[:, 2] >= _SURE_SCORE
    distances = np.linalg.norm(expected[sure, :2] - points[sure, :2], axis=1)
    side = float(np.sqrt(np.prod(xyxy[2:] - xyxy[:2])))
    return bool((distances <= MAX_POINT_ERROR * side).all())


def _error(expected: Array, values: Array) -> float:
    """Return the norm of a difference in shares of the expected norm.

    It is infinite where one side is not finite and the other is, or is so in another way.
    """
    xp = array_module(expected)
    expected = expected.astype(np.float32)
    values = values.astype(np.float32)
    finite = xp.isfinite(expected)
    alike = finite & xp.isfinite(values) | (expected == values) | (xp.isnan(expected) & xp.isnan(values))
    if not bool(alike.all()):
        return float("inf")
    difference = float(xp.linalg.norm(values[finite] - expected[finite]))
    return difference / max(float(xp.linalg.norm(expected[finite])), 1e-30)


def _on_host(values: Array) -> np.ndarray:
    return values if isinstance(values, np.ndarray) else values.get()
