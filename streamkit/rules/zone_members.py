"""Tracks in the areas of a stage `zone`, by that stage's own rules, for rules that refer to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from streamkit.analytics.occupancy import Occupancy
from streamkit.analytics.per_source_steps import Clocks, Labels, SourceStep, rounds
from streamkit.core.data import Batch
from streamkit.rules.scope import ZoneScope


class ZoneMembers:
    """Tracks in the areas of one stage `zone`, for all sources."""

    def __init__(self, zone: ZoneScope) -> None:
        self._zone, self._areas = zone, list(zone.areas)
        self._labels, self._clocks = Labels(zone.labels), Clocks()
        self.occupancy = Occupancy(list(zone.areas.values()), hold_s=zone.hold_s, max_gap_s=zone.max_gap_s)
        self._rows = self._memory = np.zeros(0, np.int64)
        self._now_s = np.zeros(0)
        self._counts: np.ndarray | None = None

    def begin(self, slot: int) -> None:
        """Begin a source."""
        self._clocks.begin(slot)
        self.occupancy.begin(slot)

    def rounds(self, batch: Batch, slots: Mapping[str, int]) -> Iterator[SourceStep]:
        """Return a batch as the stage sees it."""
        return rounds(batch, slots, self._zone.view, self._labels, self._clocks)

    def step(self, given: SourceStep, most: int) -> None:
        """Process one frame of each of several sources."""
        self.occupancy.step(given, given.margin(self._zone.margin), most)
        self._rows = given.row
        self._memory, _ = self.occupancy.tracks.find(given.slot[given.frame], given.track)
        self._now_s = given.pts_s[given.frame]
        self._counts = None

    def column(self, name: str, n: int, *, dwell: bool) -> np.ndarray:
        """Return (n,): whether each object is in an area, or for how long in seconds."""
        area, found = self._areas.index(name), np.full(n, np.nan if dwell else 0.0)
        inside = self.occupancy.tracks["inside"][self._memory, area]
        if dwell:
            entered_s = self.occupancy.tracks["entered_s"][self._memory, area]
            found[self._rows] = np.where(inside, self._now_s - entered_s, np.nan)
        else:
            found[self._rows] = inside
        return found

    def members(self, name: str, label: str | None, most: int) -> np.ndarray:
        """Return (sources,): the number of tracks in an area, for all sources."""
        if self._counts is None:
            tracks, areas, labels = self.occupancy.tracks, len(self._areas), max(1, len(self._labels.names))
            row, area = np.nonzero(tracks["inside"] & tracks["alive"][:, None])
            place = (tracks["slot"][row] * areas + area) * labels + tracks["label"][row]
            self._counts = np.bincount(place, minlength=most * areas * labels).reshape(most, areas, labels)
        counts = self._counts[:, self._areas.index(name)]
        if label is None:
            return np.asarray(counts.sum(axis=1))
        names = self._labels.names
        return counts[:, names.index(label)] if label in names else np.zeros(most, np.int64)
