# SPDX-License-Identifier: Apache-2.0
"""State of tracks: a row for each track of each source, in columns of flat arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import numpy as np

_BITS = 48  # low bits of a key, which hold the track id; the source's slot is in the high bits
_MASK = (1 << _BITS) - 1


class Columns:
    """Named arrays of equal length that grow together; new rows have each column's initial value."""

    def __init__(self, rows: int = 0, **first: Any) -> None:
        self._first = {name: np.asarray(value) for name, value in first.items()}
        self._arrays = {name: np.empty((0, *value.shape), value.dtype) for name, value in self._first.items()}
        self.rows = 0
        self.reserve(rows)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def reserve(self, rows: int) -> None:
        """Grow to at least this many rows."""
        if rows > self.rows:
            rows = max(rows, 2 * self.rows, 16)
            for name, old in self._arrays.items():
                self._arrays[name] = new = np.empty((rows, *old.shape[1:]), old.dtype)
                new[: self.rows] = old
                new[self.rows :] = self._first[name]
            self.rows = rows

    def reset(self, rows: Any) -> None:
        """Set rows to the initial values."""
        for name, array in self._arrays.items():
            array[rows] = self._first[name]

    def replace(self, name: str, values: np.ndarray) -> None:
        """Replace a column by (rows, ...) values of the same type."""
        self._first[name] = np.zeros(values.shape[1:], values.dtype)
        self._arrays[name] = values

    def reorder(self, previous_numbers: np.ndarray, names: Iterable[str]) -> None:
        """Replace the second axis of columns whose initial values are all the same.

        Args:
            previous_numbers: (n,) int64, for each new place the present one, or -1 for the initial value.
            names: of the columns.
        """
        for name in names:
            old = self._arrays[name]
            first = self._first[name]
            has_previous = (previous_numbers >= 0).reshape(-1, *[1] * (first.ndim - 1))
            self._first[name] = np.full((len(previous_numbers), *first.shape[1:]), first.flat[0], first.dtype)
            self._arrays[name] = np.where(has_previous, old[:, previous_numbers], first.flat[0])

    def begin(self, slot: int) -> None:
        """Begin a source: give its row, which may be beyond the present ones, the initial values."""
        self.reserve(slot + 1)
        self.reset(slot)


class Slots:
    """Allocator of small numbers; the number freed last is reused first."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._new = itertools.count()

    def take(self) -> int:
        """Return a free number."""
        return self._free.pop() if self._free else next(self._new)

    def give_back(self, slot: int) -> None:
        """Free the number."""
        self._free.append(slot)


class TrackStore(Columns):
    """A row for each remembered track; `slot`, `track`, `alive` and `seen_s` are columns of every store."""

    def __init__(self, **first: Any) -> None:
        fixed = {"slot": np.int64(-1), "track": np.int64(-1), "alive": np.bool_(False), "seen_s": np.float64(0)}
        super().__init__(0, **fixed, **first)
        self._keys = np.empty(0, np.int64)  # sorted
        self._places = np.empty(0, np.int64)  # the row of each key
        self._slots = Slots()

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, slot: np.ndarray, track: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of tracks, and which of them are new; new tracks get a row.

        Args:
            slot: (n,) int64, the source of each track.
            track: (n,) int64, 0 or more; no track twice in one source.

        Returns:
            (n,) int64 rows, (n,) bool.
        """
        keys = (slot << _BITS) | (track & _MASK)
        at = np.searchsorted(self._keys, keys)
        is_present = at < len(self._keys)
        is_present[is_present] = self._keys[at[is_present]] == keys[is_present]
        rows = np.empty(len(keys), np.int64)
        rows[is_present] = self._places[at[is_present]]
        if not is_present.all():
            fresh = np.flatnonzero(~is_present)
            new_rows = np.array([self._slots.take() for _ in fresh], np.int64)
            self.reserve(int(new_rows.max()) + 1)
            self.reset(new_rows)
            rows[fresh] = new_rows
            self["slot"][new_rows] = slot[fresh]
            self["track"][new_rows] = track[fresh]
            self["alive"][new_rows] = True
            order = np.argsort(keys[fresh], kind="stable")
            place = at[fresh][order]
            self._keys = np.insert(self._keys, place, keys[fresh][order])
            self._places = np.insert(self._places, place, new_rows[order])
        return rows, ~is_present

    def unseen(self, slot: np.ndarray, pts_s: np.ndarray, back: np.ndarray, track_ttl_s: float) -> np.ndarray:
        """Return rows of tracks not seen for longer than `track_ttl_s`, ordered by source and track id.

        Args:
            slot: (f,) int64, the sources to check.
            pts_s: (f,) float64, the time of each in seconds.
            back: (f,) bool, sources whose time has jumped back: none of their tracks is seen any more.
            track_ttl_s: in seconds.
        """
        rows = self._places  # sorted by key; row numbers depend on the order in which tracks came
        slots = self["slot"][rows]
        now_s = np.full(int(max(slots.max(initial=-1), slot.max(initial=-1))) + 1, np.nan)
        now_s[slot] = np.where(back, np.inf, pts_s)
        lost: np.ndarray = rows[now_s[slots] - self["seen_s"][rows] > track_ttl_s]
        return lost

    def of(self, slot: int) -> np.ndarray:
        """Return the rows of one source's tracks."""
        return np.flatnonzero(self["alive"] & (self["slot"] == slot))

    def end(self, slot: int) -> None:
        """Drop the tracks of a source."""
        self.drop(self.of(slot))

    def drop(self, rows: np.ndarray) -> None:
        """Drop these rows."""
        if len(rows):
            self["alive"][rows] = False
            alive = self["alive"][self._places]
            self._keys = self._keys[alive]
            self._places = self._places[alive]
            for row in rows.tolist():
                self._slots.give_back(row)
