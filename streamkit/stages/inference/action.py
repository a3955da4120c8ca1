# SPDX-License-Identifier: Apache-2.0
"""`action`: what happens in the last seconds of a source or of each track, by a network that takes clips."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np

from streamkit.core.data import Batch, Detections, Frame
from streamkit.core.errors import ModelError
from streamkit.core.stage import CompositePart, Count, Pixels, Score, Seconds, StreamStage, stage
from streamkit.core.text import did_you_mean
from streamkit.core.units import OF_FORMS, Of
from streamkit.models.arithmetic import Engine, Precision
from streamkit.models.card_option import Model
from streamkit.models.network import inspect
from streamkit.stages.inference.apply_results import add_attributes
from streamkit.stages.inference.clips import (
    WHOLE_SOURCE,
    CollectClips,
    MaxFrameGap,
    MaxMemory,
    SelectClips,
    SourceClock,
    Stride,
)
from streamkit.stages.inference.infer import Infer, Threads, check_task, pick_options
from streamkit.stages.inference.postprocess import FetchVectors
from streamkit.stages.inference.preprocess import Preprocess
from streamkit.stages.inference.select_objects import WHOLE_FRAME, members, track_ids

NOT_FINITE = "clips without a result: outputs not finite"

_FRAMES = 64
"""Frames of clips that `preprocess` makes at once; there are more only with many tracks."""


@dataclass(slots=True)
class _Action:
    """What a track does, or what happens in a source.

    Attributes:
        seen_s: when the track was last seen.
        object_label: its class; None for whole frames.
        label: the label that holds; None for none.
        since_s: the time of the first clip with it.
        score: its score in the last clip.
        next_label: the label of the last clip, which holds after `debounce`.
        next_s: since when the last clips had that label.
    """

    seen_s: float
    object_label: str | None = None
    label: str | None = None
    since_s: float = 0.0
    score: float = 0.0
    next_label: str | None = None
    next_s: float = 0.0


class _Tracked(NamedTuple):
    """An object of a frame, or the frame.

    Attributes:
        track: its track; `WHOLE_SOURCE` for a frame.
        row_id: its `row_id`; `WHOLE_FRAME` for a frame.
        label: its class; None for a frame.
        place: its place in the table.
    """

    track: int
    row_id: int
    label: str | None
    place: int = 0


@dataclass(slots=True)
class _SourceActions:
    """The actions of a source, by track."""

    by_track: dict[int, _Action] = field(default_factory=dict)
    clock: SourceClock = field(default_factory=SourceClock)


@stage(
    "action",
    reads="pixels",
    reads_if={"of": "track_id"},
    writes=("attributes", "events"),
    emits=("started", "ended"),
    changeable=("min_score", "labels", "debounce"),
)
class Action(StreamStage):
    """Say what each track does, or what happens in the frame, with a network that takes clips.

    Without `of`, clips are of whole frames. A clip is `window` frames of the video, each `stride` frames after the last
    one. It is judged when it is complete, and again after `every` with the newest frames. The best label becomes an
    attribute, in records `"attributes": {"action": {"label": "falling", "score": 0.87}}`. The frames of clips stay on
    the device.

    `started` has `action` (the label), `score` and `since_s`; `ended` has `action`, `lasted_s`, and `lost: true` if the
    track was lost, or the source paused or restarted. Events of tracks have the object's `label`.
    """

    model: Annotated[Model, "the model card, with task: action."]
    of: Annotated[Of | None, f"which tracked objects, {OF_FORMS}; whole frames by default."] = None
    window: Annotated[Count | None, "number of frames of a clip, where the network's file leaves it open."] = None
    stride: Stride = 4
    every: Annotated[Seconds, "how long a result holds before the next clip is judged; 0 judges at each frame."] = 1.0
    min_score: Annotated[Score | None, "below this score there is no label; by default the card's score."] = None
    labels: Annotated[list[str] | None, "report these labels only; all by default."] = None
    debounce: Annotated[Seconds, "how long clips must have another label before that starts, or the old one ends."] = (
        0.0
    )
    attribute: Annotated[str | None, "the attribute's name; by default the stage's id."] = None
    max_frame_gap: MaxFrameGap = 2.0
    pad: Annotated[Score, "share of the box that is added on each side of the crop."] = 0.0
    min_size: Annotated[Pixels, "skip objects whose shorter side is below this, in source pixels."] = 16.0
    batch: Annotated[Count, "maximum number of clips in one run of the network."] = 8
    max_memory: MaxMemory = 2_000_000_000
    engine: Engine = "auto"
    precision: Precision = "auto"
    threads: Threads = None

    def __post_init__(self) -> None:
        """Check the card's task, the labels and the window."""
        check_task(self)
        for label in self.labels or ():
            if label not in self.model.labels:
                raise ValueError(f"{self.model.name} has no class {label!r}{did_you_mean(label, self.model.labels)}")
        self._check_window()

    def _check_window(self) -> None:
        file = self.model.file
        try:
            clip = inspect(file).clip
        except ModelError:  # it is missing or damaged, which `check` reports
            return
        if clip is None:
            return
        if clip.frames is None and self.window is None:
            raise ValueError(
                f"{file.name} leaves the number of frames of a clip open: set window, the number that it was trained "
                "with, such as 16"
            )
        if clip.frames is not None and self.window not in (None, clip.frames):
            raise ValueError(f"window is {self.window}, and {file.name} takes clips of {clip.frames}; leave it out")

    @staticmethod
    def parts_before(options: dict[str, Any]) -> list[CompositePart]:
        """Return the parts that collect the frames of clips and run the network."""
        action = Action(**options)
        select = ("of", "stride", "max_frame_gap", "pad", "min_size")
        collect = ("model", "window", "stride", "every", "batch", "max_memory")
        infer = ("model", "window", "batch", "engine", "precision", "threads")
        model = {"model": action.model}
        chosen = {name: value for name, value in pick_options(action, select).items() if value is not None}
        return [
            CompositePart("select", SelectClips, chosen),
            CompositePart("preprocess", Preprocess, {**model, "batch": _FRAMES}),
            CompositePart("clips", CollectClips, pick_options(action, collect)),
            CompositePart("infer", Infer, {**pick_options(action, infer), "few_rows": True}),
            CompositePart("postprocess", FetchVectors, model),
        ]

    def open(self) -> None:
        """Set the attribute's name, and apply the options."""
        self._name = self.attribute or self.context.id
        self.changed()

    def changed(self) -> None:
        """Apply `min_score` and `labels`."""
        self._min_score = self.model.score if self.min_score is None else self.min_score
        self._reported = frozenset(self.model.labels if self.labels is None else self.labels)

    def new_state(self, source: str) -> _SourceActions:
        """Return a source's actions; none yet."""
        return _SourceActions()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Add attributes, emit events, and take the crops off the batch."""
        results = self._results(batch)
        batch.crops = batch.rows = batch.geometry = None
        table = Detections.empty() if self.of is None else batch.table(self.of.stage)
        objects = _by_frame(table, self.of, len(batch))
        values: list[Any] = [None] * len(table)
        for row, frame in enumerate(batch.frames):
            state = states[frame.source]
            self._end_lost(state, frame)
            for tracked in objects[row]:
                action = self._judged(state, frame, tracked, results.get((row, tracked.row_id)))
                value = self._value(action)
                if tracked.track != WHOLE_SOURCE:
                    values[tracked.place] = value
                elif value is not None:
                    frame.facts["attributes"] = {**frame.facts.get("attributes", {}), **value}
        if self.of is not None:
            batch.tables[self.of.stage] = add_attributes(table, values)
        return batch

    def end(self, source: str, state: Any) -> None:
        """Count the labels that still hold for the summary."""
        for action in state.by_track.values():
            if action.label is not None:
                self._count(f"{action.label} at the end")

    def _results(self, batch: Batch) -> dict[tuple[int, int], np.ndarray]:
        """Return the probabilities of each clip, by the row of its last frame and the object's `row_id`."""
        crops = batch.crops
        rows = batch.rows
        assert crops is not None
        assert rows is not None
        if not len(crops):
            return {}
        return dict(zip(zip(rows.tolist(), crops.row_id.tolist(), strict=True), crops.wait(), strict=True))

    def _end_lost(self, state: _SourceActions, frame: Frame) -> None:
        """Forget the tracks that are not seen for too long; all of them after a gap of the source."""
        broken = state.clock.is_broken_by(frame, self.max_frame_gap)
        oldest_s = frame.pts_s - self.max_frame_gap
        lost = [track for track, action in state.by_track.items() if broken or action.seen_s < oldest_s]
        for track in lost:
            action = state.by_track.pop(track)
            if action.label is not None:
                self._emit_ended(frame, track, action, action.seen_s, lost=True)

    def _judged(
        self, state: _SourceActions, frame: Frame, tracked: _Tracked, result: np.ndarray | None
    ) -> _Action | None:
        """Return the action of a track after the result of a clip, if there is one now; None before its first."""
        action = state.by_track.get(tracked.track)
        if action is None:
            if result is None:
                return None
            action = state.by_track[tracked.track] = _Action(frame.pts_s)
        action.seen_s = frame.pts_s
        action.object_label = tracked.label
        if result is not None:
            self._judge(action, frame, tracked.track, result)
        return action

    def _judge(self, action: _Action, frame: Frame, track: int, probabilities: np.ndarray) -> None:
        """Apply the result of a clip that ends with this frame."""
        now_s = frame.pts_s
        label, score = self._best(probabilities)
        if label != action.next_label:
            action.next_label = label
            action.next_s = now_s
        if label == action.label:
            action.score = score
        elif now_s - action.next_s >= self.debounce:
            if action.label is not None:
                self._emit_ended(frame, track, action, action.next_s)
            action.label = label
            action.score = score
            action.since_s = action.next_s
            if label is not None:
                self._emit_started(frame, track, action)

    def _best(self, probabilities: np.ndarray) -> tuple[str | None, float]:
        """Return the label of a clip, None for none, and its score."""
        if not np.isfinite(probabilities).all():
            self.context.counters.add(NOT_FINITE)
            return None, 0.0
        best = int(probabilities.argmax())
        score = round(float(probabilities[best]), 4)
        label = self.model.labels[best]
        return (label if score >= self._min_score and label in self._reported else None), score

    def _value(self, action: _Action | None) -> dict[str, Any] | None:
        """Return the attribute, as in records; None without a label."""
        if action is None or action.label is None:
            return None
        return {self._name: {"label": action.label, "score": action.score}}

    def _emit_started(self, frame: Frame, track: int, action: _Action) -> None:
        data: dict[str, Any] = {"action": action.label, "score": action.score, "since_s": round(action.since_s, 6)}
        self._emit(frame, "started", track, action, data)

    def _emit_ended(self, frame: Frame, track: int, action: _Action, end_s: float, *, lost: bool = False) -> None:
        data: dict[str, Any] = {"action": action.label, "lasted_s": round(end_s - action.since_s, 6)}
        self._emit(frame, "ended", track, action, {**data, "lost": True} if lost else data)

    def _emit(self, frame: Frame, kind: str, track: int, action: _Action, data: dict[str, Any]) -> None:
        label = {} if action.object_label is None else {"label": action.object_label}
        frame.emit(kind, None if track == WHOLE_SOURCE else track, **data, **label)
        self._count(f"{kind}: {action.label}")

    def _count(self, what: str) -> None:
        self.context.counters.add(f"{self.context.id} {what}")


def _by_frame(table: Detections, of: Of | None, count: int) -> list[list[_Tracked]]:
    """Return what has actions in each of `count` frames: tracked objects, or without `of` the frame itself."""
    if of is None:
        return [[_Tracked(WHOLE_SOURCE, WHOLE_FRAME, None)] for _ in range(count)]
    objects: list[list[_Tracked]] = [[] for _ in range(count)]
    tracks = track_ids(table)
    labels = table.label
    frames = table.batch_row.tolist()
    row_ids = table.row_id.tolist()
    for place in np.flatnonzero(members(table, of)).tolist():
        if tracks[place] >= 0:
            objects[frames[place]].append(_Tracked(tracks[place], row_ids[place], labels[place], place))
    return objects
