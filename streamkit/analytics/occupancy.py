# SPDX-License-Identifier: Apache-2.0
"""Occupancy of areas: tracks in each area, since when. docs/analytics.md explains the rules with diagrams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamkit.analytics.geometry import Areas, pairs
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.shapes import Shape
from streamkit.analytics.track_store import Columns, TrackStore

_MAX_WINDOWS = 10  # windows between two frames: more are reported as unknown


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A window that is over.

    Attributes:
        frame: index of the frame that ended it, in the step.
        slot: that frame's source.
        from_s: its start, in the source's time.
        to_s: its end.
        next_s: start of the next window; `to_s` except after a gap or a jump back in time.
    """

    frame: int
    slot: int
    from_s: float
    to_s: float
    next_s: float


class TimeWindows(Columns):
    """Windows of `length_s` seconds, the first from a source's first frame on.

    A window cut short by a jump back in time ends with the previous frame, and the next begins with the present frame.
    The next window also begins with the present frame after a gap of more than 10 windows.
    """

    def __init__(self, length_s: float) -> None:
        super().__init__(from_s=np.float64(np.nan), last_s=np.float64(np.nan))
        self._length_s = length_s

    def over(self, step: SourceStep) -> Iterator[TimeWindow]:
        """Yield the windows ended by a step's frames, in order for each source; each source must have started."""
        from_s = self["from_s"]
        last_s = self["last_s"]
        slot = step.slot
        now_s = step.pts_s
        first = np.isnan(from_s[slot])
        from_s[slot[first]] = now_s[first]
        for frame in np.flatnonzero(step.back | (now_s >= from_s[slot] + self._length_s)).tolist():
            yield from self._over(frame, int(slot[frame]), float(now_s[frame]), back=bool(step.back[frame]))
        last_s[slot] = now_s

    def _over(self, frame: int, slot: int, now_s: float, *, back: bool) -> Iterator[TimeWindow]:
        from_s = float(self["from_s"][slot])
        if back:
            yield TimeWindow(frame, slot, from_s, float(self["last_s"][slot]), now_s)
            from_s = now_s
        elif now_s - from_s > _MAX_WINDOWS * self._length_s:
            yield TimeWindow(frame, slot, from_s, from_s + self._length_s, now_s)
            from_s = now_s
        while now_s >= (end_s := from_s + self._length_s):
            yield TimeWindow(frame, slot, from_s, end_s, end_s)
            from_s = end_s
        self["from_s"][slot] = from_s


StayKind = Literal["entered", "left", "loitering"]


@dataclass(frozen=True, slots=True)
class Stay:
    """An event of one track in one area.

    Attributes:
        kind: `entered`, `left` or `loitering`.
        frame: index of the frame in the step.
        area: index of the area.
        track: the track id.
        label: its class, a number of `Labels`.
        count: tracks in the area now.
        at_s: time of the event: the first frame inside, or outside; for a lost track, the last that saw it.
        dwell_s: how long the track is, or was, in the area; 0 for `entered`.
        unseen: for `entered`: the track was first seen in the area; for `left`: it was lost there.
    """

    kind: StayKind
    frame: int
    area: int
    track: int
    label: int
    count: int
    at_s: float
    dwell_s: float = 0.0
    unseen: bool = False


@dataclass(frozen=True, slots=True)
class Crowd:
    """An area became overcrowded (`cleared` False) or no longer is; the condition has held since `since_s`."""

    cleared: bool
    frame: int
    area: int
    count: int
    since_s: float


@dataclass(frozen=True, slots=True)
class Window:
    """Occupancy of one area from `from_s` to `to_s`: time-weighted mean, maximum, tracks that entered and left."""

    frame: int
    area: int
    from_s: float
    to_s: float
    mean: float
    peak: int
    entered: int
    left: int


class Occupancy:
    """Tracks occupancy of areas, for any number of sources.

    A track enters an area when its anchor lies in it, and leaves when the anchor lies outside by the margin or more. A
    change counts once it has lasted for `debounce_s`, as of its beginning. A track that is not seen for longer than
    `track_ttl_s`, or whose source's time jumps back, has left when it was last seen.

    Args:
        shapes: the areas.
        debounce_s: how long a change must last, in seconds.
        track_ttl_s: how long an unseen track is assumed to stay where it was.
        loitering_s: report a track that is in an area for this long, once per stay.
        more_than: more tracks than this are a crowd.
        crowded_for_s: how long the count must be above, or no longer above, before it is reported.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        *,
        debounce_s: float = 0.0,
        track_ttl_s: float = 2.0,
        loitering_s: float | None = None,
        more_than: int | None = None,
        crowded_for_s: float = 0.0,
    ) -> None:
        self.areas = Areas(shapes)
        self._debounce_s = debounce_s
        self._track_ttl_s = track_ttl_s
        self._loitering_s = loitering_s
        self._more_than = more_than
        self._crowded_for_s = crowded_for_s
        n = len(self.areas)
        self.tracks = TrackStore(
            label=np.int64(0),
            first_s=np.float64(0),
            inside=np.zeros(n, bool),
            changed_s=np.full(n, np.nan),
            entered_s=np.zeros(n),
            reported=np.zeros(n, bool),
        )
        self.sources = Columns(
            count=np.zeros(n, np.int64),
            crowded=np.zeros(n, bool),
            crowd_s=np.full(n, np.nan),
        )

    def change(self, shapes: Sequence[Shape], previous_numbers: np.ndarray) -> None:
        """Replace the areas. Tracks in an area that is new or has changed enter it with their next frame.

        Args:
            shapes: the new areas.
            previous_numbers: (areas,) int64, the present number of each, or -1 for one that is new or has changed.
        """
        self.areas = Areas(shapes)
        self.tracks.reorder(previous_numbers, ("inside", "changed_s", "entered_s", "reported"))
        self.sources.reorder(previous_numbers, ("count", "crowded", "crowd_s"))

    def begin(self, slot: int) -> None:
        """Begin a source with empty areas."""
        self.sources.begin(slot)

    def end(self, slot: int) -> np.ndarray:
        """End a source: drop its tracks; return the number of tracks in each area, (areas,) int64."""
        self.tracks.end(slot)
        return np.array(self.sources["count"][slot])

    def update(self, step: SourceStep, margin: np.ndarray, used: np.ndarray | None = None) -> list[Stay | Crowd]:
        """Process one step; return events in order: lost tracks, tracks that left and entered, loitering, crowds.

        Args:
            step: the step.
            margin: (f,) float64, for each frame, in the units of its `height`.
            used: (f, areas) bool, the areas that count on each frame; all by default.
        """
        events: list[Stay | Crowd] = list(self._lost(step))
        if len(step):
            events += self._seen(step, margin, used)
        if self._more_than is not None:
            events += self._crowds(step, self._more_than)
        return events

    def _lost(self, step: SourceStep) -> Iterator[Stay]:
        tracks = self.tracks
        count = self.sources["count"]
        lost = step.unseen(tracks, self._track_ttl_s)
        if not len(lost):
            return
        frame_of = dict(zip(step.slot.tolist(), range(len(step.slot)), strict=True))
        i, area = np.nonzero(tracks["inside"][lost])
        for row, area_number in zip(lost[i].tolist(), area.tolist(), strict=True):
            slot = int(tracks["slot"][row])
            seen_s = float(tracks["seen_s"][row])
            count[slot, area_number] -= 1
            dwell_s = max(0.0, seen_s - float(tracks["entered_s"][row, area_number]))
            yield self._stay("left", row, frame_of[slot], area_number, seen_s, dwell_s, unseen=True)
        tracks.drop(lost)

    def _stay(
        self, kind: StayKind, row: int, frame: int, area: int, at_s: float, dwell_s: float = 0.0, unseen: bool = False
    ) -> Stay:
        """Return the event of a stored track, with the present count."""
        slot, track, label = (int(self.tracks[name][row]) for name in ("slot", "track", "label"))
        return Stay(kind, frame, area, track, label, int(self.sources["count"][slot, area]), at_s, dwell_s, unseen)

    def _seen(self, step: SourceStep, margin: np.ndarray, used: np.ndarray | None) -> Iterator[Stay]:
        tracks = self.tracks
        now_s = step.pts_s[step.frame]
        rows, fresh = tracks.find(step.slot[step.frame], step.track)
        tracks["first_s"][rows[fresh]] = now_s[fresh]
        tracks["label"][rows] = step.label
        tracks["seen_s"][rows] = now_s
        inside = self.areas.inside(step.xy)
        was = tracks["inside"][rows]
        if used is not None:
            inside = inside & used[step.frame]
        differs = inside != was
        if self._debounce_s:  # a change that did not last
            tracks["changed_s"][rows] = np.where(differs, tracks["changed_s"][rows], np.nan)
        at, area = pairs(differs)
        if len(at):
            frame = step.frame[at]
            row = rows[at]
            out = was[at, area]
            far = np.ones(len(at), bool)
            far[out] = self.areas.distance(step.xy[at[out]], area[out], step.aspect[frame[out]]) >= margin[frame[out]]
            tracks["changed_s"][row[~far], area[~far]] = np.nan
            at = at[far]
            area = area[far]
            row = row[far]
            since = tracks["changed_s"][row, area]
            since = np.where(np.isnan(since), now_s[at], since)
            turned = now_s[at] - since >= self._debounce_s
            tracks["changed_s"][row, area] = np.where(turned, np.nan, since)
            yield from self._turned(step, rows, at[turned], area[turned], since[turned])
        if self._loitering_s is not None:
            yield from self._loitering(step, rows, now_s, self._loitering_s)

    def _turned(
        self, step: SourceStep, rows: np.ndarray, ats: np.ndarray, areas: np.ndarray, since: np.ndarray
    ) -> Iterator[Stay]:
        tracks = self.tracks
        count = self.sources["count"]
        for at, area, at_s in zip(ats.tolist(), areas.tolist(), since.tolist(), strict=True):
            row = int(rows[at])
            frame = int(step.frame[at])
            tracks["inside"][row, area] = enters = not tracks["inside"][row, area]
            count[step.slot[frame], area] += 1 if enters else -1
            if enters:
                tracks["entered_s"][row, area] = at_s
                tracks["reported"][row, area] = False
                yield self._stay("entered", row, frame, area, at_s, unseen=bool(at_s <= tracks["first_s"][row]))
            else:
                dwell_s = max(0.0, at_s - float(tracks["entered_s"][row, area]))
                yield self._stay("left", row, frame, area, at_s, dwell_s)

    def _loitering(self, step: SourceStep, rows: np.ndarray, now_s: np.ndarray, after_s: float) -> Iterator[Stay]:
        tracks = self.tracks
        ats, areas = pairs(tracks["inside"][rows] & ~tracks["reported"][rows])
        dwell_s = now_s[ats] - tracks["entered_s"][rows[ats], areas]
        due = (dwell_s >= after_s) & np.isnan(tracks["changed_s"][rows[ats], areas])  # and it is not on its way out
        tracks["reported"][rows[ats[due]], areas[due]] = True
        for at, area, long_s in zip(ats[due].tolist(), areas[due].tolist(), dwell_s[due].tolist(), strict=True):
            yield self._stay("loitering", int(rows[at]), int(step.frame[at]), area, float(now_s[at]), long_s)

    def _crowds(self, step: SourceStep, more_than: int) -> Iterator[Crowd]:
        sources = self.sources
        slot = step.slot
        count = sources["count"][slot]
        differs = (count > more_than) != sources["crowded"][slot]
        since = sources["crowd_s"][slot]
        since[~differs | step.back[:, None]] = np.nan
        since = np.where(differs & np.isnan(since), step.pts_s[:, None], since)
        turned = differs & (step.pts_s[:, None] - since >= self._crowded_for_s)
        sources["crowd_s"][slot] = np.where(turned, np.nan, since)
        for frame, area in zip(*(part.tolist() for part in np.nonzero(turned)), strict=True):
            cleared = bool(sources["crowded"][slot[frame], area])
            sources["crowded"][slot[frame], area] = not cleared
            yield Crowd(cleared, frame, area, int(count[frame, area]), float(since[frame, area]))


class Windows(Columns):
    """Occupancy in windows of `length_s` seconds; `TimeWindows` determines when they end.

    A count holds from its frame to the next.
    """

    def __init__(self, areas: int, length_s: float) -> None:
        self._spans = TimeWindows(length_s)
        super().__init__(
            last_s=np.float64(0),
            count=np.zeros(areas, np.int64),
            sum_s=np.zeros(areas),
            peak=np.zeros(areas, np.int64),
            entered=np.zeros(areas, np.int64),
            left=np.zeros(areas, np.int64),
        )

    def begin(self, slot: int) -> None:
        """Begin a source."""
        self._spans.begin(slot)
        super().begin(slot)

    def change(self, previous_numbers: np.ndarray) -> None:
        """Follow `Occupancy.change`."""
        self.reorder(previous_numbers, ("count", "sum_s", "peak", "entered", "left"))

    def update(self, step: SourceStep, count: np.ndarray, stays: Sequence[Stay | Crowd]) -> Iterator[Window]:
        """Process one step, after `Occupancy`; return the windows that ended.

        Args:
            step: the step.
            count: (slots, areas) int64, number of tracks in each area now.
            stays: the step's events.
        """
        slot = step.slot
        now_s = step.pts_s
        for span in self._spans.over(step):
            yield from self._close(span)
        self["sum_s"][slot] += self["count"][slot] * np.maximum(0.0, now_s - self["last_s"][slot])[:, None]
        self["last_s"][slot] = now_s
        for stay in stays:
            if isinstance(stay, Stay) and stay.kind != "loitering":
                self[stay.kind][slot[stay.frame], stay.area] += 1
        self["count"][slot] = count[slot]
        self["peak"][slot] = np.maximum(self["peak"][slot], count[slot])

    def _close(self, span: TimeWindow) -> Iterator[Window]:
        """Report a window and begin the next."""
        slot = span.slot
        long_s = span.to_s - span.from_s
        self["sum_s"][slot] += self["count"][slot] * (span.to_s - self["last_s"][slot])
        for area in range(len(self["sum_s"][slot])):
            mean = float(self["sum_s"][slot, area]) / long_s if long_s else float(self["count"][slot, area])
            peak, entered, left = (int(self[name][slot, area]) for name in ("peak", "entered", "left"))
            yield Window(span.frame, area, span.from_s, span.to_s, mean, peak, entered, left)
        self["last_s"][slot] = span.next_s
        for name in ("sum_s", "entered", "left"):
            self[name][slot] = 0
        self["peak"][slot] = self["count"][slot] if span.next_s == span.to_s else 0
