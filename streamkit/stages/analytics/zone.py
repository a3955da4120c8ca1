"""`zone`: tracks in an area: entering, leaving, dwell times and occupancy."""

from __future__ import annotations

from typing import Annotated, Any

from streamkit.analytics.occupancy import Crowd, Occupancy, Stay, Windows
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.shapes import Polygons, by_name
from streamkit.core.stage import Count, Seconds, stage
from streamkit.stages.analytics.line_counter import check_lengths
from streamkit.stages.analytics.track_analytics import TrackAnalytics, named, tell_outside


@stage(
    "zone",
    reads="track_id",
    writes="events",
    emits=("entered", "left", "loitering", "overcrowded", "cleared", "occupancy"),
)
class Zone(TrackAnalytics):
    """Say who enters and leaves an area, how long each stays, and how many there are.

    Emits `entered`, `left`, `loitering`, `overcrowded` and `cleared`.

    A track is in while its anchor lies in the area. It is out when its anchor lies outside by `margin` or more, or when
    it is not seen for longer than `max_gap`. docs/counting.md has the exact rules with diagrams.

    `entered` has `label`, `count` (the tracks now in the area), `at_s`, and `appeared: true` if the track was first
    seen in the area. `left` has `label`, `count`, `dwell_s`, `at_s`, and `lost: true` if it was last seen in the area.
    `loitering` has `label`, `count`, `dwell_s`. `overcrowded` and `cleared` have `count` and `since_s`. `occupancy` has
    `mean`, `most`, `entered`, `left`, `from_s`, `to_s`. All have `zone` if areas have names.
    """

    polygon: Annotated[Polygons, "the area's corners, [[x, y], ...], or several by name, {till: [[x, y], ...]}."]
    margin: Annotated[float | None, "how far outside a track has left; 1 % of the frame's height by default."] = None
    hold: Annotated[
        Seconds, "how long a track must be in, or out, before it counts; it then counts from the moment of the change."
    ] = 0.0
    loitering: Annotated[Seconds | None, "emit `loitering` for a track that stays this long, once per stay."] = None
    more_than: Annotated[Count | None, "emit `overcrowded` if more tracks than this are in, then `cleared`."] = None
    crowded_for: Annotated[Seconds, "how long the count must be above, or not above, before it is reported."] = 0.0
    window: Annotated[
        Seconds | None, "emit `occupancy` at this interval: mean and maximum count, tracks that entered and left."
    ] = None

    def __post_init__(self) -> None:
        """Check the areas against the units, and that options are not given without effect."""
        self.check(by_name(self.polygon).values())
        check_lengths(self.margin, self.window, self.units)
        if self.crowded_for and self.more_than is None:
            raise ValueError("crowded_for needs more_than, the number of tracks above which it is crowded")

    def open(self) -> None:
        """Reset all state."""
        super().open()
        areas = by_name(self.polygon)
        self._areas = list(areas)
        self._occupancy = Occupancy(
            list(areas.values()), hold_s=self.hold, max_gap_s=self.max_gap, loitering_s=self.loitering,
            more_than=self.more_than, crowded_for_s=self.crowded_for,
        )  # fmt: skip
        self._windows = None if self.window is None else Windows(len(areas), self.window)

    def begin(self, slot: int) -> None:
        """Start a source with empty areas."""
        self._occupancy.begin(slot)
        if self._windows is not None:
            self._windows.begin(slot)

    def watch(self, given: SourceStep) -> None:
        """Process one frame of each of several sources."""
        tell_outside(self.context, given.frames, "polygon", by_name(self.polygon), self.units)
        found = self._occupancy.step(given, given.margin(self.margin), self._most)
        for one in found:
            frame, zone = given.frames[one.frame], named("zone", self._areas[one.area])
            if isinstance(one, Crowd):
                kind = "cleared" if one.cleared else "overcrowded"
                frame.emit(kind, **zone, count=one.count, since_s=round(one.since_s, 6))
                self.count(self._areas[one.area], kind)
            else:
                frame.emit(one.kind, one.track, **zone, **self._facts(one))
                self.count(self._areas[one.area], f"{one.kind}: {self._names[one.label]}")
        shapes = by_name(self.polygon)
        for frame, counted in zip(given.frames, self._occupancy.sources["count"][given.slot].tolist(), strict=True):
            for name, count in zip(self._areas, counted, strict=True):
                self.show(frame, name, shapes[name], str(count), closed=True)
        if self._windows is not None:
            for window in self._windows.step(given, self._occupancy.sources["count"], found):
                facts: dict[str, Any] = {
                    "mean": round(window.mean, 4), "most": window.most, "entered": window.entered, "left": window.left,
                    "from_s": round(window.from_s, 6), "to_s": round(window.to_s, 6),
                }  # fmt: skip
                zone = named("zone", self._areas[window.area])
                given.frames[window.frame].emit("occupancy", **zone, **facts)

    def finish(self, slot: int) -> None:
        """Drop the source's tracks; those still in an area are counted for the summary."""
        for area, count in enumerate(self._occupancy.end(slot).tolist()):
            if count:
                self.count(self._areas[area], "in at the end", n=count)

    def _facts(self, one: Stay) -> dict[str, Any]:
        facts: dict[str, Any] = {"label": self._names[one.label], "count": one.count}
        if one.kind != "entered":
            facts["dwell_s"] = round(one.dwell_s, 6)
        if one.kind != "loitering":
            facts["at_s"] = round(one.at_s, 6)
        if one.unseen:
            facts["appeared" if one.kind == "entered" else "lost"] = True
        return facts
