"""Results of a network on objects, kept with the track and smoothed over time.

The mean of a track's results decays with time, not with frames: a result of age t has the weight exp(-t / smooth). This
is an exponential filter for irregularly spaced samples, so it does not depend on the frame rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.core.data import Batch, Detections
from streamkit.core.stage import StreamStage
from streamkit.core.units import Of, Score, Seconds
from streamkit.models.card_option import Model
from streamkit.stages.inference.objects import TrackCache, answers, members


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

    def add(self, answer: np.ndarray, now_s: float, smooth: float) -> np.ndarray:
        """Add a result; return the mean."""
        kept = math.exp(-abs(now_s - self.at_s) / smooth) if smooth else 0.0
        self.total = self.total * np.float32(kept) + answer
        self.weight = self.weight * kept + 1
        self.at_s = now_s
        return np.asarray(self.total / np.float32(self.weight))


@dataclass(eq=False)
class KeepObjects(StreamStage, name="keep", reads=("answers",)):
    """Keep the results with each track, and give every object of the table a column; see the module.

    Attributes:
        model: the model card.
        of: which objects.
        smooth: seconds after which a result has weight 1/e.
        track_ttl: seconds without a track after which it is a new one.
    """

    model: Model
    of: Of
    smooth: Seconds = 2.0
    track_ttl: Seconds = 10.0

    def value(self, mean: np.ndarray) -> Any:
        """Return what an object is given whose results have this mean, (d,); None for nothing."""
        raise NotImplementedError

    def attach(self, table: Detections, values: list[Any]) -> Detections:
        """Return the table with the values, one per row, added."""
        raise NotImplementedError

    def new_state(self, source: str) -> TrackCache:
        """Return a source's tracks; none yet."""
        return TrackCache()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Add the column; remove the crops from the batch."""
        table = batch.table(self.of.stage)
        batch.tables[self.of.stage] = self.attach(table, self._values(batch, states, table, answers(batch)))
        batch.crops = batch.rows = None
        return batch

    def _values(
        self, batch: Batch, states: Mapping[str, Any], table: Detections, found: Mapping[tuple[int, int], np.ndarray]
    ) -> list[Any]:
        values: list[Any] = [None] * len(table)
        frame_row, row_id = table.batch_row.tolist(), table.row_id.tolist()
        tracks = [-1] * len(table) if table.track_id is None else table.track_id.tolist()
        mine = members(table, self.of)
        order = np.argsort(table.batch_row, kind="stable")
        last = -1
        for i in order[mine[order]].tolist():
            if frame_row[i] != last:
                last = frame_row[i]
                now_s, state = batch.frames[last].pts_s, states[batch.frames[last].source]
                state.sweep(now_s, self.track_ttl)
            answer = found.get((last, row_id[i]))
            if tracks[i] < 0:
                values[i] = None if answer is None else self.value(answer)
                continue
            known = state.get(tracks[i], now_s, self.track_ttl)
            if answer is not None:
                if known is None:
                    known = state.known[tracks[i]] = Mean(np.zeros_like(answer), 0.0, now_s, now_s)
                known.value = self.value(known.add(answer, now_s, self.smooth))
            values[i] = None if known is None else known.value
        return values


def attribute(labels: tuple[str, ...], mean: np.ndarray, min_score: float) -> dict[str, Any] | None:
    """Return the best class and its score, as in records; None below `min_score`."""
    best = int(mean.argmax())
    score = round(float(mean[best]), 4)
    return {"label": labels[best], "score": score} if score >= min_score else None


@dataclass(eq=False)
class KeepAttributes(KeepObjects, writes=("attributes",), changeable=("smooth", "track_ttl", "min_score")):
    """Give each object an attribute in the column `attributes`.

    Attributes:
        attribute: the attribute's name; by default the stage's id.
        min_score: below this score no attribute is given.
    """

    attribute: str | None = None
    min_score: Score = 0.0

    def open(self) -> None:
        """Set the attribute's name."""
        self._name = self.attribute or self.context.id.split(".", 1)[0]

    def value(self, mean: np.ndarray) -> Any:
        """See `KeepObjects.value`: a mapping of one attribute."""
        found = attribute(self.model.labels, mean, self.min_score)
        return None if found is None else {self._name: found}

    def attach(self, table: Detections, values: list[Any]) -> Detections:
        """See `KeepObjects.attach`: adds to the attributes that are there."""
        if (before := table.extra.get("attributes")) is not None:
            values = [{**old, **new} if old and new else new or old for old, new in zip(before, values, strict=True)]
        column = np.full(len(table), None)
        column[:] = values
        return table.with_columns(attributes=column)


@dataclass(eq=False)
class KeepEmbeddings(KeepObjects, writes=("embedding",), changeable=("smooth", "track_ttl")):
    """Give each object a vector of length 1 in the column `embedding`, NaN where there is none.

    Attributes:
        record: write the vectors into records.
    """

    record: bool = False

    def open(self) -> None:
        """Read the length of the vectors from the network's file."""
        from streamkit.models.card import family_of
        from streamkit.models.network import inspect

        reads: Any = family_of(self.model)
        outputs = inspect(self.model.file).outputs
        self._length = reads.length({name: output.dims for name, output in outputs.items()})

    def value(self, mean: np.ndarray) -> Any:
        """See `KeepObjects.value`."""
        return mean / max(float(np.linalg.norm(mean)), np.finfo(np.float32).tiny)

    def attach(self, table: Detections, values: list[Any]) -> Detections:
        """See `KeepObjects.attach`."""
        if self._length is None:  # the file does not say
            self._length = next((len(value) for value in values if value is not None), None)
        column = np.full((len(table), self._length or 0), np.nan, np.float32)
        for row, value in zip(column, values, strict=True):
            if value is not None:
                row[:] = value
        private = table.private - {"embedding"} if self.record else table.private | {"embedding"}
        return table.with_columns(embedding=column, private=private)


@dataclass(eq=False)
class KeepFrameAttributes(
    StreamStage, name="keep", reads=("answers",), writes=("attributes",), changeable=("smooth", "min_score")
):
    """Give each frame an attribute among its facts.

    Attributes:
        model: the model card.
        smooth: seconds after which a result has weight 1/e.
        attribute: the attribute's name; by default the stage's id.
        min_score: below this score no attribute is given.
    """

    model: Model
    smooth: Seconds = 2.0
    attribute: str | None = None
    min_score: Score = 0.0

    def open(self) -> None:
        """Set the attribute's name."""
        self._name = self.attribute or self.context.id.split(".", 1)[0]

    def new_state(self, source: str) -> list[Mean]:
        """Return the mean of a source's results, as a list that is empty until there is one."""
        return []

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Add the attribute; remove the crops from the batch."""
        found = {row: answer for (row, _), answer in answers(batch).items()}
        for row, frame in enumerate(batch.frames):
            state = states[frame.source]
            if row in found:
                if not state:
                    state.append(Mean(np.zeros_like(found[row]), 0.0, frame.pts_s, frame.pts_s))
                mean = state[0].add(found[row], frame.pts_s, self.smooth)
                state[0].value = attribute(self.model.labels, mean, self.min_score)
            if state and state[0].value is not None:
                frame.facts["attributes"] = {**frame.facts.get("attributes", {}), self._name: state[0].value}
        batch.crops = batch.rows = None
        return batch
