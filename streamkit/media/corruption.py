"""Damage on purpose: to the bytes of packets before they are decoded, and to copies of pictures."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from streamkit.data import Array, Device, Surface, array_module
from streamkit.media.surfaces import shared_pool
from streamkit.ops import traffic

_HEADER = 8  # bytes that stay: without a length and a type, a decoder does not even try
_BLOCK = 16


def flip_bytes(packet: Any, share: float, chance: random.Random) -> None:
    """Change bytes of an `av.Packet` in place, all but its first ones; times and flags stay.

    Args:
        packet: the packet, with data.
        share: of its bytes, 0..1; one at least is changed.
        chance: says which, and to what.
    """
    data = bytearray(packet)
    first = min(_HEADER, len(data) - 1)
    count = min(max(1, round(share * len(data))), len(data) - first)
    for place in chance.sample(range(first, len(data)), count):
        data[place] ^= chance.randrange(1, 256)
    packet.update(bytes(data))


def spoil(data: Array, share: float, chance: random.Random) -> None:
    """Fill blocks of an NV12 array with noise, in place; the same ones on every device.

    Args:
        data: (height * 3 / 2, width) uint8, on the host or on the current device, whose current stream writes.
        share: of its blocks of 16x16 samples, 0..1; one at least is filled.
        chance: says which, and with what.
    """
    size = min(_BLOCK, *data.shape)
    down, across = data.shape[0] // size, data.shape[1] // size
    count = max(1, round(share * down * across))
    chosen = np.array(chance.sample(range(down * across), count))
    noise = np.random.default_rng(chance.getrandbits(64)).integers(0, 256, (count, size, size), np.uint8)
    steps = np.arange(size)
    rows, columns = (chosen // across * size)[:, None] + steps, (chosen % across * size)[:, None] + steps
    xp = array_module(data)
    if xp is not np:
        traffic.sent(rows.nbytes + columns.nbytes + noise.nbytes)
    data[xp.asarray(rows)[:, :, None], xp.asarray(columns)[:, None, :]] = xp.asarray(noise)


class Copies:
    """Copies of surfaces on their own device, changed on the way where that is wanted.

    Args:
        device: where the surfaces are.
    """

    def __init__(self, device: Device) -> None:
        self._device, self._pool = device, shared_pool(device)
        self._stream: Any = None

    def __call__(self, surface: Surface, change: Callable[[Array], None] | None = None) -> Surface:
        """A copy of its own; `change` gets its array to write to. Waits, on a GPU, until all of it is done.

        Raises:
            DeviceError: there is no room for it.
        """
        if self._device.kind == "cpu":
            made = self._pool.surface(surface.width, surface.height, surface.color)
            made.data[:] = surface.data
            if change is not None:
                change(made.data)
            return made
        cupy = self._device.xp
        with cupy.cuda.Device(self._device.index):
            if self._stream is None:
                self._stream = cupy.cuda.Stream(non_blocking=True)
            made = self._pool.surface(surface.width, surface.height, surface.color, self._stream)
            if surface.ready is not None:
                self._stream.wait_event(surface.ready)
            with self._stream:
                made.data[...] = surface.data
                if change is not None:
                    change(made.data)
            self._pool.written(made, self._stream)
            made.ready.synchronize()  # the caller may drop `surface`: nothing may read it any more
        return made
