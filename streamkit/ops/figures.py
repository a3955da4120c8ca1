# SPDX-License-Identifier: Apache-2.0
"""Shapes drawn besides boxes: masks, keypoints with the lines between them, and lines, zones and trails."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from streamkit.core.data import Detections, Surface
from streamkit.ops import rle
from streamkit.ops.glyphs import Atlas
from streamkit.ops.overlay import LINE, MARK, STENCIL
from streamkit.ops.style import PALETTE, palette_yuv

if TYPE_CHECKING:
    from streamkit.ops.style import Style

_OPAQUE = np.uint32(255 << 24)
_MAJORITY = 2  # of four pixels, for a block of them to be of a mask

Marks = tuple[np.ndarray, np.ndarray]
"""The frame of each mark, and the marks."""


class FrameLayout:
    """The frames' sizes and derived values: (frames,) int64 arrays, and (frames, palette) colors."""

    def __init__(self, surfaces: Sequence[Surface | None], style: Style) -> None:
        sizes = [(0, 0) if s is None else (s.width, s.height) for s in surfaces]
        self.size = np.array(sizes, np.int64).reshape(-1, 2)
        self.width, self.height = self.size.T
        self.line = np.array([style.line_width(min(size)) for size in sizes], np.int64)
        self.text = np.array([style.text_height(min(size)) for size in sizes], np.int64)
        nothing = np.zeros(len(PALETTE), np.uint32)
        colors = [(nothing, nothing) if s is None else palette_yuv(s.color) for s in surfaces]
        self.colors = np.array([c for c, _ in colors], np.uint32)
        self.text_colors = np.array([i for _, i in colors], np.uint32)


def masks(table: Detections, style: Style, color: np.ndarray, atlas: Atlas) -> Marks:
    """Return the objects' masks in their colors."""
    return _stencils(zip(table.batch_row.tolist(), table.extra["mask"], color.tolist(), strict=True), style, atlas)


def regions(facts: Sequence[Mapping[str, Any]], layout: FrameLayout, style: Style, atlas: Atlas) -> Marks:
    """Return the semantic classes; a class has the same color in every frame and run."""
    regions_of_frames = (
        (frame, mask, int(layout.colors[frame, zlib.crc32(label.encode()) % len(PALETTE)]))
        for frame, facts_of_frame in enumerate(facts)
        for label, mask in facts_of_frame.get("segmentation", {}).items()
        if layout.width[frame] and (style.only is None or label in style.only)
    )
    return _stencils(regions_of_frames, style, atlas)


def _stencils(shown: Iterable[tuple[int, rle.Rle | None, int]], style: Style, atlas: Atlas) -> Marks:
    """Return the marks of masks, each given with its frame and its color."""
    frames = []
    marks = []
    for frame, mask, color in shown:
        mark = _stencil(mask, color, style, atlas) if mask is not None else None
        if mark is not None:
            frames.append(frame)
            marks.append(mark)
    return np.array(frames, np.int32), np.array(marks, MARK)


def _stencil(mask: rle.Rle, color: int, style: Style, atlas: Atlas) -> tuple[int, ...] | None:
    """Return the mark of a mask: the blocks of 2x2 pixels that it covers by half or more. None if it is empty."""
    part, left, top = rle.crop(mask)
    if not part.size:
        return None
    high, wide = part.shape
    before = ((top % 2, 0), (left % 2, 0))
    after = ((0, (high + top) % 2), (0, (wide + left) % 2))
    part = np.pad(np.pad(part, before), after)
    rows = part.shape[0] // 2
    columns = part.shape[1] // 2
    blocks = part.reshape(rows, 2, columns, 2).sum(axis=(1, 3)) >= _MAJORITY
    x = left - left % 2
    y = top - top % 2
    opacity = round(min(style.masks, 1.0) * 255) << 24
    return x, y, x + 2 * columns, y + 2 * rows, 0, color | opacity, atlas.stencil(blocks), STENCIL


def rotated_rows(table: Detections) -> np.ndarray:
    """Return (n,) bool: which objects have a rotated box. Objects of other detectors, and predicted ones, have none."""
    if "corners" not in table.extra:
        return np.zeros(len(table), bool)
    return np.asarray(np.isfinite(table.extra["corners"]).all(axis=(1, 2)))


def rotated_outlines(table: Detections, rows: np.ndarray, layout: FrameLayout, color: np.ndarray) -> Marks:
    """Return the four edges of each rotated box; `rows` is (n,) bool."""
    corners = table.extra["corners"][rows].astype(np.float64)
    columns = table.batch_row[rows].tolist(), corners, color[rows].tolist()
    return shapes([(frame, points, True, ink) for frame, points, ink in zip(*columns, strict=True)], layout)


def rotated_fills(
    table: Detections, rows: np.ndarray, layout: FrameLayout, style: Style, color: np.ndarray, atlas: Atlas
) -> Marks:
    """Return the tint inside each rotated box, in blocks of 2x2 pixels whose middle is inside; `rows` is (n,) bool."""
    frames = []
    marks = []
    opacity = round(min(style.fill, 1.0) * 255) << 24
    for i in np.flatnonzero(rows).tolist():
        corners = table.extra["corners"][i].astype(np.float64)
        frame = int(table.batch_row[i])
        low = np.clip(np.floor(corners.min(axis=0) / 2), 0, layout.size[frame] // 2).astype(np.int64)
        high = np.clip(np.ceil(corners.max(axis=0) / 2), 0, layout.size[frame] // 2).astype(np.int64)
        if (high <= low).any():
            continue
        y, x = (np.mgrid[low[1] : high[1], low[0] : high[0]] + 0.5) * 2
        edges = zip(corners, np.roll(corners, -1, axis=0), strict=True)
        sides = [(bx - ax) * (y - ay) - (by - ay) * (x - ax) for (ax, ay), (bx, by) in edges]
        inside = np.all([side >= 0 for side in sides], axis=0) | np.all([side <= 0 for side in sides], axis=0)
        frames.append(frame)
        x1, y1 = (2 * low).tolist()
        x2, y2 = (2 * high).tolist()
        marks.append((x1, y1, x2, y2, 0, int(color[i]) | opacity, atlas.stencil(inside), STENCIL))
    return np.array(frames, np.int32), np.array(marks, MARK)


def shapes(shown: Sequence[tuple[int, np.ndarray, bool, int]], layout: FrameLayout) -> Marks:
    """Return lines, zones and trails as marks for the edges between their points.

    Args:
        shown: frame, (n, 2) points in pixels, whether it is closed, and color of each.
        layout: the frames' sizes.
    """
    frames = []
    starts = []
    ends = []
    colors = []
    for frame, points, closed, color in shown:
        following = np.roll(points, -1, axis=0)
        last = len(points) if closed else len(points) - 1
        starts.append(points[:last])
        ends.append(following[:last])
        frames.append(np.full(last, frame, np.int32))
        colors.append(np.full(last, color, np.uint32))
    if not frames:
        return np.zeros(0, np.int32), np.zeros(0, MARK)
    of = np.concatenate(frames)
    inks = np.concatenate(colors)
    line = layout.line[of]
    start, end, there = _clip_lines(np.concatenate(starts), np.concatenate(ends), layout.size[of], 2 * line[:, None])
    marks = _segments(start, end, line[there], inks[there])
    _straighten(marks, line[there])
    return of[there], marks


def _straighten(marks: np.ndarray, line: np.ndarray) -> None:
    """Replace vertical and horizontal lines by rectangles, which stay even where a line may be a pixel off."""
    for low, high in (("x1", "x2"), ("y1", "y2")):
        thin = line + 2 * (line // 2 % 2)
        straight = (marks["sprite"] == LINE) & (marks[high] - marks[low] == thin)
        marks[high][straight] = (marks[low] + line)[straight]
        marks["border"][straight] = 0
        marks["ink"][straight] = 0
        marks["sprite"][straight] = -1


def _clip_lines(
    start: np.ndarray, end: np.ndarray, size: np.ndarray, beyond: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Clip straight lines `beyond` their frames' borders (Liang and Barsky 1984): a shape may extend anywhere.

    Args:
        start: (n, 2) start of each line, in pixels.
        end: (n, 2) end of each line.
        size: (n, 2) width and height of its frame.
        beyond: (n, 1) pixels.

    Returns:
        Start and end of the k remaining lines, (k, 2), and (n,) bool, which lines these are.
    """
    direction = end - start
    with np.errstate(divide="ignore", invalid="ignore"):
        near = (-beyond - start) / direction
        far = (size + beyond - start) / direction
    low = np.fmin(near, far)
    high = np.fmax(near, far)
    still = direction == 0
    inside = (start >= -beyond) & (start <= size + beyond)
    low = np.where(still, 0, low)
    high = np.where(still, 1, high)
    first = np.maximum(low.max(axis=1), 0)
    last = np.minimum(high.min(axis=1), 1)
    there = (first <= last) & (inside | ~still).all(axis=1)
    cut = [start + share[:, None] * direction for share in (first, last)]
    begins = np.where((first > 0)[:, None], cut[0], start)
    ends = np.where((last < 1)[:, None], cut[1], end)
    return begins[there], ends[there], there


def _segments(start: np.ndarray, end: np.ndarray, line: np.ndarray, color: np.ndarray) -> np.ndarray:
    """Return marks of straight lines.

    Args:
        start: (n, 2) start of each line, in pixels.
        end: (n, 2) end of each line.
        line: (n,) thickness, even.
        color: (n,) uint32 without opacity.
    """
    # Ends on even places, half a line from the rectangle's corners: the rectangle is even as well.
    ends = [2 * np.floor(place / 2 + 0.5).astype(np.int64) for place in (start, end)]
    half = line // 2
    marks = np.zeros(len(line), MARK)
    odd = half % 2  # an odd half is rounded up, so the line ends one pixel further
    for axis, name in enumerate("xy"):
        marks[f"{name}1"] = np.minimum(ends[0][:, axis], ends[1][:, axis]) - half - odd
        marks[f"{name}2"] = np.maximum(ends[0][:, axis], ends[1][:, axis]) + half + odd
    direction = ends[1] - ends[0]
    marks["border"] = line
    marks["color"] = color | _OPAQUE
    marks["sprite"] = LINE
    marks["ink"] = direction[:, 0] * direction[:, 1] < 0
    return marks


class KeypointMarks:
    """The keypoints of a table that are drawn: in the frame, scored `style.min_keypoint_score` or more."""

    def __init__(self, table: Detections, layout: FrameLayout, style: Style) -> None:
        points = np.asarray(table.extra["keypoints"], np.float64)
        self.xy = points[:, :, :2]
        self.frame = table.batch_row
        size = layout.size[self.frame][:, None]
        self.shown = np.asarray(((self.xy >= 0) & (self.xy <= size)).all(axis=2))  # a NaN is in no frame
        if points.shape[2] > 2:
            self.shown &= points[:, :, 2] >= style.min_keypoint_score
        self.edges = table.skeleton.edges if table.skeleton is not None else ()

    def lines(self, layout: FrameLayout, color: np.ndarray) -> Marks:
        """Return the lines between points that are both shown."""
        k = self.xy.shape[1]
        pairs = np.array([edge for edge in self.edges if max(edge) < k], np.intp).reshape(-1, 2)
        row, edge = np.nonzero(self.shown[:, pairs[:, 0]] & self.shown[:, pairs[:, 1]])
        frame = self.frame[row]
        start, end = (self.xy[row, pairs[edge, end]] for end in (0, 1))
        return frame, _segments(start, end, layout.line[frame], color[row])

    def dots(self, layout: FrameLayout, color: np.ndarray, atlas: Atlas) -> Marks:
        """Return a dot for each point."""
        row, point = np.nonzero(self.shown)
        x, y = self.xy[row, point].T
        frame = self.frame[row]
        diameter = 2 * layout.line[frame]
        marks = np.zeros(len(row), MARK)
        marks["x1"] = 2 * np.floor((x - diameter / 2) / 2 + 0.5)
        marks["y1"] = 2 * np.floor((y - diameter / 2) / 2 + 0.5)
        marks["x2"] = marks["x1"] + diameter
        marks["y2"] = marks["y1"] + diameter
        marks["ink"] = color[row]  # and no ground: the color's opacity is 0
        marks["sprite"] = [atlas.dot(d) for d in diameter.tolist()]
        return frame, marks
