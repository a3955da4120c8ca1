# SPDX-License-Identifier: Apache-2.0
"""Plain reference from a frame to objects: NumPy and OpenCV, one frame at a time, as the networks' authors do it.

For `models check` and the tests. It follows the card, shares no code with the fast paths, and is slow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from streamkit.core.data import Surface

if TYPE_CHECKING:
    from streamkit.models.families.plugin import PluginFamily
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
    data, color = surface.data.astype(np.float64), surface.color
    chroma = data[surface.height :].reshape(surface.height // 2, surface.width // 2, 2)
    chroma = chroma[: (height + 1) // 2, : (width + 1) // 2]
    down, across = (np.arange(height) - color.chroma_y) / 2, (np.arange(width) - color.chroma_x) / 2
    cb, cr = (_sample(chroma[..., i], down, across) - 128 for i in (0, 1))
    luma = data[:height, :width]
    if not color.full_range:
        luma, cb, cr = (luma - 16) * 255 / 219, cb * 255 / 224, cr * 255 / 224
    red_weight, blue_weight = _LUMA[color.matrix]
    red, blue = luma + 2 * (1 - red_weight) * cr, luma + 2 * (1 - blue_weight) * cb
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
    family: str,
    outputs: Outputs,
    geometry: Geometry,
    size: Size,
    spec: InputSpec,
    *,
    min_score: float,
    iou: float,
    select: str = "",
    classes: int = 1,
    plugin: PluginFamily | None = None,
) -> np.ndarray:
    """Return the objects of one frame: (n, 6 + c) float64, x1, y1, x2, y2 in source pixels, score, class; best first.

    Further values of the family follow: x, y and score of each point in network pixels, coefficients, or the corners of
    a rotated box in network pixels.

    Args:
        family: a key of `READERS`.
        outputs: the network's, for a batch of one.
        geometry: as from `tensor`.
        size: width, height of the frame.
        spec: the network's input.
        min_score: objects below are discarded.
        iou: threshold of non-max suppression within a class.
        select: the card's `select`.
        classes: number of the card's labels; read for keypoints only, which follow the scores.
        plugin: the family, if it is that of a plugin; its function reads the outputs then.
    """
    read, suppress = READERS[family] if plugin is None else (plugin.reference_rows, plugin.suppress)
    if family == "yolov8_pose" and plugin is None:
        read = functools.partial(_yolov8, classes=classes)
    if select:
        read = functools.partial(_detr, select=select)
    alone = plugin is None and "boxes" in outputs and outputs["boxes"].ndim == 2  # torchvision's export for one image
    values = {name: np.asarray(value, np.float64) for name, value in outputs.items()}
    rows = read(values if alone else {name: value[0] for name, value in values.items()}, spec, size)
    rows = rows[rows[:, 4] >= min_score]
    rows = rows[np.argsort(-rows[:, 4], kind="stable")]
    if suppress:
        rows = _without_doubles(rows, iou, rotated_overlap if family == "yolov8_obb" and plugin is None else overlap)
    scale_x, scale_y, offset_x, offset_y = geometry
    rows[:, [0, 2]] = (rows[:, [0, 2]] - offset_x) / scale_x
    rows[:, [1, 3]] = (rows[:, [1, 3]] - offset_y) / scale_y
    rows[:, :4] = rows[:, :4].clip(0, (*size, *size))
    return rows[(rows[:, 2] > rows[:, 0]) & (rows[:, 3] > rows[:, 1])]


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Return the IoU of two boxes."""
    width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    inner = max(0.0, width) * max(0.0, height)
    both = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inner
    return float(inner / both) if both > 0 else 0.0


def rotated_overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Return the probabilistic IoU of two rows with corners behind the class, see `ops.rotated`."""
    (m, s), (n, t) = _gaussian(a[6:]), _gaussian(b[6:])
    mean, away = (s + t) / 2, m - n
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


def _rows(center: np.ndarray, size: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return rows of the best class of each anchor."""
    best = scores.argmax(1)
    return np.column_stack([center - size / 2, center + size / 2, scores.max(1), best])


def _cells(spec: InputSpec, stride: int) -> np.ndarray:
    across, down = spec.size[0] // stride, spec.size[1] // stride
    return np.array([(x, y) for y in range(down) for x in range(across)], np.float64)


def _yolox(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    (values,) = outputs.values()
    cells = np.concatenate([_cells(spec, stride) for stride in (8, 16, 32)])
    strides = np.concatenate([np.full((len(_cells(spec, stride)), 1), stride) for stride in (8, 16, 32)])
    center, extent = (values[:, :2] + cells) * strides, np.exp(values[:, 2:4]) * strides
    return _rows(center, extent, values[:, 4:5] * values[:, 5:])


def _matrix(outputs: Outputs) -> np.ndarray:
    """Return the output of two dimensions."""
    return next(output for output in outputs.values() if output.ndim == 2)


def _yolov5(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    values = _matrix(outputs)
    return _rows(values[:, :2], values[:, 2:4], values[:, 4:5] * values[:, 5:])


def _yolov8(outputs: Outputs, spec: InputSpec, size: Size, classes: int | None = None) -> np.ndarray:
    """Read the boxes and scores, and the values behind the scores of `classes` classes; None for all values."""
    values = _matrix(outputs).T
    end = values.shape[1] if classes is None else 4 + classes
    return np.column_stack([_rows(values[:, :2], values[:, 2:4], values[:, 4:end]), values[:, end:]])


def _yolo_world(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    scores = next(output for name, output in outputs.items() if "score" in name.lower())
    boxes = next(output for name, output in outputs.items() if "box" in name.lower())
    return np.column_stack([boxes, scores.max(axis=1), scores.argmax(axis=1)])


def _yolov8_obb(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    """Read rotated boxes: the hull of each, score and class, and the corners."""
    values = _matrix(outputs).T
    corners = np.array([_corners(row[:4], row[-1]) for row in values]).reshape(-1, 4, 2)
    scores = values[:, 4:-1]
    hull = np.column_stack([corners.min(axis=1), corners.max(axis=1)])
    return np.column_stack([hull, scores.max(1), scores.argmax(1), corners.reshape(-1, 8)])


def _corners(box: np.ndarray, angle: float) -> np.ndarray:
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    upright = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)]) * box[2:] / 2
    return np.asarray(upright @ turn + box[:2])


def _yolov8_seg(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    coefficients = next(output for output in outputs.values() if output.ndim == 3).shape[0]
    return _yolov8(outputs, spec, size, classes=len(_matrix(outputs)) - 4 - coefficients)


def _yolo_e2e(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    return _matrix(outputs).copy()


def _rtdetr_e2e(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    values = _matrix(outputs)
    rows = _rows(values[:, :2], values[:, 2:4], values[:, 4:5])
    rows[:, :4] *= (*spec.size, *spec.size)
    return np.column_stack([rows[:, :5], values[:, 5]])


def _rtdetr(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    values = _matrix(outputs)
    rows = _rows(values[:, :2], values[:, 2:4], values[:, 4:])
    rows[:, :4] *= (*spec.size, *spec.size)
    return rows


def _detr(outputs: Outputs, spec: InputSpec, size: Size, select: str = "top_k") -> np.ndarray:
    if {"labels", "boxes", "scores"} <= outputs.keys():  # the network has stretched its whole input to the frame
        boxes = outputs["boxes"] / (*size, *size) * (*spec.size, *spec.size)
        return np.column_stack([boxes, outputs["scores"], outputs["labels"]])
    if "logits" in outputs:  # others may be beside them
        outputs = {name: output for name, output in outputs.items() if name in ("logits", "pred_boxes", "boxes")}
    boxes, logits = sorted(outputs.values(), key=lambda output: output.shape[1] != 4)
    scores = _softmax(logits)[:, :-1] if select == "softmax" else 1 / (1 + np.exp(-logits))
    queries, classes = scores.shape
    if select == "top_k":
        boxes, scores = np.repeat(boxes, classes, axis=0), scores.reshape(-1, 1)
    rows = _rows(boxes[:, :2], boxes[:, 2:], scores)
    rows[:, :4] *= (*spec.size, *spec.size)
    if select == "top_k":
        rows[:, 5] = np.tile(np.arange(classes), queries)
    return rows


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _ssd(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    (wide, high), names = spec.size, outputs.keys()
    if {"detection_boxes", "detection_scores", "detection_classes"} <= names:
        boxes, scores, labels = (outputs[f"detection_{kind}"] for kind in ("boxes", "scores", "classes"))
        count = int(outputs["num_detections"].item()) if "num_detections" in names else len(boxes)
        top, left, bottom, right = boxes.T
        return np.column_stack([left * wide, top * high, right * wide, bottom * high, scores, labels])[:count]
    if {"bboxes", "scores", "labels"} <= names:
        return np.column_stack([outputs["bboxes"] * (wide, high, wide, high), outputs["scores"], outputs["labels"]])
    if {"boxes", "scores", "labels"} <= names:
        return np.column_stack([outputs["boxes"], outputs["scores"], outputs["labels"]])
    rows = next(output for output in outputs.values() if output.ndim == 3)[0]
    ends = np.flatnonzero(rows[:, 0] < 0)  # OpenVINO's mark of the end
    rows = rows[: ends[0]] if len(ends) else rows
    return np.column_stack([rows[:, 3:] * (wide, high, wide, high), rows[:, 2], rows[:, 1]])


def _yunet(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    per_stride = []
    for stride in (8, 16, 32):
        cls, obj, box = (outputs[f"{kind}_{stride}"] for kind in ("cls", "obj", "bbox"))
        center = (_cells(spec, stride) + box[:, :2]) * stride
        extent = np.exp(box[:, 2:]) * stride
        per_stride.append(_rows(center, extent, np.sqrt(cls.clip(0, 1) * obj.clip(0, 1))))
    return np.concatenate(per_stride)


def answer(family: str, outputs: Outputs) -> np.ndarray:
    """Return a network's output vector for one image, float64: probabilities, or a vector of length 1.

    Features of places, (1, places, values), may be beside it.
    """
    (output,) = [value for value in outputs.values() if max(value.shape[2:], default=1) == 1]
    vector = np.asarray(output, np.float64).ravel()
    if family == "logits":
        return _softmax(vector)
    return np.asarray(vector / np.sqrt((vector**2).sum())) if family == "embedding" else vector


def _movenet(outputs: Outputs, spec: InputSpec, size: Size) -> np.ndarray:
    (value,) = outputs.values()
    points = value[0][:, [1, 0, 2]] * (*spec.size, 1)
    seen = points[points[:, 2] >= 0.2] if (points[:, 2] >= 0.2).any() else points
    box = (*seen[:, :2].min(axis=0), *seen[:, :2].max(axis=0))
    return np.array([[*box, points[:, 2].mean(), 0, *points.ravel()]])


def mask(
    coefficients: np.ndarray, prototypes: np.ndarray, box: np.ndarray, geometry: Geometry, size: Size, spec: InputSpec
) -> np.ndarray:
    """Return an object's mask, (height, width) bool: the logits sampled at the pixels in its box, above 0."""
    logits = np.tensordot(coefficients, np.asarray(prototypes, np.float64), 1)
    (high, wide), (scale_x, scale_y, offset_x, offset_y) = logits.shape, geometry
    x, y = np.arange(size[0]) + 0.5, np.arange(size[1]) + 0.5
    across = (x * scale_x + offset_x) * wide / spec.size[0] - 0.5
    down = (y * scale_y + offset_y) * high / spec.size[1] - 0.5
    inside = ((x >= box[0]) & (x < box[2])) & ((y >= box[1]) & (y < box[3]))[:, None]
    return np.asarray((_sample(logits, down, across) > 0) & inside)


READERS: dict[str, tuple[Callable[[Outputs, InputSpec, Size], np.ndarray], bool]] = {
    "yolox": (_yolox, True),
    "yolov5": (_yolov5, True),
    "yolov8": (_yolov8, True),
    "yolo_world": (_yolo_world, True),
    "yolo_e2e": (_yolo_e2e, False),
    "yolo_e2e_pose": (_yolo_e2e, False),
    "yolo_e2e_seg": (_yolo_e2e, False),
    "detr": (_detr, False),
    "rtdetr": (_rtdetr, False),
    "rtdetr_e2e": (_rtdetr_e2e, False),
    "ssd": (_ssd, False),
    "yunet": (_yunet, True),
    "yolov8_pose": (_yolov8, True),
    "yolov8_seg": (_yolov8_seg, True),
    "yolov8_obb": (_yolov8_obb, True),
    "movenet": (_movenet, False),
}
"""How each family's output is read, and whether non-max suppression follows."""
