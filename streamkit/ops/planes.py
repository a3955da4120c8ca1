# SPDX-License-Identifier: Apache-2.0
"""Layout of raw frames: conversion of decoder output to 8-bit NV12, and rotation.

Colors do not change: samples keep their meaning, only their position and depth change. More than 8 bits become 8 by
rounding, (v + 2) >> 2 for 10 bits, clipped; 4:2:2 and 4:4:4 chroma becomes 4:2:0 by the mean of the merged samples,
which moves its siting; the new siting is returned.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamkit.core.data import Array, Color, array_module
from streamkit.ops.cuda.load import kernel


def nv12_shape(width: int, height: int) -> tuple[int, int]:
    """Return the shape of an NV12 surface's data for a frame of this size, made even."""
    return (height + height % 2) * 3 // 2, width + width % 2


def narrow(samples: np.ndarray, bits: int) -> np.ndarray:
    """Convert samples of `bits` bits in the low bits of uint16 to uint8, rounded and clipped."""
    if samples.dtype == np.uint8:
        return samples
    shift = bits - 8
    if shift <= 0:
        return samples.astype(np.uint8)
    wide = samples.astype(np.uint32 if bits > 15 else np.uint16)  # a sum of 16 bits would wrap
    rounded = (wide + np.array(1 << (shift - 1), wide.dtype)) >> np.array(shift, wide.dtype)
    return np.asarray(np.minimum(rounded, 255), np.uint8)


def pack(y: np.ndarray, u: np.ndarray | None, v: np.ndarray | None, color: Color, out: np.ndarray) -> Color:
    """Write a planar 8-bit frame into NV12 `out`; return the color with its chroma siting there.

    Args:
        y: (h, w) uint8.
        u: Cb, (h, w), (h, ceil(w / 2)) or (ceil(h / 2), ceil(w / 2)) uint8; None for a frame without color.
        v: Cr, as `u`.
        color: the color of the planes.
        out: (H * 3 / 2, W) uint8 with H and W the even sizes; odd ones are padded by repeating the edge.
    """
    import cv2

    height, width = y.shape
    rows = out.shape[0] * 2 // 3
    if out.shape != nv12_shape(width, height):
        raise ValueError(f"a frame of {width}x{height} needs NV12 data {nv12_shape(width, height)}, got {out.shape}")
    out[:height, :width] = y
    _repeat_edge(out[:rows], width, height)
    if u is None or v is None:
        out[rows:] = 128
        return color
    across = u.shape[1] == width and width > 1
    down = u.shape[0] == height and height > 1
    halved = [_mean_pairs(plane, across, down) for plane in (u, v)]
    if halved[0].shape != (rows // 2, out.shape[1] // 2):
        raise ValueError(f"chroma of {u.shape} does not fit a frame of {(height, width)}")
    cv2.merge(halved, out[rows:].reshape(rows // 2, -1, 2))
    return replace(color, chroma_x=0.5 if across else color.chroma_x, chroma_y=0.5 if down else color.chroma_y)


def _repeat_edge(luma: np.ndarray, width: int, height: int) -> None:
    if width % 2:
        luma[:height, width] = luma[:height, width - 1]
    if height % 2:
        luma[height] = luma[height - 1]


def _mean_pairs(plane: np.ndarray, across: bool, down: bool) -> np.ndarray:
    """Return rounded means of neighbors along the selected axes; an odd last sample is kept."""
    if not (across or down):
        return np.ascontiguousarray(plane)
    wide = np.pad(plane, ((0, plane.shape[0] % 2 * down), (0, plane.shape[1] % 2 * across)), "edge").astype(np.uint16)
    if down:
        wide = wide[0::2] + wide[1::2]
    if across:
        wide = wide[:, 0::2] + wide[:, 1::2]
    count = (1 + down) * (1 + across)
    return ((wide + count // 2) // count).astype(np.uint8)


def rotated_size(width: int, height: int, rotation: int) -> tuple[int, int]:
    """Return width and height after rotation."""
    return (height, width) if rotation % 180 else (width, height)


def rotated_color(color: Color, width: int, height: int, rotation: int, *, mirrored: bool = False) -> Color:
    """Return the color of a frame after `rotate`: its chroma samples have moved within their blocks.

    A frame of odd size has its last block cut, so the blocks of the rotated frame begin half a block off; the siting
    compensates for that, and no chroma is resampled.
    """
    x = color.chroma_x
    y = color.chroma_y
    if mirrored:
        x = 1 - width % 2 - x
    far_x = 1 - width % 2 - x
    far_y = 1 - height % 2 - y
    x, y = {0: (x, y), 90: (far_y, x), 180: (far_x, far_y), 270: (y, far_x)}[rotation]
    return replace(color, chroma_x=x, chroma_y=y)


def rotate(data: Array, width: int, height: int, rotation: int, out: Array, *, mirrored: bool = False) -> None:
    """Mirror an NV12 frame left to right, if requested, then rotate it clockwise by 0, 90, 180 or 270 degrees.

    Args:
        data: NV12, (H * 3 / 2, W) uint8, on host or device (the device takes even sizes only).
        width: the true width.
        height: the true height.
        rotation: 0, 90, 180 or 270.
        out: NV12 data of the rotated frame, on the same device.
        mirrored: whether left and right are swapped first.
    """
    if rotation not in (0, 90, 180, 270):
        raise ValueError(f"rotation must be 0, 90, 180 or 270, got {rotation}")
    new_width, new_height = rotated_size(width, height, rotation)
    if data.shape != nv12_shape(width, height) or out.shape != nv12_shape(new_width, new_height):
        raise ValueError(
            f"rotating {width}x{height} by {rotation} needs NV12 data {nv12_shape(width, height)} and out "
            f"{nv12_shape(new_width, new_height)}, got {data.shape} and {out.shape}"
        )
    if array_module(data) is np:
        _rotate_host(data, width, height, rotation, out, mirrored=mirrored)
        return
    if width % 2 or height % 2:
        raise ValueError(f"the device rotates only frames of even size, got {width}x{height}")
    turn = kernel("planes.cu", "rotate_nv12")
    blocks_x = new_width // 2
    blocks_y = new_height // 2
    grid = ((blocks_x + 31) // 32, (blocks_y + 7) // 8)
    how = np.int32(rotation), np.int32(mirrored)
    turn(grid, (32, 8), (data, out, np.int32(new_width), np.int32(new_height), *how))


def _rotate_host(data: np.ndarray, width: int, height: int, rotation: int, out: np.ndarray, *, mirrored: bool) -> None:
    turns = -rotation // 90
    new_width, new_height = rotated_size(width, height, rotation)
    rows = data.shape[0] * 2 // 3
    new_rows = out.shape[0] * 2 // 3
    luma = data[:height, :width]
    chroma = data[rows:].reshape(rows // 2, -1, 2)
    if mirrored:
        luma = luma[:, ::-1]
        chroma = chroma[:, ::-1]
    out[:new_height, :new_width] = np.rot90(luma, turns)
    _repeat_edge(out[:new_rows], new_width, new_height)
    out[new_rows:].reshape(new_rows // 2, -1, 2)[:] = np.rot90(chroma, turns)


def narrow_p016(data: Array, out: Array) -> None:
    """Convert P016, whose samples are in the high bits, to NV12: (v + 128) >> 8 of the stored value, clipped.

    For 10 bits this is (v + 2) >> 2 of the sample, the same as `narrow`.

    Args:
        data: (rows, columns) uint16, rows contiguous, on host or device.
        out: (rows, columns) uint8, contiguous, on the same device.
    """
    if data.shape != out.shape or data.dtype != np.uint16 or out.dtype != np.uint8:
        raise ValueError(
            f"narrow_p016 needs uint16 and uint8 of one shape, got {data.dtype}{list(data.shape)} and "
            f"{out.dtype}{list(out.shape)}"
        )
    if array_module(data) is np:
        out[:] = np.minimum((data.astype(np.uint32) + 128) >> 8, 255)
        return
    if not (data.flags.c_contiguous and out.flags.c_contiguous):
        raise ValueError("narrow_p016 needs contiguous arrays on the device")
    count = out.size
    grid = ((count // 4 + 256) // 256,)
    kernel("planes.cu", "narrow_p016")(grid, (256,), (data, out, np.int32(count)))
