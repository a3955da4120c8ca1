"""`line_counter`: tracks that cross a line, by direction."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated

import numpy as np

from streamkit.analytics.crossing import Crossings
from streamkit.analytics.occupancy import TimeWindows
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.shapes import Polylines, Units, by_name, check_length
from streamkit.analytics.track_store import Columns
from streamkit.core.stage import Seconds, stage
from streamkit.stages.analytics.track_analytics import TrackAnalytics, named, tell_outside

_WAYS = {1: "in", -1: "out"}


@stage("line_counter", reads="track_id", writes="events", emits=("crossed", "counted"))
class LineCounter(TrackAnalytics):
    """Emit `crossed` when a track crosses a line, and count crossings in and out.

    `in` is from left to right of the line as drawn, seen from its first point towards the next. A track counts once it
    is `margin` away on the other side after it was as far away on this side: jitter on the line counts nothing, each
    real crossing counts. docs/counting.md has the exact rules with diagrams.

    `crossed` has `direction`, `label`, `in` and `out` (the line's counts so far), `at_s` (the time of the crossing),
    `attributes` if the object has any, and `line` if lines have names. `counted` has `in`, `out`, `from_s`, `to_s` and
    `line`. The counts are reported in the summary.
    """

    line: Annotated[
        Polylines, "the line, [[x, y], [x, y], ...], or several by name, {door: [[x, y], [x, y]], gate: ...}."
    ] = field(kw_only=True)
    margin: Annotated[
        float | None,
        "how far from the line a track must have been, and must get, to count; 1 % of the frame's height by default.",
    ] = None
    hold: Annotated[
        Seconds, "how long a track must stay that far away before it counts; longer than flicker, shorter than a visit."
    ] = 0.0
    window: Annotated[Seconds | None, "emit `counted` for each line at this interval, with its crossings."] = None
    max_gap: Annotated[Seconds, "how long an unseen track is remembered."] = 10.0

    def __post_init__(self) -> None:
        """Check the lines, `margin` and `window` against the units."""
        self.check(by_name(self.line).values())
        check_lengths(self.margin, self.window, self.units)

    def open(self) -> None:
        """Reset all state."""
        super().open()
        lines = by_name(self.line)
        self._lines = list(lines)
        self._crossings = Crossings(list(lines.values()), hold_s=self.hold, max_gap_s=self.max_gap)
        pair = np.zeros((len(lines), 2), np.int64)  # in, out
        self._counts = Columns(total=pair, before=pair)
        self._spans = None if self.window is None else TimeWindows(self.window)

    def begin(self, slot: int) -> None:
        """Start the counts of a source at zero."""
        self._counts.reserve(slot + 1)
        self._counts.reset(slot)
        if self._spans is not None:
            self._spans.begin(slot)

    def watch(self, given: SourceStep) -> None:
        """Process one frame of each of several sources."""
        tell_outside(self.context, given.frames, "line", by_name(self.line), self.units, closed=False)
        if self._spans is not None:
            self._windows(given, self._spans)
        total = self._counts["total"]
        for one in self._crossings.step(given, given.margin(self.margin), self._most):
            frame, name = int(given.frame[one.at]), self._lines[one.line]
            counts = total[given.slot[frame], one.line]
            counts[0 if one.way > 0 else 1] += 1
            way, label = _WAYS[one.way], self._names[int(given.label[one.at])]
            self.count(name, f"{way}: {label}")
            data = {**named("line", name), "direction": way, "label": label, **self.looks(given, one.at)}
            data |= {"in": int(counts[0]), "out": int(counts[1]), "at_s": round(one.at_s, 6)}
            given.frames[frame].emit("crossed", int(given.track[one.at]), **data)
        shapes = by_name(self.line)
        for one_frame, counted in zip(given.frames, total[given.slot].tolist(), strict=True):
            for name, (entered, left) in zip(self._lines, counted, strict=True):
                self.show(one_frame, name, shapes[name], f"in {entered} out {left}")

    def finish(self, slot: int) -> None:
        """Drop the source's tracks."""
        self._crossings.end(slot)

    def _windows(self, given: SourceStep, spans: TimeWindows) -> None:
        total, before = self._counts["total"], self._counts["before"]
        for span in spans.over(given):
            times = {"from_s": round(span.from_s, 6), "to_s": round(span.to_s, 6)}
            for name, (entered, left) in zip(self._lines, (total - before)[span.slot].tolist(), strict=True):
                data = {**named("line", name), "in": entered, "out": left, **times}
                given.frames[span.frame].emit("counted", **data)
            before[span.slot] = total[span.slot]


def check_lengths(margin: float | None, window: float | None, units: Units) -> None:
    """Check `margin` against the units and `window` for a length.

    Raises:
        ValueError: the margin does not fit the units, or the window is not longer than 0.
    """
    check_length("margin", margin, units)
    if window is not None and not window > 0:
        raise ValueError(f"window must be longer than 0s, got {window:g}s; leave it out for none")
