"""`run.py models check CARD` for masks, key points and classes of places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.data import Detections, Device, Frame, Surface
from streamkit.models import reference
from streamkit.models.card import Card

TENSOR_LEVELS, OPENCV_LEVELS = 1.0, 0.5
"""As of `check`."""
MASK_IOU, POINT_PX, PLACES = 0.98, 1.0, 0.99
"""Least IoU of a mask, largest error of a sure key point in source pixels, least share of places of the same class."""
SAME = 0.99
"""The share of objects, or of frames, that must be so."""
_SURE, _BOX_IOU, _LARGE = 0.3, 0.95, 200


@dataclass(frozen=True, slots=True)
class DetailsReport:
    """What a check found.

    Attributes:
        frames: how many frames were compared.
        tensor_max: largest error of the tensor against the exact rule, in levels of 0..255.
        opencv_mean: mean error of the tensor against OpenCV's way, in levels.
        objects: objects of the reference; of classes of places, the frames.
        same: the share of them that are the same.
        worst: the least IoU of a mask or share of a frame's places; of key points the largest error in source pixels.
        what: what `worst` is.
        passed: whether all is within the tolerances.
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
        lines = [
            f"frames    {self.frames}",
            f"tensor    largest error {self.tensor_max:.4f} of 255 levels (limit {TENSOR_LEVELS:g}), "
            f"mean error against OpenCV's way {self.opencv_mean:.3f} (limit {OPENCV_LEVELS:g})",
            f"objects   {self.objects}, {self.same:.1%} the same (at least {SAME:.0%}); {self.what} {self.worst:.4f}",
            "passed" if self.passed else "FAILED",
        ]
        return "\n".join(lines)


def check_details(card: Card, frames: Sequence[Frame], device: Device) -> DetailsReport:
    """Compare what the pipeline makes on `device` with the plain way on the CPU; `check` has made the device current.

    Both read the outputs of one tensor, so that errors are the network's and the family's own.
    """
    from streamkit.models.families import family
    from streamkit.models.session import Session
    from streamkit.ops.preprocess import preprocess, preprocess_reference
    from streamkit.ops.transfer import fetch

    reads, spec = family(card.family), card.input
    plain, session = Session(card.file, Device()), Session(card.file, device)
    per_level = spec.scale / np.array(spec.std).reshape((3, 1, 1) if spec.layout == "nchw" else 3)
    tensor_max, opencv, found = 0.0, [], []
    for frame in frames:
        surface, size = frame.surface, (frame.width, frame.height)
        assert surface is not None
        there = surface if device.kind == "cpu" else Surface(device.xp.asarray(surface.data), surface.color)
        made, geometry = preprocess([there], [size], spec)
        tensor = fetch([made])()[0].copy()
        wide = tensor.astype(np.float64)
        tensor_max = max(
            tensor_max, float((np.abs(wide - preprocess_reference([surface], [size], spec)) / per_level).max())
        )
        ours, _ = reference.tensor(reference.picture(surface, *size), spec)
        opencv.append(float((np.abs(wide - ours) / per_level).mean()))
        outputs, answers = session.run({session.image_input: made}), plain.run({plain.image_input: tensor})
        if reads.regions:
            found.append(_places(card, reads, outputs, answers))
        else:
            table = _table(card, reads, outputs, geometry, np.array([size], np.int64))
            found += _objects(card, answers, tuple(geometry[0].tolist()), size, table)
    limit, what = {
        "pose": (-POINT_PX, "largest error of a point in pixels"),
    }.get(card.task, (PLACES, "least share of places of one class") if reads.regions else (MASK_IOU, "least IoU"))
    good = np.array(found or [1.0])
    same, opencv_mean = float((good >= limit).mean()), float(np.mean(opencv))
    passed = tensor_max <= TENSOR_LEVELS and opencv_mean <= OPENCV_LEVELS and same >= SAME
    worst = abs(float(good.min()))
    return DetailsReport(len(frames), tensor_max, opencv_mean, len(found), same, worst, what, passed)


def _table(card: Card, reads: Any, outputs: Any, geometry: np.ndarray, sizes: np.ndarray) -> Detections:
    """The objects as the pipeline makes them."""
    from streamkit.models.families import ReadOptions, unpack
    from streamkit.ops.transfer import fetch

    options = ReadOptions(np.full(max(1, len(card.labels)), card.score, np.float32), iou=card.iou)
    packed = reads.read(outputs, geometry, sizes, card.input.size, options)
    rest = reads.rest(outputs, packed, geometry, sizes, card.input.size)
    buffer, *arrays = fetch([packed.buffer, *(rest.arrays if rest else ())])()
    rows, counts, _ = packed.over(buffer)
    table = unpack(rows, counts, card.labels, reads.columns)
    return rest.complete(table, arrays) if rest else table


def _places(card: Card, reads: Any, outputs: Any, answers: Any) -> float:
    """The share of the map's places that have the same class."""
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
    """For each object of the reference the IoU of its mask, or less than 0 the error of its points; NaN without one."""
    from streamkit.ops import rle

    # those whose score is near the threshold may come or go
    rows = reference.objects(
        card.family, answers, geometry, size, card.input, min_score=card.score + 0.01, iou=card.iou
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
