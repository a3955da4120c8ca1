"""A network family: CenterNet, "Objects as Points" (https://github.com/xingyizhou/CenterNet)."""

import numpy as np

from streamkit.plugin_api import family

STRIDE = 4
MAP = ("height // 4", "width // 4")


@family("centernet", outputs={"hm": ("classes", *MAP), "wh": (2, *MAP), "reg": (2, *MAP)}, nms=False, cuda=True)
def centernet(outputs, input_size):
    """CenterNet: a heatmap for each class, whose peaks are the centres of objects, and a size and offset there."""
    logits = outputs["hm"]
    n, classes, height, width = logits.shape
    peak = logits == neighbourhood_max(logits)
    scores = np.where(peak, 1 / (1 + np.exp(-logits)), -1).reshape(n, -1)  # below 0: no candidate
    cells = np.mgrid[:height, :width][::-1].astype(np.float32)  # x, then y
    centre = np.asarray(cells, like=logits) + outputs["reg"]
    half = outputs["wh"] / 2
    boxes = np.concatenate([centre - half, centre + half], axis=1) * STRIDE
    boxes = np.tile(boxes.reshape(n, 4, -1).transpose(0, 2, 1), (1, classes, 1))
    class_ids = np.tile(np.repeat(np.arange(classes), height * width), (n, 1))
    return boxes, scores, np.asarray(class_ids, like=logits)


def neighbourhood_max(maps):
    """The maximum of each place and its eight neighbours; maps are (n, c, h, w)."""
    wide = np.pad(maps, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    rows = np.maximum(np.maximum(wide[:, :, :-2], wide[:, :, 1:-1]), wide[:, :, 2:])
    return np.maximum(np.maximum(rows[..., :-2], rows[..., 1:-1]), rows[..., 2:])
