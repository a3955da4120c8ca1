# SPDX-License-Identifier: Apache-2.0
"""Decoders of network outputs, by family of networks.

A card's `family` names it. A detector's `read` turns a batch's outputs into `Packed` tables on their device; the host
makes `Detections` of them with `unpack`. Each module of this folder adds the families of a line of networks by
`network_family`: how they are decoded, and all that is known of them. A new family needs only a new file.
"""

from __future__ import annotations

import importlib
import pkgutil

from streamkit.core.text import did_you_mean
from streamkit.models.families.base import FAMILIES, Columns, Family, ReadOptions, Rest, begin_table, unpack
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

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def family(name: str) -> Family:
    """Return the family of that name.

    Raises:
        ValueError: there is none.
    """
    if name not in FAMILIES:
        meant = did_you_mean(name, FAMILIES) or "."
        raise ValueError(f"unknown family {name!r}{meant} The families are {', '.join(FAMILIES)}")
    return FAMILIES[name]
