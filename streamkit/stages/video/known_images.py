# SPDX-License-Identifier: Apache-2.0
"""What `collect` has collected: when, what it looks like, and the vectors of its objects."""

from __future__ import annotations

import base64
import bisect
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np

from streamkit.core.units import Rate
from streamkit.ops.perceptual_hash import hash_distances

FARTHEST = 2.0
"""The largest cosine distance of two vectors, also the distance of a vector if none is known."""


def vector_text(vector: np.ndarray) -> str:
    """A vector, (d,) float32, as base64 of float16."""
    return base64.b64encode(vector.astype("<f2").tobytes()).decode("ascii")


@dataclass(slots=True)
class _Vectors:
    """Vectors of length 1 that grow in number: (capacity, d) float32, of which the first `count` are set."""

    rows: np.ndarray
    count: int = 0

    def add(self, vector: np.ndarray) -> None:
        if self.count == len(self.rows):
            self.rows = np.concatenate([self.rows, np.empty_like(self.rows)])
        self.rows[self.count] = vector
        self.count += 1


@dataclass(slots=True)
class KnownImages:
    """The images of a folder, from their lines.

    Attributes:
        times_s: when each was collected, ascending, in seconds since 1970.
    """

    times_s: list[float] = field(default_factory=list)
    _hashes: dict[tuple[str, bool], array[int]] = field(default_factory=dict)  # by source, and whether of objects
    _vectors: dict[tuple[str, int], _Vectors] = field(default_factory=dict)  # by detector and length

    def add(self, lines: Iterable[Mapping[str, Any]]) -> int:
        """Take lines of `collected.jsonl`; return how many have a value that cannot be read, which is left out."""
        unreadable = 0
        for line in lines:
            try:
                self._add(line)
            except (ValueError, TypeError, OverflowError):
                unreadable += 1
        return unreadable

    def _add(self, line: Mapping[str, Any]) -> None:
        bisect.insort(self.times_s, datetime.fromisoformat(line["collected"]).timestamp())
        source = line["source"]
        if "hash" in line:
            self._hashes.setdefault((source, False), array("Q")).append(int(line["hash"], 16))
        for entry in line["objects"]:
            if "hash" in entry:
                self._hashes.setdefault((source, True), array("Q")).append(int(entry["hash"], 16))
            if "vector" in entry:
                vector = np.frombuffer(base64.b64decode(entry["vector"]), "<f2").astype(np.float32)
                self._add_vector(entry["stage"], vector)

    def used(self, rate: Rate, now_s: float) -> int:
        """The number of images collected in the present period: since midnight (UTC) for a day."""
        begin_s = now_s - now_s % rate.period_s
        end_s = begin_s + rate.period_s  # later ones are of a clock that was wrong
        return bisect.bisect_left(self.times_s, end_s) - bisect.bisect_left(self.times_s, begin_s)

    def has_hash(self, hash_: int, of_object: bool, source: str | None, bits: int) -> bool:
        """Whether an image like this is known.

        Args:
            hash_: its hash.
            of_object: whether it is the hash of an object, not of a frame.
            source: the source whose images are compared; None for all.
            bits: number of bits that may differ.
        """
        compared = (hashes for key, hashes in self._hashes.items() if key[1] == of_object and source in (None, key[0]))
        return any((hash_distances(hash_, hashes) <= bits).any() for hashes in compared)

    def distances(self, stage: str, vectors: np.ndarray) -> np.ndarray:
        """The cosine distance, (n,), of each vector to the nearest known one of this detector; NaN if it is NaN."""
        collected = self._vectors.get((stage, vectors.shape[1]))
        if collected is None or not collected.count:
            return np.where(np.isnan(vectors).any(axis=1), np.nan, FARTHEST)
        return np.asarray(1 - (vectors @ collected.rows[: collected.count].T).max(axis=1))

    def _add_vector(self, stage: str, vector: np.ndarray) -> None:
        key = stage, len(vector)
        if key not in self._vectors:
            self._vectors[key] = _Vectors(np.empty((16, len(vector)), np.float32))
        self._vectors[key].add(vector / max(float(np.linalg.norm(vector)), 1e-6))
