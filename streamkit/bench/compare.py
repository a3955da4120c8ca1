"""Compares the objects that two runs found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.ops.boxes import intersection_and_union

LEAST_IOU = 0.9
SCORE_WITHIN = 0.05


@dataclass(frozen=True, slots=True)
class Agreement:
    """The share of each side's objects that the other side found too, and the number of objects."""

    first_found: float
    second_found: float
    objects: tuple[int, int]

    def __str__(self) -> str:
        one, two = f"{self.first_found:.2%}", f"{self.second_found:.2%}"
        return f"{one} of its {self.objects[0]} objects are in the other, {two} of the other's {self.objects[1]} in it"


def objects_by_frame(path: Path) -> list[list[dict[str, Any]]]:
    """The objects of each record of a JSON Lines file, in file order."""
    return [json.loads(line)["objects"] for line in path.read_text(encoding="utf-8").splitlines()]


def agreement(
    first: Sequence[list[dict[str, Any]]], second: Sequence[list[dict[str, Any]]], *, min_score: float = 0.3
) -> Agreement:
    """Compare the objects of two runs, frame by frame.

    An object with a score of at least `min_score` counts as found if the other side has one of its class, with any
    score, with an IoU of at least 0.9 and a score within 0.05.

    Args:
        first: each frame's objects, as in a record.
        second: the other side's.
        min_score: objects with a lower score are not looked up.

    Raises:
        ValueError: the sides have different numbers of frames.
    """
    if len(first) != len(second):
        raise ValueError(f"the sides must have the same frames, got {len(first)} and {len(second)}")
    one, of_one = _found(first, second, min_score)
    two, of_two = _found(second, first, min_score)
    return Agreement(one / of_one if of_one else 1.0, two / of_two if of_two else 1.0, (of_one, of_two))


def _found(
    these: Sequence[list[dict[str, Any]]], others: Sequence[list[dict[str, Any]]], min_score: float
) -> tuple[int, int]:
    """How many of these objects the others have, and how many these are."""
    found = total = 0
    for mine, theirs in zip(these, others, strict=True):
        mine = [one for one in mine if one["score"] >= min_score]
        total += len(mine)
        if mine and theirs:
            both, union = intersection_and_union(_column(mine, "box"), _column(theirs, "box"))
            same = both >= LEAST_IOU * union
            same &= _column(mine, "class_id")[:, None] == _column(theirs, "class_id")
            same &= np.abs(_column(mine, "score")[:, None] - _column(theirs, "score")) <= SCORE_WITHIN
            found += int(same.any(axis=1).sum())
    return found, total


def _column(objects: list[dict[str, Any]], name: str) -> np.ndarray:
    return np.array([one[name] for one in objects], np.float32)
