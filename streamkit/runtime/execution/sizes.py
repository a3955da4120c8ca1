# SPDX-License-Identifier: Apache-2.0
"""Concurrency on a device: frames per batch, instances of a stage, files read at once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from streamkit.config.plan import Node
from streamkit.core.batch_buckets import sizes
from streamkit.core.data import Device
from streamkit.core.stage import scope_of
from streamkit.runtime.execution.cores import cores

_CPU_BATCH = 3
_GPU_BATCH = 64
_LIVE_STEP = 8  # tensor cores work on 8 rows at a time
FILES_PER_GPU = 32
"""Maximum number of sources without a pace that are read at the same time on a GPU."""


def batch_sizes(largest: int | None, device: Device) -> tuple[int, ...]:
    """Sizes to which a batch may be padded, ascending; see `streamkit.core.batch_buckets.sizes`."""
    return sizes(largest or (_CPU_BATCH if device.kind == "cpu" else _GPU_BATCH), device)


def live_batch_size(largest: int, expected: float) -> int:
    """The single size for many live sources, which start only when their networks are tuned: 6 to 8 s for each size.

    Rows that a batch lacks are padded, and cost as much as others: 46 cameras of 30 frames/s give 55 frames in 40 ms,
    an eighth less than 64.

    Args:
        largest: maximum number of frames in a batch.
        expected: number of frames that arrive while a batch waits.
    """
    if expected >= largest:
        return largest
    return min(largest, max(_LIVE_STEP, math.ceil(expected / _LIVE_STEP) * _LIVE_STEP))


def files_at_once(device: Device) -> int:
    """Maximum number of sources without a pace that are read at the same time."""
    return FILES_PER_GPU if device.kind == "cuda" else max(4, 2 * cores())


def batches_ahead(device: Device) -> int:
    """Number of batches of frames that may be queued before the batcher makes the sources wait.

    Small batches need a longer queue, or threads switch at every frame; on a GPU, queued frames occupy device memory.
    """
    return 4 if device.kind == "cpu" else 2


def instances(nodes: Sequence[Node], device: Device, reserved_cores: int | None = None) -> int:
    """Number of threads that share a lane: one per core for batch stages on the CPU, else one.

    A stage that looks across sources, or keeps a state of each, has a single instance.

    Args:
        nodes: the lane's stages.
        device: the pipeline's device.
        reserved_cores: number of cores reserved for the pipeline, if it may not use all cores of the process.
    """
    configured = [node.run.instances for node in nodes if node.run.instances is not None]
    ordered = nodes[0].keeps_states or any(scope_of(node.type) == "pipeline" for node in nodes)
    if not nodes[0].on_device or ordered:
        return 1
    if configured:
        return max(configured)
    return (reserved_cores or cores()) if device.kind == "cpu" else 1
