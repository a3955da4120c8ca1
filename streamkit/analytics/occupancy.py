"""Occupancy of areas: tracks in each area, since when. docs/counting.md explains the rules with diagrams."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamkit.analytics.geometry import Areas, pairs
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.shapes import Shape
from streamkit.analytics.track_store import Columns, TrackStore

_MOST = 10  # windows between two frames: more are reported as unknown


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A window that is over.

    Attributes:
        frame: index of the frame that ended it, in the round.
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


class TimeWindows:
    """Windows of `length_s` seconds, the first from a source's first frame on.

    A window cut short by a jump back in time ends with the previous frame, and the next begins with the present frame.
    The next window also begins with the present frame after a gap of more than 10 windows.
    """

    def __init__(self, length_s: float) -> None:
        self._length_s = length_s
        self._sources = Columns(from_s=np.float64(np.nan), last_s=np.float64(np.nan))

    def begin(self, slot: int) -> None:
        """Begin a source."""
        self._sources.reserve(slot + 1)
        self._sources.reset(slot)

    def over(self, given: SourceStep) -> Iterator[TimeWindow]:
        """Yield the windows ended by a round's frames, in order for each source; each source must have begun."""
        from_s, last_s = self._sources["from_s"], self._sources["last_s"]
        slot, now_s = given.slot, given.pts_s
        first = np.isnan(from_s[slot])
        from_s[slot[first]] = now_s[first]
        for frame in np.flatnonzero(given.back | (now_s >= from_s[slot] + self._length_s)).tolist():
            yield from self._over(frame, int(slot[frame]), float(now_s[frame]), back=bool(given.back[frame]))
        last_s[slot] = now_s

    def _over(self, frame: int, slot: int, now_s: float, *, back: bool) -> Iterator[TimeWindow]:
        begun_s = float(self._sources["from_s"][slot])
        if back:
            yield TimeWindow(frame, slot, begun_s, float(self._sources["last_s"][slot]), now_s)
            begun_s = now_s
        elif now_s - begun_s > _MOST * self._length_s:
            yield TimeWindow(frame, slot, begun_s, begun_s + self._length_s, now_s)
            begun_s = now_s
        while now_s >= (end_s := begun_s + self._length_s):
            yield TimeWindow(frame, slot, begun_s, end_s, end_s)
            begun_s = end_s
        self._sources["from_s"][slot] = begun_s


@dataclass(frozen=True, slots=True)
class Stay:
    """An event of one track in one area.

    Attributes:
        kind: `entered`, `left` or `loitering`.
        frame: index of the frame in the round.
        area: index of the area.
        track: the track id.
        label: its class, a number of `Labels`.
        count: tracks in the area now.
        at_s: time of the event: the first frame inside, or outside; for a lost track, the last that saw it.
        dwell_s: how long the track is, or was, in the area; 0 for `entered`.
        unseen: for `entered`: the track was first seen in the area; for `left`: it was lost there.
    """

    kind: Literal["entered", "left", "loitering"]
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
    most: int
    entered: int
    left: int


class Occupancy:
    """Tracks occupancy of areas, for any number of sources.

    A track enters an area when its anchor lies in it, and leaves when the anchor lies outside by the margin or more. A
    change counts once it has lasted for `hold_s`, as of its beginning. A track that is not seen for longer than
    `max_gap_s`, or whose source's time jumps back, has left when it was last seen.

    Args:
        shapes: the areas.
        hold_s: how long a change must last, in seconds.
        max_gap_s: how long an unseen track is assumed to stay where it was.
        loitering_s: report a track that is in an area for this long, once per stay.
        more_than: more tracks than this are a crowd.
        crowded_for_s: how long the count must be above, or no longer above, before it is reported.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        *,
        hold_s: float = 0.0,
        max_gap_s: float = 2.0,
        loitering_s: float | None = None,
        more_than: int | None = None,
        crowded_for_s: float = 0.0,
    ) -> None:
        self.areas, self._hold_s, self._max_gap_s = Areas(shapes), hold_s, max_gap_s
        self._loitering_s, self._more_than, self._crowded_for_s = loitering_s, more_than, crowded_for_s
        n = len(self.areas)
        self.tracks = TrackStore(
            label=np.int64(0), first_s=np.float64(0), inside=np.zeros(n, bool), changed_s=np.full(n, np.nan),
            entered_s=np.zeros(n), reported=np.zeros(n, bool),
        )  # fmt: skip
        self.sources = Columns(
            count=np.zeros(n, np.int64), crowded=np.zeros(n, bool), crowd_s=np.full(n, np.nan),
        )  # fmt: skip

    def begin(self, slot: int) -> None:
        """Begin a source with empty areas."""
        self.sources.reserve(slot + 1)
        self.sources.reset(slot)

    def end(self, slot: int) -> np.ndarray:
        """End a source: drop its tracks; return the number of tracks in each area, (areas,) int64."""
        self.tracks.forget(self.tracks.of(slot))
        return np.array(self.sources["count"][slot])

    def step(self, given: SourceStep, margin: np.ndarray, slots: int) -> list[Stay | Crowd]:
        """Process one round; return events in order: lost tracks, tracks that left and entered, loitering, crowds.

        Args:
            given: the round.
            margin: (f,) float64, for each frame, in the units of its `height`.
            slots: number of sources, each of which has begun.
        """
        found: list[Stay | Crowd] = list(self._lost(given, slots))
        if len(given):
            found += self._seen(given, margin)
        if self._more_than is not None:
            found += self._crowds(given, self._more_than)
        return found

    def _lost(self, given: SourceStep, slots: int) -> Iterator[Stay]:
        tracks, count = self.tracks, self.sources["count"]
        gone = tracks.unseen(given.times(slots), self._max_gap_s)
        if not len(gone):
            return
        frame_of = dict(zip(given.slot.tolist(), range(len(given.slot)), strict=True))
        i, area = np.nonzero(tracks["inside"][gone])
        for row, one in zip(gone[i].tolist(), area.tolist(), strict=True):
            slot, seen_s = int(tracks["slot"][row]), float(tracks["seen_s"][row])
            count[slot, one] -= 1
            dwell_s = max(0.0, seen_s - float(tracks["entered_s"][row, one]))
            yield Stay(
                "left", frame_of[slot], one, int(tracks["track"][row]), int(tracks["label"][row]),
                int(count[slot, one]), seen_s, dwell_s, unseen=True,
            )  # fmt: skip
        tracks.forget(gone)

    def _seen(self, given: SourceStep, margin: np.ndarray) -> Iterator[Stay]:
        tracks, now_s = self.tracks, given.pts_s[given.frame]
        rows, fresh = tracks.find(given.slot[given.frame], given.track)
        tracks["first_s"][rows[fresh]] = now_s[fresh]
        tracks["label"][rows], tracks["seen_s"][rows] = given.label, now_s
        inside, was = self.areas.inside(given.xy), tracks["inside"][rows]
        differs = inside != was
        if self._hold_s:  # a change that did not last
            tracks["changed_s"][rows] = np.where(differs, tracks["changed_s"][rows], np.nan)
        at, area = pairs(differs)
        if len(at):
            frame, row, out = given.frame[at], rows[at], was[at, area]
            far = np.ones(len(at), bool)
            far[out] = self.areas.distance(given.xy[at[out]], area[out], given.aspect[frame[out]]) >= margin[frame[out]]
            tracks["changed_s"][row[~far], area[~far]] = np.nan
            at, area, row = at[far], area[far], row[far]
            since = tracks["changed_s"][row, area]
            since = np.where(np.isnan(since), now_s[at], since)
            turned = now_s[at] - since >= self._hold_s
            tracks["changed_s"][row, area] = np.where(turned, np.nan, since)
            yield from self._turned(given, rows, at[turned], area[turned], since[turned])
        if self._loitering_s is not None:
            yield from self._loitering(given, rows, now_s, self._loitering_s)

    def _turned(
        self, given: SourceStep, rows: np.ndarray, ats: np.ndarray, areas: np.ndarray, since: np.ndarray
    ) -> Iterator[Stay]:
        tracks, count = self.tracks, self.sources["count"]
        for at, area, at_s in zip(ats.tolist(), areas.tolist(), since.tolist(), strict=True):
            row, frame = int(rows[at]), int(given.frame[at])
            slot, track, label = int(given.slot[frame]), int(given.track[at]), int(given.label[at])
            tracks["inside"][row, area] = enters = not tracks["inside"][row, area]
            count[slot, area] += 1 if enters else -1
            now = int(count[slot, area])
            if enters:
                tracks["entered_s"][row, area], tracks["reported"][row, area] = at_s, False
                first = bool(at_s <= tracks["first_s"][row])
                yield Stay("entered", frame, area, track, label, now, at_s, unseen=first)
            else:
                dwell_s = max(0.0, at_s - float(tracks["entered_s"][row, area]))
                yield Stay("left", frame, area, track, label, now, at_s, dwell_s)

    def _loitering(self, given: SourceStep, rows: np.ndarray, now_s: np.ndarray, after_s: float) -> Iterator[Stay]:
        tracks, count = self.tracks, self.sources["count"]
        ats, areas = pairs(tracks["inside"][rows] & ~tracks["reported"][rows])
        dwell_s = now_s[ats] - tracks["entered_s"][rows[ats], areas]
        due = (dwell_s >= after_s) & np.isnan(tracks["changed_s"][rows[ats], areas])  # and it is not on its way out
        tracks["reported"][rows[ats[due]], areas[due]] = True
        for at, area, long_s in zip(ats[due].tolist(), areas[due].tolist(), dwell_s[due].tolist(), strict=True):
            frame = int(given.frame[at])
            yield Stay(
                "loitering", frame, area, int(given.track[at]), int(given.label[at]),
                int(count[given.slot[frame], area]), float(now_s[at]), long_s,
            )  # fmt: skip

    def _crowds(self, given: SourceStep, more_than: int) -> Iterator[Crowd]:
        sources, slot = self.sources, given.slot
        count = sources["count"][slot]
        differs = (count > more_than) != sources["crowded"][slot]
        since = sources["crowd_s"][slot]
        since[~differs | given.back[:, None]] = np.nan
        since = np.where(differs & np.isnan(since), given.pts_s[:, None], since)
        turned = differs & (given.pts_s[:, None] - since >= self._crowded_for_s)
        sources["crowd_s"][slot] = np.where(turned, np.nan, since)
        for frame, area in zip(*(part.tolist() for part in np.nonzero(turned)), strict=True):
            cleared = bool(sources["crowded"][slot[frame], area])
            sources["crowded"][slot[frame], area] = not cleared
            yield Crowd(cleared, frame, area, int(count[frame, area]), float(since[frame, area]))


class Windows:
    """Occupancy in windows of `length_s` seconds; `time_windows.py` determines when they end.

    A count holds from its frame to the next.
    """

    def __init__(self, areas: int, length_s: float) -> None:
        self._spans = TimeWindows(length_s)
        self.sources = Columns(
            last_s=np.float64(0), count=np.zeros(areas, np.int64), sum_s=np.zeros(areas),
            most=np.zeros(areas, np.int64), entered=np.zeros(areas, np.int64), left=np.zeros(areas, np.int64),
        )  # fmt: skip

    def begin(self, slot: int) -> None:
        """A source begins."""
        self._spans.begin(slot)
        self.sources.reserve(slot + 1)
        self.sources.reset(slot)

    def step(self, given: SourceStep, count: np.ndarray, stays: Sequence[Stay | Crowd]) -> Iterator[Window]:
        """Process one round, after `Occupancy`; return the windows that ended.

        Args:
            given: the round.
            count: (slots, areas) int64, number of tracks in each area now.
            stays: the round's events.
        """
        s, slot, now_s = self.sources, given.slot, given.pts_s
        for span in self._spans.over(given):
            yield from self._close(span)
        s["sum_s"][slot] += s["count"][slot] * np.maximum(0.0, now_s - s["last_s"][slot])[:, None]
        s["last_s"][slot] = now_s
        for one in stays:
            if isinstance(one, Stay) and one.kind != "loitering":
                s[one.kind][slot[one.frame], one.area] += 1
        s["count"][slot] = count[slot]
        s["most"][slot] = np.maximum(s["most"][slot], count[slot])

    def _close(self, span: TimeWindow) -> Iterator[Window]:
        """Report a window and begin the next."""
        s, slot, long_s = self.sources, span.slot, span.to_s - span.from_s
        s["sum_s"][slot] += s["count"][slot] * (span.to_s - s["last_s"][slot])
        for area in range(len(s["sum_s"][slot])):
            mean = float(s["sum_s"][slot, area]) / long_s if long_s else float(s["count"][slot, area])
            most, entered, left = (int(s[name][slot, area]) for name in ("most", "entered", "left"))
            yield Window(span.frame, area, span.from_s, span.to_s, mean, most, entered, left)
        s["last_s"][slot] = span.next_s
        for name in ("sum_s", "entered", "left"):
            s[name][slot] = 0
        s["most"][slot] = s["count"][slot] if span.next_s == span.to_s else 0
