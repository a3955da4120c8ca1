# SPDX-License-Identifier: Apache-2.0
"""The stages whose network gives a value for each place of the frame: `depth` and `anomaly`.

A frame's map stays on the device, where `draw` finds it. Only numbers go to the host: the depth of each object, and the
score of each frame.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from streamkit.core.crops import LazyOutputs
from streamkit.core.data import Array, Batch, Frame, FrameMap
from streamkit.core.detections import stored
from streamkit.core.lazy_column import LazyColumn, read
from streamkit.core.stage import BatchStage, Composite, CompositePart, Count, Pixels, Score, Seconds, stage
from streamkit.core.units import OF_FORMS, Of
from streamkit.models.arithmetic import Engine, Precision
from streamkit.models.card import family_of
from streamkit.models.card_option import Model
from streamkit.ops.frame_maps import frame_rects, medians, object_samples, ranged, to_maps
from streamkit.ops.transfer import fetch
from streamkit.stages.inference.apply_results import ApplyResults, Results
from streamkit.stages.inference.infer import Threads, check_task, network_parts, pick_options
from streamkit.stages.inference.postprocess import FetchVectors
from streamkit.stages.inference.select_objects import WHOLE_FRAME, SelectFrames, SelectObjects, members

BROKEN = "maps with values that are not finite"
NO_DEPTH = "objects without depth"
BAD_SCORES = "anomaly scores that are not finite"
_SLACK = 0.9  # of min_score: below it a frame is no longer anomalous


class _Placed:
    """Where the places of a batch's maps lie in their frames.

    Args:
        maps: (n, h, w), of `frames`.
        frames: n frames.
        geometry: (n, 4), as `Batch.geometry`.
        input_size: width and height of the network's input.
    """

    def __init__(self, maps: Array, frames: list[Frame], geometry: np.ndarray, input_size: tuple[int, int]) -> None:
        size = maps.shape[2], maps.shape[1]
        self.frames = frames
        self.to_map = to_maps(geometry, size, input_size)
        sizes_wh = np.array([(frame.width, frame.height) for frame in frames], np.int64)
        self.rects = frame_rects(self.to_map, sizes_wh, size)

    def keep(
        self, name: str, kind: Literal["depth", "relative_depth", "anomaly"], values: Array, levels: Array
    ) -> None:
        """Give each frame its map, under the stage's name."""
        places = zip(self.frames, self.to_map.tolist(), self.rects.tolist(), strict=True)
        for i, (frame, to_map, rect) in enumerate(places):
            frame.maps[name] = FrameMap(kind, values[i], levels[i], tuple(to_map), tuple(rect))


# --------------------------------------------------------------------------------------------------------------- depth


@dataclass(eq=False)
class KeepDepth(
    BatchStage, name="postprocess", reads=("outputs",), device_copy="a flag a frame goes from device to host"
):
    """Keep each frame's depth map on the device, and release the outputs."""

    model: Model

    def open(self) -> None:
        """Find the network's family."""
        self._family: Any = family_of(self.model)
        self._waiting: deque[Callable[[], tuple[int, int]]] = deque()
        self._name = self.context.id.split(".", 1)[0]

    def process(self, batch: Batch) -> Batch:
        """Set the frames' maps."""
        maps = self._family.maps(batch.outputs)[: len(batch)]
        assert batch.geometry is not None
        placed = _Placed(maps, batch.frames, batch.geometry, self.model.input.size)
        values, levels, broken = ranged(maps, placed.rects, self._family.form)
        placed.keep(self._name, "depth" if self._family.form == "metric" else "relative_depth", values, levels)
        self._count(1)
        self._waiting.append(self.measured(batch, values, placed, broken))
        self._count(0 if batch.xp is np else 1)
        batch.outputs = {}
        batch.geometry = None
        return batch

    def measured(self, batch: Batch, values: Array, placed: _Placed, broken: Array) -> Callable[[], tuple[int, int]]:
        """Measure objects; return a function that waits for the numbers of broken maps and of unmeasured objects."""
        wait = fetch([broken])
        return lambda: (int(wait()[0].sum()), 0)

    def close(self) -> None:
        """Add the remaining counts."""
        self._count(0)

    def _count(self, rest: int) -> None:
        """Count batches but the newest `rest` ones, which may still be computed."""
        while len(self._waiting) > rest:
            for name, count in zip((BROKEN, NO_DEPTH), self._waiting.popleft()(), strict=True):
                if count:
                    self.context.counters.add(name, count)


@dataclass(eq=False)
class MeasureDepth(
    KeepDepth,
    reads=("outputs", "detections"),
    writes=("depth",),
    columns={"depth": "float"},
    device_copy="places to measure go to the device and a number an object to the host, one small copy a batch each",
):
    """Give objects a column as well: the median of the map in the mask, or in the box of objects without one."""

    of: Of
    column: ClassVar[str] = "depth"

    def measured(self, batch: Batch, values: Array, placed: _Placed, broken: Array) -> Callable[[], tuple[int, int]]:
        """See `KeepDepth.measured`; the column waits for its numbers when it is read."""
        table = batch.table(self.of.stage)
        rows = np.flatnonzero(members(table, self.of))
        masks = read(stored(table.extra)["mask"][rows]) if "mask" in table.extra else None
        samples, flags = object_samples(table.xyxy[rows], table.batch_row[rows], placed.to_map, placed.rects, masks)
        wait = cache(fetch([medians(values, samples, flags), broken]))

        def column(selected: np.ndarray) -> np.ndarray:
            numbers = np.full(len(table), np.nan, np.float32)
            numbers[rows] = wait()[0]
            return np.asarray(numbers[selected])

        every = np.arange(len(table))
        depth = column(every) if batch.xp is np else LazyColumn(column, every, np.float32)
        batch.tables[self.of.stage] = table.with_columns(**{self.column: depth})
        return lambda: (int(wait()[1].sum()), int(np.isnan(wait()[0]).sum()))


class MeasureRelativeDepth(MeasureDepth, writes=("relative_depth",), columns={"relative_depth": "float"}):
    """`MeasureDepth` of a network whose values have no unit."""

    column: ClassVar[str] = "relative_depth"


@stage("depth", reads="pixels", writes_if={"of": "depth"})
class Depth(Composite):
    """Estimate how far each place of the frame is, and measure objects.

    `draw` with `maps` shows the map as colors, near places light. With `of`, each object has the median of the map in
    its mask or, without one, in its box: the column `depth` in meters with a network of the family `metric_depth`.
    Other networks give depth without a unit; the column is `relative_depth` then, from 0, the frame's nearest place, to
    1, its farthest, and is comparable within a frame only. Both are in records and rules.
    """

    model: Annotated[Model, "the model card, with task: depth; its family says what the values are."]
    of: Annotated[Of | None, f"measure these objects, {OF_FORMS}; by default none."] = None
    engine: Engine = "auto"
    precision: Precision = "auto"
    threads: Threads = None

    def __post_init__(self) -> None:
        """Check the card's task."""
        check_task(self)

    def parts(self) -> list[CompositePart]:
        """Return the parts with their options."""
        if self.of is None:
            return network_parts(self, [], [CompositePart("postprocess", KeepDepth, {"model": self.model})])
        family: Any = family_of(self.model)
        kind = MeasureDepth if family.form == "metric" else MeasureRelativeDepth
        return network_parts(self, [], [CompositePart("postprocess", kind, pick_options(self, ("model", "of")))])


# ------------------------------------------------------------------------------------------------------------- anomaly


class KeepAnomaly(FetchVectors, device_copy="a score a frame or object goes from device to host, one copy a batch"):
    """Keep each frame's map on the device, and start the copy of the scores to the host."""

    def process(self, batch: Batch) -> Batch:
        """Set the crops' results and, where they are whole frames, the maps."""
        rows = batch.rows
        assert rows is not None
        maps = None
        if len(rows) and not isinstance(batch.outputs, LazyOutputs):
            maps = self._family.maps(batch.outputs)
        if maps is not None and (batch.crops is not None and (batch.crops.row_id == WHOLE_FRAME).all()):
            assert batch.geometry is not None
            frames = [batch.frames[row] for row in rows.tolist()]
            maps = maps[: len(rows)]
            placed = _Placed(maps, frames, batch.geometry, self.model.input.size)
            placed.keep(self.context.id.split(".", 1)[0], "anomaly", *ranged(maps, placed.rects, "score")[:2])
        return super().process(batch)


@dataclass(slots=True)
class _State:
    """A source.

    Attributes:
        since_s: since when it is anomalous; None while it is not.
        change_s: since when the score is on the other side; None while it is not.
        max_score: the highest score since then.
        now_s: the time of the last frame.
    """

    since_s: float | None = None
    change_s: float | None = None
    max_score: float = 0.0
    now_s: float = -np.inf


_OF_FRAMES = ("min_score", "debounce", "every")
_OF_OBJECTS = ("pad", "min_size", "batch")


@stage(
    "anomaly",
    reads="pixels",
    writes="events",
    writes_if={"of": "anomaly_score"},
    columns={"anomaly_score": "float"},
    emits=("anomalous", "cleared"),
    changeable=("min_score", "debounce"),
)
class Anomaly(ApplyResults):
    """Score how unusual each frame is: emits `anomalous` and `cleared`.

    `anomalous` has `score` and `since_s`; `cleared` is emitted when the score falls below 90 % of `min_score`, and has
    `max_score` and `lasted_s`. Records have the frame's `anomaly_score`, and `draw` shows the map over the frame. With
    `of`, the network sees each object instead, whose `anomaly_score` is in records and rules, and there are no events.
    """

    model: Annotated[Model, "the model card, with task: anomaly."]
    of: Annotated[Of | None, f"score these objects, {OF_FORMS}; whole frames by default."] = None
    min_score: Annotated[Score | None, "a frame is anomalous from this score on; by default the card's score."] = None
    debounce: Annotated[Seconds, "how long a change must last before it is reported."] = 0.0
    every: Annotated[Seconds, "how long to wait before the network runs on a source again; 0 for every frame."] = 0.0
    pad: Annotated[Score, "with `of`, the share of the box that is added on each side of the crop."] = 0.0
    min_size: Annotated[Pixels, "with `of`, skip objects whose shorter side is below this, in source pixels."] = 16.0
    batch: Annotated[Count, "with `of`, the maximum number of crops in one run of the network."] = 32
    engine: Engine = "auto"
    precision: Precision = "auto"
    threads: Threads = None

    def __post_init__(self) -> None:
        """Check the card's task, and that no option is given without effect."""
        check_task(self)
        unused = _OF_OBJECTS if self.of is None else _OF_FRAMES
        names = [name for name in unused if getattr(self, name) != getattr(type(self), name)]
        if names:
            where = "objects, with of" if self.of is None else "whole frames, without of"
            raise ValueError(f"options for {where}: leave out {', '.join(names)}")

    @staticmethod
    def parts_before(options: dict[str, Any]) -> list[CompositePart]:
        """Return the parts that run the network on whole frames or objects."""
        composite = Anomaly(**options)
        scores = CompositePart("postprocess", KeepAnomaly, {"model": composite.model})
        if composite.of is None:
            select = CompositePart("select", SelectFrames, {"every": composite.every})
            return network_parts(composite, [select], [scores])
        chosen = {"of": composite.of, "every": 0.0, "track_ttl": 1.0, **pick_options(composite, ("pad", "min_size"))}
        return network_parts(composite, [CompositePart("select", SelectObjects, chosen)], [scores], ("batch",))

    def open(self) -> None:
        """Find the threshold."""
        self.changed()

    def changed(self) -> None:
        """Apply `min_score`."""
        self._min_score = self.model.score if self.min_score is None else self.min_score

    def new_state(self, source: str) -> _State:
        """Return the state of a source that is not anomalous."""
        return _State()

    def apply(self, batch: Batch, states: Mapping[str, Any], results: Results) -> None:
        """Set the fact `anomaly_score` and emit events; with `of`, add the column."""
        scores = {key: float(result[0]) for key, result in results.items()}
        if broken := sum(not np.isfinite(score) for score in scores.values()):
            self.context.counters.add(BAD_SCORES, broken)
        if self.of is not None:
            table = batch.table(self.of.stage)
            keys = zip(table.batch_row.tolist(), table.row_id.tolist(), strict=True)
            column = np.array([scores.get(key, np.nan) for key in keys], np.float32)
            batch.tables[self.of.stage] = table.with_columns(anomaly_score=column)
            return
        for (row, _), score in scores.items():
            if np.isfinite(score):
                frame = batch.frames[row]
                frame.facts["anomaly_score"] = round(score, 4)
                self._update(frame, states[frame.source], score)

    def _update(self, frame: Frame, state: _State, score: float) -> None:
        """Compare a frame's score with the threshold; emit the event of a change that has lasted long enough."""
        now_s = frame.pts_s
        if now_s < state.now_s:  # the time went back
            state.change_s = None
            state.since_s = None if state.since_s is None else now_s
        state.now_s = now_s
        was = state.since_s is not None
        is_above = score >= (self._min_score * _SLACK if was else self._min_score)
        state.max_score = max(state.max_score, score) if was or is_above else 0.0
        if is_above == was:
            state.change_s = None
            return
        state.change_s = now_s if state.change_s is None else state.change_s
        if now_s - state.change_s < self.debounce:
            return
        if is_above:
            state.since_s = state.change_s
            frame.emit("anomalous", score=round(score, 4), since_s=round(state.change_s, 6))
        else:
            lasted_s = round(state.change_s - (state.since_s or 0.0), 6)
            frame.emit("cleared", max_score=round(state.max_score, 4), lasted_s=lasted_s)
            state.since_s = None
        state.change_s = None

    def end(self, source: str, state: Any) -> None:
        """Count a source that ends while it is anomalous."""
        if state.since_s is not None:
            self.context.counters.add("anomalous at the end")
