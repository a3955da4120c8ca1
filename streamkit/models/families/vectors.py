# SPDX-License-Identifier: Apache-2.0
"""Families of networks with one output vector per image: classes, or an embedding."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.core.data import Array
from streamkit.models.families.base import (
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Shapes,
    Size,
    Values,
    is_inner,
    network_family,
)
from streamkit.models.families.rules import softmax
from streamkit.models.network_file import ModelInfo

_MIN_EMBEDDING = 16


class Vector(Family):
    """One output with a vector for each image."""

    layout = "(N, values), maybe with sizes of 1 behind"

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._vector(outputs)
        if self.task != "embed":
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

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """Return the probability of each class, or vectors of length 1, as float32, on the host for both devices.

        Args:
            vectors: (m, d).
        """
        return vectors.astype(np.float32)

    def _vector(self, outputs: Any) -> tuple[str, Any]:
        """Return the only output of that layout: its name, and its shape or array."""
        return self._single(
            outputs,
            lambda shape: len(shape) >= 2 and all(size == 1 for size in shape[2:]),
            f"output {self.layout}",
        )


def _is_single(info: ModelInfo, size: Size) -> bool:
    """Whether the only output is a vector of several numbers."""
    vectors = list(info.outputs.values())
    return len(vectors) == 1 and vectors[0].dtype.kind == "f" and vectors[0].dims[1] != 1


def _is_long(info: ModelInfo, size: Size) -> bool:
    """Whether the vector is long enough; the features of places that it is made of may stand beside it."""
    vectors = [output for output in info.outputs.values() if not is_inner(output.name) or len(output.dims) == 2]
    if len(vectors) > 1 or vectors[0].dtype.kind != "f":
        return False
    length = vectors[0].dims[1]
    return not isinstance(length, int) or length >= _MIN_EMBEDDING


def _plain_vector(image: PlainImage) -> np.ndarray:
    """Return the vector; features of places, (places, values), may be beside it."""
    (vector,) = [output for output in image.outputs.values() if max(output.shape[1:], default=1) == 1]
    return vector.ravel()


def _reference_embedding(image: PlainImage) -> np.ndarray:
    vector = _plain_vector(image)
    return np.asarray(vector / np.sqrt((vector**2).sum()))


def _sum_to_1(values: Values) -> bool:
    vector = next(iter(values.values())).astype(np.float64).reshape(-1)
    return bool(vector.min() >= 0 and abs(vector.sum() - 1) < 1e-2)


@network_family(
    "logits",
    FamilyTraits(
        formats=(OutputFormat("(N, C)", "a value for each class, before the softmax"),),
        plausible=_is_single,
        doubt=lambda values, size, classes: "its outputs sum to 1" if _sum_to_1(values) else "",
        reference=lambda image: softmax(_plain_vector(image)),
        hugging_face="ImageClassification",
    ),
)
class Logits(Vector):
    """(N, C) without a final softmax, as exported by most training code."""

    task = "classify"

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """See `Vector.finish`."""
        wide = vectors.astype(np.float32)
        wide = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(wide / wide.sum(axis=1, keepdims=True), np.float32)


@network_family(
    "probabilities",
    FamilyTraits(
        formats=(OutputFormat("(N, C)", "a value for each class, after the softmax"),),
        plausible=_is_single,
        doubt=lambda values, size, classes: "" if _sum_to_1(values) else "its outputs do not sum to 1",
        reference=_plain_vector,
        ultralytics=("classify",),
    ),
)
class Probabilities(Vector):
    """(N, C) after a softmax."""

    task = "classify"


@network_family(
    "embedding",
    FamilyTraits(
        formats=(OutputFormat("(N, D)", "a vector; it is scaled to length 1"),),
        plausible=_is_long,
        reference=_reference_embedding,
    ),
)
class Embedding(Vector):
    """(N, D), scaled to length 1, so that the dot product of two is their cosine."""

    task = "embed"

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """See `Vector.finish`."""
        wide = vectors.astype(np.float32)
        length = np.linalg.norm(wide, axis=1, keepdims=True)
        return np.asarray(wide / np.maximum(length, np.finfo(np.float32).tiny), np.float32)
