"""Classification networks with a final softmax: each output is the probability of a class."""

from __future__ import annotations

import numpy as np

from streamkit.models.families.answers import Vector


class Probabilities(Vector):
    """(N, C) probabilities."""

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """See `Vector.finish`: unchanged."""
        return vectors.astype(np.float32)


FAMILY = Probabilities("probabilities", "classify")
