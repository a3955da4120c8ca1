"""What becomes of a network's answers about objects: they stay with the track, and are smoothed over time.

The mean of a track's answers forgets with time, not with frames: an answer of age t has the weight exp(-t / smooth). It
is what an exponential filter gives whose samples come at any times, and no change of frame rate changes it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streamkit.crops import answers
from streamkit.data import Batch, Detections
from streamkit.stage import StreamStage
from streamkit.stages.objects import Tracks, members
from streamkit.units import Model, Of, Score, Seconds


@dataclass(slots=True)
class Mean:
    """The answers about one track, or about one source's frames.

    Attributes:
        total: their weighted sum.
        weight: the sum of the weights.
        at_s: the time that the weights are of.
        seen_s: when the track was last there.
        value: what the objects of the track are given.
    """

    total: np.ndarray
    weight: float
    at_s: float
    seen_s: float
    value: Any = None

    def add(self, answer: np.ndarray, now_s: float, smooth: float) -> np.ndarray:
        """Take in an answer; return the mean."""
        kept = math.exp(-abs(now_s - self.at_s) / smooth) if smooth else 0.0
        self.total = self.total * np.float32(kept) + answer
        self.weight = self.weight * kept + 1
        self.at_s = now_s
        return np.asarray(self.total / np.float32(self.weight))


@dataclass(eq=False)
class KeepObjects(StreamStage):
    """Keep the answers with each track, and give every object of the table a column; see the module.

    Options:
        model: the card of the network.
        of: the objects.
        smooth: seconds after which an answer counts for 1 / e.
        forget: seconds without a track after which it is a new one.
    """

    name: ClassVar[str] = "keep"
    reads: ClassVar[tuple[str, ...]] = ("answers",)

    model: Model
    of: Of
    smooth: Seconds = 2.0
    forget: Seconds = 10.0

    def value(self, mean: np.ndarray) -> Any:
        """What an object is given whose answers have this mean, (d,); None for nothing."""
        raise NotImplementedError

    def attach(self, table: Detections, values: list[Any]) -> Detections:
        """The table with what each row is given."""
        raise NotImplementedError

    def new_state(self, source: str) -> Tracks:
        """A source's tracks; none yet."""
        return Tracks()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Add the column; the crops leave the batch."""
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
                state.sweep(now_s, self.forget)
            answer = found.get((last, row_id[i]))
            if tracks[i] < 0:
                values[i] = None if answer is None else self.value(answer)
                continue
            known = state.get(tracks[i], now_s, self.forget)
            if answer is not None:
                if known is None:
                    known = state.known[tracks[i]] = Mean(np.zeros_like(answer), 0.0, now_s, now_s)
                known.value = self.value(known.add(answer, now_s, self.smooth))
            values[i] = None if known is None else known.value
        return values


def attribute(labels: tuple[str, ...], mean: np.ndarray, min_score: float) -> dict[str, Any] | None:
    """The best class and its score, as a record has them; None where it is below `min_score`."""
    best = int(mean.argmax())
    score = round(float(mean[best]), 4)
    return {"label": labels[best], "score": score} if score >= min_score else None


@dataclass(eq=False)
class KeepAttributes(KeepObjects):
    """Give each object an attribute in the column `attributes`.

    Options:
        attribute: its name; by default the stage's id.
        min_score: less sure answers say nothing.
    """

    writes: ClassVar[tuple[str, ...]] = ("attributes",)
    changeable: ClassVar[tuple[str, ...]] = ("smooth", "forget", "min_score")

    attribute: str | None = None
    min_score: Score = 0.0

    def open(self) -> None:
        """Settle the attribute's name."""
        self._name = self.attribute or self.context.id.split(".", 1)[0]

    def value(self, mean: np.ndarray) -> Any:
        """See `KeepObjects.value`: a mapping of one attribute."""
        found = attribute(self.model.labels, mean, self.min_score)
        return None if found is None else {self._name: found}

    def attach(self, table: Detections, values: list[Any]) -> Detections:
        """See `KeepObjects.attach`: beside the attributes that are there."""
        if (before := table.extra.get("attributes")) is not None:
            values = [{**old, **new} if old and new else new or old for old, new in zip(before, values, strict=True)]
        column = np.full(len(table), None)
        column[:] = values
        return table.with_columns(attributes=column)


@dataclass(eq=False)
class KeepEmbeddings(KeepObjects):
    """Give each object a vector of length 1 in the column `embedding`, NaN where there is none.

    Options:
        record: whether records have it.
    """

    writes: ClassVar[tuple[str, ...]] = ("embedding",)
    changeable: ClassVar[tuple[str, ...]] = ("smooth", "forget")

    record: bool = False

    def open(self) -> None:
        """Find how long the vectors are."""
        from streamkit.models.families import family_of
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
class KeepFacts(StreamStage):
    """Give each frame an attribute among its facts.

    Options:
        model: the card of the network.
        smooth: seconds after which an answer counts for 1 / e.
        attribute: its name; by default the stage's id.
        min_score: less sure answers say nothing.
    """

    name: ClassVar[str] = "keep"
    reads: ClassVar[tuple[str, ...]] = ("answers",)
    writes: ClassVar[tuple[str, ...]] = ("attributes",)
    changeable: ClassVar[tuple[str, ...]] = ("smooth", "min_score")

    model: Model
    smooth: Seconds = 2.0
    attribute: str | None = None
    min_score: Score = 0.0

    def open(self) -> None:
        """Settle the attribute's name."""
        self._name = self.attribute or self.context.id.split(".", 1)[0]

    def new_state(self, source: str) -> list[Mean]:
        """The mean of a source's answers, once there is one."""
        return []

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Add the attribute; the crops leave the batch."""
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
