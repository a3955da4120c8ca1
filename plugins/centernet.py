# SPDX-License-Identifier: Apache-2.0
"""A network family: CenterNet, "Objects as Points" (https://github.com/xingyizhou/CenterNet)."""

import numpy as np

from streamkit.plugin_api import family

STRIDE = 4
MAP = ("height // 4", "width // 4")


@family("centernet", outputs={"hm": ("classes", *MAP), "wh": (2, *MAP), "reg": (2, *MAP)}, nms=False, cuda=True)
def centernet(outputs, input_size):
    """CenterNet: a heatmap for each class, whose peaks are the centers of objects, and a size and offset there.

    Where several classes have their peak at one place, the best counts.
    """
    logits = outputs["hm"]
    n, _, height, width = logits.shape
    peaks = np.where(logits == neighborhood_max(logits), logits, -np.inf).reshape(n, -1, height * width)
    class_ids = peaks.argmax(axis=1)
    best = peaks.max(axis=1)
    scores = np.where(best == -np.inf, -1, 1 / (1 + np.exp(-best)))  # below 0: no candidate
    cells = np.asarray(np.mgrid[:height, :width][::-1].astype(np.float32), like=logits)  # x, then y
    center = cells + outputs["reg"]
    half = outputs["wh"] / 2
    boxes = np.concatenate([center - half, center + half], axis=1) * STRIDE
    return boxes.reshape(n, 4, -1).transpose(0, 2, 1), scores, class_ids


def neighborhood_max(maps):
    """The maximum of each place and its eight neighbors; maps are (n, c, h, w)."""
    wide = np.pad(maps, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    rows = np.maximum(np.maximum(wide[:, :, :-2], wide[:, :, 1:-1]), wide[:, :, 2:])
    return np.maximum(np.maximum(rows[..., :-2], rows[..., 1:-1]), rows[..., 2:])
