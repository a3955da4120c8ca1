# SPDX-License-Identifier: Apache-2.0
"""Perceptual hash of an image: 64 bits of which few differ between images that look alike.

The DCT hash of Zauner, "Implementation and Benchmarking of Perceptual Image Hash Functions", 2010: the luma is scaled
to 32x32, and each of its 8x8 lowest frequencies gives a bit, whether it is above their median.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamkit.core.data import Surface

BITS = 64
_SIDE = 32
_LOW = 8
_NOISE = 2.0
"""A frequency must be above the median by so much, in levels, so that noise on an even surface sets no bit."""


def perceptual_hash(surface: Surface, size: tuple[int, int]) -> int:
    """Return the hash of an image, 0 to 2^64 - 1.

    Args:
        surface: the image, NV12 on the host.
        size: its true width and height.
    """
    import cv2

    width, height = size
    small = cv2.resize(surface.data[:height, :width], (_SIDE, _SIDE), interpolation=cv2.INTER_AREA)
    low = cv2.dct(small.astype(np.float32))[:_LOW, :_LOW].ravel()
    bits = low > np.median(low[1:]) + _NOISE  # the first is the mean
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def hash_distances(hash_: int, others: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the number of bits, (n,) uint8, in which a hash differs from each of the others."""
    hashes = np.asarray(others, np.uint64)
    return np.asarray(np.bitwise_count(hashes ^ np.uint64(hash_)))
