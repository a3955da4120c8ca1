"""`run.py models check CARD`: the pipeline's tensor and what it finds beside a plain CPU reference, on real frames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.data import Color, Detections, Device, Frame, Surface
from streamkit.errors import ModelError, SourceError
from streamkit.models import reference
from streamkit.models.card import Card
from streamkit.models.check_answers import AnswersReport, check_answers
from streamkit.models.check_details import DetailsReport, check_details

PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".webp")

TENSOR_LEVELS = 1.0
"""Largest error of a tensor's value against the exact rule, in levels of 0..255."""
OPENCV_LEVELS = 0.5
"""Mean error against OpenCV's resize of the RGB picture, in levels. Single values differ more where colours clip."""
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
        lines = [
            f"frames    {self.frames}",
            f"tensor    largest error {self.tensor_max:.4f} of 255 levels (limit {TENSOR_LEVELS:g}), "
            f"mean error against OpenCV's way {self.opencv_mean:.3f} (limit {OPENCV_LEVELS:g})",
            f"objects   {self.objects}, {self.same:.1%} the same (at least {FOUND:.0%}); largest error "
            f"{self.box_px:.4f} pixels, score {self.score:.5f}",
            "passed" if self.passed else "FAILED",
        ]
        return "\n".join(lines)


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
    from streamkit.models.session import Session
    from streamkit.ops.preprocess import preprocess_reference

    spec, plain = card.input, Session(card.file, Device())
    margin = SCORE_F16 if spec.dtype == "f16" else SCORE
    per_level = spec.scale / np.array(spec.std).reshape((3, 1, 1) if spec.layout == "nchw" else 3)
    tensor_max, opencv_sum, counts = 0.0, 0.0, np.zeros(4, int)
    errors = [(0.0, 0.0)]
    pipeline = _Pipeline(card, device)
    for frame in frames:
        surface, size = frame.surface, (frame.width, frame.height)
        assert surface is not None
        tensor, geometry, table = pipeline.run(surface, size)
        exact = preprocess_reference([surface], [size], spec)
        ours, _ = reference.tensor(reference.picture(surface, *size), spec)
        wide = tensor.astype(np.float64)
        tensor_max = max(tensor_max, float((np.abs(wide - exact) / per_level).max()))
        opencv_sum += float((np.abs(wide - ours) / per_level).mean())
        feeds = {plain.image_input: tensor, **_extra(card, size)}
        place = tuple(geometry[0].tolist())
        rows = reference.objects(
            card.family, plain.run(feeds), place, size, spec, min_score=card.score - margin, iou=card.iou
        )
        counts += _compare(rows, table, card.score + margin, margin, errors)
    expected, found, given, right = counts.tolist()
    same = (found + right) / (expected + given) if expected + given else 1.0
    box_px, score = (max(column) for column in zip(*errors, strict=True))
    opencv_mean = opencv_sum / len(frames)
    passed = tensor_max <= TENSOR_LEVELS and opencv_mean <= OPENCV_LEVELS and same >= FOUND
    return Report(len(frames), tensor_max, opencv_mean, expected, same, box_px, score, passed)


def _extra(card: Card, size: tuple[int, int]) -> dict[str, Any]:
    from streamkit.models.families import family

    return family(card.family).extra_inputs(np.array([size], np.int64), np)


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


class _Pipeline:
    """Preprocess, network and family as the stages use them, one frame at a time."""

    def __init__(self, card: Card, device: Device) -> None:
        from streamkit.models.families import ReadOptions, family
        from streamkit.models.session import Session

        self.card, self.xp, self.on_gpu = card, device.xp, device.kind == "cuda"
        self.session, self.family = Session(card.file, device), family(card.family)
        scores = np.full(max(1, len(card.labels)), card.score, np.float32)
        self.options = ReadOptions(scores, iou=card.iou)

    def run(self, surface: Surface, size: tuple[int, int]) -> tuple[np.ndarray, np.ndarray, Detections]:
        """The tensor on the host, the geometry, and the objects."""
        from streamkit.models.families import unpack
        from streamkit.ops.preprocess import preprocess
        from streamkit.ops.transfer import fetch

        if self.on_gpu:
            surface = Surface(self.xp.asarray(surface.data), surface.color)
        tensor, geometry = preprocess([surface], [size], self.card.input)
        host = fetch([tensor])()[0].copy()
        sizes = np.array([size], np.int64)
        feeds = {self.session.image_input: tensor, **self.family.extra_inputs(sizes, self.xp)}
        packed = self.family.read(self.session.run(feeds), geometry, sizes, self.card.input.size, self.options)
        rows, counts, _ = packed.over(fetch([packed.buffer])()[0])
        return host, geometry, unpack(rows, counts, self.card.labels, self.family.columns)


def frames_of(paths: Sequence[Path], limit: int = 16) -> list[Frame]:
    """Frames to check with: pictures, and frames spread over videos, at most `limit` of each file.

    They are made anew from RGB: what a file's own colours are is no matter here, both sides of a check see the same.

    Raises:
        SourceError: a file cannot be read.
    """
    found = []
    for path in paths:
        try:
            made = [_from_picture(path)] if path.suffix.lower() in PICTURES else _from_video(path, limit)
        except (OSError, ValueError) as error:
            raise SourceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        found += made
    return [
        Frame(path.name, i, 0.0, width, height, Surface(data, color))
        for i, (path, data, color, width, height) in enumerate(found)
    ]


_Raw = tuple[Path, np.ndarray, Color, int, int]


def _from_picture(path: Path) -> _Raw:
    import cv2

    from streamkit.ops.color import from_rgb

    picture = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if picture is None:
        raise ValueError("it is missing, or is no picture that OpenCV knows")
    color = Color("bt601", full_range=True, chroma_x=0.5)
    return path, from_rgb(cv2.cvtColor(picture, cv2.COLOR_BGR2RGB), color), color, picture.shape[1], picture.shape[0]


def _from_video(path: Path, limit: int) -> list[_Raw]:
    import av

    from streamkit.ops.color import from_rgb

    color = Color("bt709")
    with av.open(str(path)) as container:
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
