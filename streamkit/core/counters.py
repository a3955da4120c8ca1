# SPDX-License-Identifier: Apache-2.0
"""Counters for the report: drops, copies, fallbacks, concealed frames, filtered boxes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable


def slug(text: str) -> str:
    """Text as a key or label value: lower case, words joined by `_`, as in `over_age`."""
    return re.sub(r"\W+", "_", text).strip("_").lower()


class Counters:
    """Named counts of one part of a pipeline. Each thread has its own instance; `total` sums them."""

    __slots__ = ("values",)

    def __init__(self) -> None:
        self.values: Counter[str] = Counter()

    def add(self, name: str, n: int = 1) -> None:
        """Add `n` to `name`, a short phrase with an optional cause after a colon, as in `boxes removed: size`."""
        self.values[name] += n

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    @staticmethod
    def total(parts: Iterable[Counters]) -> dict[str, int]:
        """Sum the counts of all parts, by name."""
        whole: Counter[str] = Counter()
        for part in parts:
            whole.update(dict(part.values))
        return dict(sorted(whole.items()))
