"""How much a pipeline does at once on a device: frames a batch, instances of a stage."""

from __future__ import annotations

import os
from collections.abc import Sequence

from streamkit.data import Device
from streamkit.plan import Node
from streamkit.steps import sizes

_CPU_BATCH, _GPU_BATCH = 3, 64
FILES_A_GPU = 32
"""So many sources without a pace of their own are read at once on a GPU."""


def cores() -> int:
    """CPU cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def batch_sizes(largest: int | None, device: Device) -> tuple[int, ...]:
    """The sizes a batch may be padded to, rising.

    See `streamkit.steps.sizes` for which.
    """
    return sizes(largest or (_CPU_BATCH if device.kind == "cpu" else _GPU_BATCH), device)


def files_at_once(device: Device) -> int:
    """How many sources without a pace of their own are read at once, at most."""
    return FILES_A_GPU if device.kind == "cuda" else max(4, 2 * cores())


def batches_ahead(device: Device) -> int:
    """How many batches of frames may wait before the batcher makes the sources wait.

    Small batches need more of them, or threads take turns at every frame; on a GPU they are device memory.
    """
    return 4 if device.kind == "cpu" else 2


def instances(nodes: Sequence[Node], device: Device, own_cores: int | None = None) -> int:
    """How many threads share a lane: on the CPU one a core for stages that work on whole batches, else one.

    Args:
        nodes: the lane's stages.
        device: the pipeline's.
        own_cores: cores that are the pipeline's, where those are not all that the process may use.
    """
    asked = [node.run.instances for node in nodes if node.run.instances is not None]
    if not nodes[0].on_device:
        return 1
    if asked:
        return max(asked)
    return (own_cores or cores()) if device.kind == "cpu" else 1
