"""How much a pipeline does at once on a device: frames a batch, instances of a stage."""

from __future__ import annotations

import os
from collections.abc import Sequence

from streamkit.data import Device
from streamkit.graph import Node

_CPU_BATCH, _GPU_BATCH = 3, 64


def cores() -> int:
    """CPU cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def batch_sizes(largest: int | None, device: Device) -> tuple[int, ...]:
    """The sizes a batch may be padded to, rising.

    On a GPU the largest and a quarter of it, since each costs seconds of warming and a copy of the network's weights;
    on the CPU every size, since padding would cost time.
    """
    if device.kind == "cpu":
        return tuple(range(1, (largest or _CPU_BATCH) + 1))
    top = largest or _GPU_BATCH
    return tuple(sorted({top, max(1, top // 4)})) if top >= 16 else (top,)


def files_at_once(device: Device) -> int:
    """How many sources without a pace of their own are read at once, at most."""
    return 32 if device.kind == "cuda" else max(4, 2 * cores())


def batches_ahead(device: Device) -> int:
    """How many batches of frames may wait before the batcher makes the sources wait.

    Small batches need more of them, or threads take turns at every frame; on a GPU they are device memory.
    """
    return 4 if device.kind == "cpu" else 2


def instances(nodes: Sequence[Node], device: Device) -> int:
    """How many threads share a lane: on the CPU one a core for stages that work on whole batches, else one."""
    asked = [node.run.instances for node in nodes if node.run.instances is not None]
    if not nodes[0].on_device:
        return 1
    if asked:
        return max(asked)
    return cores() if device.kind == "cpu" else 1
