# SPDX-License-Identifier: Apache-2.0
"""Base classes of the stages that analyze tracks: which objects, which point of a box, which units."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from streamkit.analytics.per_source_steps import Clocks, Labels, PositionOptions, SourceStep, source_steps
from streamkit.analytics.shapes import (
    Anchor,
    Shape,
    Units,
    by_name,
    check_length,
    check_units,
    outside,
    outside_text,
    scaled,
)
from streamkit.analytics.track_store import Columns, Slots
from streamkit.core.data import Batch, Frame, Shown
from streamkit.core.stage import Context, Seconds, StreamStage
from streamkit.core.units import Length

logger = logging.getLogger(__name__)

FRAME_POINTS = "four points of the frame, in order around an area of flat ground"
GROUND_POINTS = "these points on the ground, in meters, as in [[0, 0], [3.5, 0], [3.5, 20], [0, 20]]"


class SlotStage(StreamStage):
    """Base of stages that keep the state of all sources in common arrays, with a slot for each source."""

    def open(self) -> None:
        """Reset all state."""
        self._slots = Slots()

    def new_state(self, source: str) -> int:
        """Allocate a slot for a source."""
        slot = self._slots.take()
        self.begin(slot)
        return slot

    def end(self, source: str, state: Any) -> None:
        """End a source and free its slot."""
        self.finish(state)
        self._slots.give_back(state)

    def begin(self, slot: int) -> None:
        """Begin the source of this slot."""

    def finish(self, slot: int) -> None:
        """End the source of this slot; another source may get the slot next."""

    def count(self, *words: str, n: int = 1) -> None:
        """Count something for the summary, under the stage's id and these words."""
        self.context.counters.add(" ".join(filter(None, (self.context.id, *words))), n)


@dataclass(eq=False, kw_only=True)
class TrackAnalytics(SlotStage, classes=("labels",)):
    """Base class that presents the tracks of all sources of a batch in common arrays."""

    labels: Annotated[tuple[str, ...], "use objects of these classes only; all classes by default."] = ()
    anchor: Annotated[Anchor, "the point of a box that counts; foot is the middle of its lower edge."] = "foot"
    units: Annotated[
        Units,
        "of coordinates and lengths: pixels of the source, or shares of the frame, 0 to 1, which do not depend on the "
        "resolution (lengths are then shares of the frame's height).",
    ] = "pixels"
    predicted: Annotated[bool, "count objects that the tracker predicts but did not see as seen."] = True
    track_ttl: Annotated[Seconds, "how long an unseen track is remembered."] = 2.0

    missing: ClassVar[Any] = np.float32(np.nan)
    """The value of the stage's column for objects without one."""

    def open(self) -> None:
        """Reset all state."""
        super().open()
        self._clocks = Clocks()
        self._view = PositionOptions(self.units, self.anchor, self.predicted)
        self._names = Labels(self.labels)

    def begin(self, slot: int) -> None:
        """See `SlotStage.begin`."""
        self._clocks.begin(slot)

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Process the batch, one frame of each source at a time; measured values become a column."""
        self._tables = tables = {name: batch.table(name) for name in batch.tables}
        values = np.full(sum(map(len, tables.values())), self.missing)
        for step in source_steps(batch, states, self._view, self._names, self._clocks):
            measured = self.update(step)
            if measured is not None:
                values[step.row] = measured
        end = 0
        column = next(iter(self.spec.columns), None)
        for name, table in tables.items() if column is not None else ():
            begin = end
            end = end + len(table)
            batch.tables[name] = table.with_columns(**{str(column): values[begin:end]})
        return batch

    def update(self, step: SourceStep) -> np.ndarray | None:
        """Process one frame of each of several sources; return (n,) values of the stage's column, if it has one."""
        raise NotImplementedError

    def attributes(self, step: SourceStep, at: int) -> dict[str, dict[str, str]]:
        """Return `{"attributes": {name: label}}` of an object for an event's data; empty if it has none."""
        row = int(step.row[at])
        for table in self._tables.values():
            if row < len(table):
                attributes = table.extra["attributes"][row] if "attributes" in table.extra else None
                return (
                    {"attributes": {name: attribute["label"] for name, attribute in attributes.items()}}
                    if attributes
                    else {}
                )
            row -= len(table)
        return {}

    def check(self, shapes: Iterable[Shape]) -> None:
        """Check that shapes fit the units; raise ValueError."""
        check_units(self.units, shapes)


@dataclass(eq=False, kw_only=True)
class ShapeAnalytics(TrackAnalytics):
    """Base of `line_counter` and `zone`: lines or areas, one without a name or several by name."""

    margin: Annotated[
        Length | None,
        "how far beyond a line, or outside of an area, a track has crossed or left; 1 % of the frame's height by "
        "default.",
    ] = None
    sources: Annotated[
        tuple[str, ...] | Mapping[str, tuple[str, ...]],
        "use the shapes on these sources only, [gate]; or by the names of shapes, {till: [gate], door: [gate, yard]}, "
        "the others on all; by default, each shape on all.",
    ] = ()
    debounce: Annotated[Seconds, "how long a track must stay across, inside or outside before that counts."] = 0.0
    window: Annotated[Seconds | None, "emit `counted` (of lines) or `occupancy` (of areas) at this interval."] = None

    closed: ClassVar[bool] = False
    """Whether the shapes are areas."""

    def __post_init__(self) -> None:
        """Check the shapes, `margin` and `window` against the units."""
        self._option, self._event_field = ("polygon", "zone") if self.closed else ("line", "line")
        self._shapes = by_name(getattr(self, self._option))
        self._shape_names = list(self._shapes)
        self._identities = [(name, shape, self._sources(name)) for name, shape in self._shapes.items()]
        self._unchecked = False
        self.check(self._shapes.values())
        if isinstance(self.sources, Mapping) and (
            unknown := [name for name in self.sources if name not in self._shapes]
        ):
            shape_names = ", ".join(filter(None, self._shapes)) or "none has a name"
            raise ValueError(
                f"sources: there is no {self._event_field} named {unknown[0]!r}; these are there: {shape_names}"
            )
        check_length("margin", self.margin, self.units)
        if self.window is not None and not self.window > 0:
            raise ValueError(f"window must be longer than 0s, got {self.window:g}s; leave it out for none")

    def open(self) -> None:
        """Reset all state."""
        super().open()
        self._source_of: dict[int, str] = {}
        self._used = Columns(used=np.ones(len(self._shapes), bool))

    def new_state(self, source: str) -> int:
        """Allocate a slot for a source."""
        slot = super().new_state(source)
        self._source_of[slot] = source
        self._used.reserve(slot + 1)
        self._used["used"][slot] = self._uses(source)
        return slot

    def end(self, source: str, state: Any) -> None:
        """End a source and free its slot."""
        self._source_of.pop(state, None)
        super().end(source, state)

    def used(self, slot: np.ndarray) -> np.ndarray | None:
        """Return (n, shapes) bool: which shapes count on the sources of n slots; None if all do."""
        return self._used["used"][slot] if self.sources else None

    def _sources(self, name: str) -> tuple[str, ...]:
        """The sources of a shape; none for all."""
        return tuple(self.sources.get(name, ()) if isinstance(self.sources, Mapping) else self.sources)

    def _uses(self, source: str) -> list[bool]:
        return [not (only := self._sources(name)) or source in only for name in self._shapes]

    def changed(self) -> None:
        """Use new shapes. One with the same name, points and sources keeps its state; others start without any."""
        before = self._identities
        self.__post_init__()
        places = {identity: n for n, identity in enumerate(before)}
        previous_numbers = np.array([places.get(identity, -1) for identity in self._identities], np.int64)
        self._used.reorder(previous_numbers, ("used",))
        for slot, source in self._source_of.items():
            self._used["used"][slot] = self._uses(source)
        self.change(previous_numbers)
        self._unchecked = True

    def change(self, previous_numbers: np.ndarray) -> None:
        """Follow a change of the shapes; `previous_numbers` has the former number of each, or -1."""
        raise NotImplementedError

    def named(self, number: int) -> dict[str, Any]:
        """Return the name of a shape for an event's data; empty for a shape without a name."""
        name = self._shape_names[number]
        return {self._event_field: name} if name else {}

    def warn_outside(self, frames: Iterable[Frame]) -> None:
        """Warn about shapes outside of the frame; see the function."""
        again = self._unchecked
        self._unchecked = False
        for frame in frames:
            if again or frame._state.ordinal == 0:
                shapes = self._shapes
                if self.sources:
                    uses = self._uses(frame.source)
                    shapes = {name: shapes[name] for name, used in zip(shapes, uses, strict=True) if used}
                warn_outside(self.context, [frame], self._option, shapes, self.units, closed=self.closed, again=again)

    def show(self, frame: Frame, counts: Iterable[str], used: Iterable[bool] | None) -> None:
        """Show the shapes that count on a frame, each labeled with its name, or the stage's id, and its counts."""
        uses = itertools.repeat(True, len(self._shapes)) if used is None else used
        scale = (1.0, 1.0) if self.units == "share" else frame.shape_scale
        for (name, shape), text, use in zip(self._shapes.items(), counts, uses, strict=True):
            if not use:
                continue
            label = f"{name or self.context.id} {text}"
            points = shape if scale == (1.0, 1.0) else scaled(shape, scale)
            frame.shown[f"{self.context.id} {name}"] = Shown(points, self.units, self.closed, label)


def warn_outside(
    context: Context,
    frames: Iterable[Frame],
    option: str,
    shapes: Mapping[str, Shape],
    units: Units,
    *,
    closed: bool = True,
    again: bool = False,
) -> None:
    """Warn at a source's first frame about lines or areas of an option that are outside of the frame.

    Args:
        context: the stage's context.
        frames: frames of a batch.
        option: name of the option.
        shapes: the option's shapes by name.
        units: of the shapes' coordinates.
        closed: whether the shapes are areas; else they are lines.
        again: at these frames too, whether they are the first or not.
    """
    for frame in frames:
        across, down = (frame.width, frame.height) if units == "share" else frame.shape_scale
        width = frame.width / across
        height = frame.height / down
        for name, shape in shapes.items() if again or frame._state.ordinal == 0 else ():
            if outside(shape, width, height, closed=closed):
                which = ".".join(filter(None, (context.id, option, name)))
                logger.warning(outside_text(which, f"{frame.width}x{frame.height} of {frame.source}"))
