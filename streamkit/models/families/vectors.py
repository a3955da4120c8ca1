# SPDX-License-Identifier: Apache-2.0
"""Families of networks with one output vector per image: classes, or an embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families.base import Family, Outputs, Shapes


class Vector(Family):
    """One output with a vector for each image.

    Attributes:
        finish: interprets (m, d) vectors as float32, on the host for both devices: the probability of each class, or
            vectors of length 1.
    """

    layout = "(N, values), maybe with sizes of 1 behind"

    def __init__(self, name: str, task: str, finish: Callable[[np.ndarray], np.ndarray]) -> None:
        self.name, self.task, self.finish = name, task, finish

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._vector(outputs)
        if self.task == "classify":
            self._check_classes(name, shape, 1, 0, classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`: an embedding is made of the features of places, which stand beside it."""
        inner = [name for name in outputs if name.endswith("hidden_state")] if self.task == "embed" else []
        return frozenset([self._vector(outputs)[0], *inner])

    def length(self, outputs: Shapes) -> int | None:
        """Return the length of the vectors by the shapes of the outputs; None if the file leaves it open."""
        size = self._vector(outputs)[1][1]
        return size if isinstance(size, int) and size > 0 else None

    def vectors(self, outputs: Outputs) -> Array:
        """Return (r, d), the network's vector of each row, on the outputs' device."""
        output = self._vector(outputs)[1]
        return output.reshape(output.shape[:2])

    def _vector(self, outputs: Any) -> tuple[str, Any]:
        """Return the only output of that layout: its name, and its shape or array."""
        return self._single(
            outputs,
            lambda shape: len(shape) >= 2 and all(size == 1 for size in shape[2:]),
            f"output {self.layout}",
        )


def _softmax(vectors: np.ndarray) -> np.ndarray:
    wide = vectors.astype(np.float32)
    wide = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(wide / wide.sum(axis=1, keepdims=True), np.float32)


def _unchanged(vectors: np.ndarray) -> np.ndarray:
    return vectors.astype(np.float32)


def _length_1(vectors: np.ndarray) -> np.ndarray:
    wide = vectors.astype(np.float32)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.maximum(length, np.finfo(np.float32).tiny), np.float32)


FAMILIES = (
    Vector("logits", "classify", _softmax),
    Vector("probabilities", "classify", _unchanged),
    Vector("embedding", "embed", _length_1),
)
"""`logits`: (N, C) without a final softmax, as exported by most training code; `probabilities`: (N, C) with one;
`embedding`: (N, D), scaled to length 1, so that the dot product of two is their cosine."""
