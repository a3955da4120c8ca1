"""`run.py models check CARD` for masks, keypoints and semantic segmentation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.core.data import Detections, Device, Frame
from streamkit.models import reference
from streamkit.models.card import Card
from streamkit.models.check_parts import Tensors, table, told

MASK_IOU, POINT_PX, PLACES = 0.98, 1.0, 0.99
"""Least IoU of a mask, largest error of a sure key point in source pixels, least share of places of the same class."""
SAME = 0.99
"""The share of objects, or of frames, that must be so."""
_SURE, _BOX_IOU, _LARGE = 0.3, 0.95, 200


@dataclass(frozen=True, slots=True)
class DetailsReport:
    """Result of a check.

    Attributes:
        frames: number of frames compared.
        tensor_max: largest error of the tensor against the exact rule, in levels of 0..255.
        opencv_mean: mean error of the tensor against OpenCV's result, in levels.
        objects: objects of the reference; for semantic segmentation, frames.
        same: the share of them within the limits.
        worst: least IoU of a mask or share of equal places of a frame; for keypoints, largest error in source pixels.
        what: description of `worst`.
        passed: whether everything is within the tolerances.
    """

    frames: int
    tensor_max: float
    opencv_mean: float
    objects: int
    same: float
    worst: float
    what: str
    passed: bool

    def __str__(self) -> str:
        found = (
            f"objects   {self.objects}, {self.same:.1%} the same (at least {SAME:.0%}); {self.what} {self.worst:.4f}"
        )
        return told(self.frames, self.tensor_max, self.opencv_mean, found, self.passed)


def check_details(card: Card, frames: Sequence[Frame], device: Device) -> DetailsReport:
    """Compare the pipeline's results on `device`, which `check` has made current, with plain ones on the CPU.

    Both decode the outputs of the same tensor, so errors are those of the network and the family.
    """
    from streamkit.models.card import family_of
    from streamkit.models.session import Session

    reads, tensors = family_of(card), Tensors(card, device)
    plain, session = Session(card.file, Device()), Session(card.file, device)
    found: list[float] = []
    for frame in frames:
        size = (frame.width, frame.height)
        made, tensor, geometry = tensors.of(frame)
        outputs, answers = session.run({session.image_input: made}), plain.run({plain.image_input: tensor})
        if reads.regions:
            found.append(_places(card, reads, outputs, answers))
        else:
            here = table(card, reads, outputs, geometry, np.array([size], np.int64))
            found += _objects(card, answers, tuple(geometry[0].tolist()), size, here)
    limit, what = MASK_IOU, "least IoU"
    if card.task == "pose":
        limit, what = -POINT_PX, "largest error of a point in pixels"
    elif reads.regions:
        limit, what = PLACES, "least share of places of one class"
    good = np.array(found or [1.0])
    same, worst = float((good >= limit).mean()), abs(float(good.min()))
    passed = tensors.passed and same >= SAME
    return DetailsReport(len(frames), tensors.worst, tensors.mean, len(found), same, worst, what, passed)


def _places(card: Card, reads: Any, outputs: Any, answers: Any) -> float:
    """Return the share of the map's places with the same class."""
    from streamkit.ops.transfer import fetch

    ours = fetch([reads.maps(outputs, len(card.labels))])()[0][0]
    scores = next(value[0] for value in answers.values() if value.ndim >= 3)
    if scores.ndim == 2 or scores.shape[0] == 1:
        return float((ours == scores.reshape(ours.shape)).mean())
    theirs = scores.argmax(axis=0 if scores.shape[0] == len(card.labels) else 2)
    return float((ours == theirs).mean())


def _objects(
    card: Card, answers: Any, geometry: tuple[float, float, float, float], size: tuple[int, int], table: Detections
) -> list[float]:
    """Return the IoU of each reference object's mask, or the negative error of its points; 0 or -inf if missing."""
    from streamkit.ops import rle

    # those whose score is near the threshold may come or go
    rows = reference.objects(
        card.family, answers, geometry, size, card.input, min_score=card.score + 0.01, iou=card.iou, select=card.select
    )
    made = []
    for row in rows:
        alike = [
            i for i, class_id in enumerate(table.class_id.tolist())
            if class_id == row[5] and reference.overlap(row, table.xyxy[i].astype(np.float64)) > _BOX_IOU
        ]  # fmt: skip
        if card.task == "pose":
            scale, offset = np.array(geometry[:2]), np.array(geometry[2:])
            points = row[6:].reshape(-1, 3)
            sure = points[:, 2] > _SURE
            place = (points[sure, :2] - offset) / scale
            errors = [np.abs(table.extra["keypoints"][i, sure, :2] - place).max(initial=0.0) for i in alike]
            made.append(-float(min(errors, default=np.inf)))
            continue
        prototypes = next(value[0] for value in answers.values() if value.ndim == 4)
        wanted = reference.mask(row[6:], prototypes, row[:4], geometry, size, card.input)
        if np.count_nonzero(wanted) < _LARGE:  # of a mask of few pixels, each is a large share
            continue
        theirs = rle.encode(wanted, *size)
        masks = [table.extra["mask"][i] for i in alike]
        made.append(max((rle.overlap(mask, theirs) for mask in masks if mask is not None), default=0.0))
    return made
