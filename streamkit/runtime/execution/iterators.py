# SPDX-License-Identifier: Apache-2.0
"""Iterators of frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

_T = TypeVar("_T")


@contextmanager
def closing_iterator(items: Iterable[_T]) -> Iterator[Iterable[_T]]:
    """Close `items` at the end of the block if it can be closed, as a generator can and a list cannot."""
    try:
        yield items
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()
