"""How each line of networks is read: one small file a family.

A card's `family` names it. A detector's `read` turns a batch's outputs into `Packed` tables, where the outputs are; the
host makes `Detections` of them with `unpack`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from streamkit.models.families.base import Columns, Family, ReadOptions, Rest, unpack
from streamkit.ops.nms import CAUSES, Packed

if TYPE_CHECKING:
    from streamkit.models.card import Card

__all__ = [
    "CAUSES", "DETECTORS", "FAMILIES", "Columns", "Family", "Packed", "ReadOptions", "Rest", "family", "family_of",
    "unpack",
]  # fmt: skip

DETECTORS = ("yolox", "yolov5", "yolov8", "yolo_e2e", "detr", "ssd", "yunet")
VECTORS = ("logits", "probabilities", "embedding")
"""Families that answer with a vector a picture: `answers.Vector`."""
POSES = ("movenet", "yolov8_pose")
MASKS = ("yolov8_seg", "semantic")
FAMILIES = (*DETECTORS, *POSES, *MASKS, *VECTORS)


def family(name: str) -> Family:
    """The family of that name.

    Raises:
        ValueError: there is none.
    """
    from importlib import import_module

    if name not in FAMILIES:
        close = difflib.get_close_matches(name, FAMILIES, 1)
        meant = f"; did you mean {close[0]!r}?" if close else "."
        raise ValueError(f"unknown family {name!r}{meant} The families are {', '.join(FAMILIES)}")
    found: Family = import_module(f"streamkit.models.families.{name}").FAMILY
    return found


def family_of(card: Card) -> Family:
    """The family of a card, reading as the card says."""
    return family(card.family).selecting(card.select)
