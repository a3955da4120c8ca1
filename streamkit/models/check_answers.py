"""`run.py models check CARD` for networks that answer with a vector: classes, or an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.data import Device, Frame, Surface
from streamkit.models import reference
from streamkit.models.card import Card

TENSOR_LEVELS, OPENCV_LEVELS = 1.0, 0.5
"""As of `check`."""
PROBABILITY, PROBABILITY_F16 = 0.005, 0.01
"""Largest error of a class's probability."""
COSINE = 0.999
"""Least cosine between an embedding and the plain one."""


@dataclass(frozen=True, slots=True)
class AnswersReport:
    """What a check found.

    Attributes:
        task: `classify` or `embed`.
        frames: how many frames were compared.
        tensor_max: largest error of the tensor against the exact rule, in levels of 0..255.
        opencv_mean: mean error of the tensor against OpenCV's way, in levels.
        error: the largest error of a class's probability, or of a number of an embedding.
        same: the share of frames whose best class is the same; of embeddings, the least cosine.
        passed: whether all is within the tolerances.
    """

    task: str
    frames: int
    tensor_max: float
    opencv_mean: float
    error: float
    same: float
    passed: bool

    def __str__(self) -> str:
        if self.task == "classify":
            told = f"largest error of a probability {self.error:.5f}, best class the same on {self.same:.1%} of frames"
        else:
            told = f"largest error {self.error:.5f}, least cosine {self.same:.5f} (limit {COSINE})"
        lines = [
            f"frames    {self.frames}",
            f"tensor    largest error {self.tensor_max:.4f} of 255 levels (limit {TENSOR_LEVELS:g}), "
            f"mean error against OpenCV's way {self.opencv_mean:.3f} (limit {OPENCV_LEVELS:g})",
            f"answers   {told}",
            "passed" if self.passed else "FAILED",
        ]
        return "\n".join(lines)


def check_answers(card: Card, frames: Sequence[Frame], device: Device) -> AnswersReport:
    """Compare the pipeline's answers on `device` with plain ones on the CPU; `check` has made the device current.

    The answers come from the same tensor on both sides, so that their errors are the network's and the family's own.
    """
    from streamkit.models.families import family
    from streamkit.models.session import Session
    from streamkit.ops.preprocess import preprocess, preprocess_reference
    from streamkit.ops.transfer import fetch

    reads: Any = family(card.family)
    spec = card.input
    plain, session = Session(card.file, Device()), Session(card.file, device)
    per_level = spec.scale / np.array(spec.std).reshape((3, 1, 1) if spec.layout == "nchw" else 3)
    tensor_max, opencv, theirs, ours = 0.0, [], [], []
    for frame in frames:
        surface, size = frame.surface, (frame.width, frame.height)
        assert surface is not None
        there = surface if device.kind == "cpu" else Surface(device.xp.asarray(surface.data), surface.color)
        made, _ = preprocess([there], [size], spec)
        tensor = fetch([made])()[0].copy()
        wide = tensor.astype(np.float64)
        tensor_max = max(
            tensor_max, float((abs(wide - preprocess_reference([surface], [size], spec)) / per_level).max())
        )
        usual, _ = reference.tensor(reference.picture(surface, *size), spec)
        opencv.append(float((abs(wide - usual) / per_level).mean()))
        vectors = reads.vectors(session.run({session.image_input: made}))
        ours.append(reads.finish(fetch([vectors])()[0])[0])
        theirs.append(reference.answer(card.family, plain.run({plain.image_input: tensor})))
    a, b = np.array(ours, np.float64), np.array(theirs)
    error = float(abs(a - b).max())
    limit = PROBABILITY_F16 if spec.dtype == "f16" else PROBABILITY
    if card.task == "classify":
        same, fits = float((a.argmax(axis=1) == b.argmax(axis=1)).mean()), error <= limit
    else:
        same = float(((a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())
        fits = same >= COSINE
    mean = sum(opencv) / len(opencv)
    passed = tensor_max <= TENSOR_LEVELS and mean <= OPENCV_LEVELS and fits
    return AnswersReport(card.task, len(frames), tensor_max, mean, error, same, passed)
