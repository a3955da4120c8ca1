"""Trails of tracked objects, for `draw: {trail: ...}`, which adds this before itself; not a stage of the YAML."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamkit.core.data import Batch, Shown
from streamkit.core.stage import Seconds, StreamStage

_STEP = 0.01  # of the frame's height: points of a trail are at least so far apart, so a trail's memory is bounded


class _Object(NamedTuple):
    """A tracked object of a frame, its foot at (x, y) in pixels."""

    table: str
    track: int
    x: float
    y: float
    class_id: int
    label: str


@dataclass(eq=False, slots=True)
class _Trail:
    seen_s: float
    points: deque[tuple[float, float, float]]  # time in seconds, x, y


@dataclass(eq=False, slots=True)
class _State:
    """A source's trails by table and track, and the time and epoch of its last frame."""

    time_s: float = -np.inf
    epoch: int = 0
    trails: dict[tuple[str, int], _Trail] = field(default_factory=dict)


@dataclass(eq=False)
class Trails(StreamStage, name="trails", reads="track_id"):
    """Show where the foot point of each tracked object was.

    Options:
        last: how long a position is shown.
    """

    last: Seconds = 2.0

    def new_state(self, source: str) -> _State:
        """Return a state without trails."""
        return _State()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Attach the trail of each object to its frame."""
        seen: list[list[_Object]] = [[] for _ in batch.frames]
        for name in batch.tables:
            table = batch.table(name)
            if table.track_id is None:
                continue
            table = table[np.flatnonzero(table.track_id >= 0)]
            x, y, of = table.xyxy[:, ::2].mean(axis=1), table.xyxy[:, 3], table.track_id
            assert of is not None
            columns = of.tolist(), x.tolist(), y.tolist(), table.class_id.tolist(), table.label
            for at, *values in zip(table.batch_row.tolist(), *columns, strict=True):
                seen[at].append(_Object(name, *values))
        for frame, objects in zip(batch.frames, seen, strict=True):
            state = states[frame.source]
            self._go_on(state, frame.pts_s, frame._state.epoch)
            for one in objects:
                points = self._add(state, one, _STEP * frame.height)
                if len(points) > 1:
                    key = f"{self.context.id} {one.table} {one.track}"
                    frame.shown[key] = Shown(points, class_id=one.class_id, track_id=one.track, label=one.label)
        return batch

    def _go_on(self, state: _State, time_s: float, epoch: int) -> None:
        """Drop trails that are too old; all of them if the source's time jumps back or it restarts."""
        if time_s < state.time_s or epoch != state.epoch:
            state.trails.clear()
        state.time_s, state.epoch = time_s, epoch
        for key in [key for key, trail in state.trails.items() if time_s - trail.seen_s > self.last]:
            del state.trails[key]

    def _add(self, state: _State, one: _Object, step: float) -> tuple[tuple[float, float], ...]:
        """Return the points of an object's trail; the last is its present position."""
        trail = state.trails.setdefault((one.table, one.track), _Trail(state.time_s, deque()))
        trail.seen_s, points = state.time_s, trail.points
        while points and state.time_s - points[0][0] > self.last:
            points.popleft()
        before = tuple((x, y) for _, x, y in points)
        if not points or max(abs(one.x - points[-1][1]), abs(one.y - points[-1][2])) >= step:
            points.append((state.time_s, one.x, one.y))
        return (*before, (one.x, one.y))
