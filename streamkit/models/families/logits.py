"""Classification networks without a final softmax, as exported by most training code."""

from __future__ import annotations

import numpy as np

from streamkit.models.families.answers import Vector


class Logits(Vector):
    """(N, C) logits."""

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """See `Vector.finish`: the softmax."""
        wide = vectors.astype(np.float32)
        wide = np.exp(wide - wide.max(axis=1, keepdims=True, initial=-np.inf))
        return np.asarray(wide / wide.sum(axis=1, keepdims=True), np.float32)


FAMILY = Logits("logits", "classify")
