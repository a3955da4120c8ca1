"""Families of networks with one output vector per image: classes, or an embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families import base, shapes

_LAYOUT = "(N, values), maybe with sizes of 1 behind"


class Vector(base.Plain):
    """One output with a vector for each image. `finish` interprets it, on the host for both devices.

    Attributes:
        task: the task of its cards.
    """

    def __init__(self, name: str, task: str) -> None:
        self.name, self.task = name, task

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._only(outputs)
        if self.task == "classify":
            shapes.check_classes(self.name, name, shape, 1, 0, classes)

    def length(self, outputs: Mapping[str, Sequence[Any]]) -> int | None:
        """Return the length of the vectors by the shapes of the outputs; None if the file leaves it open."""
        size = self._only(outputs)[1][1]
        return size if isinstance(size, int) and size > 0 else None

    def vectors(self, outputs: Mapping[str, Array]) -> Array:
        """Return (r, d), the network's vector of each row, on the outputs' device."""
        _, output = self._only(outputs)
        return output.reshape(output.shape[:2])

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """Interpret (m, d) vectors as float32: the probability of each class, or vectors of length 1."""
        raise NotImplementedError

    def _only(self, outputs: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the only output of that layout: its name, and its shape or array."""
        fitting = [
            (name, value)
            for name, value in outputs.items()
            if shapes.rank(value) >= 2 and all(size == 1 for size in getattr(value, "shape", value)[2:])
        ]
        if len(fitting) != 1:
            raise ValueError(f"family {self.name} reads one output {_LAYOUT}; the network has {shapes.listed(outputs)}")
        return fitting[0]
