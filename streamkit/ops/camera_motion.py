# SPDX-License-Identifier: Apache-2.0
"""Motion of a camera between two frames: a similarity transform, from the flow of corners of the luma.

A frame is reduced to its luma at about 320 pixels on the longer side. Its corners (Shi and Tomasi, "Good Features to
Track", 1994), the best of each cell of a grid and none inside a detection, are followed into the other frame by sparse
optical flow (Lucas and Kanade 1981, in the pyramid of Bouguet 2000): by OpenCV on the host, by cuda/camera_motion.cu on
a device, where the luma stays; only the corners' places are copied, 2 kB a frame. A robust fit of pan, zoom and roll
to the corners then ignores those on things that move by themselves, as BoT-SORT does (Aharon et al. 2022).

The estimates of host and device differ by at most 0.1 % of the frame's longer side where a camera moves by less than a
tenth of the frame: their pyramids are not the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, TypeGuard

import numpy as np

from streamkit.core.data import Array, Surface, array_module
from streamkit.ops.cuda.load import kernel
from streamkit.ops.cut import on_device_stream
from streamkit.ops.transfer import fetch_now, to_device

_LONGEST = 320  # of the small luma's longer side, from which frames are reduced
_CELL = 20  # pixels of the small luma on a side of the cells that have a corner each
_MARGIN = 10  # pixels at the border without corners: the window of the flow, and its gradient
_LEVELS = 4  # of the pyramid
_WINDOW = 15  # pixels on a side of what is compared around a corner
_ITERATIONS = 10
_PRECISION = 0.03  # pixels of the small luma, at which the iteration ends
_MIN_CORNER = 1000.0  # smaller eigenvalue of 3x3 gradients, each 8 levels per pixel
_NEAR = 1.0  # pixels of the small luma between a corner and the place where the transform takes it
_MIN_CORNERS = 8  # fewer agreeing corners are no estimate
_MIN_SHARE = 0.4  # of the corners must agree
_AREA = 40  # pixels of the small luma on a side of the areas that corners are in
_MIN_AREAS = 0.5  # share of the areas with corners that must have one that agrees: a large object is in few of them
_MAX_ZOOM = 1.5  # from one frame to the next

VIEW = np.dtype(
    [
        ("source", "<u8"),
        ("levels", "<u8"),
        ("corners", "<u8"),
        ("pitch", "<i4"),
        ("step", "<i4"),
        ("width", "<i4"),
        ("height", "<i4"),
        ("box_start", "<i4"),
        ("box_count", "<i4"),
        ("columns", "<i4"),
        ("rows", "<i4"),
        ("unused", "<i4", (2,)),
    ]
)
"""A frame of which landmarks are taken, `struct View` of cuda/camera_motion.cu."""

PAIR = np.dtype(
    [
        ("before", "<u8"),
        ("now", "<u8"),
        ("corners", "<u8"),
        ("flow", "<u8"),
        ("width", "<i4"),
        ("height", "<i4"),
        ("count", "<i4"),
        ("unused", "<i4"),
    ]
)
"""Two frames that are compared, `struct Pair` of cuda/camera_motion.cu."""

_NO_FLOW = np.zeros((0, 4), np.float32)
_WARP = 32  # threads
_BLOCK = 256  # threads


class Landmarks(NamedTuple):
    """What of a frame a later one is compared with, on the frame's device.

    Attributes:
        luma: host: (h, w) uint8; device: (bytes,) uint8, the levels of its pyramid one after the other.
        corners: (n, 2) float32 x, y of the corners in the luma's pixels; NaN in cells without a corner.
        width: the small luma's width.
        height: its height.
        step: pixels of the frame that one of the luma stands for, on each side.
    """

    luma: Array
    corners: Array
    width: int
    height: int
    step: int


def camera_motions(
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    boxes: Sequence[np.ndarray],
    earlier: Sequence[Landmarks | None],
) -> tuple[list[Landmarks], list[np.ndarray | None]]:
    """Return the landmarks of frames, and how the picture has moved to each since an earlier frame of its source.

    The frames may be released afterwards.

    Args:
        surfaces: the frames, all on the host or all on one device.
        sizes: the true width and height of each.
        boxes: (n, 4) x1, y1, x2, y2 in pixels of each frame: nothing inside them is a landmark.
        earlier: the landmarks of the earlier frame of each, at the same place; None without one.

    Returns:
        The landmarks, and for each frame a (2, 3) float64 similarity transform in pixels of the frames, (x, y, 1) to
        (x, y); None if it is not known: few corners, or few that agree, or frames of different sizes.
    """
    if not surfaces:
        return [], []
    if array_module(surfaces[0].data) is not np:
        marks, flows = _measure_on_device(surfaces, sizes, boxes, earlier)
    else:
        marks = [
            _landmarks_on_host(surface.data, *size, frame_boxes)
            for surface, size, frame_boxes in zip(surfaces, sizes, boxes, strict=True)
        ]
        flows = [
            _flow_on_host(before, now) if _comparable(before, now) else _NO_FLOW
            for before, now in zip(earlier, marks, strict=True)
        ]
    return marks, [_fit(flow, mark.step) for flow, mark in zip(flows, marks, strict=True)]


def _comparable(before: Landmarks | None, now: Landmarks) -> TypeGuard[Landmarks]:
    return before is not None and before[2:] == now[2:] and len(before.corners) > 0


def displacement(motion: np.ndarray, width: int, height: int) -> float:
    """Return how far a transform moves the corner of a frame that it moves farthest, as a share of its longer side."""
    ends = np.array([(0, 0, 1), (width, 0, 1), (0, height, 1), (width, height, 1)], np.float64)
    return float(np.linalg.norm(ends @ motion.T - ends[:, :2], axis=1).max() / max(width, height))


def _fit(flow: np.ndarray, step: int) -> np.ndarray | None:
    """Return the transform of frames, in their pixels, that most corners follow; None if too few do.

    Args:
        flow: (n, 4) float32, each corner's x, y in the first small luma and in the second; NaN for lost ones.
        step: pixels of the frame that one of the luma stands for.
    """
    import cv2

    flow = flow[np.isfinite(flow).all(axis=1)]
    if len(flow) < _MIN_CORNERS:
        return None
    small, agreeing = cv2.estimateAffinePartial2D(
        np.ascontiguousarray(flow[:, :2]), np.ascontiguousarray(flow[:, 2:]), ransacReprojThreshold=_NEAR
    )
    if small is None:
        return None
    agrees = agreeing.ravel() > 0
    count = int(agrees.sum())
    areas = (flow[:, :2] // _AREA).astype(int) @ (1, 1 << 16)
    area_count = len(set(areas[agrees].tolist()))
    zoom = float(np.hypot(small[0, 0], small[1, 0]))
    if count < _MIN_CORNERS or count < _MIN_SHARE * len(flow) or not 1 / _MAX_ZOOM <= zoom <= _MAX_ZOOM:
        return None
    if area_count < _MIN_AREAS * len(set(areas.tolist())):
        return None
    turn = small[:, :2]
    shift = step * (small[:, 2] + 0.5 - turn @ (0.5, 0.5))  # a pixel's center is half a pixel from its border
    return np.column_stack([turn, shift])


def _small_size(width: int, height: int) -> tuple[int, int, int]:
    """Return width and height of the small luma of a frame, and how many of its pixels become one on each side."""
    step = max(1, min(max(width, height) // _LONGEST, width, height))
    return width // step, height // step, step


def _cells(width: int, height: int) -> tuple[int, int]:
    """Return the columns and rows of cells in a small luma."""
    return max(0, (width - 2 * _MARGIN) // _CELL), max(0, (height - 2 * _MARGIN) // _CELL)


def _small_boxes(boxes: np.ndarray, step: int, width: int, height: int) -> np.ndarray:
    """Return (n, 4) int32: boxes in pixels of the small luma, without invalid ones; ends are exclusive."""
    boxes = boxes[np.isfinite(boxes).all(axis=1)]
    small = np.concatenate([np.floor(boxes[:, :2] / step) - 1, np.ceil(boxes[:, 2:] / step) + 1], axis=1)
    return np.asarray(np.clip(small, 0, (width, height, width, height)), np.int32)


# -------------------------------------------------------------------------------------------- host


def _landmarks_on_host(data: np.ndarray, frame_width: int, frame_height: int, boxes: np.ndarray) -> Landmarks:
    import cv2

    width, height, step = _small_size(frame_width, frame_height)
    luma = data[: height * step, : width * step]
    luma = cv2.resize(luma, (width, height), interpolation=cv2.INTER_AREA) if step > 1 else luma.copy()
    columns, rows = _cells(width, height)
    if not columns or not rows:
        return Landmarks(luma, np.zeros((0, 2), np.float32), width, height, step)
    response = cv2.cornerMinEigenVal(luma, 3)
    for left, top, right, bottom in _small_boxes(boxes, step, width, height).tolist():
        response[top:bottom, left:right] = 0
    inner = response[_MARGIN : _MARGIN + rows * _CELL, _MARGIN : _MARGIN + columns * _CELL]
    cells = inner.reshape(rows, _CELL, columns, _CELL).transpose(0, 2, 1, 3).reshape(rows * columns, -1)
    best = cells.argmax(axis=1)
    cell = np.arange(len(cells))
    corners = np.empty((len(cells), 2), np.float32)
    corners[:, 0] = _MARGIN + cell % columns * _CELL + best % _CELL
    corners[:, 1] = _MARGIN + cell // columns * _CELL + best // _CELL
    corners[cells[cell, best] < _MIN_CORNER / (4 * 3 * 255) ** 2] = np.nan  # OpenCV's scale of 3x3 gradients of bytes
    return Landmarks(luma, corners, width, height, step)


def _flow_on_host(before: Landmarks, now: Landmarks) -> np.ndarray:
    """Return (n, 4) float32, each corner's place in both."""
    import cv2

    corners = before.corners[np.isfinite(before.corners[:, 0])]
    if not len(corners):
        return _NO_FLOW
    end = cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, _ITERATIONS, _PRECISION
    places, followed, _ = cv2.calcOpticalFlowPyrLK(
        before.luma,
        now.luma,
        corners.reshape(-1, 1, 2),
        None,
        winSize=(_WINDOW, _WINDOW),
        maxLevel=_LEVELS - 1,
        criteria=end,
    )
    return np.asarray(np.concatenate([corners, places.reshape(-1, 2)], axis=1)[followed.ravel() > 0])


# -------------------------------------------------------------------------------------------- device


def _level_bytes(width: int, height: int) -> int:
    """Return the size of a small luma's pyramid; each level has half the pixels, rounded up, on a side."""
    return sum(-(-width >> level) * -(-height >> level) for level in range(_LEVELS))


def _measure_on_device(
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    boxes: Sequence[np.ndarray],
    earlier: Sequence[Landmarks | None],
) -> tuple[list[Landmarks], list[np.ndarray]]:
    """Return each frame's landmarks, and (n, 4) float32, each corner's place in both frames, NaN for those without.

    One copy to the device, three launches, and one copy back that is waited for, whatever the number of frames: of a
    single frame, they take most of the time.
    """
    import cupy

    with on_device_stream(surfaces):
        marks = [_empty_landmarks(*size) for size in sizes]
        pairs = [(before, now) for before, now in zip(earlier, marks, strict=True) if _comparable(before, now)]
        ends = np.cumsum([0] + [len(before.corners) for before, _ in pairs]).tolist()
        flows = cupy.empty((max(1, ends[-1]), 4), np.float32)
        small = [_small_boxes(b, mark.step, mark.width, mark.height) for b, mark in zip(boxes, marks, strict=True)]
        views = _views(surfaces, marks, [len(frame_boxes) for frame_boxes in small])
        records = [_pair(*pair, flows.data.ptr + 16 * begin) for pair, begin in zip(pairs, ends, strict=False)]
        table, pair_table, box_table = to_device(views, np.array(records, PAIR), np.concatenate(small))
        pixels = int((views["width"] * views["height"]).max())
        cells = int((views["columns"] * views["rows"]).max())
        kernel("camera_motion.cu", "shrink")((-(-pixels // _BLOCK), len(marks)), (_BLOCK,), (table,))
        blocks = 1 + -(-cells * _WARP // _BLOCK)
        kernel("camera_motion.cu", "describe")(
            (blocks, len(marks)), (_BLOCK,), (table, box_table, np.float32(_MIN_CORNER))
        )
        if pairs:
            corners = max(len(before.corners) for before, _ in pairs)
            limits = np.int32(_ITERATIONS), np.float32(_PRECISION)
            kernel("camera_motion.cu", "flow")((corners, len(pairs)), (_WARP,), (pair_table, *limits))
        on_host = fetch_now(flows)  # waits for all of it, also without pairs
    pair_flows = iter([on_host[begin:end] for begin, end in pairwise(ends)])
    return marks, [
        next(pair_flows) if _comparable(before, now) else _NO_FLOW for before, now in zip(earlier, marks, strict=True)
    ]


def _empty_landmarks(frame_width: int, frame_height: int) -> Landmarks:
    """Return room for the landmarks of a frame on the current device."""
    import cupy

    width, height, step = _small_size(frame_width, frame_height)
    columns, rows = _cells(width, height)
    luma = cupy.empty(_level_bytes(width, height), np.uint8)
    return Landmarks(luma, cupy.empty((columns * rows, 2), np.float32), width, height, step)


def _views(surfaces: Sequence[Surface], marks: Sequence[Landmarks], box_counts: Sequence[int]) -> np.ndarray:
    """Return (n,) VIEW."""
    rows = []
    box_start = 0
    for surface, mark, box_count in zip(surfaces, marks, box_counts, strict=True):
        pointers = surface.data.data.ptr, mark.luma.data.ptr, mark.corners.data.ptr
        size = surface.width, mark.step, mark.width, mark.height
        rows.append((*pointers, *size, box_start, box_count, *_cells(mark.width, mark.height), (0, 0)))
        box_start += box_count
    return np.array(rows, VIEW)


def _pair(before: Landmarks, now: Landmarks, flow: int) -> tuple[int, ...]:
    """Return the values of a PAIR whose flow is written to an address."""
    pointers = before.luma.data.ptr, now.luma.data.ptr, before.corners.data.ptr, flow
    return *pointers, now.width, now.height, len(before.corners), 0
