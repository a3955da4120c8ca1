# SPDX-License-Identifier: Apache-2.0
"""The gallery of identities: the mean embedding of each, and when and where it was last seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamkit.analytics.track_store import Columns, Slots

_VIEWS = 20.0  # views of an identity; a further one counts as the last of so many
_MAX_STAYS = 100


@dataclass(slots=True)
class CameraStay:
    """A time that an identity was at one camera, in seconds of the common clock; whether an event has told of it."""

    source: str
    from_s: float
    to_s: float
    announced: bool = False


@dataclass(slots=True)
class IdentityEntry:
    """One identity.

    Attributes:
        number: its number, from 1.
        label: its class.
        path: the stays since it came, in order of their start; empty after it has left.
        last: the last stay before it left; None if it never did.
    """

    number: int
    label: str
    path: list[CameraStay] = field(default_factory=list)
    last: CameraStay | None = None

    def shorten(self) -> None:
        """Keep at most 100 stays, the first and the latest: who never leaves must not take ever more memory."""
        del self.path[1 : len(self.path) - _MAX_STAYS + 1]


class IdentityGallery(Columns):
    """Identities, a row for each.

    Attributes:
        identities: by row.
        vectors: (rows, d) float32 of length 1; 0 while unknown and in free rows.
        seen_at: (rows, cameras) float64, when each camera last saw each identity.
        stored: the numbers of the identities that are stored; `identity_state.py` keeps it.
        last_number: the highest number so far.
        top: rows from here on were never used.
    """

    def __init__(self) -> None:
        super().__init__(
            0,
            number=np.int64(-1),
            label=np.int64(-1),
            seen_s=np.float64(-np.inf),
            views=np.float64(0),
            xy=np.full(2, np.nan),
            xy_s=np.float64(-np.inf),
            silent=np.bool_(False),
            changed=np.bool_(False),
        )
        self.identities: dict[int, IdentityEntry] = {}
        self.vectors = np.zeros((0, 0), np.float32)
        self.seen_at = np.zeros((0, 0))
        self.last_number = self.top = 0
        self.stored: set[int] = set()
        self._slots = Slots()

    def __len__(self) -> int:
        return len(self.identities)

    def fit(self, length: int, cameras: int) -> None:
        """Make room for vectors of this length, and for this number of cameras."""
        if self.vectors.shape != (self.rows, max(length, self.vectors.shape[1])):
            old = self.vectors
            self.vectors = np.zeros((self.rows, max(length, self.vectors.shape[1])), np.float32)
            self.vectors[: old.shape[0], : old.shape[1]] = old
        if self.seen_at.shape != (self.rows, max(cameras, self.seen_at.shape[1])):
            before = self.seen_at
            self.seen_at = np.full((self.rows, max(cameras, before.shape[1])), -np.inf)
            self.seen_at[: before.shape[0], : before.shape[1]] = before

    def add(self, identity: IdentityEntry, label: int, vector: np.ndarray) -> int:
        """Add an identity; return its row. The vector, (d,), has length 1 or is 0."""
        row = self._slots.take()
        self.top = max(self.top, row + 1)
        self.reserve(row + 1)
        self.fit(len(vector), 0)
        self.reset(row)
        self.vectors[row] = 0
        self.seen_at[row] = -np.inf
        self.vectors[row, : len(vector)] = vector
        self["number"][row] = identity.number
        self["label"][row] = label
        self["views"][row] = float(vector.any())
        self["changed"][row] = True
        self.identities[row] = identity
        self.last_number = max(self.last_number, identity.number)
        return row

    def remove(self, row: int) -> IdentityEntry:
        """Remove an identity, and return it."""
        self["label"][row] = -1
        self.vectors[row] = 0
        self._slots.give_back(row)
        return self.identities.pop(row)

    def similarity(self, vectors: np.ndarray) -> np.ndarray:
        """Return (top, k) float32, the cosine of each row's vector and each of (k, d) vectors of length 1."""
        return np.asarray(self.vectors[: self.top, : vectors.shape[1]] @ vectors.T)

    def learn(self, rows: np.ndarray, vectors: np.ndarray) -> None:
        """Add a view to each of (n,) distinct rows: (n, d) vectors of length 1."""
        share = (1 / (np.minimum(self["views"][rows], _VIEWS) + 1))[:, None]
        mean = self.vectors[rows]
        mean[:, : vectors.shape[1]] += share * (vectors - mean[:, : vectors.shape[1]])
        self.vectors[rows] = unit(mean)
        self["views"][rows] += 1

    def see(self, rows: np.ndarray, cameras: np.ndarray, now_s: np.ndarray, xy: np.ndarray, latest_s: float) -> None:
        """Note that cameras see identities.

        Args:
            rows: (n,) the identities.
            cameras: (n,) their cameras.
            now_s: (n,) float64, the time of each camera.
            xy: (n, 2) places on the ground, meters or NaN.
            latest_s: the time of the camera that is ahead of the others: files may differ.
        """
        self.seen_at[rows, cameras] = now_s
        self["seen_s"][rows] = latest_s
        on_ground = ~np.isnan(xy[:, 0])
        self["xy"][rows[on_ground]] = xy[on_ground]
        self["xy_s"][rows[on_ground]] = now_s[on_ground]
        self["changed"][rows] = True

    def merge(self, remaining: int, merged: int) -> None:
        """Merge an identity into another one."""
        share = self["views"][merged] / max(self["views"][merged] + self["views"][remaining], 1)
        self.vectors[remaining] = unit(
            self.vectors[remaining] + share * (self.vectors[merged] - self.vectors[remaining])
        )
        self["views"][remaining] += self["views"][merged]
        if self["xy_s"][merged] > self["xy_s"][remaining]:
            self["xy"][remaining] = self["xy"][merged]
            self["xy_s"][remaining] = self["xy_s"][merged]
        self["seen_s"][remaining] = max(self["seen_s"][remaining], self["seen_s"][merged])
        self.seen_at[remaining] = np.maximum(self.seen_at[remaining], self.seen_at[merged])
        entry = self.identities[remaining]
        merged_entry = self.remove(merged)
        entry.path = sorted([*entry.path, *merged_entry.path], key=lambda stay: stay.from_s)
        entry.shorten()
        entry.last = entry.last or merged_entry.last
        self["silent"][remaining] |= self["silent"][merged]
        self["changed"][remaining] = True

    def unseen(self, now_s: float, for_s: float) -> Iterable[int]:
        """Return the rows of identities that no camera has seen for longer than `for_s`."""
        return np.flatnonzero((self["label"][: self.top] >= 0) & (now_s - self["seen_s"][: self.top] > for_s)).tolist()

    def oldest(self, n: int) -> list[int]:
        """Return the rows of the n identities that were not seen for longest."""
        used = np.flatnonzero(self["label"] >= 0)
        rows: list[int] = used[np.argsort(self["seen_s"][used], kind="stable")[:n]].tolist()
        return rows


def unit(vectors: np.ndarray) -> Any:
    """Return (n, d) or (d,) vectors at length 1; those of length 0 stay."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.maximum(length, np.finfo(np.float32).tiny)
