# SPDX-License-Identifier: Apache-2.0
"""Plain reference from a frame to objects: NumPy and OpenCV, one frame at a time, as the networks' authors do it.

For `models check` and the tests. It follows the card, shares no code with the fast paths, and is slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from streamkit.core.data import Surface
from streamkit.models.families.base import PlainImage

if TYPE_CHECKING:
    from streamkit.models.families import Family
    from streamkit.ops.letterbox import InputSpec

Outputs = Mapping[str, np.ndarray]
Geometry = tuple[float, float, float, float]
"""scale_x, scale_y, offset_x, offset_y: network pixel = source pixel x scale + offset."""
Size = tuple[int, int]
"""Width and height in pixels."""
_LUMA = {"bt601": (0.299, 0.114), "bt709": (0.2126, 0.0722), "bt2020": (0.2627, 0.0593)}


# ------------------------------------------------------------------------------------------------- image to tensor


def rgb(surface: Surface, width: int, height: int) -> np.ndarray:
    """Convert an NV12 surface to RGB, (height, width, 3) float32, 0..255, not rounded, by its chroma siting."""
    data = surface.data.astype(np.float64)
    color = surface.color
    chroma = data[surface.height :].reshape(surface.height // 2, surface.width // 2, 2)
    chroma = chroma[: (height + 1) // 2, : (width + 1) // 2]
    down = (np.arange(height) - color.chroma_y) / 2
    across = (np.arange(width) - color.chroma_x) / 2
    cb, cr = (_sample(chroma[..., i], down, across) - 128 for i in (0, 1))
    luma = data[:height, :width]
    if not color.full_range:
        luma = (luma - 16) * 255 / 219
        cb = cb * 255 / 224
        cr = cr * 255 / 224
    red_weight, blue_weight = _LUMA[color.matrix]
    red = luma + 2 * (1 - red_weight) * cr
    blue = luma + 2 * (1 - blue_weight) * cb
    green = (luma - red_weight * red - blue_weight * blue) / (1 - red_weight - blue_weight)
    return np.asarray(np.clip(np.dstack([red, green, blue]), 0, 255), np.float32)


def _sample(plane: np.ndarray, down: np.ndarray, across: np.ndarray) -> np.ndarray:
    for axis, at in ((0, down), (1, across)):
        last = plane.shape[axis] - 1
        at = np.clip(at, 0, last)
        low = at.astype(int)
        first, second = (plane.take(index, axis) for index in (low, np.minimum(low + 1, last)))
        plane = first + (second - first) * np.expand_dims(at - low, 1 - axis)
    return plane


def tensor(rgb: np.ndarray, spec: InputSpec) -> tuple[np.ndarray, Geometry]:
    """Resize, pad and normalize a frame.

    Args:
        rgb: (h, w, 3), uint8 or float32, 0..255.
        spec: the network's input.

    Returns:
        The tensor of one frame, in `spec`'s layout and dtype; and the geometry.
    """
    import cv2

    (height, width) = rgb.shape[:2]
    (across, down) = spec.size
    new_width = across
    new_height = down
    if spec.resize == "letterbox":
        ratio = min(across / width, down / height)
        new_width = max(1, round(width * ratio))
        new_height = max(1, round(height * ratio))
    elif spec.resize == "crop":
        short = spec.resize_to or min(spec.size)
        new_width = short if width <= height else int(short * width / height)
        new_height = short if height <= width else int(short * height / width)
    if spec.antialias:
        small = _smaller(rgb.astype(np.float32), new_width, new_height)
    else:
        small = cv2.resize(rgb, (new_width, new_height), interpolation=cv2.INTER_LINEAR).astype(np.float32)
    if spec.color == "bgr":
        small = small[..., ::-1]
    corner = spec.anchor == "top_left"
    left, top = (0 if corner else _middle(room, new) for room, new in ((across, new_width), (down, new_height)))
    full = np.empty((down, across, 3), np.float32)
    full[:] = spec.pad
    seen = small[max(0, -top) : max(0, -top) + down, max(0, -left) : max(0, -left) + across]
    full[max(0, top) : max(0, top) + len(seen), max(0, left) : max(0, left) + seen.shape[1]] = seen
    full = (full * spec.scale - np.array(spec.mean)) / np.array(spec.std)
    if spec.dtype == "u8":
        full = np.clip(np.rint(full), 0, 255)
    if spec.layout == "nchw":
        full = full.transpose(2, 0, 1)
    image = np.ascontiguousarray(full[None], spec.numpy_dtype)
    return image, (new_width / width, new_height / height, float(left), float(top))


def _smaller(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """Resize (h, w, 3) float32 with Pillow's bilinear filter: triangles as wide as two steps, at least two pixels."""
    for axis, new in ((0, height), (1, width)):
        old = image.shape[axis]
        step = old / new
        away = np.abs(np.arange(old) + 0.5 - (np.arange(new)[:, None] + 0.5) * step) / max(step, 1)
        weights = np.where(away < 1, 1 - away, 0)
        image = np.moveaxis(np.tensordot(weights / weights.sum(1, keepdims=True), image, (1, axis)), 0, axis)
    return np.asarray(image, np.float32)


def _middle(room: int, size: int) -> int:
    return (room - size) // 2 if size <= room else -round((size - room) / 2)


# ------------------------------------------------------------------------------------------------- outputs to objects


def objects(
    reads: Family,
    outputs: Outputs,
    geometry: Geometry,
    size: Size,
    spec: InputSpec,
    *,
    min_score: float,
    iou: float,
    select: str = "",
    classes: int = 1,
) -> np.ndarray:
    """Return the objects of one frame: (n, 6 + c) float64, x1, y1, x2, y2 in source pixels, score, class; best first.

    Further values of the family follow: x, y and score of each point in network pixels, coefficients, or the corners of
    a rotated box in network pixels.

    Args:
        reads: the network's family; its `reference_rows` read the outputs.
        outputs: the network's, for a batch of one.
        geometry: as from `tensor`.
        size: width, height of the frame.
        spec: the network's input.
        min_score: objects below are discarded.
        iou: threshold of non-max suppression within a class.
        select: the card's `select`.
        classes: number of the card's labels; read for keypoints only, which follow the scores.
    """
    values = {name: np.asarray(output, np.float64) for name, output in outputs.items()}
    if not reads.single_image({name: output.shape for name, output in values.items()}):
        values = {name: output[0] for name, output in values.items()}
    rows = reads.reference_rows(PlainImage(values, spec.size, size, classes, select))
    rows = rows[rows[:, 4] >= min_score]
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    if reads.suppress:
        rows = _without_doubles(rows, iou, rotated_overlap if "corners" in reads.columns else overlap)
    scale_x, scale_y, offset_x, offset_y = geometry
    rows[:, [0, 2]] = (rows[:, [0, 2]] - offset_x) / scale_x
    rows[:, [1, 3]] = (rows[:, [1, 3]] - offset_y) / scale_y
    rows[:, :4] = rows[:, :4].clip(0, (*size, *size))
    return rows[(rows[:, 2] > rows[:, 0]) & (rows[:, 3] > rows[:, 1])]


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Return the IoU of two boxes."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    inner = max(0.0, width) * max(0.0, height)
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inner
    return float(inner / both) if both > 0 else 0.0


def rotated_overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Return the probabilistic IoU of two rows with corners behind the class, see `ops.rotated`."""
    m, s = _gaussian(a[6:])
    n, t = _gaussian(b[6:])
    mean = (s + t) / 2
    away = m - n
    with np.errstate(all="ignore"):  # a box without area
        unlike = np.log(np.linalg.det(mean) / np.sqrt(np.linalg.det(s) * np.linalg.det(t)))
        distance = away @ np.linalg.pinv(mean) @ away / 8 + unlike / 2
    return float(1 - np.sqrt(1 - np.exp(-max(distance, 0)))) if np.isfinite(distance) else 0.0


def _gaussian(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and covariance of the points of a rotated box."""
    corners = values.reshape(4, 2)
    sides = np.array([corners[1] - corners[0], corners[3] - corners[0]])
    return corners.mean(axis=0), sides.T @ sides / 12


def _without_doubles(
    rows: np.ndarray, iou: float, alike: Callable[[np.ndarray, np.ndarray], float] = overlap
) -> np.ndarray:
    best: list[np.ndarray] = []
    for row in rows:
        if all(row[5] != other[5] or alike(row, other) <= iou for other in best):
            best.append(row)
    return np.array(best).reshape(-1, rows.shape[1])


def answer(reads: Family, outputs: Outputs) -> np.ndarray:
    """Return a network's output vector for one image, float64: probabilities, or a vector of length 1."""
    return reads.reference_rows(PlainImage({name: np.asarray(out[0], np.float64) for name, out in outputs.items()}))


def mask(
    coefficients: np.ndarray, prototypes: np.ndarray, box: np.ndarray, geometry: Geometry, size: Size, spec: InputSpec
) -> np.ndarray:
    """Return an object's mask, (height, width) bool: the logits sampled at the pixels in its box, above 0."""
    logits = np.tensordot(coefficients, np.asarray(prototypes, np.float64), 1)
    high, wide = logits.shape
    scale_x, scale_y, offset_x, offset_y = geometry
    x = np.arange(size[0]) + 0.5
    y = np.arange(size[1]) + 0.5
    across = (x * scale_x + offset_x) * wide / spec.size[0] - 0.5
    down = (y * scale_y + offset_y) * high / spec.size[1] - 0.5
    inside = ((x >= box[0]) & (x < box[2])) & ((y >= box[1]) & (y < box[3]))[:, None]
    return np.asarray((_sample(logits, down, across) > 0) & inside)
