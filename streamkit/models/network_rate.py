# SPDX-License-Identifier: Apache-2.0
"""How many images a second a network computes on a GPU, measured when it is tuned and kept in the user's folder."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass
from pathlib import Path

from streamkit.core.data import Device
from streamkit.core.errors import OutputError
from streamkit.core.user_cache import user_cache
from streamkit.io.outputs import write_cache_file
from streamkit.models.arithmetic import F32, Arithmetic, candidates, pinned_precision
from streamkit.models.arithmetic_choice import choice_file, read_choice
from streamkit.models.card import Card
from streamkit.models.layer_check import tensors_outside
from streamkit.models.network import network_hash
from streamkit.models.versions import gpu_versions

logger = logging.getLogger(__name__)

_FORMAT = 2


@dataclass(frozen=True, slots=True)
class NetworkRate:
    """A measured rate.

    Attributes:
        images_per_s: of the network alone.
        batch: images in a run.
        queue_share: time to queue a run, in shares of the time that the GPU takes for it.
    """

    images_per_s: float
    batch: int
    queue_share: float = 0.0


def rate_file(network: Path, size: tuple[int, int], gpu: str, arithmetic: Arithmetic) -> Path:
    """Return the file for a network's rate, by the size of its images, the GPU with its versions, and arithmetic."""
    outside = sorted(tensors_outside(network)) if arithmetic.engine == "fused" else []
    key = json.dumps([_FORMAT, network_hash(network), size, gpu, str(arithmetic), outside])
    return user_cache("rates", f"{network.stem}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.json")


def read_rate(file: Path) -> NetworkRate | None:
    """Return the rate in a file; None if there is none that can be read."""
    try:
        fields = json.loads(file.read_bytes())
        rate = NetworkRate(float(fields["images_per_s"]), int(fields["batch"]), float(fields["queue_share"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # it is measured again
    return rate if rate.images_per_s > 0 else None


def write_rate(file: Path, rate: NetworkRate) -> None:
    """Keep a rate, unless a higher one was measured before: what else the GPU does makes a network seem slower.

    If it cannot be written, it is measured again in the next run.
    """
    earlier = read_rate(file)
    if earlier is not None and earlier.images_per_s >= rate.images_per_s:
        return
    try:
        write_cache_file(file, json.dumps(asdict(rate)).encode() + b"\n")
    except OutputError as error:
        logger.debug(f"the rate of a network is not kept: {error}")


def expected_rate(card: Card, engine: str, precision: str, device: Device) -> NetworkRate | None:
    """Return the measured rate of a network in the arithmetic that a run would take; None if it is not known.

    Args:
        card: of the network.
        engine: the stage's option.
        precision: the stage's option.
        device: where it runs.
    """
    gpu = gpu_versions(device.index) if device.kind == "cuda" else ""
    if not gpu or not card.file.is_file():
        return None
    allowed = candidates(engine, pinned_precision(card.precision, precision), device)
    arithmetic = allowed[0]
    if len(allowed) > 1:
        choice = read_choice(choice_file(card.file, card.input.size, gpu, allowed))
        arithmetic = F32 if choice is None else choice.arithmetic
    return read_rate(rate_file(card.file, card.input.size, gpu, arithmetic))
