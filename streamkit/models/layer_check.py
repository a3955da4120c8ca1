# SPDX-License-Identifier: Apache-2.0
"""Where a network in f16 differs from f32, tensor by tensor, and the tensors whose values are too large for f16.

The latter stay outside of the fused engine. They are kept in the user's folder, by the network's hash.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.core.user_cache import user_cache
from streamkit.io.outputs import write_cache_file
from streamkit.models.network import network_hash

logger = logging.getLogger(__name__)

LARGEST = 32_752.0
"""Largest value that passes through f16, half of what f16 holds: other frames may have larger ones."""
MAX_ERROR = 0.05
"""Error of a tensor, by the norm, beyond which it is named: rounding alone adds up to some thousandths."""


@dataclass(frozen=True, slots=True)
class LayerCheck:
    """What a comparison of all tensors found.

    Attributes:
        first: name of the first tensor that differs; empty if none does.
        error: of that tensor, otherwise the largest one, by the norm; infinite if a value is not finite.
        large: names of the tensors with values too large for f16.
    """

    first: str
    error: float
    large: tuple[str, ...]

    def __str__(self) -> str:
        if not self.first:
            return f"no layer stands out, the largest error of one is {self.error:.1%}"
        how = f"by {self.error:.0%}" if np.isfinite(self.error) else "as it is not finite"
        return f"the first tensor that differs is {self.first}, {how}"


def compare_layers(tensors: Iterable[tuple[str, Array]], references: Mapping[str, np.ndarray]) -> LayerCheck:
    """Compare tensors of the engine with those in f32, in the order in which they are computed.

    Args:
        tensors: names and values (batch, channels, rows, columns).
        references: float32, by name, of the first images of the batch; tensors without one are left out.
    """
    from streamkit.engine.device import relative_error  # whoever has tensors of the engine has imported it

    first = ""
    largest_error = 0.0
    large = list[str]()
    for name, values in tensors:
        reference = references.get(name)
        if reference is None:
            continue
        if float(np.abs(reference).max(initial=0.0)) > LARGEST:
            large.append(name)
        if not first:
            images = values[: len(reference)]
            error = relative_error(images if isinstance(images, np.ndarray) else images.get(), reference)
            largest_error = max(largest_error, error)
            if not error <= MAX_ERROR:
                first = name
                largest_error = error
    return LayerCheck(first, largest_error, tuple(large))


def too_large(tensors: Iterable[tuple[str, Array]]) -> tuple[str, ...]:
    """Return the names of tensors with values too large for f16, up to the first that is not finite: others follow."""
    names = list[str]()
    for name, values in tensors:
        largest = float(array_module(values).abs(values).max())
        if not largest <= LARGEST:
            names.append(name)
        if not np.isfinite(largest):
            break
    return tuple(names)


def tensors_outside(network: Path) -> frozenset[str]:
    """Return the names of a network's tensors that must not pass through f16; a damaged list is left out."""
    names = set[str]()
    for file in sorted(_folder().glob(f"{network_hash(network)}-*.json")):
        try:
            listed = json.loads(file.read_bytes())
            if not isinstance(listed, list):
                raise ValueError("it is not a list")
            names.update(map(str, listed))
        except (OSError, ValueError) as error:
            logger.warning(f"{file} cannot be read ({error}); large values of {network.name} are looked for again")
    return frozenset(names)


def keep_outside(network: Path, names: Iterable[str]) -> None:
    """Keep names of tensors that must not pass through f16, in a file of their own: processes keep others at once.

    Raises:
        OutputError: they cannot be written.
    """
    content = json.dumps(sorted(names), indent=1).encode() + b"\n"
    digest = hashlib.sha256(content).hexdigest()[:16]
    write_cache_file(_folder() / f"{network_hash(network)}-{digest}.json", content)


def _folder() -> Path:
    return user_cache("outside-f16")
