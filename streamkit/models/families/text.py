# SPDX-License-Identifier: Apache-2.0
"""Families of networks that read text: the class of each place along the text.

| family | classes of places | places |
| --- | --- | --- |
| `ctc` | characters, and a blank between them | columns of the image; equal neighbors are one character |
| `slots` | characters, and a padding behind the last | one for each character |

CTC: Graves et al., Connectionist Temporal Classification, ICML 2006; decoded greedily, by the best class of each place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.models.families.base import (
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    Shapes,
    fits,
    listed,
    network_family,
    shape_of,
)


class Reading(NamedTuple):
    """A text that a network read.

    Attributes:
        text: its characters, each one of the alphabet's; most are single letters.
        scores: the probability of each.
        margin: how far the text is ahead of the second-best one, 0..1: the difference of the probabilities of the two
            best classes at the place where exchanging them changes the text for the least.
    """

    text: tuple[str, ...]
    scores: tuple[float, ...]
    margin: float = 1.0

    @property
    def score(self) -> float:
        """The mean of the characters' probabilities, 0..1; 0 without a character."""
        return sum(self.scores) / len(self.scores) if self.scores else 0.0


class TextFamily(Family):
    """One output with the scores of all classes for each place.

    Attributes:
        repeats: whether a character may fill several neighboring places.
    """

    task = "read"
    repeats = False

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`; `classes` is the length of the alphabet."""
        self._places(outputs, classes)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset([self._places(outputs, classes)[0]])

    def best(self, outputs: Outputs, classes: int, blank: int, allowed: Sequence[int] | None = None) -> Array:
        """Return (N, T, 4) float32 on the outputs' device: the best class of each place, its probability, and those of
        the second-best.

        Values from 0 to 1 whose sum is 1 at every place of an image are probabilities; others are logits. Where a value
        is no number, the probability is 0.

        Args:
            outputs: the network's outputs.
            classes: length of the alphabet.
            blank: the class that is no character; below 0 it counts from the end.
            allowed: indices into the alphabet of the characters that may be read; all by default.
        """
        _, axis, output = self._places(outputs, classes)
        xp = array_module(output)
        values = output.reshape(len(output), -1, classes + 1) if output.ndim == 2 else output
        values = (values if axis == 2 else values.transpose(0, 2, 1)).astype(np.float32, copy=False)
        some = values
        columns = None
        if allowed is not None:
            blank %= classes + 1
            columns = xp.asarray(np.sort(np.append([i + (i >= blank) for i in allowed], blank).astype(np.int64)))
            some = values[:, :, columns]
        first = some.argmax(axis=2)[:, :, None]
        second = xp.where(xp.arange(some.shape[2]) == first, -np.inf, some).argmax(axis=2)[:, :, None]
        places = xp.concatenate([first, second], axis=2)
        scores = _probabilities(values, xp.take_along_axis(some, places, axis=2), xp)
        classes_of = places if columns is None else columns[places]
        return xp.stack([classes_of.astype(np.float32), scores], axis=3).reshape(len(some), -1, 4)

    def decode(self, best: np.ndarray, alphabet: Sequence[str], blank: int) -> Reading:
        """Return the text of one image, (T, 4) of `best` on the host."""
        blank %= len(alphabet) + 1
        text: list[str] = []
        scores: list[float] = []
        margin = 1.0
        last = blank
        following = [*best[1:, 0].astype(int).tolist(), blank]
        for (first, score, second, second_score), after in zip(best.tolist(), following, strict=True):
            class_id = int(first)
            if self._adds(class_id, last, blank):
                text.append(alphabet[class_id - (class_id > blank)])
                scores.append(score)
            elif class_id != blank:
                scores[-1] = max(scores[-1], score)
            if self._window(class_id, last, after, blank) != self._window(int(second), last, after, blank):
                margin = min(margin, score - second_score)
            last = class_id
        return Reading(tuple(text), tuple(scores), max(margin, 0.0))

    def _adds(self, class_id: int, before: int, blank: int) -> bool:
        """Whether the class of a place adds a character to the text."""
        return class_id != blank and not (self.repeats and class_id == before)

    def _window(self, class_id: int, before: int, after: int, blank: int) -> list[int]:
        """The classes that a place and the next one add to the text."""
        pairs = (class_id, before), (after, class_id)
        return [added for added, last in pairs if self._adds(added, last, blank)]

    def _places(self, outputs: Any, classes: int) -> tuple[str, int, Any]:
        """Return the name of the output, the axis of its classes, and its shape or array."""
        wanted = classes + 1
        ranks = (3,) if self.repeats else (2, 3)
        ranked = {name: value for name, value in outputs.items() if len(shape_of(value)) in ranks}
        for name, value in ranked.items():
            shape = shape_of(value)
            if len(shape) == 2:
                if isinstance(shape[1], int) and shape[1] % wanted == 0 and shape[1] > wanted:
                    return name, 2, value
            elif fits(shape[2], wanted) and not (self.repeats and shape[1] == wanted != shape[2]):
                return name, 2, value
            elif self.repeats and shape[1] == wanted:
                return name, 1, value
        form = "(N, T, C), the scores of C classes at T places"
        if not ranked:
            raise ValueError(f"family {self.name} reads one output {form}; the network has {listed(outputs)}")
        sizes = " or ".join(str(size) for size in shape_of(next(iter(ranked.values())))[1:])
        raise ValueError(
            f"family {self.name}: the network has {listed(outputs)}, so {sizes} classes, and the alphabet has "
            f"{classes} characters, with the blank {wanted} classes; give the card the alphabet of this network"
        )


def _probabilities(values: Array, picked: Array, xp: Any) -> Array:
    """Return the probabilities of picked values, (N, T, 1), of all values (N, T, C) of each place."""
    are_probabilities = (values.min(axis=(1, 2)) >= -1e-3) & (abs(values.sum(axis=2) - 1).max(axis=1) < 0.05)
    if xp is np and are_probabilities.all():
        return picked
    peak = values.max(axis=2, keepdims=True)
    with np.errstate(invalid="ignore"):  # infinite logits
        soft = xp.exp(picked - peak) / xp.exp(values - peak).sum(axis=2, keepdims=True)
    return xp.nan_to_num(xp.where(are_probabilities[:, None, None], picked, soft))


@network_family(
    "ctc",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, T, C + 1) or (N, C + 1, T)",
                "logits or probabilities of the blank and the C characters of the alphabet, for T columns. PP-OCR, "
                "CRNN, LPRNet",
            ),
        ),
        by_shape=False,
    ),
)
class Ctc(TextFamily):
    """A CTC head, as of PP-OCR and CRNN."""

    repeats = True


@network_family(
    "slots",
    FamilyTraits(
        formats=(
            OutputFormat(
                "(N, T, C + 1)",
                "logits or probabilities of the C characters of the alphabet and of the padding, for T characters; "
                "also flat, as (N, values). fast-plate-ocr",
            ),
        ),
        by_shape=False,
    ),
)
class CharacterSlots(TextFamily):
    """A fixed number of characters, as of fast-plate-ocr."""
