"""`run.py models check CARD`: the pipeline's tensor and what it finds beside a plain CPU reference, on real frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamkit.data import Color, Detections, Device, Frame, Surface
from streamkit.errors import ModelError, SourceError
from streamkit.image_file import MAX_MEGAPIXELS, PICTURES, PIXEL_LIMIT, read_rgb
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
    """What a check found.

    Attributes:
        frames: how many frames were compared.
        tensor_max: largest error of the tensor against the exact rule, in levels of 0..255.
        opencv_mean: mean error of the tensor against OpenCV's way, in levels.
        objects: objects of the reference, those within `SCORE` of the threshold left out.
        same: how many of them the pipeline has too, and how many of the pipeline's the reference has.
        box_px: largest error of an edge among the pairs, in source pixels.
        score: largest error of a score among the pairs.
        passed: whether all is within the tolerances.
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
    """Compare the pipeline's way on `device` with the plain way on the CPU.

    The tensor is compared with the exact rule (`preprocess_reference`) and with OpenCV's way. The boxes come from the
    same tensor on both sides, so that their errors are the network's and the family's own.

    Args:
        card: the network.
        frames: pictures on the host.
        device: the CPU where none is given.

    Raises:
        ModelError: the network cannot be used, or there are no frames.
        DeviceError: the device cannot be had.
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
    from streamkit.models.families import family_of
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
    """Pair the reference's rows with the pipeline's.

    Returns:
        Of the reference's objects that are sure to be over the threshold, how many there are and how many the
        pipeline has too; then the same of the pipeline's.
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
    """Frames to check with: pictures, and frames spread over videos, at most `limit` of each file.

    They are converted from RGB: a file's own colours do not matter here, both sides of a check see the same.

    Args:
        paths: image files and videos.
        limit: frames of each video at most.
        max_megapixels: an image of more is refused.

    Raises:
        SourceError: a file cannot be read.
    """
    found = []
    for path in paths:
        try:
            made = (
                [_from_picture(path, max_megapixels)] if path.suffix.lower() in PICTURES else _from_video(path, limit)
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
