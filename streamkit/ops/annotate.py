"""From detections to marks: what is drawn for an object, where, how large and in which colour.

An object gets an outline, a tinted inside if asked for, a dot for each landmark, and a label that sits on the outline's
upper left corner, or inside where the picture ends. All outlines lie below all labels, and objects that stand lower in
the picture, so nearer to the camera, lie above others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamkit.data import Detections, Surface
from streamkit.ops.glyphs import Atlas
from streamkit.ops.overlay import MARK
from streamkit.ops.palette import PALETTE, stored

_OPAQUE = np.uint32(255 << 24)
_OUTWARD = np.array([[-0.5], [0.5]])  # half a line lies outside the box
_FILL, _OUTLINE, _DOT, _LABEL = range(4)  # from the bottom up


@dataclass(frozen=True, slots=True)
class Style:
    """What `annotate` draws.

    Attributes:
        labels: the class's name.
        scores: the score, two digits.
        tracks: the track's number, where there is one.
        color: what an object has its colour from; without a track from its class.
        thickness: of lines, in pixels; None takes it from the picture's size. Odd numbers are rounded up.
        text_size: height of a label in pixels, likewise.
        fill: how opaque the inside of a box is, 0 to 1.
        only: names of the classes to draw; none draws all.
    """

    labels: bool = True
    scores: bool = True
    tracks: bool = True
    color: Literal["class", "track"] = "class"
    thickness: int | None = None
    text_size: int | None = None
    fill: float = 0.0
    only: tuple[str, ...] = ()

    def line(self, short_side: int) -> int:
        """The thickness of lines, even, in a picture whose shorter side is so many pixels: 2 at 360, 4 at 1080."""
        return _even(self.thickness) if self.thickness else 2 * max(1, round(short_side / 540))

    def text(self, short_side: int) -> int:
        """The height of a label, even: 14 at 360, 26 at 1080."""
        return _even(self.text_size) if self.text_size else 2 * round(4.4 + short_side * 0.008)


def _even(value: int) -> int:
    return value + value % 2


def annotate(
    surfaces: Sequence[Surface | None], tables: Sequence[Detections], style: Style, atlas: Atlas
) -> tuple[np.ndarray, list[int]]:
    """Lay out what is to be drawn for a batch.

    Boxes are cut off at the picture's border and drawn along it; one wholly outside is left out, and so is one that is
    no box (a NaN, an edge beyond its opposite). One without any size becomes a dot.

    Args:
        surfaces: the frames' pictures; None where nothing is to be drawn.
        tables: the batch's detections on the host, a table for each detector. An extra column `landmarks`
            (n, k, 2 or more) float, x and y in source pixels, becomes dots.
        style: what to draw.
        atlas: where to find, or put, the sprites.

    Returns:
        (m,) MARK, those of the first frame first, and for each frame the end of its marks: what `overlay.draw` takes.
    """
    layers: list[list[np.ndarray]] = [[], [], [], []]
    owners: list[list[np.ndarray]] = [[], [], [], []]

    def add(layer: int, frame: np.ndarray, marks: np.ndarray) -> None:
        layers[layer].append(marks)
        owners[layer].append(frame)

    sheet = _Sheet(surfaces, style)
    for table in tables:
        table = _shown(table, sheet, style)
        if not len(table):
            continue
        frame, (color, ink) = table.batch_row, _colors(table, sheet, style)
        boxes = _outlines(table, sheet, color)
        if style.fill > 0:
            inside = boxes.copy()
            inside["border"] = 0
            inside["color"] = color | np.uint32(round(min(style.fill, 1.0) * 255) << 24)
            add(_FILL, frame, inside)
        add(_OUTLINE, frame, boxes)
        if "landmarks" in table.extra:
            add(_DOT, *_dots(table, sheet, color, atlas))
        if style.labels or style.scores or style.tracks:
            add(_LABEL, *_labels(table, sheet, style, boxes, ink, atlas))
    if not layers[_OUTLINE]:
        return np.zeros(0, MARK), [0] * len(surfaces)
    owner = np.concatenate([part for layer in owners for part in layer])
    marks = np.concatenate([part for layer in layers for part in layer])
    order = np.argsort(owner, kind="stable")
    return marks[order], np.searchsorted(owner[order], np.arange(len(surfaces)), side="right").tolist()


class _Sheet:
    """The frames' sizes and what follows from them: (frames,) int64 arrays, and (frames, palette) colours."""

    def __init__(self, surfaces: Sequence[Surface | None], style: Style) -> None:
        sizes = [(0, 0) if s is None else (s.width, s.height) for s in surfaces]
        self.size = np.array(sizes, np.int64).reshape(-1, 2)
        self.width, self.height = self.size.T
        self.line = np.array([style.line(min(size)) for size in sizes], np.int64)
        self.text = np.array([style.text(min(size)) for size in sizes], np.int64)
        nothing = np.zeros(len(PALETTE), np.uint32)
        colors = [(nothing, nothing) if s is None else stored(s.color) for s in surfaces]
        self.colors = np.array([c for c, _ in colors], np.uint32)
        self.inks = np.array([i for _, i in colors], np.uint32)


def _shown(table: Detections, sheet: _Sheet, style: Style) -> Detections:
    """The rows that are drawn, by frame and then from far to near."""
    frame = table.batch_row
    x1, y1, x2, y2 = table.xyxy.T
    # A comparison with NaN is false, so a box with one is not shown; and a frame without a surface is 0 x 0.
    shown = (x1 <= x2) & (y1 <= y2) & (x2 >= 0) & (y2 >= 0) & (sheet.width[frame] > 0)
    shown &= (x1 <= sheet.width[frame]) & (y1 <= sheet.height[frame])
    if style.only:
        known = np.array([name in style.only for name in table.labels], bool)
        named = (table.class_id >= 0) & (table.class_id < len(known))
        shown[named] &= known[table.class_id[named]]
        rest = np.flatnonzero(~named)
        shown[rest] &= np.array([str(c) in style.only for c in table.class_id[rest].tolist()], bool)
    rows = np.flatnonzero(shown)
    return table[rows[np.lexsort((y2[rows], frame[rows]))]]


def _colors(table: Detections, sheet: _Sheet, style: Style) -> tuple[np.ndarray, np.ndarray]:
    """For each row its colour and the ink on it, (n,) uint32, in the Y, Cb and Cr of the frame's surface."""
    number = table.class_id.astype(np.int64)
    if style.color == "track" and table.track_id is not None:
        number = np.where(table.track_id >= 0, table.track_id, number)
    number %= len(PALETTE)
    return sheet.colors[table.batch_row, number], sheet.inks[table.batch_row, number]


def _outlines(table: Detections, sheet: _Sheet, color: np.ndarray) -> np.ndarray:
    """A mark for each row: lines along the box's edges, rounded to even places, inside the picture."""
    frame = table.batch_row
    line, size = sheet.line[frame], sheet.size[frame]
    across = line[:, None]
    edges = np.clip(table.xyxy.reshape(-1, 2, 2), 0, size[:, None], dtype=np.float64)
    edges += across[:, :, None] * _OUTWARD
    start, end = (2 * np.floor(edges / 2 + 0.5).astype(np.int64)).swapaxes(0, 1)
    start = np.minimum(np.maximum(start, 0), np.maximum(size - across, 0))
    end = np.minimum(np.maximum(end, start + across), size)
    marks = np.zeros(len(table), MARK)
    marks["x1"], marks["y1"], marks["x2"], marks["y2"] = start[:, 0], start[:, 1], end[:, 0], end[:, 1]
    marks["border"], marks["color"], marks["sprite"] = line, color | _OPAQUE, -1
    return marks


def _dots(table: Detections, sheet: _Sheet, color: np.ndarray, atlas: Atlas) -> tuple[np.ndarray, np.ndarray]:
    """Frames and marks of the landmarks that lie in the picture."""
    points = np.asarray(table.extra["landmarks"], np.float64)[:, :, :2]
    row = np.repeat(np.arange(len(table)), points.shape[1])
    (x, y), frame = points.reshape(-1, 2).T, table.batch_row[row]
    inside = np.flatnonzero((x >= 0) & (x <= sheet.width[frame]) & (y >= 0) & (y <= sheet.height[frame]))
    x, y, row, frame = x[inside], y[inside], row[inside], frame[inside]
    diameter = 2 * sheet.line[frame]
    marks = np.zeros(len(row), MARK)
    marks["x1"] = 2 * np.floor((x - diameter / 2) / 2 + 0.5)
    marks["y1"] = 2 * np.floor((y - diameter / 2) / 2 + 0.5)
    marks["x2"], marks["y2"] = marks["x1"] + diameter, marks["y1"] + diameter
    marks["ink"] = color[row]  # and no ground: the colour's opacity is 0
    marks["sprite"] = [atlas.dot(d) for d in diameter.tolist()]
    return frame, marks


def _labels(
    table: Detections, sheet: _Sheet, style: Style, boxes: np.ndarray, ink: np.ndarray, atlas: Atlas
) -> tuple[np.ndarray, np.ndarray]:
    """Frames and marks of the labels; a label is a row of sprites on the box's colour."""
    rows, marks = [], []
    frames = table.batch_row.tolist()
    columns = boxes["x1"].tolist(), boxes["y1"].tolist(), boxes["color"].tolist(), ink.tolist(), _texts(table, style)
    widths, heights, texts = sheet.width.tolist(), sheet.height.tolist(), sheet.text.tolist()
    for row, (x, y, color, black_or_white, pieces) in enumerate(zip(*columns, strict=True)):
        frame = frames[row]
        height = texts[frame]
        sprites = [atlas.text(piece, height) for piece in pieces]
        x = max(0, min(x, widths[frame] - sum(width for _, width in sprites)))
        y = max(0, min(y - height if y >= height else y, heights[frame] - height))
        for sprite, width in sprites:
            rows.append(frame)
            marks.append((x, y, x + width, y + height, 0, color, black_or_white, sprite))
            x += width
    return np.array(rows, np.int32), np.array(marks, MARK)


def _texts(table: Detections, style: Style) -> list[list[str]]:
    """The pieces of each row's label."""
    columns: list[list[str]] = []
    if style.labels:
        columns.append(table.label)
    if style.tracks and table.track_id is not None:
        columns.append([f"#{number}" if number >= 0 else "" for number in table.track_id.tolist()])
    if style.scores:
        columns.append([f"{score:.2f}" if score == score else "" for score in table.score.tolist()])
    return [[piece for piece in pieces if piece] for pieces in zip(*columns, strict=True)] or [[] for _ in table.score]
