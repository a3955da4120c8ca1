# SPDX-License-Identifier: Apache-2.0
"""Line crossing by direction. docs/analytics.md explains the rules with diagrams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from streamkit.analytics.geometry import Lines, pairs, passes, right_of
from streamkit.analytics.per_source_steps import SourceStep
from streamkit.analytics.shapes import Shape
from streamkit.analytics.track_store import TrackStore


@dataclass(frozen=True, slots=True)
class LineCrossing:
    """One crossing.

    Attributes:
        at: index of the object in the step.
        line: index of the line.
        way: 1 from left to right of the line as drawn, -1 from right to left.
        at_s: time of the first frame in which the track had passed the line.
    """

    at: int
    line: int
    way: int
    at_s: float


class Crossings:
    """Detects crossings of lines, for any number of sources.

    A track is far from a line if its distance is the margin or more. Between two stays far away, each pass over the
    line from left to right adds 1 and each from right to left subtracts 1. Once the track has been far for `debounce_s`
    after a pass, the sign of the sum is its crossing. Passes before a track is far for the first time do not count.

    Args:
        shapes: the lines, as drawn.
        debounce_s: how long a track must stay far from a line after passing it, in seconds.
        track_ttl_s: state of tracks unseen for longer is dropped, as is all state when a source's time jumps back.
    """

    def __init__(self, shapes: Sequence[Shape], *, debounce_s: float = 0.0, track_ttl_s: float = 10.0) -> None:
        self.lines = Lines(shapes)
        self._debounce_s = debounce_s
        self._track_ttl_s = track_ttl_s
        n = len(self.lines)
        self.tracks = TrackStore(
            xy=np.zeros(2),
            side=np.zeros(len(self.lines.a), bool),
            armed=np.zeros(n, bool),
            unsure=np.ones(n, bool),
            passed=np.zeros(n, np.int32),
            passed_s=np.zeros(n),
            far_s=np.full(n, np.nan),
        )

    def change(self, shapes: Sequence[Shape], previous_numbers: np.ndarray) -> None:
        """Replace the lines.

        Args:
            shapes: the new lines.
            previous_numbers: (lines,) int64, the present number of each, or -1 for one that is new or has changed.
        """
        self.lines = Lines(shapes)
        self.tracks.reorder(previous_numbers, ("armed", "unsure", "passed", "passed_s", "far_s"))
        self.tracks.replace("side", right_of(self.lines.a, self.lines.b, self.tracks["xy"]))

    def update(self, step: SourceStep, margin: np.ndarray) -> list[LineCrossing]:
        """Process one step.

        Args:
            step: the step.
            margin: (f,) float64, for each frame, in the units of its `height`.
        """
        lines = self.lines
        tracks = self.tracks
        tracks.drop(step.unseen(tracks, self._track_ttl_s))
        if not len(step):
            return []
        now_s = step.pts_s[step.frame]
        xy = step.xy
        rows, fresh = tracks.find(step.slot[step.frame], step.track)
        side = right_of(lines.a, lines.b, xy)
        turned = side != tracks["side"][rows]
        turned[fresh] = False
        i, s = pairs(turned)
        if len(i):
            tracks["side"][rows[i], s] = side[i, s]
            hit = passes(tracks["xy"][rows[i]], xy[i], lines.a[s], lines.b[s])
            i = i[hit]
            s = s[hit]
            line = lines.owner[s]
            np.add.at(tracks["passed"], (rows[i], line), np.where(side[i, s], 1, -1))
            tracks["passed_s"][rows[i], line] = now_s[i]
            tracks["unsure"][rows[i], line] = True
            tracks["far_s"][rows[i], line] = np.nan
        tracks["side"][rows[fresh]] = side[fresh]
        tracks["xy"][rows] = xy
        tracks["seen_s"][rows] = now_s
        return self._confirm(step, rows, now_s, margin)

    def _confirm(self, step: SourceStep, rows: np.ndarray, now_s: np.ndarray, margin: np.ndarray) -> list[LineCrossing]:
        """Return the crossings of tracks that are now far enough away."""
        tracks = self.tracks
        at, line = pairs(tracks["unsure"][rows])  # not yet far away, or not since it last passed
        if not len(at):
            return []
        frame = step.frame[at]
        row = rows[at]
        far = self.lines.distance(step.xy[at], line, step.aspect[frame]) >= margin[frame]
        tracks["far_s"][row[~far], line[~far]] = np.nan
        armed = tracks["armed"][row, line]
        passed = tracks["passed"][row, line]
        begins = far & ~armed
        waits = far & armed & (passed != 0)
        tracks["armed"][row[begins], line[begins]] = True
        tracks["passed"][row[begins], line[begins]] = 0
        settled = begins | (armed & (passed == 0))
        tracks["unsure"][row[settled], line[settled]] = False
        at = at[waits]
        line = line[waits]
        row = row[waits]
        since = tracks["far_s"][row, line]
        since = np.where(np.isnan(since), now_s[at], since)
        tracks["far_s"][row, line] = since
        done = now_s[at] - since >= self._debounce_s
        at = at[done]
        line = line[done]
        row = row[done]
        ways = np.sign(tracks["passed"][row, line])
        times = tracks["passed_s"][row, line]
        tracks["passed"][row, line] = 0
        tracks["unsure"][row, line] = False
        return [
            LineCrossing(*crossing)
            for crossing in zip(at.tolist(), line.tolist(), ways.tolist(), times.tolist(), strict=True)
        ]
