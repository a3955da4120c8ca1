"""Where tracked objects were, for `draw: {trail: ...}`, which puts this before itself; no stage of the YAML."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from streamkit.data import Batch
from streamkit.shown import Shown
from streamkit.stage import Seconds, StreamStage

_STEP = 0.01  # of the frame's height: points of a trail are at least so far apart, so a trail's memory is bounded


class _Object(NamedTuple):
    """One tracked object of a frame, its foot at (x, y) in pixels."""

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
    """A source's trails by table and track, and the time and turn of its last frame."""

    time_s: float = -np.inf
    turn: int = 0
    trails: dict[tuple[str, int], _Trail] = field(default_factory=dict)


@dataclass(eq=False)
class Trails(StreamStage):
    """Show where the foot point of each tracked object was.

    Options:
        last: for how long a place is shown.
    """

    name = "trails"
    reads = ("track_id",)
    writes = ()

    last: Seconds = 2.0

    def new_state(self, source: str) -> _State:
        """No object has been seen."""
        return _State()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Put the trail of each object of each frame onto the frame."""
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
            self._go_on(state, frame.pts_s, frame.turn)
            for one in objects:
                points = self._add(state, one, _STEP * frame.height)
                if len(points) > 1:
                    key = f"{self.context.id} {one.table} {one.track}"
                    frame.shown[key] = Shown(points, class_id=one.class_id, track_id=one.track, label=one.label)
        return batch

    def _go_on(self, state: _State, time_s: float, turn: int) -> None:
        """Forget what is too old; everything where the source's time goes back or it begins again."""
        if time_s < state.time_s or turn != state.turn:
            state.trails.clear()
        state.time_s, state.turn = time_s, turn
        for key in [key for key, trail in state.trails.items() if time_s - trail.seen_s > self.last]:
            del state.trails[key]

    def _add(self, state: _State, one: _Object, step: float) -> tuple[tuple[float, float], ...]:
        """The points of an object's trail, the newest, where it is now, last."""
        trail = state.trails.setdefault((one.table, one.track), _Trail(state.time_s, deque()))
        trail.seen_s, points = state.time_s, trail.points
        while points and state.time_s - points[0][0] > self.last:
            points.popleft()
        before = tuple((x, y) for _, x, y in points)
        if not points or max(abs(one.x - points[-1][1]), abs(one.y - points[-1][2])) >= step:
            points.append((state.time_s, one.x, one.y))
        return (*before, (one.x, one.y))
