# SPDX-License-Identifier: Apache-2.0
"""Results of a network with `of:`, given to the objects or frames that it ran on: the last part of the chain.

Results of tracks and frames are smoothed over time. The mean decays with time, not with frames: a result of age t has
the weight exp(-t / smoothing). This is an exponential filter for irregularly spaced samples, so it does not depend on
the frame rate. Masks and keypoints belong to one frame and are not kept.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamkit.core.data import Batch, Detections
from streamkit.core.lazy_column import LazyColumn, read
from streamkit.core.stage import StreamStage
from streamkit.core.units import Of, Score, Seconds
from streamkit.models.card import family_of
from streamkit.models.card_option import Model
from streamkit.models.network import inspect
from streamkit.ops import rle
from streamkit.ops.class_maps import class_masks, placed_classes
from streamkit.stages.inference.select_objects import TrackCaches, members, track_ids

BACKGROUND = "background"
SEGMENTATION = "segmentation"
NOT_FINITE = "results dropped: not finite"

Results = Mapping[tuple[int, int], Any]
"""The network's result of each crop, by the frame's row and the object's `row_id`."""


def network_details(model: Any) -> tuple[Any, dict[str, Any]]:
    """Return the family of a network, and the shapes of its outputs as its file has them."""
    return family_of(model), inspect(model.file).without_outputs(model.ignore_outputs).output_dims


class ApplyResults(StreamStage, name="apply", reads=("results",)):
    """Base of the parts that take the crops off the batch and give frames or objects the results."""

    def apply(self, batch: Batch, states: Mapping[str, Any], results: Results) -> None:
        """Add the results to the batch's tables or frames."""
        raise NotImplementedError

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Apply the results; remove the crops from the batch."""
        assert batch.crops is not None
        assert batch.rows is not None
        keys = zip(batch.rows.tolist(), batch.crops.row_id.tolist(), strict=True)
        self.apply(batch, states, dict(zip(keys, batch.crops.wait(), strict=True)))
        batch.crops = batch.rows = batch.geometry = None
        return batch

    def finite(self, results: Results) -> Results:
        """Return the results without those that are not finite, which are counted: a mean would keep them."""
        finite_results = {key: result for key, result in results.items() if np.isfinite(result).all()}
        if len(finite_results) < len(results):
            self.context.counters.add(NOT_FINITE, len(results) - len(finite_results))
        return finite_results


@dataclass(eq=False)
class ApplyDetails(ApplyResults):
    """Give every object of the table its result, which belongs to this frame alone."""

    model: Model
    of: Of

    def apply(self, batch: Batch, states: Mapping[str, Any], results: Results) -> None:
        """Add the column."""
        table = batch.table(self.of.stage)
        batch.tables[self.of.stage] = self.attach(table, self.values(batch, states, table, results))

    def values(self, batch: Batch, states: Mapping[str, Any], table: Detections, results: Results) -> list[Any]:
        """Return the result of each row, None for none."""
        return [results.get(key) for key in zip(table.batch_row.tolist(), table.row_id.tolist(), strict=True)]

    def attach(self, table: Detections, values: list[Any]) -> Detections:
        """Return the table with the values, one per row, added."""
        raise NotImplementedError


class ApplyMasks(ApplyDetails, writes=("mask",)):
    """Give every object its mask."""

    def attach(self, table: Detections, values: list[Any]) -> Detections:
        """See `ApplyDetails.attach`."""
        pending_masks = [None if value is None else value["mask"] for value in values]

        def masks(rows: np.ndarray) -> np.ndarray:
            return _objects(
                [None if (pending := pending_masks[row]) is None else read(pending)[0] for row in rows.tolist()]
            )

        return table.with_columns(mask=LazyColumn(masks, np.arange(len(table)), object))


class ApplyPoints(ApplyDetails, writes=("keypoints",)):
    """Give every object its keypoints."""

    def open(self) -> None:
        """Read the number of keypoints of an object from the network's file."""
        family, outputs = network_details(self.model)
        self._points = family.points(outputs, len(self.model.labels))

    def attach(self, table: Detections, values: list[Any]) -> Detections:
        """See `ApplyDetails.attach`."""
        pending_points = [None if value is None else value["keypoints"] for value in values]
        shape = (
            self._points or max((pending.shape[1] for pending in pending_points if pending is not None), default=0),
            3,
        )

        def points(rows: np.ndarray) -> np.ndarray:
            selected = (pending_points[row] for row in rows.tolist())
            return _rows([None if pending is None else read(pending)[0] for pending in selected], shape)

        column = LazyColumn(points, np.arange(len(table)), np.float32, shape)
        return table.with_columns(keypoints=column, skeleton=self.model.skeleton)


def add_attributes(table: Detections, values: list[Any]) -> Detections:
    """Return the table with attributes, a mapping by name or None for each row, added to those that it has."""
    if (before := table.extra.get("attributes")) is not None:
        values = [{**old, **new} if old and new else new or old for old, new in zip(before, values, strict=True)]
    return table.with_columns(attributes=_objects(values))


def _objects(values: list[Any]) -> np.ndarray:
    """Return the values as a column of Python objects."""
    column = np.full(len(values), None)
    column[:] = values
    return column


def _rows(values: list[Any], shape: tuple[int, ...]) -> np.ndarray:
    """Return the values as a column of float32 arrays, NaN where there is none."""
    column = np.full((len(values), *shape), np.nan, np.float32)
    for row, value in zip(column, values, strict=True):
        if value is not None:
            row[:] = value
    return column


@dataclass(slots=True)
class Mean:
    """Running mean of the results of one track, or of one source's frames.

    Attributes:
        total: weighted sum of the results.
        weight: sum of the weights.
        at_s: the time that the weights refer to.
        seen_s: when the track was last seen.
        value: what the track's objects are given.
    """

    total: np.ndarray
    weight: float
    at_s: float
    seen_s: float
    value: Any = None

    def add(self, result: np.ndarray, now_s: float, smoothing: float) -> np.ndarray:
        """Add a result; return the mean."""
        decay = math.exp(-abs(now_s - self.at_s) / smoothing) if smoothing else 0.0
        self.total = self.total * np.float32(decay) + result
        self.weight = self.weight * decay + 1
        self.at_s = now_s
        return np.asarray(self.total / np.float32(self.weight))


@dataclass(eq=False)
class ApplyTracks(ApplyDetails, TrackCaches):
    """Keep the results with each track, and give every object of the table a column; see the module.

    Attributes:
        smoothing: seconds after which a result has weight 1/e.
        track_ttl: seconds without a track after which it is a new one.
    """

    smoothing: Seconds = 2.0
    track_ttl: Seconds = 10.0

    def value(self, mean: np.ndarray) -> Any:
        """Return what an object is given whose results have this mean, (d,); None for nothing."""
        raise NotImplementedError

    def values(self, batch: Batch, states: Mapping[str, Any], table: Detections, results: Results) -> list[Any]:
        """See `ApplyDetails.values`: those of tracks are smoothed and kept."""
        values: list[Any] = [None] * len(table)
        selected = np.flatnonzero(members(table, self.of))
        outputs = super().values(batch, states, table, self.finite(results))
        tracks = track_ids(table)
        for at, now_s, state in self.in_order(batch, states, table.batch_row[selected], self.track_ttl):
            i = int(selected[at])
            if tracks[i] < 0:
                values[i] = None if outputs[i] is None else self.value(outputs[i])
                continue
            mean = state.get(tracks[i], now_s, self.track_ttl)
            if outputs[i] is not None:
                if mean is None:
                    mean = state.by_track[tracks[i]] = Mean(np.zeros_like(outputs[i]), 0.0, now_s, now_s)
                mean.value = self.value(mean.add(outputs[i], now_s, self.smoothing))
            values[i] = None if mean is None else mean.value
        return values


@dataclass(eq=False)
class ApplyEmbeddings(ApplyTracks, writes=("embedding",), changeable=("smoothing", "track_ttl")):
    """Give each object a vector of length 1 in the column `embedding`, NaN where there is none.

    Attributes:
        record: write the vectors into records; `best` gives one only to objects that the network has just run on.
    """

    record: bool | Literal["best"] = False

    def open(self) -> None:
        """Read the length of the vectors from the network's file."""
        family, outputs = network_details(self.model)
        self._length = family.length(outputs)

    def values(self, batch: Batch, states: Mapping[str, Any], table: Detections, results: Results) -> list[Any]:
        """See `ApplyDetails.values`."""
        if self.record == "best":
            return ApplyDetails.values(self, batch, states, table, self.finite(results))
        return super().values(batch, states, table, results)

    def value(self, mean: np.ndarray) -> Any:
        """See `ApplyTracks.value`."""
        return mean / max(float(np.linalg.norm(mean)), np.finfo(np.float32).tiny)

    def attach(self, table: Detections, values: list[Any]) -> Detections:
        """See `ApplyDetails.attach`."""
        if self._length is None:  # the file does not say
            self._length = next((len(value) for value in values if value is not None), None)
        private = table.private - {"embedding"} if self.record else table.private | {"embedding"}
        return table.with_columns(embedding=_rows(values, (self._length or 0,)), private=private)


class AttributeName:
    """Makes the attribute of a classification network; for dataclasses with `model`, `attribute` and `min_score`."""

    model: Any
    context: Any
    attribute: str | None
    min_score: float

    def open(self) -> None:
        """Set the attribute's name, and those of numbers."""
        self._name = self.attribute or self.context.id.split(".", 1)[0]
        self._names = self.model.attributes(self._name) if family_of(self.model).numbers else ()

    def value(self, mean: np.ndarray) -> dict[str, Any] | None:
        """Return the best class and its score, as in records, by the attribute's name; None below `min_score`.

        Of numbers, return each by its own name.
        """
        if self._names:
            texts = [f"{number:.1f}" for number in mean.tolist()]
            return {name: {"label": text, "score": None} for name, text in zip(self._names, texts, strict=True)}
        best = int(mean.argmax())
        score = round(float(mean[best]), 4)
        return {self._name: {"label": self.model.labels[best], "score": score}} if score >= self.min_score else None


@dataclass(eq=False)
class ApplyAttributes(
    AttributeName, ApplyTracks, writes=("attributes",), changeable=("smoothing", "track_ttl", "min_score")
):
    """Give each object an attribute in the column `attributes`.

    Attributes:
        attribute: the attribute's name; by default the stage's id.
        min_score: below this score no attribute is given.
    """

    attribute: str | None = None
    min_score: Score = 0.0

    def attach(self, table: Detections, values: list[Any]) -> Detections:
        """See `ApplyDetails.attach`: adds to the present attributes."""
        return add_attributes(table, values)


@dataclass(eq=False)
class ApplyFrameAttributes(AttributeName, ApplyResults, writes=("attributes",), changeable=("smoothing", "min_score")):
    """Give each frame an attribute among its facts.

    Attributes:
        model: the model card.
        smoothing: seconds after which a result has weight 1/e.
        attribute: the attribute's name; by default the stage's id.
        min_score: below this score no attribute is given.
    """

    model: Model
    smoothing: Seconds = 2.0
    attribute: str | None = None
    min_score: Score = 0.0

    def new_state(self, source: str) -> list[Mean]:
        """Return the mean of a source's results, as a list that is empty until there is one."""
        return []

    def apply(self, batch: Batch, states: Mapping[str, Any], results: Results) -> None:
        """Add the attribute."""
        outputs = {row: result for (row, _), result in self.finite(results).items()}
        for row, frame in enumerate(batch.frames):
            state = states[frame.source]
            if row in outputs:
                if not state:
                    state.append(Mean(np.zeros_like(outputs[row]), 0.0, frame.pts_s, frame.pts_s))
                state[0].value = self.value(state[0].add(outputs[row], frame.pts_s, self.smoothing))
            if state and state[0].value is not None:
                frame.facts["attributes"] = {**frame.facts.get("attributes", {}), **state[0].value}


@dataclass(eq=False)
class ApplyRegions(ApplyResults, writes=(SEGMENTATION,)):
    """Make the masks of the classes, and attach them to each frame.

    Attributes:
        model: the model card.
        labels: the classes to keep; all but `background` by default.
        min_share: omit a class that covers less than this share of the frame.
    """

    model: Model
    labels: list[str] | None = None
    min_share: Score = 0.0

    def apply(self, batch: Batch, states: Mapping[str, Any], results: Results) -> None:
        """Set the fact `segmentation`: masks by label."""
        names = self.model.labels
        size = self.model.input.size
        geometries = () if batch.geometry is None else batch.geometry  # None if the network ran on no frame
        for ((row, _), classes), geometry in zip(results.items(), geometries, strict=True):
            frame = batch.frames[row]
            mask_by_label: dict[str, Any] = dict(frame.facts.get(SEGMENTATION, {}))
            frame_size = (frame.width, frame.height)
            pixels = classes if classes.ndim == 1 else placed_classes(classes, geometry, frame_size, size)
            for number, mask in class_masks(pixels[: frame.width * frame.height], frame_size).items():
                name = names[number] if number < len(names) else str(number)
                wanted = name in self.labels if self.labels is not None else name != BACKGROUND
                if wanted and rle.area(mask) >= self.min_share * frame.width * frame.height:
                    mask_by_label[f"{self.context.id.split('.', 1)[0]}.{name}" if name in mask_by_label else name] = (
                        mask
                    )
            frame.facts[SEGMENTATION] = mask_by_label
