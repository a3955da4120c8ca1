"""Scores of networks on the host: validation, sigmoid and softmax."""

from __future__ import annotations

import numpy as np


def check_scores(classes: int, min_score: np.ndarray) -> None:
    """Check that an output has a score for each threshold; raise ValueError."""
    if classes != len(min_score):
        raise ValueError(f"the output has scores of {classes} classes, min_score has {len(min_score)}; they must match")


def float32(array: np.ndarray) -> np.ndarray:
    """Return the array as float32, without a copy if possible."""
    return array if array.dtype == np.float32 else array.astype(np.float32)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)), computed in float64 and rounded once."""
    return (1.0 / (1.0 + np.exp(-logits.astype(np.float64)))).astype(np.float32)


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the largest softmax value of each row (n, a) among all classes but the last, of (n, a, c + 1) logits."""
    wide = logits.astype(np.float64)
    top = wide.max(axis=2, initial=-np.inf)
    shares = np.exp(wide[:, :, :-1].max(axis=2, initial=-np.inf) - top) / np.exp(wide - top[:, :, None]).sum(axis=2)
    return np.asarray(shares, np.float32)
