# SPDX-License-Identifier: Apache-2.0
"""Which families read a network's outputs, by their shapes; `run_facts` narrows them by the values of one run.

A family's own `check` decides whether it can read outputs, and `Family.claims` whether it explains all of them;
`FamilyTraits.plausible` adds how the shapes of its networks relate to the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from streamkit.models.families import FAMILIES, Family
from streamkit.models.families.base import Size, unclaimed
from streamkit.models.network_file import ModelInfo

_ANY = 99_991
"""A number of classes that no network has: a family that accepts it does not see the number in the shapes."""


class Candidate(NamedTuple):
    """A family that can read a network's outputs.

    Attributes:
        classes: the number of classes that the shapes have for it; None if they leave it open.
        unread: the outputs that it does not explain.
    """

    family: str
    classes: int | None
    unread: tuple[str, ...] = ()


def candidates(
    info: ModelInfo, size: Size | None, classes: int | None, among: Sequence[str] | None = None, select: str = ""
) -> list[Candidate]:
    """Return the families that can read a network's outputs, also those that leave some unread.

    Args:
        info: the network.
        size: width and height of its input; None to leave open how the shapes relate to it.
        classes: length of the label list, None if unknown.
        among: the families to consider; by default all whose shapes tell them.
        select: the card's `select`.
    """
    listed: list[Candidate] = []
    for name, family in FAMILIES.items():
        if name not in among if among is not None else not family.traits.by_shape:
            continue
        reads = family.selecting(select)
        if not _takes_inputs(info, reads):
            continue
        numbers = _counts(info, reads, 1 if reads.label else len(reads.numbers) or classes)
        rule = reads.traits.plausible
        if numbers and (rule is None or size is None or rule(info, size)):
            listed += [Candidate(name, number, _unread(info, reads, number)) for number in numbers]
    return listed


def _unread(info: ModelInfo, family: Family, classes: int | None) -> tuple[str, ...]:
    return tuple(unclaimed(family, info.output_dims, _ANY if classes is None else classes))


def _takes_inputs(info: ModelInfo, family: Family) -> bool:
    """Whether the family takes clips if the network does, and has a value for every input beside the images."""
    if family.takes_clips != (info.clip is not None):
        return False
    return not info.inputs.keys() - {info.image_input} - family.extra_inputs(np.ones((1, 2), np.int64), np).keys()


def _counts(info: ModelInfo, family: Family, classes: int | None) -> list[int | None]:
    """Return the number of classes with which the family accepts the outputs, as a list of at most one."""
    shapes = info.output_dims

    def accepts(count: int) -> bool:
        try:
            family.check(shapes, count)
        except ValueError:
            return False
        return True

    if classes is not None:
        return [classes] if accepts(classes) else []
    if accepts(_ANY):
        return [None]
    sizes = {dim for dims in shapes.values() for dim in dims if isinstance(dim, int)}
    beside = {0, 1, 4, 5, 6} | {4 + size for size in sizes}
    possible = sorted({size - other for size in sizes for other in beside if size > other} | {1})
    fitting = [count for count in possible if accepts(count)]
    return [fitting[-1] if len(fitting) == 1 else None] if fitting else []
