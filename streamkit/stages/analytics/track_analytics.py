"""Base classes of the stages that analyse tracks: which objects, which point of a box, which units."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from streamkit.analytics.per_source_steps import Clocks, Labels, PositionOptions, SourceStep, source_steps
from streamkit.analytics.shapes import Anchor, Shape, Units, by_name, check_length, check_units, outside
from streamkit.analytics.track_store import Slots
from streamkit.core.data import Batch, Frame, Shown
from streamkit.core.stage import Context, Seconds, StreamStage

logger = logging.getLogger(__name__)

FRAME_POINTS = "four points of the frame, in order around an area of flat ground"
GROUND_POINTS = "these points on the ground, in metres, as in [[0, 0], [3.5, 0], [3.5, 20], [0, 20]]"


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
        values = np.full(sum(map(len, tables.values())), np.nan, np.float32)
        for one in source_steps(batch, states, self._view, self._names, self._clocks):
            measured = self.update(one)
            if measured is not None:
                values[one.row] = measured
        end = 0
        column = next(iter(self.spec.columns), None)
        for name, table in tables.items() if column is not None else ():
            begin, end = end, end + len(table)
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
                found = table.extra["attributes"][row] if "attributes" in table.extra else None
                return {"attributes": {name: one["label"] for name, one in found.items()}} if found else {}
            row -= len(table)
        return {}

    def check(self, shapes: Iterable[Shape]) -> None:
        """Check that shapes fit the units; raise ValueError."""
        check_units(self.units, shapes)


@dataclass(eq=False, kw_only=True)
class ShapeAnalytics(TrackAnalytics):
    """Base of `line_counter` and `zone`: lines or areas, one without a name or several by name."""

    margin: Annotated[
        float | None,
        "how far beyond a line, or outside of an area, a track has crossed or left; 1 % of the frame's height by "
        "default.",
    ] = None
    debounce: Annotated[Seconds, "how long a track must stay across, inside or outside before that counts."] = 0.0
    window: Annotated[Seconds | None, "emit `counted` (of lines) or `occupancy` (of areas) at this interval."] = None

    closed: ClassVar[bool] = False
    """Whether the shapes are areas."""

    def __post_init__(self) -> None:
        """Check the shapes, `margin` and `window` against the units."""
        self._option, self._event_field = ("polygon", "zone") if self.closed else ("line", "line")
        self._shapes = by_name(getattr(self, self._option))
        self._shape_names = list(self._shapes)
        self._unchecked = False
        self.check(self._shapes.values())
        check_length("margin", self.margin, self.units)
        if self.window is not None and not self.window > 0:
            raise ValueError(f"window must be longer than 0s, got {self.window:g}s; leave it out for none")

    def changed(self) -> None:
        """Use new shapes. A shape with the same name and points keeps its state; others start without any."""
        before = self._shapes
        self.__post_init__()
        places = {one: n for n, one in enumerate(before.items())}
        self.change(np.array([places.get(one, -1) for one in self._shapes.items()], np.int64))
        self._unchecked = True

    def change(self, kept: np.ndarray) -> None:
        """Follow a change of the shapes; `kept` has the former number of each, or -1."""
        raise NotImplementedError

    def named(self, number: int) -> dict[str, Any]:
        """Return the name of a shape for an event's data; empty for a shape without a name."""
        name = self._shape_names[number]
        return {self._event_field: name} if name else {}

    def warn_outside(self, frames: Iterable[Frame]) -> None:
        """Warn about shapes outside of the frame; see the function."""
        again, self._unchecked = self._unchecked, False
        warn_outside(self.context, frames, self._option, self._shapes, self.units, closed=self.closed, again=again)

    def show(self, frame: Frame, counts: Iterable[str]) -> None:
        """Show the shapes on a frame, each labelled with its name, or the stage's id, and its counts."""
        for (name, shape), text in zip(self._shapes.items(), counts, strict=True):
            label = f"{name or self.context.id} {text}"
            frame.shown[f"{self.context.id} {name}"] = Shown(shape, self.units, self.closed, label)


def warn_outside(
    context: Context, frames: Iterable[Frame], option: str, shapes: Mapping[str, Shape], units: Units, *,
    closed: bool = True, again: bool = False,
) -> None:  # fmt: skip
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
        width, height = (1, 1) if units == "share" else (frame.width, frame.height)
        for name, shape in shapes.items() if again or frame._state.ordinal == 0 else ():
            if outside(shape, width, height, closed=closed):
                which = ".".join(filter(None, (context.id, option, name)))
                size = f"{frame.width}x{frame.height} of {frame.source}"
                logger.warning(f"{which} is outside of the frame, {size}: no object can be in it")
