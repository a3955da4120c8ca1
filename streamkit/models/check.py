"""`run.py models check CARD`: compares the pipeline with a plain CPU reference, on real frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamkit.core.data import Color, Detections, Device, Frame, Surface
from streamkit.core.errors import ModelError, SourceError
from streamkit.io.image_file import IMAGE_SUFFIXES, MAX_MEGAPIXELS, PIXEL_LIMIT, read_rgb
from streamkit.models import reference
from streamkit.models.card import Card
from streamkit.models.check_answers import AnswersReport, check_answers
from streamkit.models.check_details import DetailsReport, check_details
from streamkit.models.check_parts import Tensors, table, told

_LONGEST = 4096
"""Pixels on the longer side of an image that is compared; a larger one is scaled down for both sides."""
BOX_IOU, SCORE, SCORE_F16 = 0.99, 0.005, 0.01
"""What makes an object the same on both sides."""
FOUND = 0.99
"""The share of objects that must be the same; the rest may sit at a threshold."""


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a check.

    Attributes:
        frames: number of frames compared.
        tensor_max: largest error of the tensor against the exact rule, in levels of 0..255.
        opencv_mean: mean error of the tensor against OpenCV's result, in levels.
        objects: objects of the reference, except those within `SCORE` of the threshold.
        same: share of objects of either side that the other side has too.
        box_px: largest error of a box edge among the pairs, in source pixels.
        score: largest error of a score among the pairs.
        passed: whether everything is within the tolerances.
    """

    frames: int
    tensor_max: float
    opencv_mean: float
    objects: int
    same: float
    box_px: float
    score: float
    passed: bool

    def __str__(self) -> str:
        found = (
            f"objects   {self.objects}, {self.same:.1%} the same (at least {FOUND:.0%}); largest error "
            f"{self.box_px:.4f} pixels, score {self.score:.5f}"
        )
        return told(self.frames, self.tensor_max, self.opencv_mean, found, self.passed)


def check(card: Card, frames: Sequence[Frame], device: Device | None = None) -> Report | AnswersReport | DetailsReport:
    """Compare the pipeline on `device` with the plain reference on the CPU.

    The tensor is compared with the exact rule (`preprocess_reference`) and with OpenCV's result. The boxes come from
    the same tensor on both sides, so their errors are those of the network and the family.

    Args:
        card: the network.
        frames: frames on the host.
        device: the CPU by default.

    Raises:
        ModelError: the network cannot be used, or there are no frames.
        DeviceError: the device is not available.
    """
    from streamkit.models.network import check_model

    device = device or Device()
    if not frames:
        raise ModelError(f"there are no frames to check {card.name} with")
    card = check_model(card)
    compare = _WAYS[card.task]
    if device.kind == "cpu":
        return compare(card, frames, device)
    with device.xp.cuda.Device(device.index), device.xp.cuda.Stream(non_blocking=True):
        return compare(card, frames, device)


def _check(card: Card, frames: Sequence[Frame], device: Device) -> Report:
    from streamkit.models.card import family_of
    from streamkit.models.session import Session

    spec, reads, tensors = card.input, family_of(card), Tensors(card, device)
    plain, session = Session(card.file, Device()), Session(card.file, device)
    margin = SCORE_F16 if spec.dtype == "f16" else SCORE
    counts, errors = np.zeros(4, int), [(0.0, 0.0)]
    for frame in frames:
        size = (frame.width, frame.height)
        sizes = np.array([size], np.int64)
        made, tensor, geometry = tensors.of(frame)
        outputs = session.run({session.image_input: made, **reads.extra_inputs(sizes, device.xp)})
        answers = plain.run({plain.image_input: tensor, **reads.extra_inputs(sizes, np)})
        place = tuple(geometry[0].tolist())
        rows = reference.objects(
            card.family, answers, place, size, spec, min_score=card.score - margin, iou=card.iou, select=card.select
        )  # fmt: skip
        counts += _compare(rows, table(card, reads, outputs, geometry, sizes), card.score + margin, margin, errors)
    expected, found, given, right = counts.tolist()
    same = (found + right) / (expected + given) if expected + given else 1.0
    box_px, score = (max(column) for column in zip(*errors, strict=True))
    passed = tensors.passed and same >= FOUND
    return Report(len(frames), tensors.worst, tensors.mean, expected, same, box_px, score, passed)


def _compare(
    rows: np.ndarray, table: Detections, sure: float, margin: float, errors: list[tuple[float, float]]
) -> np.ndarray:
    """Match the reference's rows with the pipeline's rows.

    Returns:
        The number of the reference's objects clearly above the threshold, and how many of them the pipeline has too;
        then the same numbers for the pipeline's objects.
    """
    theirs = np.column_stack([table.xyxy, table.score, table.class_id]).astype(np.float64)
    result = []
    for some, others in ((rows, theirs), (theirs, rows)):
        count = found = 0
        for row in some[some[:, 4] >= sure]:
            count += 1
            alike = others[(others[:, 5] == row[5]) & (np.abs(others[:, 4] - row[4]) <= margin)]
            best = max(alike, key=lambda other: reference.overlap(row, other), default=None)
            if best is not None and reference.overlap(row, best) >= BOX_IOU:
                found += 1
                errors.append((float(np.abs(best[:4] - row[:4]).max()), float(abs(best[4] - row[4]))))
        result += [count, found]
    return np.array(result)


def frames_of(paths: Sequence[Path], limit: int = 16, max_megapixels: float = MAX_MEGAPIXELS) -> list[Frame]:
    """Read frames for a check from images and videos, at most `limit` of each file.

    They are converted from RGB: a file's own colour format does not matter, since both sides of a check see the same.

    Args:
        paths: image files and videos.
        limit: maximum number of frames of each video.
        max_megapixels: larger images are rejected.

    Raises:
        SourceError: a file cannot be read.
    """
    found = []
    for path in paths:
        try:
            made = (
                [_from_picture(path, max_megapixels)]
                if path.suffix.lower() in IMAGE_SUFFIXES
                else _from_video(path, limit)
            )
        except (OSError, ValueError) as error:
            raise SourceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        found += made
    return [
        Frame(path.name, i, 0.0, width, height, Surface(data, color))
        for i, (path, data, color, width, height) in enumerate(found)
    ]


_Raw = tuple[Path, np.ndarray, Color, int, int]


def _from_picture(path: Path, max_megapixels: float) -> _Raw:
    import cv2

    from streamkit.ops.color import from_rgb

    rgb = read_rgb(str(path), max_megapixels, "--max-megapixels")
    share = _LONGEST / max(rgb.shape)
    if share < 1:  # the reference computes in float64: memory for 4,096 x 4,096 pixels, not for a whole scan
        smaller = (max(1, round(rgb.shape[1] * share)), max(1, round(rgb.shape[0] * share)))
        rgb = cv2.resize(rgb, smaller, interpolation=cv2.INTER_AREA)
    color = Color("bt601", full_range=True, chroma_x=0.5)
    return path, from_rgb(rgb, color), color, rgb.shape[1], rgb.shape[0]


def _from_video(path: Path, limit: int) -> list[_Raw]:
    import av

    from streamkit.ops.color import from_rgb

    color = Color("bt709")
    with av.open(str(path), options=PIXEL_LIMIT) as container:
        if not container.streams.video:
            raise ValueError("it has no video")
        step = max(1, (container.streams.video[0].frames or limit) // limit)
        rgb = [
            frame.to_ndarray(format="rgb24")
            for i, frame in enumerate(container.decode(video=0))
            if i % step == 0 and i < step * limit
        ]
    return [(path, from_rgb(picture, color), color, picture.shape[1], picture.shape[0]) for picture in rgb]


_WAYS: dict[str, Callable[[Card, Sequence[Frame], Device], Report | AnswersReport | DetailsReport]] = {
    "detect": _check,
    "classify": check_answers,
    "embed": check_answers,
    "segment": check_details,
    "pose": check_details,
}
