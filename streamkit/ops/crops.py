"""Crop rectangles of objects, for a second network.

A crop is a source rectangle of a row of `preprocess`: its pixels are sampled by the same rule, on the surfaces' device,
all crops of a batch in one launch, and no pixel outside the rectangle is read.
"""

from __future__ import annotations

import numpy as np


def crop_rects(xyxy: np.ndarray, sizes_wh: np.ndarray, pad: float = 0.0) -> np.ndarray:
    """Return the whole pixels of each box, with `pad` around it, clipped to the frame.

    The left and upper edge are rounded out to an even pixel, so that a crop has whole blocks of chroma.

    Args:
        xyxy: (m, 4) boxes in source pixels.
        sizes_wh: (m, 2) width and height of each box's frame.
        pad: margin on each side, as a share of the box's width and height; a negative value shrinks the box.

    Returns:
        (m, 4) int32: left, top, right, bottom, the last two exclusive; all 0 if a box lies outside of its frame or is
        not finite.
    """
    boxes = np.array(xyxy, np.float64).reshape(-1, 4)
    limit = np.asarray(sizes_wh, np.float64).reshape(-1, 2)
    boxes[~np.isfinite(boxes).all(axis=1)] = -1  # beside every frame
    around = pad * (boxes[:, 2:] - boxes[:, :2])
    first = np.maximum(np.floor(boxes[:, :2] - around), 0)
    last = np.minimum(np.ceil(boxes[:, 2:] + around), limit)
    first -= first % 2
    rects = np.concatenate([first, last], axis=1)
    rects[(rects[:, 2:] <= rects[:, :2]).any(axis=1)] = 0  # a box beside the frame ends before it begins
    return rects.astype(np.int32)
