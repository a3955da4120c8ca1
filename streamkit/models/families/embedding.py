"""Networks that give a vector for what a picture shows, such as re-identification: near ones show the same."""

from __future__ import annotations

import numpy as np

from streamkit.models.families.answers import Vector


class Embedding(Vector):
    """(N, D), made length 1: the product of two is the cosine of the angle between them."""

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """See `Vector.finish`."""
        wide = vectors.astype(np.float32)
        length = np.linalg.norm(wide, axis=1, keepdims=True)
        return np.asarray(wide / np.maximum(length, np.finfo(np.float32).tiny), np.float32)


FAMILY = Embedding("embedding", "embed")
