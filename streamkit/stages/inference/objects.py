"""Selection of objects for a network (`of:`): which objects it runs on, and when again.

These are the parts of the chain described in `streamkit/core/crops.py`, up to the results; what is done with the
results is in `track_attributes.py`. A composite uses them as

    parts = [select(of=..., ...), CompositePart("preprocess", ...), CompositePart("infer", ...), ...]

and may add any postprocess: it finds the crops on the batch, row i of the outputs is crop i, and `batch.geometry` maps
crop pixels to pixels of the whole frame. On a tracked object the network runs when the track is new, then at intervals,
and for a better view; without a tracker it runs on every object of every frame.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamkit.core.crops import Crops, once
from streamkit.core.data import Array, Batch, Detections
from streamkit.core.stage import BatchStage, CompositePart, StreamStage
from streamkit.core.units import Of, Pixels, Score, Seconds
from streamkit.models.card_option import Model
from streamkit.ops.crops import crop_rects

ASKED, TOO_SMALL = "objects asked about", "objects not asked about: too small"
UNTRACKED = "objects not asked about: no track"
WHOLE = -1
"""The `row_id` of a crop that is a whole frame."""
_NONE = np.zeros((0, 0), np.float32)


def select(
    of: Of | None, *, every: float, track_ttl: float, pad: float = 0.0, min_size: float = 0.0,
    requery_ratio: float = 2.0, untracked: bool = True,
) -> CompositePart:  # fmt: skip
    """Return the first part of a composite, which selects objects, or whole frames if `of` is None."""
    if of is None:
        return CompositePart("select", SelectFrames, {"every": every})
    options = {"of": of, "every": every, "track_ttl": track_ttl, "pad": pad, "min_size": min_size}
    return CompositePart("select", SelectObjects, {**options, "requery_ratio": requery_ratio, "untracked": untracked})


def members(table: Detections, of: Of) -> np.ndarray:
    """Return (n,) bool: the rows of a detector's table that `of:` selects."""
    if not of.labels:
        return np.ones(len(table), bool)
    return np.isin(table.class_id, [i for i, name in enumerate(table.labels) if name in of.labels])


@dataclass(slots=True)
class QueriedTrack:
    """What is remembered of a track that was asked about.

    Attributes:
        asked_s: when the network last ran on it, in the source's time.
        quality: area x score of its best view so far.
        seen_s: when it was last seen.
    """

    asked_s: float
    quality: float
    seen_s: float


@dataclass(slots=True)
class TrackCache:
    """The tracks of one source: any values with `seen_s`. Those not seen for `track_ttl` seconds are dropped."""

    known: dict[int, Any] = field(default_factory=dict)
    swept_s: float = -np.inf

    def get(self, track_id: int, now_s: float, track_ttl: float) -> Any:
        """Return the state of a track, or None, and mark the track as seen now."""
        found = self.known.get(track_id)
        if found is None or abs(now_s - found.seen_s) > track_ttl:
            return None
        found.seen_s = now_s
        return found

    def sweep(self, now_s: float, track_ttl: float) -> None:
        """Drop tracks not seen for long; most calls do nothing."""
        if abs(now_s - self.swept_s) >= track_ttl:
            self.swept_s = now_s
            self.known = {key: one for key, one in self.known.items() if abs(now_s - one.seen_s) <= track_ttl}


@dataclass(eq=False)
class SelectObjects(
    StreamStage,
    name="select",
    reads=("pixels", "detections"),
    writes=("crops",),
    changeable=("every", "track_ttl", "pad", "min_size", "requery_ratio", "untracked"),
    device_copy="the rectangles to cut go from host to device, one small copy a batch",
):
    """Choose the objects that the network runs on, and the crop rectangle of each; see the module.

    Attributes:
        of: which objects.
        every: seconds after which the network runs on a track again.
        track_ttl: seconds without a track after which it is a new one.
        pad: share of the box that is added on each side of the crop.
        min_size: skip objects whose shorter side is below this, in source pixels.
        requery_ratio: a track is asked about again where area x score is more than so many times that of the best view.
        untracked: below a tracker, also run on objects without a track, on every frame.
    """

    of: Of
    every: Seconds = 1.0
    track_ttl: Seconds = 10.0
    pad: Score = 0.0
    min_size: Pixels = 0.0
    requery_ratio: float = 2.0
    untracked: bool = True

    def new_state(self, source: str) -> TrackCache:
        """Return a source's tracks; none yet."""
        return TrackCache()

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
        """Return the rows to run on, frame by frame. A quality below 0 marks a row that is not eligible."""
        order: Sequence[int] = np.argsort(table.batch_row, kind="stable").tolist()
        rows, views = table.batch_row.tolist(), quality.tolist()
        tracks = [-1] * len(table) if table.track_id is None else table.track_id.tolist()
        chosen: list[int] = []
        last = -1
        for i in order:
            if rows[i] != last:
                last = rows[i]
                now_s, state = batch.frames[last].pts_s, states[batch.frames[last].source]
                state.sweep(now_s, self.track_ttl)
            if tracks[i] < 0:
                if views[i] >= 0:
                    chosen.append(i)
                continue
            known = state.get(tracks[i], now_s, self.track_ttl)
            if views[i] < 0:
                continue
            if known is None:
                state.known[tracks[i]] = QueriedTrack(now_s, views[i], now_s)
            elif not 0 <= now_s - known.asked_s < self.every or views[i] > self.requery_ratio * known.quality:
                known.asked_s, known.quality = now_s, max(known.quality, views[i])
            else:
                continue
            chosen.append(i)
        return np.array(chosen, np.intp)

    def _count(self, what: str, n: int) -> None:
        if n:
            self.context.counters.add(what, n)


@dataclass(eq=False)
class SelectFrames(StreamStage, name="select", reads=("pixels",), writes=("crops",), changeable=("every",)):
    """Choose the frames that the network runs on: whole frames, at intervals in the time of each source.

    Attributes:
        every: seconds after which the network runs on a source again; 0 is every frame.
    """

    every: Seconds = 0.0

    def new_state(self, source: str) -> list[float]:
        """Return when the network last ran on the source, as a mutable list."""
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
class FetchAnswers(
    BatchStage,
    name="postprocess",
    reads=("outputs",),
    writes=("answers",),
    device_copy="the answers go from device to host, one copy a batch",
):
    """Start the copy of the network's results to the host, and release the outputs.

    Attributes:
        model: the model card.
    """

    model: Model

    def open(self) -> None:
        """Find the network's family."""
        from streamkit.models.card import family_of

        self._family: Any = family_of(self.model)

    def process(self, batch: Batch) -> Batch:
        """Set the crops' results."""
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
        """Return what is copied to the host: the network's vectors, a row per crop."""
        return self._family.vectors(batch.outputs)

    def finish(self, fetched: np.ndarray) -> np.ndarray:
        """Convert the copied rows to results, on the host."""
        return np.asarray(self._family.finish(fetched))


def answers(batch: Batch) -> dict[tuple[int, int], Any]:
    """What the network says of each crop of a batch, by the frame's row and the object's `row_id`, in their order."""
    assert batch.crops is not None
    assert batch.rows is not None
    keys = zip(batch.rows.tolist(), batch.crops.row_id.tolist(), strict=True)
    return dict(zip(keys, batch.crops.answered(), strict=True))
