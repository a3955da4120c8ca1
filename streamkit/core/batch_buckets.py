# SPDX-License-Identifier: Apache-2.0
"""Splits any number of rows into runs of the few batch sizes that a network was warmed up for."""

from __future__ import annotations

from collections.abc import Sequence

from streamkit.core.data import Device

FEW = 8
"""Rows of a run for a network whose rows come few at a time.

A classifier takes 0.4 ms for 1 crop, 0.8 for 8, 2.2 for 32.
"""
_OF_A_RUN = 0.15  # fixed cost of a run, as a share of the cost of the largest run


def sizes(largest: int, device: Device) -> tuple[int, ...]:
    """The allowed sizes of a run of at most `largest` rows, ascending.

    On a GPU, the largest size and a quarter of it, because each size costs seconds of warm-up and a copy of the
    network's weights. On the CPU, every size, because padding costs time.
    """
    if device.kind == "cpu":
        return tuple(range(1, largest + 1))
    return tuple(sorted({largest, max(1, largest // 4)})) if largest >= 16 else (largest,)


def steps(rows: int, sizes: Sequence[int]) -> list[int]:
    """Split `rows` rows into runs whose lengths are in `sizes`; the last run may be padded.

    The remainder after full runs becomes one run, or several smaller runs if that needs less padding.
    """
    largest = sizes[-1]
    whole, left = divmod(rows, largest)
    if not left:
        return [largest] * whole
    cost = {size: -(-left // size) * (size + _OF_A_RUN * largest) for size in sizes}
    size = min(sizes, key=lambda size: (cost[size], -size))
    return [largest] * whole + [size] * -(-left // size)
