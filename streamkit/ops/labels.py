"""Placement of labels: at their box's upper left corner, or where they cover no other label."""

from __future__ import annotations

import numpy as np


def apart(labels: np.ndarray, boxes: np.ndarray, size: tuple[int, int]) -> np.ndarray:
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
    crowded = _common(labels, labels)
    np.fill_diagonal(crowded, 0)
    moving = crowded.any(axis=1)
    if not moving.any():
        return corner
    placed = labels[~moving]
    for i in np.flatnonzero(moving):
        places = _around(labels[i], boxes[i], size)
        best = places[np.argmin(_common(places, placed).sum(axis=1))]
        corner[i] = best[:2]
        placed = np.concatenate([placed, best[None]])
    return corner


def _common(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return (n, m), the area that rectangles (n, 4) and (m, 4) have in common."""
    sides = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    return np.asarray(np.clip(sides, 0, None).prod(axis=2))


def _around(label: np.ndarray, box: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Return (8, 4) positions for a label, the best first: above its box, on its upper edge, beside it, below it."""
    wide, (left, top, right, bottom) = label[2:] - label[:2], box
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
