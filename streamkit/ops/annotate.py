"""From detections to marks: what is drawn for an object, where, how large and in which colour.

An object gets an outline, a tinted inside if asked for, its mask, its skeleton with a dot for each key point, and a
label that sits on the outline's upper left corner, or inside where the picture ends. All outlines lie below all labels,
and objects that stand lower in the picture, so nearer to the camera, lie above others. Classes of places lie below all,
then zones, lines and trails. Labels keep clear of each other where there is room (`ops/labels.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from streamkit.data import Detections, Surface
from streamkit.ops import figures
from streamkit.ops.glyphs import Atlas
from streamkit.ops.labels import apart
from streamkit.ops.overlay import MARK
from streamkit.ops.palette import PALETTE
from streamkit.shown import Shown

_OPAQUE = np.uint32(255 << 24)
_OUTWARD = np.array([[-0.5], [0.5]])  # half a line lies outside the box
_REGION, _SHAPE, _FILL, _MASK, _OUTLINE, _LINE, _DOT, _LABEL = range(8)  # from the bottom up
_ZONES = 5  # the palette's yellow: of lines and zones


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
        masks: how opaque masks are, 0 to 1.
        min_point: the least score of a key point that is drawn.
        analytics: lines and zones with their counts.
        untracked: objects in no track, in tables that have tracks.
    """

    labels: bool = True
    scores: bool = True
    tracks: bool = True
    color: Literal["class", "track"] = "class"
    thickness: int | None = None
    text_size: int | None = None
    fill: float = 0.0
    only: tuple[str, ...] = ()
    masks: float = 0.4
    min_point: float = 0.3
    analytics: bool = True
    untracked: bool = False

    def line(self, short_side: int) -> int:
        """The thickness of lines, even, in a picture whose shorter side is so many pixels: 2 at 360, 4 at 1080."""
        return _even(self.thickness) if self.thickness else 2 * max(1, round(short_side / 540))

    def text(self, short_side: int) -> int:
        """The height of a label, even: 14 at 360, 26 at 1080."""
        return _even(self.text_size) if self.text_size else 2 * round(4.4 + short_side * 0.008)


def _even(value: int) -> int:
    return value + value % 2


def annotate(
    surfaces: Sequence[Surface | None],
    tables: Sequence[Detections],
    style: Style,
    atlas: Atlas,
    facts: Sequence[Mapping[str, Any]] = (),
    shown: Sequence[tuple[Mapping[str, Shown], int, int]] = (),
) -> tuple[np.ndarray, list[int]]:
    """Lay out what is to be drawn for a batch.

    Boxes are cut off at the picture's border and drawn along it; one wholly outside is left out, and so is one that is
    no box (a NaN, an edge beyond its opposite). One without any size becomes a dot.

    Args:
        surfaces: the frames' pictures; None where nothing is to be drawn.
        tables: the batch's detections on the host, a table for each detector; its columns `keypoints` and `mask` are
            drawn too.
        style: what to draw.
        atlas: where to find, or put, the sprites; `begin` must have been called for this batch.
        facts: each frame's facts; of them `segmentation` is drawn, a mask for each class.
        shown: each frame's lines, zones and trails, with its true width and height.

    Returns:
        (m,) MARK, those of the first frame first, and for each frame the end of its marks: what `overlay.draw` takes.
    """
    layers: list[list[np.ndarray]] = [[] for _ in range(_LABEL + 1)]
    owners: list[list[np.ndarray]] = [[] for _ in range(_LABEL + 1)]

    def add(layer: int, frame: np.ndarray, marks: np.ndarray) -> None:
        layers[layer].append(marks)
        owners[layer].append(frame)

    sheet = figures.Sheet(surfaces, style)
    if style.masks > 0:
        add(_REGION, *figures.regions(facts, sheet, style, atlas))
    drawn, labels = _analytics(shown, sheet, style)
    add(_SHAPE, *figures.shapes(drawn, sheet))
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
        if style.masks > 0 and "mask" in table.extra:
            add(_MASK, *figures.masks(table, sheet, style, color, atlas))
        if "keypoints" in table.extra:
            points = figures.Points(table, sheet, style)
            add(_LINE, *points.lines(sheet, color))
            add(_DOT, *points.dots(sheet, color, atlas))
        if style.labels or style.scores or style.tracks:
            labels += _labels(table, style, boxes, ink)
    if labels:
        add(_LABEL, *_written(labels, sheet, atlas))
    if not any(layers):
        return np.zeros(0, MARK), [0] * len(surfaces)
    owner = np.concatenate([part for layer in owners for part in layer])
    marks = np.concatenate([part for layer in layers for part in layer])
    order = np.argsort(owner, kind="stable")
    return marks[order], np.searchsorted(owner[order], np.arange(len(surfaces)), side="right").tolist()


def _shown(table: Detections, sheet: figures.Sheet, style: Style) -> Detections:
    """The rows that are drawn, by frame and then from far to near."""
    frame = table.batch_row
    x1, y1, x2, y2 = table.xyxy.T
    # A comparison with NaN is false, so a box with one is not shown; and a frame without a surface is 0 x 0.
    shown = (x1 <= x2) & (y1 <= y2) & (x2 >= 0) & (y2 >= 0) & (sheet.width[frame] > 0)
    shown &= (x1 <= sheet.width[frame]) & (y1 <= sheet.height[frame])
    if table.track_id is not None and not style.untracked:
        shown &= table.track_id >= 0
    if style.only:
        known = np.array([name in style.only for name in table.labels], bool)
        named = (table.class_id >= 0) & (table.class_id < len(known))
        shown[named] &= known[table.class_id[named]]
        rest = np.flatnonzero(~named)
        shown[rest] &= np.array([str(c) in style.only for c in table.class_id[rest].tolist()], bool)
    rows = np.flatnonzero(shown)
    return table[rows[np.lexsort((y2[rows], frame[rows]))]]


def _colors(table: Detections, sheet: figures.Sheet, style: Style) -> tuple[np.ndarray, np.ndarray]:
    """For each row its colour and the ink on it, (n,) uint32, in the Y, Cb and Cr of the frame's surface."""
    number = table.class_id.astype(np.int64)
    if style.color == "track" and table.track_id is not None:
        number = np.where(table.track_id >= 0, table.track_id, number)
    number %= len(PALETTE)
    return sheet.colors[table.batch_row, number], sheet.inks[table.batch_row, number]


def _outlines(table: Detections, sheet: figures.Sheet, color: np.ndarray) -> np.ndarray:
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


class _Label(NamedTuple):
    """A label to be placed: its frame, the even box that it belongs to, its colours, and its text in pieces."""

    frame: int
    box: tuple[int, int, int, int]
    color: int
    ink: int
    pieces: list[str]


def _analytics(
    shown: Sequence[tuple[Mapping[str, Shown], int, int]], sheet: figures.Sheet, style: Style
) -> tuple[list[tuple[int, np.ndarray, bool, int]], list[_Label]]:
    """The lines, zones and trails of all frames as `figures.shapes` takes them, and their labels."""
    drawn, labels = [], []
    for frame, (ones, width, height) in enumerate(shown):
        for one in ones.values() if sheet.width[frame] else ():
            points = np.array(one.points, np.float64) * ((width, height) if one.units == "share" else 1)
            if one.class_id is None:
                if not style.analytics:
                    continue
                number = _ZONES
            elif style.only and one.label not in style.only:
                continue
            else:
                number = one.track_id if style.color == "track" else one.class_id
            color = int(sheet.colors[frame, number % len(PALETTE)])
            drawn.append((frame, points, one.closed, color))
            if one.text:
                # a zone's upper left corner, a line's first end
                at = points[np.argmin(points.sum(axis=1))] if one.closed else points[0]
                x, y = (2 * np.floor(np.clip(at, 0, sheet.size[frame]) / 2).astype(np.int64)).tolist()
                ink = int(sheet.inks[frame, number % len(PALETTE)])
                labels.append(_Label(frame, (x, y, x, y), color | int(_OPAQUE), ink, [one.text]))
    return drawn, labels


def _labels(table: Detections, style: Style, boxes: np.ndarray, ink: np.ndarray) -> list[_Label]:
    """The labels of a table's objects."""
    corners = np.stack([boxes[name] for name in ("x1", "y1", "x2", "y2")], axis=1).tolist()
    columns = table.batch_row.tolist(), map(tuple, corners), boxes["color"].tolist(), ink.tolist(), _texts(table, style)
    return [_Label(*one) for one in zip(*columns, strict=True)]


def _written(labels: Sequence[_Label], sheet: figures.Sheet, atlas: Atlas) -> tuple[np.ndarray, np.ndarray]:
    """Frames and marks of the labels; a label is a row of sprites on the box's colour."""
    sprites = [[atlas.text(piece, int(sheet.text[one.frame])) for piece in one.pieces] for one in labels]
    frames = np.array([one.frame for one in labels], np.int64)
    boxes = np.array([one.box for one in labels], np.int64)
    size = np.array([[sum(width for _, width in row), sheet.text[f]] for row, f in zip(sprites, frames, strict=True)])
    corner = boxes[:, :2].copy()
    corner[:, 1] -= np.where(corner[:, 1] >= size[:, 1], size[:, 1], 0)
    corner = np.maximum(0, np.minimum(corner, sheet.size[frames] - size))
    for frame in np.unique(frames).tolist():
        mine = np.flatnonzero((frames == frame) & (size[:, 0] > 0))
        # lines and zones choose first, then objects from near to far, as they lie on each other
        mine = np.concatenate([mine[boxes[mine, 2] == boxes[mine, 0]], mine[boxes[mine, 2] > boxes[mine, 0]][::-1]])
        wanted = np.concatenate([corner[mine], corner[mine] + size[mine]], axis=1)
        corner[mine] = apart(wanted, boxes[mine], tuple(sheet.size[frame].tolist()))
    rows, marks = [], []
    for one, row, (x, y), (_, height) in zip(labels, sprites, corner.tolist(), size.tolist(), strict=True):
        for sprite, width in row:
            rows.append(one.frame)
            marks.append((x, y, x + width, y + height, 0, one.color, one.ink, sprite))
            x += width
    return np.array(rows, np.int32), np.array(marks, MARK)


def _texts(table: Detections, style: Style) -> list[list[str]]:
    """The pieces of each row's label."""
    columns: list[list[str]] = []
    if style.labels:
        columns.append(table.label)
    if style.tracks and table.track_id is not None:
        columns.append([f"#{number}" if number >= 0 else "" for number in table.track_id.tolist()])
    if style.labels and "attributes" in table.extra:
        columns.append([_attributes(one) for one in table.extra["attributes"]])
    if style.scores:
        columns.append([f"{score:.2f}" if score == score else "" for score in table.score.tolist()])
    return [[piece for piece in pieces if piece] for pieces in zip(*columns, strict=True)] or [[] for _ in table.score]


def _attributes(found: Mapping[str, Any] | None) -> str:
    """The labels of an object's attributes, each up to its first comma: lists of classes often have synonyms there."""
    return "" if not found else " ".join(one["label"].split(",")[0] for one in found.values())
