# SPDX-License-Identifier: Apache-2.0
"""`zone`: tracks in an area: entering, leaving, dwell times and occupancy."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import numpy as np

from streamkit.analytics.occupancy import Crowd, Occupancy, Stay, Windows
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.shapes import Polygons
from streamkit.core.stage import Count, Seconds, stage
from streamkit.stages.analytics.track_analytics import ShapeAnalytics


@stage(
    "zone",
    reads="track_id",
    writes="events",
    emits=("entered", "left", "loitering", "overcrowded", "cleared", "occupancy"),
    changeable=("polygon", "sources"),
)
class Zone(ShapeAnalytics):
    """Say who enters and leaves an area, how long each stays, and how many there are.

    Emits `entered`, `left`, `loitering`, `overcrowded`, `cleared` and `occupancy`.

    A track is in while its anchor lies in the area. It is out when its anchor lies outside by `margin` or more, or when
    it is not seen for longer than `track_ttl`. docs/analytics.md has the rules with diagrams.

    `entered` has `label`, `count` (the tracks now in the area), `at_s`, and `appeared: true` if the track was first
    seen in the area. `left` has `label`, `count`, `dwell_s`, `at_s`, and `lost: true` if it was last seen in the area.
    `loitering` has `label`, `count`, `dwell_s`. `overcrowded` and `cleared` have `count` and `since_s`. `occupancy` has
    `mean`, `max`, `entered`, `left`, `from_s`, `to_s`. All have `zone` if areas have names.
    """

    polygon: Annotated[Polygons, "the area's corners, [[x, y], ...], or several by name, {till: [[x, y], ...]}."]
    loitering: Annotated[Seconds | None, "emit `loitering` for a track that stays this long, once per stay."] = None
    more_than: Annotated[Count | None, "emit `overcrowded` if more tracks than this are in, then `cleared`."] = None
    crowded_for: Annotated[Seconds, "how long the count must be above, or not above, before it is reported."] = 0.0

    closed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the areas against the units, and that options are not given without effect."""
        super().__post_init__()
        if self.crowded_for and self.more_than is None:
            raise ValueError("crowded_for needs more_than, the number of tracks above which it is crowded")

    def open(self) -> None:
        """Reset all state."""
        super().open()
        self._occupancy = Occupancy(
            list(self._shapes.values()),
            debounce_s=self.debounce,
            track_ttl_s=self.track_ttl,
            loitering_s=self.loitering,
            more_than=self.more_than,
            crowded_for_s=self.crowded_for,
        )
        self._windows = None if self.window is None else Windows(len(self._shapes), self.window)

    def begin(self, slot: int) -> None:
        """Start a source with empty areas."""
        super().begin(slot)
        self._occupancy.begin(slot)
        if self._windows is not None:
            self._windows.begin(slot)

    def change(self, previous_numbers: np.ndarray) -> None:
        """Areas that have changed begin empty."""
        self._occupancy.change(list(self._shapes.values()), previous_numbers)
        if self._windows is not None:
            self._windows.change(previous_numbers)

    def update(self, step: SourceStep) -> None:
        """Process one frame of each of several sources."""
        self.warn_outside(step.frames)
        used = self.used(step.slot)
        changes = self._occupancy.update(step, step.margin(self.margin), used)
        for change in changes:
            frame = step.frames[change.frame]
            zone = self.named(change.area)
            name = self._shape_names[change.area]
            if isinstance(change, Crowd):
                kind = "cleared" if change.cleared else "overcrowded"
                frame.emit(kind, **zone, count=change.count, since_s=round(change.since_s, 6))
                self.count(name, kind)
            else:
                frame.emit(change.kind, change.track, **zone, **self._facts(change))
                self.count(name, f"{change.kind}: {self._names[change.label]}")
        counts = self._occupancy.sources["count"][step.slot].tolist()
        for at, (frame, counted) in enumerate(zip(step.frames, counts, strict=True)):
            self.show(frame, map(str, counted), None if used is None else used[at].tolist())
        if self._windows is not None:
            for window in self._windows.update(step, self._occupancy.sources["count"], changes):
                if used is not None and not used[window.frame, window.area]:
                    continue
                facts: dict[str, Any] = {
                    "mean": round(window.mean, 4),
                    "max": window.peak,
                    "entered": window.entered,
                    "left": window.left,
                    "from_s": round(window.from_s, 6),
                    "to_s": round(window.to_s, 6),
                }
                step.frames[window.frame].emit("occupancy", **self.named(window.area), **facts)

    def finish(self, slot: int) -> None:
        """Drop the source's tracks; those still in an area are counted for the summary."""
        for area, count in enumerate(self._occupancy.end(slot).tolist()):
            if count:
                self.count(self._shape_names[area], "inside at the end", n=count)

    def _facts(self, stay: Stay) -> dict[str, Any]:
        facts: dict[str, Any] = {"label": self._names[stay.label], "count": stay.count}
        if stay.kind != "entered":
            facts["dwell_s"] = round(stay.dwell_s, 6)
        if stay.kind != "loitering":
            facts["at_s"] = round(stay.at_s, 6)
        if stay.unseen:
            facts["appeared" if stay.kind == "entered" else "lost"] = True
        return facts
