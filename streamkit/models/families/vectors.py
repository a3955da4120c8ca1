# SPDX-License-Identifier: Apache-2.0
"""Families of networks with one output vector per image: classes, or an embedding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
    shape_of,
)
from streamkit.models.families.rules import softmax
from streamkit.models.network_file import ModelInfo

_MIN_EMBEDDING = 16
_BEST_FIRST = ("image_embeds", "pooler_output")
"""Hugging Face's outputs that are an image's vector; of two, the projected one is compared with texts."""
_TOKENS = "last_hidden_state"
"""Hugging Face's output with the features of places, (N, tokens, D). The first is that of the whole image, if any."""
_PATCHES = (8, 14, 16, 32)
_OTHER_TOKENS = (1, 5)
"""Tokens beside those of places: that of the image, and four registers."""


class Vector(Family):
    """One output with a vector for each image."""

    layout = "(N, values), maybe with sizes of 1 behind"

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        name, shape = self._vector(outputs)
        if self.task != "embed":
            self._check_classes(name, shape, 1, 0, classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset([self._vector(outputs)[0]])

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
            _is_vector,
            f"output {self.layout}",
        )


def _is_single(info: ModelInfo, size: Size) -> bool:
    """Whether the only output is a vector of several numbers."""
    vectors = list(info.outputs.values())
    return len(vectors) == 1 and vectors[0].dtype.kind == "f" and vectors[0].dims[1] != 1


def _is_long(info: ModelInfo, size: Size) -> bool:
    """Whether the vector is long enough; the features of places that it is made of may stand beside it."""
    name = embedding_output(info.output_dims)
    vectors = [output for output in info.outputs.values() if not is_inner(output.name) or len(output.dims) == 2]
    others = [output for output in vectors if output.name not in (name, *_BEST_FIRST)]
    if name is None or others or info.outputs[name].dtype.kind != "f":
        return False
    dims = info.output_dims[name]
    if len(dims) == 3 and name == _TOKENS and not _has_image_token(dims[1], size):
        return False
    length = dims[-1] if name == _TOKENS else dims[1]
    return not isinstance(length, int) or length >= _MIN_EMBEDDING


def _has_image_token(tokens: Any, size: Size) -> bool:
    """Whether there are so many tokens as places of a transformer's grid, and that of the image."""
    grids = [(size[0] // patch) * (size[1] // patch) for patch in _PATCHES]
    return isinstance(tokens, int) and tokens in {grid + other for grid in grids for other in _OTHER_TOKENS}


def embedding_output(outputs: Mapping[str, Any]) -> str | None:
    """Return the name of the output that is an image's vector, of arrays or shapes; None if there is none, or several.

    Where Hugging Face's vectors are missing, the tokens hold it.
    """
    shapes = {name: shape_of(value) for name, value in outputs.items()}
    vectors = [name for name, shape in shapes.items() if _is_vector(shape)]
    best = next((name for name in _BEST_FIRST if name in vectors), None)
    if best is not None or len(vectors) == 1:
        return best or vectors[0]
    return _TOKENS if not vectors and len(shapes.get(_TOKENS, ())) == 3 else None


def _is_vector(shape: Sequence[Any]) -> bool:
    return len(shape) >= 2 and all(size == 1 for size in shape[2:])


def _plain_vector(image: PlainImage) -> np.ndarray:
    """Return the vector; features of places, (places, values), may be beside it."""
    vectors = {name: output for name, output in image.outputs.items() if max(output.shape[1:], default=1) == 1}
    if not vectors:
        return np.asarray(image.outputs["last_hidden_state"][0])
    name = next((best for best in ("image_embeds", "pooler_output") if best in vectors), next(iter(vectors)))
    return vectors[name].ravel()


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
        formats=(
            OutputFormat(
                "(N, D)",
                "a vector; it is scaled to length 1. DINOv3, CLIP of transformers 5.24: the first of `image_embeds`, "
                "`pooler_output`",
            ),
            OutputFormat(
                "`last_hidden_state` (N, T, D) alone", "features of tokens, of which the first is the image's"
            ),
        ),
        plausible=_is_long,
        reference=_reference_embedding,
    ),
)
class Embedding(Vector):
    """(N, D), scaled to length 1, so that the dot product of two is their cosine."""

    task = "embed"

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`; tokens in a square are of places alone."""
        name, shape = self._vector(outputs)
        tokens = shape[1]
        if len(shape) == 3 and name == _TOKENS and isinstance(tokens, int) and tokens > 1:
            side = math.isqrt(tokens)
            if side * side == tokens:
                raise ValueError(
                    f"family {self.name}: the {tokens} tokens of output {name!r} are {side} x {side} places, and none "
                    "is of the whole image; export the network with pooler_output"
                )

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`: the vector is made of the features of places, and projected to another one."""
        inner = [name for name in outputs if name.endswith("hidden_state") or name in _BEST_FIRST]
        return frozenset([self._vector(outputs)[0], *inner])

    def length(self, outputs: Shapes) -> int | None:
        """See `Vector.length`."""
        name, shape = self._vector(outputs)
        size = shape[-1] if self._is_token(name, shape) else shape[1]
        return size if isinstance(size, int) and size > 0 else None

    def vectors(self, outputs: Outputs) -> Array:
        """See `Vector.vectors`."""
        name, output = self._vector(outputs)
        return output[:, 0] if self._is_token(name, output.shape) else output.reshape(output.shape[:2])

    def reading(self, outputs: Shapes) -> str:
        """See `Family.reading`."""
        name = self._vector(outputs)[0]
        others = ", ".join(other for other in outputs if other != name)
        first = "the first token of " if self._is_token(name, outputs[name]) else ""
        return f"; the vector is {first}{name}{', not ' * bool(others)}{others}" if others or first else ""

    @staticmethod
    def _is_token(name: str, shape: Sequence[Any]) -> bool:
        return name == _TOKENS and len(shape) == 3 and not _is_vector(shape)

    def _vector(self, outputs: Any) -> tuple[str, Any]:
        """See `Vector._vector`; see `embedding_output`."""
        name = embedding_output(outputs)
        return super()._vector(outputs) if name is None else (name, outputs[name])

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """See `Vector.finish`."""
        wide = vectors.astype(np.float32)
        length = np.linalg.norm(wide, axis=1, keepdims=True)
        return np.asarray(wide / np.maximum(length, np.finfo(np.float32).tiny), np.float32)
