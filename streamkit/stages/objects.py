"""How a composite looks at objects: which it asks its network about, and when again (`of:`).

These are the parts of the chain that `streamkit/crops.py` draws, up to the answers; what is done with those is in
`answers.py`. A composite uses them as

    parts = [select(of=..., ...), Part("preprocess", ...), Part("infer", ...), ...]

and may put any postprocess behind them: it finds the crops on the batch, row i of the outputs is crop i, and
`batch.geometry` leads from there to the pixels of the whole frame. On a track the network is asked for a new one, then
every now and then, and for a better view; where nothing tracks it is asked about every object of every frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from streamkit.crops import Crops, once
from streamkit.data import Array, Batch, Detections
from streamkit.ops.crops import crop_rects
from streamkit.stage import BatchStage, Part, StreamStage
from streamkit.units import Model, Of, Pixels, Score, Seconds

ASKED, TOO_SMALL = "objects asked about", "objects not asked about: too small"
UNTRACKED = "objects not asked about: no track"
WHOLE = -1
"""The `row_id` of a crop that is a whole frame."""
_NONE = np.zeros((0, 0), np.float32)


def select(
    of: Of | None, *, every: float, forget: float, pad: float = 0.0, min_size: float = 0.0, better: float = 2.0,
    untracked: bool = True,
) -> Part:  # fmt: skip
    """The first part of a composite: of the objects, or of the whole frames where there is no `of`."""
    if of is None:
        return Part("select", SelectFrames, {"every": every})
    options = {"of": of, "every": every, "forget": forget, "pad": pad, "min_size": min_size, "better": better}
    return Part("select", SelectObjects, {**options, "untracked": untracked})


def members(table: Detections, of: Of) -> np.ndarray:
    """(n,) bool: the rows of a detector's table that an `of:` means."""
    if not of.labels:
        return np.ones(len(table), bool)
    return np.isin(table.class_id, [i for i, name in enumerate(table.labels) if name in of.labels])


@dataclass(slots=True)
class Track:
    """What is remembered of a track that was asked about.

    Attributes:
        asked_s: when, in the source's time.
        quality: area x score of the best view that was asked about.
        seen_s: when it was last there.
    """

    asked_s: float
    quality: float
    seen_s: float


@dataclass(slots=True)
class Tracks:
    """The tracks of one source: any values with `seen_s`. Those not seen for `forget` seconds are dropped."""

    known: dict[int, Any] = field(default_factory=dict)
    swept_s: float = -np.inf

    def get(self, track_id: int, now_s: float, forget: float) -> Any:
        """What is remembered of a track, or None; it is seen now."""
        found = self.known.get(track_id)
        if found is None or abs(now_s - found.seen_s) > forget:
            return None
        found.seen_s = now_s
        return found

    def sweep(self, now_s: float, forget: float) -> None:
        """Drop what has not been seen for long; most calls do nothing."""
        if abs(now_s - self.swept_s) >= forget:
            self.swept_s = now_s
            self.known = {key: one for key, one in self.known.items() if abs(now_s - one.seen_s) <= forget}


@dataclass(eq=False)
class SelectObjects(StreamStage):
    """Choose the objects to ask about and the rectangle of each; see the module.

    Options:
        of: the objects.
        every: seconds after which a track is asked about again.
        forget: seconds without a track after which it is a new one.
        pad: share of the box added on each side of the crop.
        min_size: no object is asked about whose shorter side is below this.
        better: a track is asked about again where area x score is more than so many times that of the best view.
        untracked: below a tracker, ask about objects without a track too, on every frame.
    """

    name: ClassVar[str] = "select"
    reads: ClassVar[tuple[str, ...]] = ("pixels", "detections")
    writes: ClassVar[tuple[str, ...]] = ("crops",)
    changeable: ClassVar[tuple[str, ...]] = ("every", "forget", "pad", "min_size", "better", "untracked")
    crossing: ClassVar[str] = "the rectangles to cut go from host to device, one small copy a batch"

    of: Of
    every: Seconds = 1.0
    forget: Seconds = 10.0
    pad: Score = 0.0
    min_size: Pixels = 0.0
    better: float = 2.0
    untracked: bool = True

    def new_state(self, source: str) -> Tracks:
        """A source's tracks; none yet."""
        return Tracks()

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Set `batch.crops` and `batch.rows`."""
        table = batch.table(self.of.stage)
        table = table[members(table, self.of)]
        sizes = np.array([(frame.width, frame.height) for frame in batch.frames], np.int32)[table.batch_row]
        sides = np.minimum(table.xyxy[:, 2:], sizes) - np.maximum(table.xyxy[:, :2], 0)
        rects = crop_rects(table.xyxy, sizes, self.pad)
        large = (sides.min(axis=1) >= self.min_size) & (rects[:, 2] > 0)
        seen = large if "predicted" not in table.extra else large & ~np.asarray(table.extra["predicted"], bool)
        if table.track_id is not None and not self.untracked:
            self._count(UNTRACKED, int((seen & (table.track_id < 0)).sum()))
            seen = seen & (table.track_id >= 0)
        quality = np.where(seen, np.prod(np.maximum(sides, 0), axis=1) * table.score, -1.0)
        self._count(TOO_SMALL, len(table) - int(large.sum()))

        chosen = self._chosen(batch, states, table, quality)
        self._count(ASKED, len(chosen))
        batch.crops = Crops(rects[chosen], table.row_id[chosen])
        batch.rows = np.asarray(table.batch_row[chosen], np.int32)
        return batch

    def _chosen(
        self, batch: Batch, states: Mapping[str, Any], table: Detections, quality: np.ndarray
    ) -> np.ndarray[Any, np.dtype[np.intp]]:
        """The rows to ask about, by frame. A quality below 0 is a row that cannot be asked about."""
        order: Sequence[int] = np.argsort(table.batch_row, kind="stable").tolist()
        rows, views = table.batch_row.tolist(), quality.tolist()
        tracks = [-1] * len(table) if table.track_id is None else table.track_id.tolist()
        chosen: list[int] = []
        last = -1
        for i in order:
            if rows[i] != last:
                last = rows[i]
                now_s, state = batch.frames[last].pts_s, states[batch.frames[last].source]
                state.sweep(now_s, self.forget)
            if tracks[i] < 0:
                if views[i] >= 0:
                    chosen.append(i)
                continue
            known = state.get(tracks[i], now_s, self.forget)
            if views[i] < 0:
                continue
            if known is None:
                state.known[tracks[i]] = Track(now_s, views[i], now_s)
            elif not 0 <= now_s - known.asked_s < self.every or views[i] > self.better * known.quality:
                known.asked_s, known.quality = now_s, max(known.quality, views[i])
            else:
                continue
            chosen.append(i)
        return np.array(chosen, np.intp)

    def _count(self, what: str, n: int) -> None:
        if n:
            self.context.counters.add(what, n)


@dataclass(eq=False)
class SelectFrames(StreamStage):
    """Choose the frames to ask about: whole ones, every so often in the time of each source.

    Options:
        every: seconds after which a source is asked about again; 0 is every frame.
    """

    name: ClassVar[str] = "select"
    reads: ClassVar[tuple[str, ...]] = ("pixels",)
    writes: ClassVar[tuple[str, ...]] = ("crops",)
    changeable: ClassVar[tuple[str, ...]] = ("every",)

    every: Seconds = 0.0

    def new_state(self, source: str) -> list[float]:
        """When the source was last asked about."""
        return [-np.inf]

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Set `batch.crops` and `batch.rows`."""
        chosen = []
        for row, frame in enumerate(batch.frames):
            asked = states[frame.source]
            if not 0 <= frame.pts_s - asked[0] < self.every:
                asked[0] = frame.pts_s
                chosen.append(row)
        rects = [(0, 0, batch.frames[row].width, batch.frames[row].height) for row in chosen]
        batch.crops = Crops(np.array(rects, np.int32).reshape(-1, 4), np.full(len(chosen), WHOLE, np.int32))
        batch.rows = np.array(chosen, np.int32)
        return batch


@dataclass(eq=False)
class FetchAnswers(BatchStage):
    """Start the network's answers on their way to the host, and let the outputs go.

    Options:
        model: the card of the network.
    """

    name: ClassVar[str] = "postprocess"
    reads: ClassVar[tuple[str, ...]] = ("outputs",)
    writes: ClassVar[tuple[str, ...]] = ("answers",)
    crossing: ClassVar[str] = "the answers go from device to host, one copy a batch"

    model: Model

    def open(self) -> None:
        """Find the network's family."""
        from streamkit.models.families import family_of

        self._family: Any = family_of(self.model)

    def process(self, batch: Batch) -> Batch:
        """Give the crops their answers."""
        from streamkit.ops.transfer import fetch

        crops = batch.crops
        assert crops is not None
        if len(crops):
            wait, finish = fetch([self.asked(batch)[: len(crops)]]), self.finish
            batch.crops = replace(crops, answers=once(lambda: finish(wait()[0])))
        else:
            batch.crops = replace(crops, answers=_NONE)
        batch.tensor = None
        batch.outputs = {}
        return batch

    def asked(self, batch: Batch) -> Array:
        """What is fetched: the network's vectors, a row each."""
        return self._family.vectors(batch.outputs)

    def finish(self, fetched: np.ndarray) -> np.ndarray:
        """What that means, on the host."""
        return np.asarray(self._family.finish(fetched))
