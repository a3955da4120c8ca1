# SPDX-License-Identifier: Apache-2.0
"""A network family: NanoDet-Plus, as its authors export it (https://github.com/RangiLyu/nanodet)."""

import numpy as np

from streamkit.plugin_api import family

STRIDES = (8, 16, 32, 64)
BINS = 8  # of a side's distance, 0 to 7 strides


@family("nanodet", outputs={"output": ("anchors", f"classes + {4 * BINS}")})
def nanodet(outputs, input_size):
    """NanoDet-Plus: scores, and a distribution over the distances to the four sides of each anchor's box."""
    values = outputs["output"]
    priors = anchors(*input_size)
    if values.shape[1] != len(priors):
        size = "x".join(map(str, input_size))
        strides = ", ".join(map(str, STRIDES))
        raise ValueError(f"{values.shape[1]} anchors, and {size} with strides {strides} has {len(priors)}")
    scores = values[:, :, : -4 * BINS]
    sides = values[:, :, -4 * BINS :]
    sides = sides.reshape(*sides.shape[:2], 4, BINS)
    shares = np.exp(sides - sides.max(axis=3, keepdims=True))
    distances = shares @ np.arange(BINS, dtype=np.float32) / shares.sum(axis=3)
    xy = priors[:, :2]
    stride = priors[:, 2:]
    return np.concatenate([xy - distances[..., :2] * stride, xy + distances[..., 2:] * stride], axis=2), scores


def anchors(width, height):
    """The anchors of all strides, (a, 3) float32: x, y in network pixels, stride."""
    levels = []
    for stride in STRIDES:
        y, x = np.mgrid[: -(-height // stride), : -(-width // stride)] * stride
        levels.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride)], axis=1))
    return np.concatenate(levels).astype(np.float32)
