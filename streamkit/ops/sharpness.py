"""Sharpness of parts of frames: the variance of the Laplacian of their luma.

The measure is LAPV of Pech-Pacheco, Cristobal, Chamorro-Martinez and Fernandez-Valdivia, "Diatom autofocusing in
brightfield microscopy: a comparative study", ICPR 2000: blur removes edges, and with them the variance. The Laplacian
is up + down + left + right - 4 x centre; a part's border has none, so no pixel outside the part is read. Its sums are
integers: the host and the kernel (cuda/sharpness.cu) produce equal numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streamkit.core.data import Surface, array_module
from streamkit.ops.boxes import Rect, check_rects
from streamkit.ops.cut import at_device, parts_table, send

_THREADS, _BLOCKS = 256, 16  # threads of a block, and blocks that share a part's rows


def sharpness(surfaces: Sequence[Surface], sizes: Sequence[tuple[int, int]], rects: Sequence[Rect]) -> np.ndarray:
    """Return the sharpness of each part: (m,) float64 on the host, 0 if it has fewer than 3 pixels on a side.

    On a GPU this is one launch for all, on the frames' device and its current stream; 16 bytes for each part are copied
    to the host, and waited for.

    Args:
        surfaces: the frames, all on the host or all on one device. A surface may occur several times.
        sizes: the true width and height of each.
        rects: the part of each, in source pixels; see `Rect`.

    Raises:
        ValueError: a rect is not a part of its frame.
    """
    check_rects(rects, sizes)
    if not surfaces:
        return np.zeros(0)
    on_host = array_module(surfaces[0].data) is np
    sums = _on_host(surfaces, rects) if on_host else _on_device(surfaces, rects)
    sides = np.array([(right - left - 2, bottom - top - 2) for left, top, right, bottom in rects], np.float64)
    count = np.maximum(sides, 0).prod(axis=1)
    some = np.maximum(count, 1)
    return np.where(count > 0, sums[:, 1] / some - (sums[:, 0] / some) ** 2, 0.0)


def _on_host(surfaces: Sequence[Surface], rects: Sequence[Rect]) -> np.ndarray:
    """Return (m, 2) float64, integers: the sum of the Laplacian, and of its squares."""
    import cv2

    sums = np.zeros((len(surfaces), 2))
    for one, surface, (left, top, right, bottom) in zip(sums, surfaces, rects, strict=True):
        if min(right - left, bottom - top) >= 3:
            edges = cv2.Laplacian(surface.data[top:bottom, left:right], cv2.CV_16S)[1:-1, 1:-1]
            one[:] = cv2.sumElems(edges)[0], np.rint(cv2.norm(edges, cv2.NORM_L2SQR))  # whole, but for its last digit
    return sums


def _on_device(surfaces: Sequence[Surface], rects: Sequence[Rect]) -> np.ndarray:
    """See `_on_host`."""
    import cupy

    from streamkit.ops.cuda.load import kernel
    from streamkit.ops.transfer import fetch

    with at_device(surfaces):
        parts = send(parts_table(surfaces, rects, [surface.data.data.ptr for surface in surfaces]))
        sums = cupy.zeros((len(surfaces), 2), np.int64)
        kernel("sharpness.cu", "sharpness")((_BLOCKS, len(surfaces)), (_THREADS,), (parts, sums))
        (found,) = fetch([sums])()
    return found.astype(np.float64)
