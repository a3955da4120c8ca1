"""`run.py models check CARD` for networks with vector outputs: classes, or an embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.core.data import Device, Frame
from streamkit.models import reference
from streamkit.models.card import Card
from streamkit.models.check_parts import Tensors, told

PROBABILITY, PROBABILITY_F16 = 0.005, 0.01
"""Largest error of a class's probability."""
COSINE = 0.999
"""Least cosine between an embedding and the plain one."""


@dataclass(frozen=True, slots=True)
class AnswersReport:
    """Result of a check.

    Attributes:
        task: `classify` or `embed`.
        frames: number of frames compared.
        tensor_max: largest error of the tensor against the exact rule, in levels of 0..255.
        opencv_mean: mean error of the tensor against OpenCV's result, in levels.
        error: largest error of a class's probability, or of an element of an embedding.
        same: share of frames with the same best class; for embeddings, the least cosine.
        passed: whether everything is within the tolerances.
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
            found = f"largest error of a probability {self.error:.5f}, best class the same on {self.same:.1%} of frames"
        else:
            found = f"largest error {self.error:.5f}, least cosine {self.same:.5f} (limit {COSINE})"
        return told(self.frames, self.tensor_max, self.opencv_mean, f"answers   {found}", self.passed)


def check_answers(card: Card, frames: Sequence[Frame], device: Device) -> AnswersReport:
    """Compare the pipeline's vectors on `device`, which `check` has made current, with plain ones on the CPU.

    The vectors come from the same tensor on both sides, so their errors are those of the network and the family.
    """
    from streamkit.models.card import family_of
    from streamkit.models.session import Session
    from streamkit.ops.transfer import fetch

    reads: Any = family_of(card)
    spec, tensors = card.input, Tensors(card, device)
    plain, session = Session(card.file, Device()), Session(card.file, device)
    theirs, ours = [], []
    for frame in frames:
        made, tensor, _ = tensors.of(frame)
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
    passed = tensors.passed and fits
    return AnswersReport(card.task, len(frames), tensors.worst, tensors.mean, error, same, passed)
