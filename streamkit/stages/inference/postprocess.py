"""Decoding of the network's outputs into objects."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Annotated

import numpy as np

from streamkit.analytics.shapes import Anchor, Polygons, Units
from streamkit.core.data import Batch, Detections
from streamkit.core.stage import BatchStage, Count, Pixels, Score, stage
from streamkit.core.text import did_you_mean
from streamkit.models.card_option import Model
from streamkit.stages.inference.inference_regions import InferenceRegions, RegionMerger, Tiles

NO_ROOM = "masks left out: too large together"
"""See `streamkit.ops.masks.FULL_MAPS`."""

_Make = Callable[[], tuple[Detections, dict[str, int]]]
"""Makes a table, and says how many boxes each cause removed."""


@stage(
    "postprocess",
    reads="outputs",
    writes="detections",
    warms_up=True,
    changeable=("min_score", "iou", "agnostic", "labels", "top_k", "min_size", "max_size"),
)
class Postprocess(BatchStage):
    """Decode the network's outputs: thresholds, boxes in source pixels, non-max suppression.

    Boxes are clipped at the frame's border, never discarded for it. How many boxes each filter removes is reported in
    the summary under `boxes removed`. If the network saw parts of the frames, the objects of all parts are merged into
    one table per frame.
    """

    model: Annotated[Model, "the model card; its family determines how the outputs are decoded."]
    min_score: Annotated[
        Score | dict[str, Score] | None,
        "minimum score of an object, 0 to 1, or one per class as {car: 0.5, person: 0.3}; other classes keep the "
        "card's.",
    ] = None
    iou: Annotated[
        Score | None, "an object whose box overlaps a better one by more than this is discarded; by default the card's."
    ] = None
    agnostic: Annotated[bool, "objects suppress each other across classes."] = False
    labels: Annotated[list[str] | None, "keep these classes only."] = None
    top_k: Annotated[Count, "maximum number of objects per frame; the best are kept."] = 300
    min_size: Annotated[Pixels, "discard boxes whose shorter side is below this, in source pixels."] = 0.0
    max_size: Annotated[Pixels | None, "discard boxes whose longer side is above this, in source pixels."] = None
    roi: Annotated[Polygons | None, "polygons; an object counts if its anchor is in one of them."] = None
    units: Annotated[Units, "of the polygons' coordinates."] = "pixels"
    anchor: Annotated[Anchor, "the point of a box that must be in a polygon."] = "foot"
    tiles: Annotated[Tiles | None, "how the frames were tiled."] = None

    def __post_init__(self) -> None:
        """Check that the model has the labels."""
        named = [*(self.labels or []), *(self.min_score if isinstance(self.min_score, dict) else [])]
        known = self.model.labels
        unknown = [f"no class {name!r}{did_you_mean(name, known)}" for name in named if name not in known]
        if unknown:
            raise ValueError(f"{self.model.name} has {' and '.join(unknown)}")
        InferenceRegions(self.roi, self.units, self.anchor, self.tiles)

    def open(self) -> None:
        """Find the network's family, and compute the threshold of each class."""
        from streamkit.models.card import family_of

        self._family = family_of(self.model)
        self._table = self.context.id.split(".", 1)[0]
        self._removed: deque[Mapping[str, int]] = deque()
        self._views = InferenceRegions(self.roi, self.units, self.anchor, self.tiles)
        self.changed()

    def changed(self) -> None:
        """Compute the threshold of each class."""
        from streamkit.models.families import ReadOptions

        card = self.model
        given = self.min_score
        default = given if isinstance(given, (int, float)) else card.score
        scores = np.full(max(1, len(card.labels)), default, np.float32)
        for name, score in given.items() if isinstance(given, dict) else ():
            scores[card.labels.index(name)] = score
        if self.labels is not None:
            scores[[name not in self.labels for name in card.labels]] = np.inf
        self._read = ReadOptions(
            min_score=scores,
            iou=card.iou if self.iou is None else self.iou,
            agnostic=self.agnostic,
            top_k=self.top_k,
            min_size=self.min_size,
            max_size=np.inf if self.max_size is None else self.max_size,
        )

    def process(self, batch: Batch) -> Batch:
        """Add the table named after the stage; on a GPU its copy to the host is under way when this returns."""
        sizes = np.array([(frame.width, frame.height) for frame in batch.frames], np.int64)
        make = self._reading(batch, sizes) if batch.outputs else self._nothing
        if batch.crops is not None:
            make = self._together(batch, sizes, make)
        elif batch.rows is not None:
            make = _of_frames(batch.rows, make)
        table: dict[str, Detections] = {}

        def take() -> Detections:
            # Branches may ask from two threads: `setdefault` lets one of them win, and only that one counts.
            if "made" not in table:
                made, removed = make()
                if table.setdefault("made", made) is made:
                    self._removed.append(removed)
            return table["made"]

        batch.tables[self._table] = take() if batch.xp is np else take
        batch.outputs, batch.geometry, batch.rows, batch.crops = {}, None, None, None
        self._count()
        return batch

    def _reading(self, batch: Batch, sizes: np.ndarray) -> _Make:
        """Begin to decode the outputs; the returned function makes a table of their rows."""
        from streamkit.models.families import CAUSES, unpack
        from streamkit.ops.transfer import fetch

        assert batch.geometry is not None
        reads, geometry, input_size = self._family, batch.geometry, self.model.input.size
        sizes = sizes if batch.rows is None else sizes[batch.rows]
        packed = reads.read(batch.outputs, geometry, sizes, input_size, self._read)
        rest = reads.rest(batch.outputs, packed, geometry, sizes, input_size)
        wait = fetch([packed.buffer, *(rest.arrays if rest else ())])

        def make() -> tuple[Detections, dict[str, int]]:
            buffer, *arrays = wait()
            rows, counts, _ = packed.over(buffer)
            made = unpack(rows, counts, self.model.labels, reads.columns)
            made = made.with_columns(skeleton=self.model.skeleton)
            causes = dict(zip(CAUSES, counts[:, 1:].sum(axis=0).tolist(), strict=True))
            if rest:
                made = rest.complete(made, arrays)
                causes[NO_ROOM] = sum(mask is None for mask in made.extra.get("mask", ()))
            return made, causes

        return make

    def _nothing(self) -> tuple[Detections, dict[str, int]]:
        """Make an empty table: the network ran on no part of any frame."""
        return Detections.empty(self.model.labels), {}

    def _together(self, batch: Batch, sizes: np.ndarray, make: _Make) -> _Make:
        """Make a table of frames from one of views."""
        put, asked = self._put(batch, sizes), self._read

        def made() -> tuple[Detections, dict[str, int]]:
            table, causes = make()
            found, more = put(table, iou=asked.iou, agnostic=asked.agnostic, top_k=asked.top_k)
            return found, {cause: causes.get(cause, 0) + more.get(cause, 0) for cause in {**causes, **more}}

        return made

    def _put(self, batch: Batch, sizes: np.ndarray) -> RegionMerger:
        assert batch.geometry is not None
        assert batch.rows is not None
        assert batch.crops is not None
        return RegionMerger(self._views, batch.rows, batch.crops.rects, batch.geometry[:, :2], sizes)

    def close(self) -> None:
        """Add the remaining counts."""
        self._count()

    def _count(self) -> None:
        while self._removed:
            for cause, n in self._removed.popleft().items():
                if n:
                    self.context.counters.add(cause if cause == NO_ROOM else f"boxes removed: {cause}", n)


def _of_frames(rows: np.ndarray, make: _Make) -> _Make:
    """Make a table of all frames from one of those that the network ran on."""

    def made() -> tuple[Detections, dict[str, int]]:
        table, causes = make()
        return table.with_columns(batch_row=rows[table.batch_row]), causes

    return made
