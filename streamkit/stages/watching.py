"""What the stages that watch tracks have in common: which point of which objects, in which units; no stage itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streamkit.analytics.memory import Slots
from streamkit.analytics.rounds import Clocks, Labels, Round, View, rounds
from streamkit.analytics.shapes import Anchor, Shape, Units, check_units, outside
from streamkit.data import Batch, Frame
from streamkit.shown import Shown
from streamkit.stage import Context, Seconds, StreamStage


@dataclass(eq=False, kw_only=True)
class Watching(StreamStage):
    """Sees the tracks of all sources of a batch in common arrays.

    Options:
        labels: watch objects of these classes only; all if left out.
        anchor: the point of a box that counts: foot (middle of the lower edge), center, top, left, right.
        units: what coordinates and lengths are in: pixels of the source, or shares of the picture, 0 to 1, which stay
            right when the resolution changes (lengths are then shares of its height).
        predicted: objects that the tracker did not see but predicts count as seen.
        max_gap: how long a track that is not seen is remembered.
    """

    column: ClassVar[str] = ""
    classes: ClassVar[tuple[str, ...]] = ("labels",)
    """The options that name classes of objects: `check` refuses those that no detector above finds."""

    labels: tuple[str, ...] = ()
    anchor: Anchor = "foot"
    units: Units = "pixels"
    predicted: bool = True
    max_gap: Seconds = 2.0

    def open(self) -> None:
        """Get ready for the first source."""
        self._slots, self._clocks = Slots(), Clocks()
        self._most = 0
        self._view = View(self.units, self.anchor, self.predicted)
        self._names = Labels(self.labels)

    def new_state(self, source: str) -> int:
        """A source begins: it gets a small number."""
        slot = self._slots.take()
        self._most = max(self._most, slot + 1)
        self._clocks.begin(slot)
        self.begin(slot)
        return slot

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Look at the batch, one frame of each source at a time; what is measured of objects becomes a column."""
        self._tables = tables = {name: batch.table(name) for name in batch.tables}
        values = np.full(sum(map(len, tables.values())), np.nan, np.float32)
        for one in rounds(batch, states, self._view, self._names, self._clocks):
            measured = self.watch(one)
            if measured is not None:
                values[one.row] = measured
        end = 0
        for name, table in tables.items() if self.column else ():
            begin, end = end, end + len(table)
            batch.tables[name] = table.with_columns(**{self.column: values[begin:end]})
        return batch

    def end(self, source: str, state: Any) -> None:
        """A source has ended."""
        self.finish(state)
        self._slots.give_back(state)

    def begin(self, slot: int) -> None:
        """A source begins that is known by this number."""

    def watch(self, given: Round) -> np.ndarray | None:
        """Look at one frame of each of several sources; return the (n,) values of `column` where there is one."""
        raise NotImplementedError

    def finish(self, slot: int) -> None:
        """The source of that number has ended; another may have the number next."""

    def looks(self, given: Round, at: int) -> dict[str, dict[str, str]]:
        """`{"attributes": {name: label}}` of an object, for an event's data; nothing where it has none."""
        row = int(given.row[at])
        for table in self._tables.values():
            if row < len(table):
                found = table.extra["attributes"][row] if "attributes" in table.extra else None
                return {"attributes": {name: one["label"] for name, one in found.items()}} if found else {}
            row -= len(table)
        return {}

    def count(self, *words: str, n: int = 1) -> None:
        """Count something for the report, under the stage's id and these words."""
        self.context.counters.add(" ".join(filter(None, (self.context.id, *words))), n)

    def show(self, frame: Frame, name: str, shape: Shape, counts: str, *, closed: bool = False) -> None:
        """Show a line or an area on a frame, labelled with its name, or the stage's id, and its counts."""
        text = f"{name or self.context.id} {counts}"
        frame.shown[f"{self.context.id} {name}"] = Shown(shape, self.units, closed, text)

    def check(self, shapes: Iterable[Shape]) -> None:
        """Refuse shapes that the units cannot mean; raise ValueError."""
        check_units(self.units, shapes)


def tell_outside(
    context: Context, frames: Iterable[Frame], option: str, shapes: Mapping[str, Shape], units: Units, *,
    closed: bool = True,
) -> None:  # fmt: skip
    """Say at a source's first frame which lines or areas of an option are outside of its picture.

    Args:
        context: the stage's.
        frames: those of a batch.
        option: its name.
        shapes: what it says, by name.
        units: what it is in.
        closed: the shapes are areas, else lines.
    """
    for frame in frames:
        width, height = (1, 1) if units == "share" else (frame.width, frame.height)
        for name, shape in shapes.items() if frame.ordinal == 0 else ():
            if outside(shape, width, height, closed=closed):
                which = ".".join(filter(None, (context.id, option, name)))
                picture = f"{frame.width}x{frame.height} of {frame.source}"
                context.say(f"{which} is outside of the picture, {picture}: nothing can be seen in it")


def named(word: str, name: str) -> dict[str, Any]:
    """`{word: name}` for an event's data, nothing for a shape without a name."""
    return {word: name} if name else {}
