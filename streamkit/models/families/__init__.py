"""Decoders of network outputs: one small file per family of networks.

A card's `family` names it. A detector's `read` turns a batch's outputs into `Packed` tables on their device; the host
makes `Detections` of them with `unpack`.
"""

from __future__ import annotations

import difflib

from streamkit.models.families.base import Columns, Family, ReadOptions, Rest, unpack
from streamkit.models.family_names import DETECTORS, FAMILIES
from streamkit.ops.nms import CAUSES, Packed

__all__ = [
    "CAUSES", "DETECTORS", "FAMILIES", "Columns", "Family", "Packed", "ReadOptions", "Rest", "family",
    "unpack",
]  # fmt: skip


def family(name: str) -> Family:
    """Return the family of that name.

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
