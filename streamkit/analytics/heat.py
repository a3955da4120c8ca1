# SPDX-License-Identifier: Apache-2.0
"""Accumulated time of objects by place in the frame, and its rendering as colors."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

Palette = Literal["turbo", "heat"]

_ROWS = 180
_COLUMNS = 320
_HOT = 0.999  # quantile of the times shown in the hottest color, so that one spot does not hide the rest


class Heat:
    """Seconds by place, on a grid that covers frames of any size.

    Args:
        radius: how far an object heats its surroundings, as a share of the frame's height.
    """

    def __init__(self, radius: float) -> None:
        self.seconds = np.zeros((_ROWS, _COLUMNS))
        self._radius = radius

    def warm(self, shares: np.ndarray, seconds: float) -> None:
        """Add time at places.

        Args:
            shares: (n, 2) float64, x and y as shares of the frame; rows with NaN are skipped.
            seconds: the time to add for each row.
        """
        shares = shares[~np.isnan(shares).any(axis=1)]
        column = np.clip((shares[:, 0] * _COLUMNS).astype(np.int64), 0, _COLUMNS - 1)
        row = np.clip((shares[:, 1] * _ROWS).astype(np.int64), 0, _ROWS - 1)
        np.add.at(self.seconds, (row, column), seconds)

    def cool(self, seconds: float, forget_s: float) -> None:
        """Decay the times as `seconds` pass: to a third after `forget_s`."""
        self.seconds *= 3.0 ** (-seconds / forget_s)

    def spread(self, height: int, width: int) -> np.ndarray:
        """Return (height, width) float32, 0..1: the heat of each pixel; the hottest is 1."""
        import cv2

        # Each object warms a disc in pixels; on the grid that is an ellipse.
        down = max(self._radius * _ROWS / 2, 0.5)
        across = max(self._radius * height / width * _COLUMNS / 2, 0.5)
        smooth = cv2.GaussianBlur(self.seconds, (0, 0), sigmaX=across, sigmaY=down, borderType=cv2.BORDER_CONSTANT)
        warm = smooth[smooth > smooth.max() * 1e-3]
        top = float(np.quantile(warm, _HOT)) if len(warm) else 0.0
        share = np.clip(smooth / top, 0, 1) if top > 0 and math.isfinite(top) else np.zeros_like(smooth)
        return np.asarray(cv2.resize(share.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR))


def painted(below: np.ndarray, heat: Heat, palette: Palette, opacity: float) -> np.ndarray:
    """Return a copy of the frame with the heat on it, (height, width, 3) uint8 RGB; cold places are unchanged.

    Args:
        below: (height, width, 3) uint8 RGB.
        heat: the heat.
        palette: the colors.
        opacity: opacity of the hottest place, 0..1.
    """
    import cv2

    share = heat.spread(*below.shape[:2])
    colors = cv2.COLORMAP_TURBO if palette == "turbo" else cv2.COLORMAP_HOT
    over = cv2.applyColorMap(np.rint(share * 255).astype(np.uint8), colors)[..., ::-1].astype(np.float32)
    cover = (opacity * np.sqrt(share))[..., None]
    return np.asarray(np.rint(below * (1 - cover) + over * cover).astype(np.uint8))
