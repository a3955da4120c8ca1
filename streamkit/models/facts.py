# SPDX-License-Identifier: Apache-2.0
"""What is known of a network without a card, with where it is known from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamkit.core.errors import ModelError

IMAGENET_MEAN = [0.485, 0.456, 0.406]
IMAGENET_STD = [0.229, 0.224, 0.225]


class CardFact(NamedTuple):
    """The value of a card's key.

    Attributes:
        value: as in a card's YAML; for `labels`, the names.
        origin: where it comes from, for the card's comments and for messages.
    """

    value: Any
    origin: str


@dataclass
class CardFacts:
    """The keys of a card that one source of knowledge gives.

    Attributes:
        by_key: the facts by key; keys of `input` begin with `input.`.
        families: the families that the source's networks may have; None for all.
        about: one line about the network for the head of a written card; empty if there is none.
        note: what the user must know of it; empty if there is nothing.
        stride: of which width and height of the input must be multiples, in pixels.
        points: the number of keypoints.
    """

    by_key: dict[str, CardFact] = field(default_factory=dict)
    families: tuple[str, ...] | None = None
    about: str = ""
    note: str = ""
    stride: CardFact | None = None
    points: CardFact | None = None

    def add(self, origin: str, **values: Any) -> None:
        """Add values of one origin; `input_color` is the key `input.color`."""
        for name, value in values.items():
            self.by_key[name.replace("input_", "input.", 1)] = CardFact(value, origin)


class Underivable(ModelError):
    """A card cannot be derived; `problems` say what is missing or contradictory, and the fix."""


def need(holds: object, text: str) -> None:
    """Raise ValueError with the text unless `holds`."""
    if not holds:
        raise ValueError(text)


def contradiction(key: str, contradicting: Sequence[CardFact], fix: str) -> str:
    """Return the message for sources that give a key different values."""
    values = " but ".join(f"{shown(key, fact.value)} in {fact.origin}" for fact in contradicting)
    return f"{key} {'are' if key == 'labels' else 'is'} {values}; {fix}"


def shown(key: str, value: Any) -> str:
    """Return a value for a message; of labels, their number and the first ones."""
    if key == "labels":
        names = ", ".join(map(str, value[:3])) + (", ..." if len(value) > 3 else "")
        return f"{len(value)} ({names})"
    if key == "input.size":
        return "{} x {}".format(*value)
    return str(value)
