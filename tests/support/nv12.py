"""NV12 images, and how much two images differ."""

import av
import numpy as np


def moving_square(i, width=160, height=120):
    """A ramp with a square at 10 + i, in color: (height * 3 / 2, width) uint8."""
    nv12 = np.empty((height * 3 // 2, width), np.uint8)
    nv12[:height] = np.linspace(30, 200, width, dtype=np.uint8)[None]
    nv12[20:50, 10 + i : 40 + i] = 220
    nv12[height:, 0::2] = 90
    nv12[height:, 1::2] = 170
    return nv12


def planar(nv12):
    """NV12 as planar 4:2:0 of the same shape: Y, then Cb, then Cr."""
    return av.VideoFrame.from_ndarray(nv12, format="nv12").reformat(format="yuv420p").to_ndarray()


def psnr(a, b):
    error = np.mean((a.astype(np.float64) - b) ** 2)
    return 99.0 if error == 0 else 10 * np.log10(255**2 / error)
