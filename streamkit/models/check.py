# SPDX-License-Identifier: Apache-2.0
"""`streamkit models check CARD`: compares the pipeline with a plain CPU reference, on real frames.

`check` runs the network on both sides; `_COMPARISONS` has, for each kind of result, what is compared for a frame and
the verdict over all frames.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from streamkit.core.data import Array, Color, Detections, Device, Frame, Surface
from streamkit.core.errors import ModelError, SourceError
from streamkit.io.image_file import IMAGE_SUFFIXES, MAX_MEGAPIXELS, PIXEL_LIMIT, read_rgb
from streamkit.models import reference
from streamkit.models.card import Card, family_of
from streamkit.models.finder import clip_tensor, decode
from streamkit.models.network import check_model, inspect, not_run, wrong
from streamkit.models.onnx_graph import is_quantized
from streamkit.models.prompts import Prompts, check_prompts, prepare
from streamkit.models.session import Session
from streamkit.models.shared_inputs import SharedInputs
from streamkit.ops import preprocess, rle
from streamkit.ops.color import from_rgb
from streamkit.ops.transfer import fetch

_LONGEST = 4096
"""Pixels on the longer side of an image that is compared; a larger one is scaled down for both sides."""
TENSOR_LEVELS = 1.0
"""Largest error of a tensor's value against the exact rule, in levels of 0..255."""
OPENCV_LEVELS = 0.5
"""Mean error against OpenCV's resize of the RGB image, or with `antialias` Pillow's, in levels.

Single values differ more where colors clip.
"""
BOX_IOU = 0.99
SCORE = 0.005
SCORE_F16 = 0.01
"""Least IoU and largest error of the score of an object that is the same on both sides."""
BOX_IOU_INT8 = 0.9
SCORE_INT8 = 0.05
"""The same for int8 networks on a GPU, which rounds to another of 256 levels where two are equally near."""
MIN_SAME = 0.99
"""The share of objects or frames that must be the same; the rest may be close to a threshold."""
MASK_IOU = 0.98
POINT_PX = 1.0
PLACES = 0.99
"""Least IoU of a mask, largest error of a sure keypoint in source pixels, least share of places of the same class."""
PROBABILITY = 0.005
PROBABILITY_F16 = 0.01
"""Largest error of a class's probability."""
NUMBER = 0.05
NUMBER_F16 = 0.5
"""Largest error of a number, such as an angle in degrees."""
COSINE = 0.999
"""Least cosine between an embedding and the plain one."""
_MAX_OBJECTS = 300
"""Objects of a frame that `decode` keeps, the best."""
_SURE = 0.3
_ALIKE_IOU = 0.95
_LARGE = 200


@dataclass(frozen=True, slots=True)
class CheckReport:
    """Result of a check.

    Attributes:
        frames: number of frames compared.
        tensor_max: largest error of the tensor against the exact rule, in levels of 0..255.
        opencv_mean: mean error of the tensor against a resize of the RGB image, OpenCV's or Pillow's, in levels.
        objects: number of objects compared; for vectors and semantic segmentation, of frames, or of clips.
        same: share of them that is the same on both sides; for embeddings, the least cosine.
        worst: largest error of a box edge or keypoint in source pixels, of a probability, or of an element of an
            embedding; least IoU of a mask, or least share of equal places of a frame.
        summary: `same` and `worst` as text.
        passed: whether everything is within the tolerances.
    """

    frames: int
    tensor_max: float
    opencv_mean: float
    objects: int
    same: float
    worst: float
    summary: str
    passed: bool

    def __str__(self) -> str:
        return "\n".join(
            [
                f"frames    {self.frames}",
                f"tensor    largest error {self.tensor_max:.4f} of 255 levels (limit {TENSOR_LEVELS:g}), "
                f"mean error against a resize of the RGB image {self.opencv_mean:.3f} (limit {OPENCV_LEVELS:g})",
                self.summary,
                "passed" if self.passed else "FAILED",
            ]
        )


def check(
    card: Card, frames: Sequence[Frame], device: Device | None = None, prompts: Sequence[str] | None = None
) -> CheckReport:
    """Compare the pipeline on `device` with the plain reference on the CPU.

    The tensor is compared with the exact rule (`preprocess_reference`) and with OpenCV's result. The results come from
    the same tensor on both sides, so their errors are those of the network and the family.

    Args:
        card: the network.
        frames: frames on the host.
        device: the CPU by default.
        prompts: what an open-vocabulary network is to find.

    Raises:
        ModelError: the network or its prompts cannot be used, or there are no frames.
        DeviceError: the device is not available.
    """
    device = device or Device()
    if not frames:
        raise ModelError(f"there are no frames to check {card.name} with")
    card = check_model(card)
    try:
        check_prompts(card, prompts)
    except ValueError as error:
        raise wrong(card, f"{error} (--prompts)") from None
    if device.kind == "cpu":
        return _check(card, frames, device, prompts or ())
    with device.xp.cuda.Device(device.index), device.xp.cuda.Stream(non_blocking=True):
        return _check(card, frames, device, prompts or ())


def _check(card: Card, frames: Sequence[Frame], device: Device, prompts: Sequence[str]) -> CheckReport:
    reads = family_of(card)
    devices = (Device(), device)
    embedded = [_prepared(card, prompts, place) for place in devices]
    plain, session = (
        Session(card.file, place, shared=texts.shared, ignore_outputs=card.ignore_outputs)
        for place, texts in zip(devices, embedded, strict=True)
    )
    card = replace(card, labels=embedded[0].texts or card.labels)
    kind = "semantic" if reads.regions else "rotated" if "corners" in reads.columns else card.task
    if reads.numbers:
        kind = "numbers"
    compare, judge = _COMPARISONS[kind]
    comparisons: list[Any] = []
    errors: list[tuple[float, float]] = []
    for clip in _clips(card, frames):
        size = (clip[-1].width, clip[-1].height)
        images, geometry, sizes = clip_tensor(card, clip, device)
        tensor = fetch([images])()[0].copy()
        errors += [_tensor_errors(card, *pair) for pair in zip(clip, _rows(card, tensor), strict=False)]
        outputs = _run(session, card, {session.image_input: images, **reads.extra_inputs(sizes, device.xp)})
        answers = _run(plain, card, {plain.image_input: tensor, **reads.extra_inputs(sizes, np)})
        try:
            comparisons += compare(_Results(card, reads, size, geometry, device, outputs, answers))
        except ValueError as error:  # of a family: outputs that it cannot read
            raise wrong(card, str(error)) from error
    verdict = judge(card, comparisons)
    worst = max(error for error, _ in errors)
    mean = np.mean([mean_error for _, mean_error in errors])
    passed = verdict.passed and worst <= TENSOR_LEVELS and float(mean) <= OPENCV_LEVELS
    return CheckReport(len(frames), worst, float(mean), *verdict[:-1], passed)


def _clips(card: Card, frames: Sequence[Frame]) -> list[Sequence[Frame]]:
    """Return what the network gets at once: each frame, or clips of the frames of a file, one behind the other."""
    clip = inspect(card.file).clip
    if clip is None:
        return [[frame] for frame in frames]
    count = clip.count()
    by_file = [list(of_file) for _, of_file in itertools.groupby(frames, key=lambda frame: frame.source)]
    return [of_file[first : first + count] for of_file in by_file for first in range(0, len(of_file), count)]


def _rows(card: Card, tensor: np.ndarray) -> list[np.ndarray]:
    """Return the part of an input that each frame has made, (1, ...)."""
    clip = inspect(card.file).clip
    return [tensor] if clip is None else list(clip.unstacked(tensor)[0][:, None])


def _prepared(card: Card, prompts: Sequence[str], device: Device) -> Prompts:
    return prepare(card, prompts, device) if card.takes_prompts else Prompts((), SharedInputs())


def _run(session: Session, card: Card, feeds: Mapping[str, Array]) -> dict[str, Array]:
    try:
        return session.run(feeds)
    except Exception as error:  # ONNX Runtime's exceptions have no common base but Exception
        raise not_run(card.file, card.input.size, error) from error


def _tensor_errors(card: Card, frame: Frame, tensor: np.ndarray) -> tuple[float, float]:
    """Return the largest error against the exact rule, and the mean error against a resize of the RGB image."""
    surface = frame.surface
    size = (frame.width, frame.height)
    spec = card.input
    assert surface is not None
    per_level = spec.scale / np.array(spec.std).reshape((3, 1, 1) if spec.layout == "nchw" else 3)
    exact = preprocess.preprocess_reference([surface], [size], spec)
    opencv, _ = reference.tensor(reference.rgb(surface, *size), spec)
    errors = [np.abs(tensor.astype(np.float64) - other) / per_level for other in (exact, opencv)]
    return float(errors[0].max()), float(errors[1].mean())


class _Results(NamedTuple):
    """The outputs of a network for one frame.

    Attributes:
        card: the network.
        reads: its family.
        size: width, height of the frame.
        geometry: (1, 4), as from `preprocess`.
        device: the pipeline's.
        outputs: the pipeline's, on its device.
        answers: the reference's.
    """

    card: Card
    reads: Any
    size: tuple[int, int]
    geometry: np.ndarray
    device: Device
    outputs: Mapping[str, Array]
    answers: Mapping[str, np.ndarray]

    @property
    def transform(self) -> tuple[float, float, float, float]:
        """The geometry as scale_x, scale_y, offset_x, offset_y."""
        scale_x, scale_y, offset_x, offset_y = self.geometry[0].tolist()
        return scale_x, scale_y, offset_x, offset_y

    def rows(self, margin: float) -> np.ndarray:
        """Return the reference's objects; `margin` is added to the card's minimum score."""
        card = self.card
        return reference.objects(
            self.reads,
            self.answers,
            self.transform,
            self.size,
            card.input,
            min_score=card.score + margin,
            iou=card.iou,
            select=card.select,
            classes=len(card.labels),
        )[:_MAX_OBJECTS]

    def table(self) -> Detections:
        """Decode the outputs as the pipeline does, with the card's thresholds; the table is on the host."""
        return decode(self.card, self.outputs, self.geometry, self.size)


# ------------------------------------------------------------------------------------------------------------- boxes


class _Verdict(NamedTuple):
    """The last attributes of a `CheckReport`."""

    objects: int
    same: float
    worst: float
    summary: str
    passed: bool


def _boxes(results: _Results) -> list[tuple[bool, float, float]]:
    """Match the reference's objects with the pipeline's, and the pipeline's with the reference's.

    Returns:
        For each object clearly above the threshold: whether it is the reference's, and the largest errors of its box
        and its score; infinity if the other side does not have it.
    """
    min_iou, margin = _box_limits(results.card, results.device)
    table = results.table()
    theirs = np.column_stack([table.xyxy, table.score, table.class_id]).astype(np.float64)
    rows = results.rows(-margin)
    matches = []
    for expected, some, others in ((True, rows, theirs), (False, theirs, rows)):
        for row in some[some[:, 4] >= results.card.score + margin]:
            alike = others[(others[:, 5] == row[5]) & (np.abs(others[:, 4] - row[4]) <= margin)]
            best = max(alike, key=lambda other: reference.overlap(row, other), default=None)
            if best is None or reference.overlap(row, best) < min_iou:
                matches.append((expected, np.inf, np.inf))
            else:
                matches.append((expected, float(np.abs(best[:4] - row[:4]).max()), float(abs(best[4] - row[4]))))
    return matches


def _box_limits(card: Card, device: Device) -> tuple[float, float]:
    """Return the least IoU and the largest error of the score."""
    if device.kind != "cpu" and is_quantized(card.file):
        return BOX_IOU_INT8, SCORE_INT8
    return BOX_IOU, SCORE_F16 if card.input.dtype == "f16" else SCORE


def _rotated_boxes(results: _Results) -> list[tuple[bool, float, float]]:
    """Match the objects as `_boxes` does, and the corners of those that are on both sides.

    Returns:
        For each object as `_boxes`, its box; then for each sure object of the reference, its corners.
    """
    scale = results.geometry[0, :2]
    offset = results.geometry[0, 2:]
    matches = _boxes(results)
    for row, corners in _with_alike(results, "corners"):
        wanted = (row[6:].reshape(4, 2) - offset) / scale
        error = min((float(np.abs(these - wanted).max()) for these in corners), default=np.inf)
        matches.append((False, error if error <= POINT_PX else np.inf, 0.0))
    return matches


def _judge_boxes(card: Card, matches: list[tuple[bool, float, float]]) -> _Verdict:
    pairs = [(box_px, score) for _, box_px, score in matches if box_px < np.inf]
    box_px, score = (max(column) for column in zip((0.0, 0.0), *pairs, strict=True))
    return _shares(
        sum(match[0] for match in matches),
        len(pairs) / len(matches) if matches else 1.0,
        box_px,
        f"largest error {box_px:.4f} pixels, score {score:.5f}",
    )


def _shares(objects: int, same: float, worst: float, text: str) -> _Verdict:
    summary = f"objects   {objects}, {same:.1%} the same (at least {MIN_SAME:.0%}); {text}"
    return _Verdict(objects, same, worst, summary, same >= MIN_SAME)


# ----------------------------------------------------------------------------------------------------- vectors


def _vectors(results: _Results) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the pipeline's vector and the reference's."""
    ours = results.reads.finish(fetch([results.reads.vectors(results.outputs)])()[0])[0]
    return [(ours, reference.answer(results.reads, results.answers))]


def _judge_classes(card: Card, pairs: list[tuple[np.ndarray, np.ndarray]]) -> _Verdict:
    ours, theirs = (np.array(side, np.float64) for side in zip(*pairs, strict=True))
    error = float(abs(ours - theirs).max())
    same = float((ours.argmax(axis=1) == theirs.argmax(axis=1)).mean())
    text = f"answers   largest error of a probability {error:.5f}, best class the same on {same:.1%} of frames"
    limit = PROBABILITY_F16 if card.input.dtype == "f16" else PROBABILITY
    return _Verdict(len(pairs), same, error, text, error <= limit)


def _judge_numbers(card: Card, pairs: list[tuple[np.ndarray, np.ndarray]]) -> _Verdict:
    errors = np.array([np.abs(ours - theirs).max() for ours, theirs in pairs])
    limit = NUMBER_F16 if card.input.dtype == "f16" else NUMBER
    text = f"answers   largest error of {' and '.join(card.labels)} {errors.max():.4f} (limit {limit:g})"
    return _Verdict(len(pairs), float((errors <= limit).mean()), float(errors.max()), text, bool(errors.max() <= limit))


def _judge_embeddings(card: Card, pairs: list[tuple[np.ndarray, np.ndarray]]) -> _Verdict:
    ours, theirs = (np.array(side, np.float64) for side in zip(*pairs, strict=True))
    lengths = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    error = float(abs(ours - theirs).max())
    cosine = float(((ours * theirs).sum(axis=1) / lengths).min())
    text = f"answers   largest error {error:.5f}, least cosine {cosine:.5f} (limit {COSINE})"
    return _Verdict(len(pairs), cosine, error, text, cosine >= COSINE)


# ------------------------------------------------------------------------------------- masks, keypoints, class maps


def _masks(results: _Results) -> list[float]:
    """Return the IoU of each reference object's mask with the pipeline's; 0 if it is missing."""
    prototypes = next(value[0] for value in results.answers.values() if value.ndim == 4)
    ious = []
    for row, masks in _with_alike(results, "mask"):
        wanted = reference.mask(row[6:], prototypes, row[:4], results.transform, results.size, results.card.input)
        if np.count_nonzero(wanted) >= _LARGE:  # in a mask of few pixels, each pixel is a large share
            theirs = rle.encode(wanted, *results.size)
            ious.append(max((rle.iou(mask, theirs) for mask in masks if mask is not None), default=0.0))
    return ious


def _keypoints(results: _Results) -> list[float]:
    """Return the negative error of each reference object's sure points, in source pixels; -inf if it is missing."""
    scale = results.geometry[0, :2]
    offset = results.geometry[0, 2:]
    negative_errors = []
    for row, candidates in _with_alike(results, "keypoints"):
        points = row[6:].reshape(-1, 3)
        sure = points[:, 2] > _SURE
        xy = (points[sure, :2] - offset) / scale
        errors = [np.abs(keypoints[sure, :2] - xy).max(initial=0.0) for keypoints in candidates]
        negative_errors.append(-float(min(errors, default=np.inf)))
    return negative_errors


def _with_alike(results: _Results, column: str) -> list[tuple[np.ndarray, list[Any]]]:
    """Return each object of the reference, with a column's values of the pipeline's objects of its class and box."""
    table = results.table()
    return [
        (
            row,
            [
                table.extra[column][i]
                for i, class_id in enumerate(table.class_id.tolist())
                if class_id == row[5] and reference.overlap(row, table.xyxy[i].astype(np.float64)) > _ALIKE_IOU
            ],
        )
        for row in results.rows(0.01)  # an object whose score is close to the threshold may be on one side only
    ]


def _class_maps(results: _Results) -> list[float]:
    """Return the share of the map's places with the same class."""
    classes = len(results.card.labels)
    ours = fetch([results.reads.maps(results.outputs, classes)])()[0][0]
    scores = next(value[0] for value in results.answers.values() if value.ndim >= 3)
    if scores.ndim == 2 or scores.shape[0] == 1:
        return [float((ours == scores.reshape(ours.shape)).mean())]
    return [float((ours == scores.argmax(axis=0 if scores.shape[0] == classes else 2)).mean())]


def _texts(results: _Results) -> list[tuple[bool, float]]:
    """Return whether both sides read the same text, and the largest difference of a character's probability."""
    card = results.card
    classes = len(results.card.labels)
    sides = [fetch([results.reads.best(results.outputs, classes, card.blank)])()[0][0]]
    sides.append(results.reads.best(results.answers, classes, card.blank)[0])
    ours, theirs = (results.reads.decode(best, card.labels, card.blank) for best in sides)
    pairs = zip(ours.scores, theirs.scores, strict=False)
    return [(ours.text == theirs.text, max((abs(a - b) for a, b in pairs), default=0.0))]


def _judge_texts(card: Card, readings: list[tuple[bool, float]]) -> _Verdict:
    same = float(np.mean([equal for equal, _ in readings])) if readings else 1.0
    worst = max((error for _, error in readings), default=0.0)
    limit = PROBABILITY if card.input.dtype != "f16" else PROBABILITY_F16
    text = f"texts     {same:.1%} of {len(readings)} the same, largest error of a character's probability {worst:.4f}"
    return _Verdict(len(readings), same, worst, text, same >= MIN_SAME and worst <= limit)


def _depths(results: _Results) -> list[float]:
    """Return the share of the map's places with the same depth, within 1 % of the map's range."""
    ours, theirs = (fetch([results.reads.maps(outputs)])()[0][0] for outputs in (results.outputs, results.answers))
    return [same_places(theirs, ours)]


def same_places(before: np.ndarray, after: np.ndarray) -> float:
    """Return the share of places whose values differ by at most 1 % of the range of `before`."""
    finite = before[np.isfinite(before)]
    spread = float(np.ptp(finite)) if len(finite) else 0.0
    return float(np.isclose(before, after, rtol=0, atol=0.01 * spread, equal_nan=True).mean())


def _anomalies(results: _Results) -> list[float]:
    """Return the difference of the scores."""
    ours, theirs = (fetch([results.reads.vectors(outputs)])()[0] for outputs in (results.outputs, results.answers))
    return [float(abs(ours[0, 0] - theirs[0, 0]))]


def _judge_anomalies(card: Card, differences: list[float]) -> _Verdict:
    limit = PROBABILITY_F16 if card.input.dtype == "f16" else PROBABILITY
    worst = max(differences)
    same = float((np.array(differences) <= limit).mean())
    return _Verdict(len(differences), same, worst, f"answers   largest error of a score {worst:.5f}", worst <= limit)


def _judge_shares(limit: float, what: str, shares: list[float]) -> _Verdict:
    good = np.array(shares or [1.0])
    worst = abs(float(good.min()))
    return _shares(len(shares), float((good >= limit).mean()), worst, f"{what} {worst:.4f}")


_COMPARISONS: dict[str, tuple[Callable[[_Results], list[Any]], Callable[[Card, Any], _Verdict]]] = {
    "detect": (_boxes, _judge_boxes),
    "rotated": (_rotated_boxes, _judge_boxes),
    "action": (_vectors, _judge_classes),
    "classify": (_vectors, _judge_classes),
    "numbers": (_vectors, _judge_numbers),
    "embed": (_vectors, _judge_embeddings),
    "read": (_texts, _judge_texts),
    "segment": (_masks, lambda _, shares: _judge_shares(MASK_IOU, "least IoU", shares)),
    "pose": (_keypoints, lambda _, shares: _judge_shares(-POINT_PX, "largest error of a point in pixels", shares)),
    "depth": (_depths, lambda _, shares: _judge_shares(PLACES, "least share of places of one depth", shares)),
    "anomaly": (_anomalies, _judge_anomalies),
    "semantic": (_class_maps, lambda _, shares: _judge_shares(PLACES, "least share of places of one class", shares)),
}
"""How a frame's results are compared, and the verdict over all frames, by task; `semantic` is `segment` with maps,
`rotated` is `detect` with rotated boxes, `numbers` is `classify` with numbers."""


# ------------------------------------------------------------------------------------------------------------ frames


def frames_of(paths: Sequence[Path], limit: int = 16, max_megapixels: float = MAX_MEGAPIXELS) -> list[Frame]:
    """Read frames for a check from images and videos, at most `limit` of each file.

    They are converted from RGB: a file's own color format does not matter, since both sides of a check see the same.

    Args:
        paths: image files and videos.
        limit: maximum number of frames of each video.
        max_megapixels: larger images are rejected.

    Raises:
        SourceError: a file cannot be read.
    """
    pictures: list[Frame] = []
    for path in paths:
        still = path.suffix.lower() in IMAGE_SUFFIXES
        color = Color("bt601", full_range=True, chroma_x=0.5) if still else Color("bt709")
        try:
            for rgb in [_image(path, max_megapixels)] if still else _video_frames(path, limit):
                height, width = rgb.shape[:2]
                surface = Surface(from_rgb(rgb, color), color)
                pictures.append(Frame(path.name, len(pictures), 0.0, width, height, surface))
        except (OSError, ValueError) as error:
            raise SourceError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return pictures


def _image(path: Path, max_megapixels: float) -> np.ndarray:
    import cv2

    rgb = read_rgb(str(path), max_megapixels, "--max-megapixels")
    share = _LONGEST / max(rgb.shape)
    if share < 1:  # the reference computes in float64: memory for 4,096 x 4,096 pixels, not for a whole scan
        smaller = (max(1, round(rgb.shape[1] * share)), max(1, round(rgb.shape[0] * share)))
        rgb = cv2.resize(rgb, smaller, interpolation=cv2.INTER_AREA)
    return rgb


def _video_frames(path: Path, limit: int) -> list[np.ndarray]:
    import av

    with av.open(str(path), options=PIXEL_LIMIT) as container:
        if not container.streams.video:
            raise ValueError("it has no video")
        step = max(1, (container.streams.video[0].frames or limit) // limit)
        return [
            frame.to_ndarray(format="rgb24")
            for i, frame in enumerate(container.decode(video=0))
            if i % step == 0 and i < step * limit
        ]
