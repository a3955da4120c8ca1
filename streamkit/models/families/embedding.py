"""Networks with an embedding vector per image, such as re-identification: similar images have similar vectors."""

from __future__ import annotations

import numpy as np

from streamkit.models.families.answers import Vector


class Embedding(Vector):
    """(N, D), scaled to length 1: the dot product of two is the cosine of their angle."""

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """See `Vector.finish`."""
        wide = vectors.astype(np.float32)
        length = np.linalg.norm(wide, axis=1, keepdims=True)
        return np.asarray(wide / np.maximum(length, np.finfo(np.float32).tiny), np.float32)


FAMILY = Embedding("embedding", "embed")
