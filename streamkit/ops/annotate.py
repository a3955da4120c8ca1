# SPDX-License-Identifier: Apache-2.0
"""Layout of annotations: which marks are drawn for a detection, where, in which size and color.

An object gets an outline, rotated if its box is, a tint inside if requested, its mask, its skeleton with a dot per
keypoint, and a label at the outline's upper left corner, or inside at the frame's border. All outlines are below all
labels, and objects lower in the frame, so closer to the camera, are above others. Semantic classes are below all, then
zones, lines and trails. What holds for a whole frame, such as its action, is in the upper left corner, below the title.
Labels avoid each other where there is room (`ops/annotate.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamkit.core.data import Detections, Shown, Surface
from streamkit.ops import figures
from streamkit.ops.boxes import intersection_and_union
from streamkit.ops.glyphs import Atlas
from streamkit.ops.overlay import MARK
from streamkit.ops.style import PALETTE, Style

_OPAQUE = np.uint32(255 << 24)
_OUTWARD = np.array([[-0.5], [0.5]])  # half a line lies outside the box
_REGION, _SHAPE, _FILL, _MASK, _OUTLINE, _LINE, _DOT, _LABEL = range(8)  # from the bottom up
_MAX_ANSWER = 32  # characters of an answer that is shown, with its name
_ZONES = 5  # the palette's yellow: of lines and zones
# how much wider than its object a label may be, and its shortest form
_FITS_WIDE = 1.3
_SHORTEST_WIDE = 2.0
_FITS_HIGH = 0.5  # how high a label may be, as a share of its object's height


def annotate(
    surfaces: Sequence[Surface | None],
    tables: Sequence[Detections],
    style: Style,
    atlas: Atlas,
    facts: Sequence[Mapping[str, Any]] = (),
    shown: Sequence[tuple[Mapping[str, Shown], int, int]] = (),
) -> tuple[np.ndarray, list[int]]:
    """Lay out the annotations of a batch.

    Boxes are clipped to the frame and drawn along its border; boxes entirely outside are skipped, and so are invalid
    boxes (a NaN, an edge beyond its opposite). A box of size 0 becomes a dot.

    Args:
        surfaces: the frames' surfaces; None for frames to skip.
        tables: the batch's detections on the host, a table for each detector; its columns `corners`, `keypoints` and
            `mask` are drawn too.
        style: what to draw.
        atlas: holds the sprites; `begin` must have been called for this batch.
        facts: each frame's facts; `segmentation`, a mask for each class, and `attributes` are drawn.
        shown: each frame's lines, zones and trails, with its true width and height.

    Returns:
        (m,) MARK ordered by frame, and the end of each frame's marks, as arguments of `overlay.draw`.
    """
    layers: list[list[np.ndarray]] = [[] for _ in range(_LABEL + 1)]
    owners: list[list[np.ndarray]] = [[] for _ in range(_LABEL + 1)]

    def add(layer: int, frame: np.ndarray, marks: np.ndarray) -> None:
        layers[layer].append(marks)
        owners[layer].append(frame)

    layout = figures.FrameLayout(surfaces, style)
    if style.masks > 0:
        add(_REGION, *figures.regions(facts, layout, style, atlas))
    drawn, labels = _analytics(shown, layout, style)
    labels += _titles(layout, style)
    if style.labels:
        labels += _frame_attributes(facts, layout, style)
    add(_SHAPE, *figures.shapes(drawn, layout))
    for table in tables:
        table = _drawn_rows(table, layout, style)
        if not len(table):
            continue
        frame = table.batch_row
        color, text_colors = _colors(table, layout, style)
        boxes = _box_marks(table, layout, color)
        turned = figures.rotated_rows(table)
        upright = np.flatnonzero(~turned)
        if style.fill > 0:
            inside = boxes[upright]
            inside["border"] = 0
            inside["color"] = color[upright] | np.uint32(round(min(style.fill, 1.0) * 255) << 24)
            add(_FILL, frame[upright], inside)
        add(_OUTLINE, frame[upright], boxes[upright])
        if turned.any():
            if style.fill > 0:
                add(_FILL, *figures.rotated_fills(table, turned, layout, style, color, atlas))
            add(_OUTLINE, *figures.rotated_outlines(table, turned, layout, color))
        if style.masks > 0 and "mask" in table.extra:
            add(_MASK, *figures.masks(table, style, color, atlas))
        if "keypoints" in table.extra:
            points = figures.KeypointMarks(table, layout, style)
            add(_LINE, *points.lines(layout, color))
            add(_DOT, *points.dots(layout, color, atlas))
        if style.labels or style.scores or style.tracks:
            labels += _labels(table, style, _label_boxes(table, boxes, turned), text_colors)
    if labels:
        if style.fit_labels:
            labels = [_fitted(label, int(layout.text[label.frame]), atlas) for label in labels]
        add(_LABEL, *_label_marks(labels, layout, atlas))
    if not any(layers):
        return np.zeros(0, MARK), [0] * len(surfaces)
    owner = np.concatenate([part for layer in owners for part in layer])
    marks = np.concatenate([part for layer in layers for part in layer])
    order = np.argsort(owner, kind="stable")
    return marks[order], np.searchsorted(owner[order], np.arange(len(surfaces)), side="right").tolist()


def _drawn_rows(table: Detections, layout: figures.FrameLayout, style: Style) -> Detections:
    """Return the rows to draw, by frame and then from far to near."""
    frame = table.batch_row
    x1, y1, x2, y2 = table.xyxy.T
    # A comparison with NaN is false, so a box with one is not shown; and a frame without a surface is 0 x 0.
    shown = (x1 <= x2) & (y1 <= y2) & (x2 >= 0) & (y2 >= 0) & (layout.width[frame] > 0)
    shown &= (x1 <= layout.width[frame]) & (y1 <= layout.height[frame])
    if table.track_id is not None and not style.untracked:
        shown &= table.track_id >= 0
    if style.only is not None:
        is_chosen = np.array([name in style.only for name in table.labels], bool)
        named = (table.class_id >= 0) & (table.class_id < len(is_chosen))
        shown[named] &= is_chosen[table.class_id[named]]
        rest = np.flatnonzero(~named)
        shown[rest] &= np.array([str(c) in style.only for c in table.class_id[rest].tolist()], bool)
    rows = np.flatnonzero(shown)
    return table[rows[np.lexsort((y2[rows], frame[rows]))]]


def _colors(table: Detections, layout: figures.FrameLayout, style: Style) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's color and the color of text on it, (n,) uint32, in the Y, Cb and Cr of the frame's surface."""
    number = table.class_id.astype(np.int64)
    if style.color == "track" and table.track_id is not None:
        number = np.where(table.track_id >= 0, table.track_id, number)
    if style.color == "identity":
        number = np.where(_identities(table) >= 0, _identities(table), number)
    number %= len(PALETTE)
    return layout.colors[table.batch_row, number], layout.text_colors[table.batch_row, number]


def _box_marks(table: Detections, layout: figures.FrameLayout, color: np.ndarray) -> np.ndarray:
    """Return a mark for each row: lines along the box's edges, rounded to even positions, inside the frame."""
    frame = table.batch_row
    line = layout.line[frame]
    size = layout.size[frame]
    across = line[:, None]
    edges = np.clip(table.xyxy.reshape(-1, 2, 2), 0, size[:, None], dtype=np.float64)
    edges += across[:, :, None] * _OUTWARD
    start, end = (2 * np.floor(edges / 2 + 0.5).astype(np.int64)).swapaxes(0, 1)
    start = np.minimum(np.maximum(start, 0), np.maximum(size - across, 0))
    end = np.minimum(np.maximum(end, start + across), size)
    marks = np.zeros(len(table), MARK)
    marks["x1"] = start[:, 0]
    marks["y1"] = start[:, 1]
    marks["x2"] = end[:, 0]
    marks["y2"] = end[:, 1]
    marks["border"] = line
    marks["color"] = color | _OPAQUE
    marks["sprite"] = -1
    return marks


class _Label(NamedTuple):
    """A label to place: its frame, the even box it belongs to, its colors, and its text in pieces.

    `shorter` has the forms of the text that may replace it, from the longest to the shortest.
    """

    frame: int
    box: tuple[int, int, int, int]
    color: int
    text_color: int
    pieces: list[str]
    shorter: Sequence[list[str]] = ()


def _analytics(
    shown: Sequence[tuple[Mapping[str, Shown], int, int]], layout: figures.FrameLayout, style: Style
) -> tuple[list[tuple[int, np.ndarray, bool, int]], list[_Label]]:
    """Return the lines, zones and trails of all frames as arguments of `figures.shapes`, and their labels."""
    drawn = []
    labels = []
    for frame, (shapes_by_key, width, height) in enumerate(shown):
        for shape in shapes_by_key.values() if layout.width[frame] else ():
            points = np.array(shape.points, np.float64) * ((width, height) if shape.units == "share" else 1)
            if shape.class_id is None:
                if not style.analytics:
                    continue
                number = _ZONES
            elif style.only is not None and shape.label not in style.only:
                continue
            else:
                number = shape.track_id if style.color == "track" else shape.class_id
            color = int(layout.colors[frame, number % len(PALETTE)])
            drawn.append((frame, points, shape.closed, color))
            if shape.text:
                # a zone's upper left corner, a line's first end
                at = points[np.argmin(points.sum(axis=1))] if shape.closed else points[0]
                x, y = (2 * np.floor(np.clip(at, 0, layout.size[frame]) / 2).astype(np.int64)).tolist()
                text_color = int(layout.text_colors[frame, number % len(PALETTE)])
                labels.append(_Label(frame, (x, y, x, y), color | int(_OPAQUE), text_color, [shape.text]))
    return drawn, labels


def _titles(layout: figures.FrameLayout, style: Style) -> list[_Label]:
    """Return the title of each frame with a surface."""
    frames = np.flatnonzero(layout.width).tolist() if style.title else []
    colors = [(int(layout.colors[frame, _ZONES]), int(layout.text_colors[frame, _ZONES])) for frame in frames]
    return [
        _Label(frame, (0, 0, 0, 0), color | int(_OPAQUE), text_color, [style.title])
        for frame, (color, text_color) in zip(frames, colors, strict=True)
    ]


def _frame_attributes(facts: Sequence[Mapping[str, Any]], layout: figures.FrameLayout, style: Style) -> list[_Label]:
    """Return the attributes of whole frames, with their scores, in the upper left corner below the title."""
    labels = []
    for frame, attributes in enumerate(facts_of_frame.get("attributes") for facts_of_frame in facts):
        pieces = _with_scores(attributes or {}, style)
        if pieces and layout.width[frame]:
            y = 2 * int(layout.text[frame]) if style.title else 0
            color = int(layout.colors[frame, _ZONES]) | int(_OPAQUE)
            labels.append(_Label(frame, (0, y, 0, y), color, int(layout.text_colors[frame, _ZONES]), pieces))
    return labels


def _with_scores(attributes: Mapping[str, Any], style: Style) -> list[str]:
    """Return the text of each attribute that has one, with its score if scores are drawn."""
    texts = []
    for name, attribute in attributes.items():
        score = attribute.get("score")
        text = _attributes({name: attribute})
        shows_score = bool(text) and style.scores and score is not None
        texts.append(f"{text} {score:.2f}" if shows_score else text)
    return [text for text in texts if text]


def _label_boxes(table: Detections, boxes: np.ndarray, turned: np.ndarray) -> np.ndarray:
    """Return the marks at which labels are placed: those of rotated boxes begin at the uppermost corner."""
    if not turned.any():
        return boxes
    marks = boxes.copy()
    corners = table.extra["corners"][turned]
    x = corners[np.arange(len(corners)), corners[:, :, 1].argmin(axis=1), 0]
    marks["x1"][turned] = np.clip(2 * np.floor(x / 2), boxes["x1"][turned], boxes["x2"][turned] - 2)
    return marks


def _labels(table: Detections, style: Style, boxes: np.ndarray, text_colors: np.ndarray) -> list[_Label]:
    """Return the labels of a table's objects."""
    corners = np.stack([boxes[name] for name in ("x1", "y1", "x2", "y2")], axis=1).tolist()
    texts = _texts(table, style)
    columns = [table.batch_row.tolist(), map(tuple, corners), boxes["color"].tolist(), text_colors.tolist(), texts]
    if style.fit_labels:
        short = replace(style, scores=False)
        numbers = replace(short, labels=False)
        forms = zip(_texts(table, short), _texts(table, numbers), strict=True)
        columns.append([[form for form in pair if form] for pair in forms])
    return [_Label(*columns_of_label) for columns_of_label in zip(*columns, strict=True)]


def _fitted(label: _Label, height: int, atlas: Atlas) -> _Label:
    """Return a label in the longest form that is not much larger than its object; without a text if none is.

    Args:
        label: the label of an object; those of lines and zones, which have no shorter forms, stay.
        height: the height of labels in pixels.
        atlas: measures texts.
    """
    if not label.shorter:
        return label
    x1, y1, x2, y2 = label.box
    if height <= _FITS_HIGH * (y2 - y1):
        forms = [label.pieces, *label.shorter]
        for form in forms:
            limit = _SHORTEST_WIDE if form is forms[-1] else _FITS_WIDE
            if sum(atlas.text(piece, height)[1] for piece in form) <= limit * (x2 - x1):
                return label._replace(pieces=form)
    return label._replace(pieces=[])


def _label_marks(labels: Sequence[_Label], layout: figures.FrameLayout, atlas: Atlas) -> tuple[np.ndarray, np.ndarray]:
    """Return frames and marks of the labels; a label is a row of sprites on the box's color."""
    sprites = [[atlas.text(piece, int(layout.text[label.frame])) for piece in label.pieces] for label in labels]
    frames = np.array([label.frame for label in labels], np.int64)
    boxes = np.array([label.box for label in labels], np.int64)
    size = np.array([[sum(width for _, width in row), layout.text[f]] for row, f in zip(sprites, frames, strict=True)])
    corner = boxes[:, :2].copy()
    corner[:, 1] -= np.where(corner[:, 1] >= size[:, 1], size[:, 1], 0)
    corner = np.maximum(0, np.minimum(corner, layout.size[frames] - size))
    for frame in np.unique(frames).tolist():
        rows_of_frame = np.flatnonzero((frames == frame) & (size[:, 0] > 0))
        # lines and zones choose first, then objects from near to far, as they lie on each other
        rows_of_frame = np.concatenate(
            [
                rows_of_frame[boxes[rows_of_frame, 2] == boxes[rows_of_frame, 0]],
                rows_of_frame[boxes[rows_of_frame, 2] > boxes[rows_of_frame, 0]][::-1],
            ]
        )
        wanted = np.concatenate([corner[rows_of_frame], corner[rows_of_frame] + size[rows_of_frame]], axis=1)
        corner[rows_of_frame] = separate_labels(wanted, boxes[rows_of_frame], tuple(layout.size[frame].tolist()))
    rows = []
    marks = []
    for label, row, (x, y), (_, height) in zip(labels, sprites, corner.tolist(), size.tolist(), strict=True):
        for sprite, width in row:
            rows.append(label.frame)
            marks.append((x, y, x + width, y + height, 0, label.color, label.text_color, sprite))
            x += width
    return np.array(rows, np.int32), np.array(marks, MARK)


def _texts(table: Detections, style: Style) -> list[list[str]]:
    """Return the pieces of each row's label."""
    columns: list[list[str]] = []
    if style.labels:
        columns.append(table.label)
    if style.tracks and table.track_id is not None:
        pairs = zip(table.track_id.tolist(), _identities(table).tolist(), strict=True)
        columns.append(
            [f"id {identity}" if identity >= 0 else f"#{track}" if track >= 0 else "" for track, identity in pairs]
        )
    if style.labels and "depth" in table.extra:
        columns.append([f"{depth_m:.1f} m" if depth_m == depth_m else "" for depth_m in table.extra["depth"].tolist()])
    if style.labels and "attributes" in table.extra:
        columns.append([_attributes(attributes) for attributes in table.extra["attributes"]])
    if style.scores:
        columns.append([f"{score:.2f}" if score == score else "" for score in table.score.tolist()])
    return [[piece for piece in pieces if piece] for pieces in zip(*columns, strict=True)] or [[] for _ in table.score]


def _identities(table: Detections) -> np.ndarray:
    """Return (n,) int64, the column `identity`; -1 for none."""
    identities = table.extra.get("identity")
    return identities if identities is not None and identities.dtype == np.int64 else np.full(len(table), -1, np.int64)


def _attributes(attributes: Mapping[str, Any] | None) -> str:
    """Return the labels of an object's attributes, each up to its first comma: class lists often have synonyms.

    An attribute without a score is an answer: it is shown with its name, or not at all if it is long.
    """
    every = (attributes or {}).items()
    labels = [attribute["label"].split(",")[0] for _, attribute in every if attribute.get("score", 1.0) is not None]
    answers = [f"{name}: {attribute['label']}" for name, attribute in every if attribute.get("score", 1.0) is None]
    short = ", ".join(text for text in answers if len(text) <= _MAX_ANSWER)
    return " ".join([*labels, short] if short else labels)


def separate_labels(labels: np.ndarray, boxes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Move the labels of a frame that would cover each other.

    A label that covers none stays. The others are placed in order: each takes the first position around its box where
    it covers no label; if there is none, the one where it covers the least.

    Args:
        labels: (n, 4) int64 x1, y1, x2, y2, preferred positions; even, within the frame.
        boxes: (n, 4) int64, even, the box of each label.
        size: width and height of the frame, even.

    Returns:
        (n, 2) int64, each label's upper left corner, even.
    """
    corner = labels[:, :2].copy()
    crowded, _ = intersection_and_union(labels, labels)
    np.fill_diagonal(crowded, 0)
    moving = crowded.any(axis=1)
    if not moving.any():
        return corner
    placed = labels[~moving]
    for i in np.flatnonzero(moving):
        places = _label_positions(labels[i], boxes[i], size)
        best = places[np.argmin(intersection_and_union(places, placed)[0].sum(axis=1))]
        corner[i] = best[:2]
        placed = np.concatenate([placed, best[None]])
    return corner


def _label_positions(label: np.ndarray, box: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return (8, 4) positions for a label, the best first: above its box, on its upper edge, beside it, below it."""
    wide = label[2:] - label[:2]
    left, top, right, bottom = box
    width, height = wide.tolist()
    corners = np.array(
        [
            label[:2],
            (right - width, top - height),
            (left, top),
            (right, top),
            (left - width, top),
            (left, bottom),
            (right - width, bottom),
            (left, top - 2 * height),
        ]
    )
    corners = np.clip(corners, 0, np.maximum(np.array(size) - wide, 0))
    return np.concatenate([corners, corners + wide], axis=1)
