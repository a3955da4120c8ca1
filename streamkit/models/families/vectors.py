"""Families of networks with one output vector per image: classes, or an embedding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families.base import Family


class Vector(Family):
    """One output with a vector for each image. `finish` interprets it, on the host for both devices."""

    task = "classify"
    layout = "(N, values), maybe with sizes of 1 behind"

    def check(self, outputs: Mapping[str, Sequence[Any]], classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._vector(outputs)
        if self.task == "classify":
            self._check_classes(name, shape, 1, 0, classes)

    def length(self, outputs: Mapping[str, Sequence[Any]]) -> int | None:
        """Return the length of the vectors by the shapes of the outputs; None if the file leaves it open."""
        size = self._vector(outputs)[1][1]
        return size if isinstance(size, int) and size > 0 else None

    def vectors(self, outputs: Mapping[str, Array]) -> Array:
        """Return (r, d), the network's vector of each row, on the outputs' device."""
        output = self._vector(outputs)[1]
        return output.reshape(output.shape[:2])

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """Interpret (m, d) vectors as float32: the probability of each class, or vectors of length 1."""
        raise NotImplementedError

    def _vector(self, outputs: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the only output of that layout: its name, and its shape or array."""
        return self._one(
            outputs,
            lambda shape: len(shape) >= 2 and all(size == 1 for size in shape[2:]),
            f"output {self.layout}",
        )


class Logits(Vector):
    """(N, C) logits of networks without a final softmax, as exported by most training code."""

    name = "logits"

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """See `Vector.finish`: the softmax."""
        wide = vectors.astype(np.float32)
        wide = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(wide / wide.sum(axis=1, keepdims=True), np.float32)


class Probabilities(Vector):
    """(N, C) probabilities of networks with a final softmax."""

    name = "probabilities"

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """See `Vector.finish`: unchanged."""
        return vectors.astype(np.float32)


class Embedding(Vector):
    """(N, D) embeddings, as for re-identification, scaled to length 1: the dot product of two is their cosine."""

    name = "embedding"
    task = "embed"

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """See `Vector.finish`."""
        wide = vectors.astype(np.float32)
        length = np.linalg.norm(wide, axis=1, keepdims=True)
        return np.asarray(wide / np.maximum(length, np.finfo(np.float32).tiny), np.float32)


FAMILIES = (Logits(), Probabilities(), Embedding())
