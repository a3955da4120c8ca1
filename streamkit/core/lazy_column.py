# SPDX-License-Identifier: Apache-2.0
"""Columns of a table whose values are made when they are first read, such as masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np


class LazyColumn:
    """A column on the host whose values are made when they are first read; a selection of its rows is lazy as well.

    `make` may be called by several threads, and once for each selection that is read: it keeps what is expensive.

    Args:
        make: returns the values of these rows, given as (k,) indices.
        rows: (n,) the rows of this column, as indices for `make`.
        dtype: of the values.
        row_shape: shape of one row's value.
    """

    __slots__ = ("_make", "_rows", "_values", "dtype", "shape")

    def __init__(
        self, make: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, dtype: Any, row_shape: tuple[int, ...] = ()
    ) -> None:
        self._make = make
        self._rows = rows
        self._values: np.ndarray | None = None
        self.dtype = np.dtype(dtype)
        self.shape: tuple[int, ...] = (len(rows), *row_shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Size of the values in bytes."""
        return math.prod(self.shape) * int(self.dtype.itemsize)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        """Select rows by a mask, a slice or indices."""
        if self._values is not None:
            return self._values[rows]
        return LazyColumn(self._make, self._rows[rows], self.dtype, self.shape[1:])

    def read(self) -> np.ndarray:
        """Return the values, read-only."""
        values = self._values
        if values is None:
            values = self._make(self._rows)
            values.flags.writeable = False
            self._values = values
        return values

    def is_of(self, other: Any) -> bool:
        """Whether both are selections of one column, so that equal rows have equal values."""
        return type(other) is LazyColumn and self._make == other._make


def read(column: Any) -> Any:
    """Return a column with its values: a lazy one is read, others are returned unchanged."""
    return column.read() if type(column) is LazyColumn else column
