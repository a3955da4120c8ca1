# SPDX-License-Identifier: Apache-2.0
"""Inputs of a network that are the same for all images of a run, such as embeddings of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamkit.core.data import Array, array_module


@dataclass(frozen=True)
class SharedInputs:
    """The inputs beside the images.

    Attributes:
        arrays: by name, for one image, on the network's device.
        per_image: whether the network wants them once for each image, joined along the first dimension.
    """

    arrays: Mapping[str, Array] = field(default_factory=dict)
    per_image: bool = False
    _repeated: dict[int, Mapping[str, Array]] = field(default_factory=dict, compare=False)

    def of(self, images: int) -> Mapping[str, Array]:
        """Return the inputs of a run of so many images."""
        if not self.per_image or images == 1:
            return self.arrays
        if images not in self._repeated:
            self._repeated[images] = {
                name: array_module(array).concatenate([array] * images) for name, array in self.arrays.items()
            }
        return self._repeated[images]
