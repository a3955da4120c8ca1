# SPDX-License-Identifier: Apache-2.0
"""Decoders of network outputs, by family of networks.

A card's `family` names it. A detector's `read` turns a batch's outputs into `Packed` tables on their device; the host
makes `Detections` of them with `unpack`.
"""

from __future__ import annotations

from streamkit.core.text import did_you_mean
from streamkit.models.families import detr, movenet, semantic, ssd, text, vectors, yolo, yunet
from streamkit.models.families.base import Columns, Family, ReadOptions, Rest, begin_table, unpack
from streamkit.ops.nms import CAUSES, Packed

__all__ = [
    "CAUSES",
    "FAMILIES",
    "Columns",
    "Family",
    "Packed",
    "ReadOptions",
    "Rest",
    "begin_table",
    "family",
    "unpack",
]

_ALL: tuple[Family, ...] = (
    *yolo.FAMILIES,
    *detr.FAMILIES,
    ssd.Ssd(),
    yunet.Yunet(),
    movenet.Movenet(),
    semantic.Semantic(),
    *text.FAMILIES,
    *vectors.FAMILIES,
)
FAMILIES = {family_of_task.name: family_of_task for family_of_task in _ALL}
"""Every family, by its name in a card."""


def family(name: str) -> Family:
    """Return the family of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in FAMILIES:
        meant = did_you_mean(name, FAMILIES) or "."
        raise ValueError(f"unknown family {name!r}{meant} The families are {', '.join(FAMILIES)}")
    return FAMILIES[name]
