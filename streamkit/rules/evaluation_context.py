# SPDX-License-Identifier: Apache-2.0
"""Arrays that conditions are evaluated on, from a batch: facts of its objects and of its frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamkit.analytics.occupancy import Occupancy
from streamkit.analytics.per_source_steps import BatchTables, Clocks, Labels, SourceStep, source_steps, turns
from streamkit.analytics.track_store import TrackStore
from streamkit.core.data import Batch, Frame
from streamkit.rules.code import UNKNOWN_NUMBER, Code, Column, Words, number_of
from streamkit.rules.language import BOOL, NUMBER, TEXT
from streamkit.rules.list_file import InFile
from streamkit.rules.scope import Area, DirectionScope, Happening, Scope, ZoneScope


class RuleTables(BatchTables):
    """The objects of a batch, as rules see them.

    Attributes:
        owner: (n,) int64, each object's frame; -1 for one that does not count.
        size: (n, 2) float64, the width and height of its frame.
        clipped: (n, 4) float64, boxes clipped to their frames.
        labels: (n,) int64, numbers of `Labels`.
    """

    def __init__(self, batch: Batch, predicted: bool, labels: Labels) -> None:
        super().__init__(batch)
        size = np.array([(frame.width, frame.height) for frame in batch.frames], np.float64).reshape(-1, 2)
        self.size = size[self.frame]
        self.clipped = np.clip(self.xyxy, 0.0, np.concatenate([self.size, self.size], axis=1))
        counts = ~np.isnan(self.xyxy.sum(axis=1))
        self.owner = np.where(counts if predicted else counts & ~self.predicted, self.frame, -1)
        self.labels = self.label(labels)


class ZoneMembers:
    """Tracks in the areas of one stage `zone`, for all sources."""

    def __init__(self, zone: ZoneScope) -> None:
        self._zone = zone
        self._areas = list(zone.areas)
        self._labels = Labels(zone.labels)
        self._clocks = Clocks()
        self.occupancy = Occupancy(list(zone.areas.values()), debounce_s=zone.debounce_s, track_ttl_s=zone.track_ttl_s)
        self._rows = self._memory = np.zeros(0, np.int64)
        self._now_s = np.zeros(0)
        self._counts: np.ndarray | None = None

    def begin(self, slot: int) -> None:
        """Begin a source."""
        self._clocks.begin(slot)
        self.occupancy.begin(slot)

    def change(self, zone: ZoneScope) -> None:
        """Follow a change of the stage's areas. One with the same name and shape keeps its tracks; others are empty."""
        numbers = {area: number for number, area in enumerate(self._zone.areas.items())}
        previous_numbers = np.array([numbers.get(area, -1) for area in zone.areas.items()], np.int64)
        self.occupancy.change(list(zone.areas.values()), previous_numbers)
        self._zone = zone
        self._areas = list(zone.areas)

    def rounds(self, batch: Batch, slots: Mapping[str, int]) -> Iterator[SourceStep]:
        """Return a batch as the stage sees it."""
        return source_steps(batch, slots, self._zone.view, self._labels, self._clocks)

    def step(self, source_step: SourceStep) -> None:
        """Process one frame of each of several sources."""
        self.occupancy.update(source_step, source_step.margin(self._zone.margin))
        self._rows = source_step.row
        self._memory, _ = self.occupancy.tracks.find(source_step.slot[source_step.frame], source_step.track)
        self._now_s = source_step.pts_s[source_step.frame]
        self._counts = None

    def column(self, name: str, n: int, *, dwell: bool) -> np.ndarray:
        """Return (n,): whether each object is in an area, or for how long in seconds."""
        area = self._areas.index(name)
        column = np.full(n, np.nan if dwell else 0.0)
        inside = self.occupancy.tracks["inside"][self._memory, area]
        if dwell:
            entered_s = self.occupancy.tracks["entered_s"][self._memory, area]
            column[self._rows] = np.where(inside, self._now_s - entered_s, np.nan)
        else:
            column[self._rows] = inside
        return column

    def members(self, name: str, label: str | None, slot_count: int) -> np.ndarray:
        """Return (sources,): the number of tracks in an area, for all sources."""
        if self._counts is None:
            tracks = self.occupancy.tracks
            areas = len(self._areas)
            labels = max(1, len(self._labels.names))
            row, area = np.nonzero(tracks["inside"] & tracks["alive"][:, None])
            place = (tracks["slot"][row] * areas + area) * labels + tracks["label"][row]
            self._counts = np.bincount(place, minlength=slot_count * areas * labels).reshape(slot_count, areas, labels)
        counts = self._counts[:, self._areas.index(name)]
        if label is None:
            return np.asarray(counts.sum(axis=1))
        names = self._labels.names
        return counts[:, names.index(label)] if label in names else np.zeros(slot_count, np.int64)


_MEASURES: dict[str, Callable[..., np.ndarray]] = {
    "x1": lambda x1, y1, x2, y2: x1, "y1": lambda x1, y1, x2, y2: y1, "x2": lambda x1, y1, x2, y2: x2,
    "y2": lambda x1, y1, x2, y2: y2, "width": lambda x1, y1, x2, y2: x2 - x1, "height": lambda x1, y1, x2, y2: y2 - y1,
    "area": lambda x1, y1, x2, y2: (x2 - x1) * (y2 - y1),
}  # fmt: skip


@dataclass(slots=True)
class EvaluationContext:
    """One frame of each of several sources: f frames with n objects.

    Attributes:
        frames: the frames.
        slot: (f,) int64, each frame's source.
        pts_s: (f,) float64.
        back: (f,) bool, the source's time has just jumped back.
        owner: (n,) int64, each object's frame; -1 for one that does not count.
        track: (n,) int64, -1 for none.
        place: (n,) int64, each tracked object's row in the track store; -1 for others, and for a track's second object.
        objects: (n, k) float64, the columns of `Code.objects`.
        facts: (f, a) float64, the columns of `Code.frames`; counts are still 0.
        detected: (f,) bool, whether a detector ran on the frame.
        lost: by column, the state of tracks dropped just now: unseen for too long, or from before a jump back in time.
    """

    frames: list[Frame]
    slot: np.ndarray
    pts_s: np.ndarray
    back: np.ndarray
    owner: np.ndarray
    track: np.ndarray
    place: np.ndarray
    objects: np.ndarray
    facts: np.ndarray
    detected: np.ndarray
    lost: dict[str, np.ndarray] = field(default_factory=dict)


class ContextBuilder:
    """Makes the arrays of batches; keeps the state of zones and tracks.

    Args:
        code: the columns needed.
        above: capabilities of the stages above.
        track_ttl_s: how long an unseen track is remembered.
        predicted: whether objects that a tracker predicts count.
        state: further columns of the track store, with their initial values.
    """

    def __init__(self, code: Code, above: Scope, track_ttl_s: float, predicted: bool, **state: Any) -> None:
        self.code = code
        self.above = above
        self._predicted = predicted
        self._track_ttl_s = track_ttl_s
        self.tracks = TrackStore(first_s=np.float64(0), label=np.int64(-1), **state)
        self.labels = Labels()
        self._clocks = Clocks()
        facts = code.facts
        named = {area.stage for area, _ in facts.members.values()} | {
            (fact if isinstance(fact, Area) else fact[0]).stage for fact in facts.objects.values() if _of_area(fact)
        }  # fmt: skip
        self._zones = {name: ZoneMembers(zone) for name, zone in above.zones.items() if name in named}
        self._state = ("slot", "track", "label", "seen_s", *state)
        self._remember = bool(state) or ("age_s", NUMBER) in code.objects

    def end(self, slot: int) -> None:
        """End a source: drop its tracks."""
        self.tracks.end(slot)
        for zone in self._zones.values():
            zone.occupancy.end(slot)

    def begin(self, slot: int) -> None:
        """Begin a source."""
        self._clocks.begin(slot)
        for zone in self._zones.values():
            zone.begin(slot)

    def change(self, above: Scope) -> None:
        """Follow a change of the areas of the stages above, between two batches."""
        self.above = above
        for name, zone in self._zones.items():
            zone.change(above.zones[name])

    def of(self, batch: Batch, slots: Mapping[str, int], slot_count: int) -> Iterator[EvaluationContext]:
        """Yield a batch's frames, one of each source at a time, in order.

        Args:
            batch: with tables on the host.
            slots: slot number of each source.
            slot_count: number of slots.
        """
        frames = batch.frames
        turn, slot, pts_s = turns(frames, slots)
        table = RuleTables(batch, self._predicted, self.labels)
        columns = self._columns(table)
        zones = [(zone, zone.rounds(batch, slots)) for zone in self._zones.values()]
        for number in range(int(turn.max()) + 1 if len(turn) else 0):
            frame_rows = np.flatnonzero(turn == number)
            new = np.full(len(frames) + 1, -1)  # the last for objects that do not count
            new[frame_rows] = np.arange(len(frame_rows))
            owner = new[table.owner]
            for zone, zone_steps in zones:
                zone.step(next(zone_steps))
            context = EvaluationContext(
                [frames[i] for i in frame_rows.tolist()], slot[frame_rows], pts_s[frame_rows],
                self._clocks.step(slot[frame_rows], pts_s[frame_rows]), owner, table.track,
                np.full(len(owner), -1, np.int64), columns, np.zeros((len(frame_rows), len(self.code.frames))),
                np.array([_detector_ran(frames[i], table, i) for i in frame_rows.tolist()], bool),
            )  # fmt: skip
            if self._remember:
                self._forget(context)
                self._tracked(context, table)
            self._changing(context)
            self._frame_facts(context, slot_count)
            yield context

    def _forget(self, context: EvaluationContext) -> None:
        """Drop tracks not seen for too long."""
        expired = self.tracks.unseen(context.slot, context.pts_s, context.back, self._track_ttl_s)
        if len(expired):
            context.lost = {name: self.tracks[name][expired].copy() for name in self._state}
            self.tracks.drop(expired)

    def _tracked(self, context: EvaluationContext, table: RuleTables) -> None:
        """Find the stored row of each tracked object."""
        rows = np.flatnonzero((context.owner >= 0) & (context.track >= 0))
        slot = context.slot[context.owner[rows]]
        now_s = context.pts_s[context.owner[rows]]
        keys = (slot << 48) | (context.track[rows] & (2**48 - 1))
        _, first = np.unique(keys, return_index=True)
        first.sort()
        rows = rows[first]
        slot = slot[first]
        now_s = now_s[first]
        places, new = self.tracks.find(slot, context.track[rows])
        context.place[rows] = places
        self.tracks["first_s"][places[new]] = now_s[new]
        self.tracks["seen_s"][places] = now_s
        self.tracks["label"][places] = table.labels[rows]

    # ----------------------------------------------------------------------------------------------------- objects

    def _columns(self, table: RuleTables) -> np.ndarray:
        """Return (n, k): the columns that are constant within a batch."""
        columns = np.empty((len(table.owner), max(1, len(self.code.objects))))
        for column, at in self.code.objects.items():
            columns[:, at] = self._column(column, table)
        return columns

    def _column(self, column: Column, table: RuleTables) -> Any:
        key, kind = column
        what = self.code.facts.objects[key]
        if isinstance(what, InFile):
            return self._in_file(what, table)
        if isinstance(what, tuple) or key == "age_s":
            return self._attribute(what, table) if what[0] == "attributes" else UNKNOWN_NUMBER[kind]
        if key in _MEASURES:
            return _MEASURES[key](*table.clipped.T)
        if key == "label":
            codes = np.array([self.code.words[name] for name in self.labels.names] or [0.0])
            return codes[table.labels]
        if key == "score":
            return table.column(lambda objects: objects.score)
        if key == "track_id":
            return np.where(table.track >= 0, table.track, np.nan)
        if key == "detector":
            names = [self.code.words[name] for name in table.tables]
            return np.repeat(names, [len(objects) for objects in table.tables.values()]) if names else 0.0
        if key == "direction":
            return self._direction(table)
        return table.extra(key, lambda values: _as_kind(values, kind, self.code.words), UNKNOWN_NUMBER[kind])

    def _in_file(self, what: InFile, table: RuleTables) -> np.ndarray:
        """Return (n,) whether each object's text is in a file, 0.5 without a text."""
        texts = np.broadcast_to(self._column((what.text.key, TEXT), table), len(table.owner))
        codes, place = np.unique(texts, return_inverse=True)  # of equal ones, all NaN count as one
        memberships = [0.5 if np.isnan(code) else float(what.of(self.code.words.text(code)) or 0) for code in codes]
        return np.array(memberships, np.float64)[place]

    def _attribute(self, what: tuple[str, str, str], table: RuleTables) -> np.ndarray:
        _, name, part = what

        def number(value: Any) -> float:
            return self._number_of(value[name], part) if value and name in value else np.nan

        return table.extra(
            "attributes", lambda values: np.array([number(attributes) for attributes in values], float), np.nan
        )

    def _direction(self, table: RuleTables) -> np.ndarray:
        """Return the direction nearest to each object's heading, within the tolerance."""
        ways = self.above.ways or DirectionScope({})
        heading = table.extra("heading_deg", lambda values: np.asarray(values, np.float64), np.nan)
        arrows = np.array(list(ways.arrows.values()), np.float64).reshape(-1, 2)
        aspect = (table.size[:, 0] / table.size[:, 1] if ways.share else np.ones(len(heading)))[:, None]
        course = np.degrees(np.arctan2(arrows[:, 0] * aspect, -arrows[:, 1])) % 360
        off = np.abs((heading[:, None] - course + 180) % 360 - 180)
        off = np.where(np.isnan(off), np.inf, off)
        best = off.argmin(axis=1) if len(arrows) else np.zeros(len(heading), np.int64)
        near = off[np.arange(len(best)), best] <= ways.tolerance
        codes = np.array([self.code.words[name] for name in ways.arrows])
        return np.where(near, codes[best], np.nan)

    def _changing(self, context: EvaluationContext) -> None:
        """Set the columns that depend on earlier frames."""
        for (key, _), at in self.code.objects.items():
            what = self.code.facts.objects[key]
            if key == "age_s":
                tracked = context.place >= 0
                first = self.tracks["first_s"][context.place[tracked]]
                context.objects[tracked, at] = context.pts_s[context.owner[tracked]] - first
            elif isinstance(what, Happening):
                context.objects[:, at] = 0.0
                for frame, track, n in self._happened(what, context.frames):
                    if track is not None and n:
                        context.objects[(context.owner == frame) & (context.track == track), at] = 1.0
            elif _of_area(what):
                area = what if isinstance(what, Area) else what[0]
                context.objects[:, at] = self._zones[area.stage].column(
                    area.area, len(context.owner), dwell=what is not area
                )

    # ------------------------------------------------------------------------------------------------------ frames

    def _frame_facts(self, context: EvaluationContext, slot_count: int) -> None:
        facts = self.code.facts
        for (key, _), at in self.code.frames.items():
            if key in facts.members:
                area, label = facts.members[key]
                context.facts[:, at] = self._zones[area.stage].members(area.area, label, slot_count)[context.slot]
            elif key in facts.happened:
                for frame, _, n in self._happened(facts.happened[key], context.frames):
                    context.facts[frame, at] += n
            elif key == "source":
                context.facts[:, at] = [self.code.words[frame.source] for frame in context.frames]
            elif isinstance(facts.frames.get(key), InFile):
                context.facts[:, at] = [self._frame_in_file(frame, facts.frames[key]) for frame in context.frames]
            elif key in facts.frames:
                context.facts[:, at] = [self._attribute_number(frame, *facts.frames[key]) for frame in context.frames]

    def _attribute_number(self, frame: Frame, name: str, part: str) -> float:
        attribute = frame.facts.get("attributes", {}).get(name)
        return np.nan if attribute is None else self._number_of(attribute, part)

    def _number_of(self, attribute: Mapping[str, Any], part: str) -> float:
        """The number of a part of an attribute: its score, its label as a number, or the code of its label."""
        if part == "score":
            return np.nan if attribute["score"] is None else float(attribute["score"])
        return float(attribute["label"]) if part == "number" else self.code.words[attribute["label"]]

    def _frame_in_file(self, frame: Frame, what: InFile) -> float:
        if what.text.key == "source":
            return float(what.of(frame.source) or 0)
        attribute = frame.facts.get("attributes", {}).get(self.code.facts.frames[what.text.key][0])
        return 0.5 if attribute is None else float(what.of(attribute["label"]) or 0)

    @staticmethod
    def _happened(what: Happening, frames: list[Frame]) -> Iterator[tuple[int, int | None, int]]:
        for number, frame in enumerate(frames):
            for event in frame.events:
                if event.stage == what.stage and what.kind in (None, event.kind):
                    yield number, event.track_id, int(what.where is None or what.where(_flat(event.data)))


def _detector_ran(frame: Frame, table: RuleTables, number: int) -> bool:
    """Whether a detector ran on a frame; if none did, no objects does not mean that nothing is there."""
    skipped = frame._state.skipped_detectors
    return not skipped or not skipped.issuperset(table.tables) or bool((table.owner == number).any())


def _of_area(what: Any) -> bool:
    return isinstance(what, Area) or (isinstance(what, tuple) and isinstance(what[0], Area))


def _flat(data: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    flattened: dict[str, Any] = {}
    for name, value in data.items():
        flattened.update(_flat(value, f"{above}{name}.") if isinstance(value, Mapping) else {f"{above}{name}": value})
    return flattened


def _as_kind(values: Any, kind: str, words: Words) -> np.ndarray:
    """Convert a column's values to the numbers used in conditions."""
    column = np.asarray(values)
    if column.ndim == 1 and kind == NUMBER and column.dtype.kind in "fiu":
        numbers = column.astype(np.float64)
        return np.where(column == -1, np.nan, numbers) if column.dtype.kind == "i" else numbers  # -1: no value
    if column.ndim == 1 and kind == BOOL and column.dtype.kind == "b":
        return column.astype(np.float64)
    return np.array([number_of(value, kind, words) for value in column.tolist()], np.float64)
