"""Any number of rows in runs of the few sizes that a network was warmed for."""

from __future__ import annotations

from collections.abc import Sequence

from streamkit.core.data import Device

_OF_A_RUN = 0.15  # what a run costs beside its rows, as a share of the largest run's


def sizes(largest: int, device: Device) -> tuple[int, ...]:
    """The sizes that a run of at most `largest` rows may have, rising.

    On a GPU the largest and a quarter of it, since each costs seconds of warming and a copy of the network's weights;
    on the CPU every size, since padding would cost time.
    """
    if device.kind == "cpu":
        return tuple(range(1, largest + 1))
    return tuple(sorted({largest, max(1, largest // 4)})) if largest >= 16 else (largest,)


def steps(rows: int, sizes: Sequence[int]) -> list[int]:
    """The lengths of the runs that `rows` rows go in, each one of `sizes`; the last may hold more than are left.

    What is left of full runs goes in one run, or in several of a smaller size where less of it would be padding.
    """
    largest = sizes[-1]
    whole, left = divmod(rows, largest)
    if not left:
        return [largest] * whole
    cost = {size: -(-left // size) * (size + _OF_A_RUN * largest) for size in sizes}
    size = min(sizes, key=lambda size: (cost[size], -size))
    return [largest] * whole + [size] * -(-left // size)
