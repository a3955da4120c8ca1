# SPDX-License-Identifier: Apache-2.0
"""Intentional damage for fault injection: to the bytes of packets before decoding, and to copies of surfaces."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from streamkit.core.data import Array, Device, Surface, array_module
from streamkit.media.surfaces import shared_pool
from streamkit.ops import traffic

_HEADER = 8  # bytes that stay: without a length and a type, a decoder does not even try
_BLOCK = 16


def flip_bytes(packet: Any, share: float, rng: random.Random) -> None:
    """Change bytes of an `av.Packet` in place, except for its first ones; times and flags stay.

    Args:
        packet: a packet with data.
        share: share of its bytes to change, 0..1; at least one byte is changed.
        rng: source of randomness.
    """
    data = bytearray(packet)
    first = min(_HEADER, len(data) - 1)
    count = min(max(1, round(share * len(data))), len(data) - first)
    for place in rng.sample(range(first, len(data)), count):
        data[place] ^= rng.randrange(1, 256)
    packet.update(bytes(data))


def add_noise_blocks(data: Array, share: float, rng: random.Random) -> None:
    """Fill blocks of an NV12 array with noise, in place; the same blocks on every device.

    Args:
        data: (height * 3 / 2, width) uint8, on the host or on the current device; written on the current stream.
        share: share of its blocks of 16x16 samples to fill, 0..1; at least one block is filled.
        rng: source of randomness.
    """
    size = min(_BLOCK, *data.shape)
    down = data.shape[0] // size
    across = data.shape[1] // size
    count = max(1, round(share * down * across))
    chosen = np.array(rng.sample(range(down * across), count))
    noise = np.random.default_rng(rng.getrandbits(64)).integers(0, 256, (count, size, size), np.uint8)
    steps = np.arange(size)
    rows = (chosen // across * size)[:, None] + steps
    columns = (chosen % across * size)[:, None] + steps
    xp = array_module(data)
    if xp is not np:
        traffic.sent(rows.nbytes + columns.nbytes + noise.nbytes)
    data[xp.asarray(rows)[:, :, None], xp.asarray(columns)[:, None, :]] = xp.asarray(noise)


class SurfaceCopies:
    """Copies surfaces on their own device, with an optional change.

    Args:
        device: device of the surfaces.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pool = shared_pool(device)
        self._stream: Any = None

    def __call__(self, surface: Surface, change: Callable[[Array], None] | None = None) -> Surface:
        """Copy a surface; `change` may modify the copy's array. On a GPU, waits until the copy is complete.

        Raises:
            DeviceError: there is no memory for the copy.
        """
        if self._device.kind == "cpu":
            copied = self._pool.surface(surface.width, surface.height, surface.color)
            copied.data[:] = surface.data
            if change is not None:
                change(copied.data)
            return copied
        cupy = self._device.xp
        with cupy.cuda.Device(self._device.index):
            if self._stream is None:
                self._stream = cupy.cuda.Stream(non_blocking=True)
            copied = self._pool.surface(surface.width, surface.height, surface.color, self._stream)
            if surface.ready is not None:
                self._stream.wait_event(surface.ready)
            with self._stream:
                copied.data[...] = surface.data
                if change is not None:
                    change(copied.data)
            self._pool.written(copied, self._stream)
            copied.ready.synchronize()  # the caller may drop `surface`: nothing may read it any more
        return copied
