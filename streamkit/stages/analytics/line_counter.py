# SPDX-License-Identifier: Apache-2.0
"""`line_counter`: tracks that cross a line, by direction."""

from __future__ import annotations

import json
from dataclasses import field
from typing import Annotated, Any

import numpy as np

from streamkit.analytics.crossing import Crossings
from streamkit.analytics.occupancy import TimeWindows
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.shapes import Polylines
from streamkit.analytics.track_store import Columns
from streamkit.core.carried import CarriedCounts
from streamkit.core.stage import Seconds, stage
from streamkit.stages.analytics.track_analytics import ShapeAnalytics

_WAYS = {1: "in", -1: "out"}


@stage("line_counter", reads="track_id", writes="events", emits=("crossed", "counted"), changeable=("line", "sources"))
class LineCounter(ShapeAnalytics):
    """Emit `crossed` when a track crosses a line, and count crossings in and out.

    `in` is from left to right of the line as drawn, seen from its first point toward the next. A track counts once it
    is `margin` away on the other side after it was as far away on this side: jitter on the line counts nothing, each
    real crossing counts. docs/analytics.md has the rules with diagrams.

    `crossed` has `direction`, `label`, `in` and `out` (the line's counts so far), `at_s` (the time of the crossing),
    `attributes` if the object has any, and `line` if lines have names. `counted` has `in`, `out`, `from_s`, `to_s` and
    `line`. The counts are reported in the summary.
    """

    line: Annotated[Polylines, "a line, [[x, y], [x, y]], or several, {door: [[x, y], [x, y]]}."] = field(kw_only=True)
    track_ttl: Annotated[Seconds, "how long an unseen track is remembered."] = 10.0

    def open(self) -> None:
        """Reset all state."""
        super().open()
        shapes = list(self._shapes.values())
        self._crossings = Crossings(shapes, debounce_s=self.debounce, track_ttl_s=self.track_ttl)
        pair = np.zeros((len(shapes), 2), np.int64)  # in, out
        self._counts = Columns(total=pair, before=pair)
        self._spans = None if self.window is None else TimeWindows(self.window)
        self._carried = CarriedCounts(self.context.runtime.carried)

    def new_state(self, source: str) -> int:
        """Allocate a slot for a source; its counts go on if the pipeline was rebuilt."""
        slot = super().new_state(source)
        carried: dict[str, list[list[int]]] = self._carried.take(source) or {}
        for line, key in enumerate(self._line_keys()):
            if key in carried:
                total, before = carried[key]
                self._counts["total"][slot, line] = total
                self._counts["before"][slot, line] = before
        return slot

    def end(self, source: str, state: Any) -> None:
        """End a source and free its slot; its counts are passed on if the pipeline is rebuilt."""
        self._pass_on(source, state)
        super().end(source, state)

    def close(self) -> None:
        """Pass on the counts."""
        for slot, source in self._source_of.items():
            self._pass_on(source, slot)
        self._carried.save()

    def _pass_on(self, source: str, slot: int) -> None:
        pairs = zip(self._counts["total"][slot].tolist(), self._counts["before"][slot].tolist(), strict=True)
        self._carried.put(source, dict(zip(self._line_keys(), pairs, strict=True)))

    def _line_keys(self) -> list[str]:
        """What each line is: counts of a line that changes begin at zero."""
        return [json.dumps([self.units, *identity]) for identity in self._identities]

    def begin(self, slot: int) -> None:
        """Start the counts of a source at zero."""
        super().begin(slot)
        self._counts.begin(slot)
        if self._spans is not None:
            self._spans.begin(slot)

    def change(self, previous_numbers: np.ndarray) -> None:
        """Counts of lines that have changed begin at zero."""
        self._crossings.change(list(self._shapes.values()), previous_numbers)
        self._counts.reorder(previous_numbers, ("total", "before"))

    def update(self, step: SourceStep) -> None:
        """Process one frame of each of several sources."""
        self.warn_outside(step.frames)
        if self._spans is not None:
            self._windows(step, self._spans)
        total = self._counts["total"]
        used = self.used(step.slot)
        for crossing in self._crossings.update(step, step.margin(self.margin)):
            frame = int(step.frame[crossing.at])
            if used is not None and not used[frame, crossing.line]:
                continue
            counts = total[step.slot[frame], crossing.line]
            counts[0 if crossing.way > 0 else 1] += 1
            direction = _WAYS[crossing.way]
            label = self._names[int(step.label[crossing.at])]
            self.count(self._shape_names[crossing.line], f"{direction}: {label}")
            data = {**self.named(crossing.line), "direction": direction, "label": label}
            data |= self.attributes(step, crossing.at)
            data |= {"in": int(counts[0]), "out": int(counts[1]), "at_s": round(crossing.at_s, 6)}
            step.frames[frame].emit("crossed", int(step.track[crossing.at]), **data)
        for at, (frame_shown, counted) in enumerate(zip(step.frames, total[step.slot].tolist(), strict=True)):
            texts = [f"in {entered} out {left}" for entered, left in counted]
            self.show(frame_shown, texts, None if used is None else used[at].tolist())

    def finish(self, slot: int) -> None:
        """Drop the source's tracks."""
        self._crossings.tracks.end(slot)

    def _windows(self, step: SourceStep, spans: TimeWindows) -> None:
        total = self._counts["total"]
        before = self._counts["before"]
        for span in spans.over(step):
            times = {"from_s": round(span.from_s, 6), "to_s": round(span.to_s, 6)}
            used = self.used(np.array([span.slot]))
            for line, (entered, left) in enumerate((total - before)[span.slot].tolist()):
                if used is not None and not used[0, line]:
                    continue
                data = {**self.named(line), "in": entered, "out": left, **times}
                step.frames[span.frame].emit("counted", **data)
            before[span.slot] = total[span.slot]
