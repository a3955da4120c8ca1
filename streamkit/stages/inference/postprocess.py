# SPDX-License-Identifier: Apache-2.0
"""Decoding of the network's outputs: `postprocess`, and what takes its place in stages with `of:`."""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated, Any

import numpy as np

from streamkit.analytics.shapes import Anchor, Polygons, Units
from streamkit.core.crops import LazyOutputs
from streamkit.core.data import Array, Batch, Detections
from streamkit.core.detections import stored
from streamkit.core.stage import BatchStage, Count, Pixels, Score, stage
from streamkit.core.text import did_you_mean
from streamkit.models.card import family_of
from streamkit.models.card_option import Model
from streamkit.models.families import CAUSES, FAMILIES, ReadOptions, begin_table
from streamkit.models.prompts import check_prompts
from streamkit.ops.boxes import iou_matrix
from streamkit.ops.class_maps import pixel_classes
from streamkit.ops.transfer import LateArray, fetch
from streamkit.stages.inference.infer import PromptTexts
from streamkit.stages.inference.inference_regions import FrameGeometry, InferenceRegions, Tiles, merge_regions

NO_ROOM = "masks dropped: too large"
"""See `streamkit.ops.masks.FULL_MAPS`."""
ON_HOST = "outputs copied to host: family without CUDA"
"""Counts the batches whose outputs a family of a plugin decodes on the host."""

_NO_RESULTS = np.zeros((0, 0), np.float32)
_RESULTS_COPY = "the results go from device to host, one copy a batch"
_CROP_COLUMNS = ("mask", "keypoints")
_MAX_LATE = 64
"""Batches whose masks or keypoints stay on the device while their tables are held, without being read."""
_MakeTable = Callable[[], tuple[Detections, dict[str, int]]]
"""Returns a table, and how many boxes each cause removed."""


@dataclass(frozen=True)
class _Classes:
    """The classes of a network's outputs.

    Attributes:
        labels: their names.
        options: the options that they are decoded with.
        ids: for prompts, the number of each among all prompts so far; None for fixed classes.
    """

    labels: tuple[str, ...]
    options: ReadOptions
    ids: np.ndarray | None = None


@dataclass(eq=False)
class DetectionOptions:
    """Options of `postprocess` and of the composites that contain it."""

    model: Annotated[Model, "the model card; its family determines how the outputs are decoded."]
    min_score: Annotated[
        Score | dict[str, Score] | None,
        "minimum score of an object, 0 to 1, or one per class as {car: 0.5, person: 0.3}; by default the card's.",
    ] = None
    iou: Annotated[Score | None, "discard a box that overlaps a better one by more; by default the card's."] = None
    class_agnostic: Annotated[bool, "objects suppress each other across classes."] = False
    multi_label: Annotated[
        bool,
        "a box may be an object of each class whose score reaches the minimum, as in Ultralytics' validation; by "
        "default of its best class only. For the families yolov5, yolov8, yolo_world, yolov8_seg and yolov8_pose.",
    ] = False
    labels: Annotated[list[str] | None, "keep these classes only."] = None
    prompts: PromptTexts = None
    top_k: Annotated[Count, "maximum number of objects per frame; the best are kept."] = 300
    min_size: Annotated[Pixels, "minimum shorter side of a box or, with `of`, of an object, in source pixels."] = 0.0
    max_size: Annotated[Pixels | None, "discard boxes whose longer side is above this, in source pixels."] = None
    roi: Annotated[
        Polygons | None,
        "the region, or regions by name, [[x, y], ...], in which objects are detected: the network sees the bounding "
        "rectangle of each, and an object counts if its anchor is inside.",
    ] = None
    units: Annotated[Units, "of the roi: source pixels, or shares of the frame's width and height."] = "pixels"
    anchor: Annotated[Anchor, "the point of an object's box that must be inside the roi."] = "foot"
    tiles: Annotated[
        Tiles | None,
        "detect small objects in overlapping tiles of the frame, {size: [640, 640], overlap: 0.2}, and also in the "
        "whole frame unless `full_frame` is false. Each tile is a row of the network's batch.",
    ] = None

    def __post_init__(self) -> None:
        """Check that the model has the labels, and that the regions are valid."""
        check_prompts(self.model, self.prompts)
        if self.prompts and self.labels is not None:
            raise ValueError("prompts are the labels: leave labels out, or remove the prompts that you do not want")
        named = [*(self.labels or []), *(self.min_score if isinstance(self.min_score, dict) else [])]
        classes = self.prompts or self.model.labels
        unknown = [f"no class {name!r}{did_you_mean(name, classes)}" for name in named if name not in classes]
        if unknown:
            what = "prompts" if self.prompts else self.model.name
            raise ValueError(f"{what} has {' and '.join(unknown)}")
        if self.multi_label and not family_of(self.model).several:
            reading = ", ".join(name for name, family in FAMILIES.items() if family.several)
            raise ValueError(
                f"multi_label is for the families {reading}, and {self.model.name} is of family {self.model.family}; "
                "leave it out"
            )
        self._regions = InferenceRegions(self.roi, self.units, self.anchor, self.tiles)


@stage(
    "postprocess",
    reads="outputs",
    writes="detections",
    splits_outputs=True,
    warms_up=True,
    changeable=(
        "min_score",
        "iou",
        "class_agnostic",
        "multi_label",
        "labels",
        "prompts",
        "top_k",
        "min_size",
        "max_size",
    ),
)
class Postprocess(DetectionOptions, BatchStage):
    """Decode the network's outputs: thresholds, boxes in source pixels, non-max suppression.

    Boxes are clipped at the frame's border, never discarded for it. How many boxes each filter removes is reported in
    the summary under `boxes removed`. If the network saw parts of the frames, the objects of all parts are merged into
    one table per frame.
    """

    def open(self) -> None:
        """Find the network's family, and compute the threshold of each class."""
        self._family = family_of(self.model)
        self._table = self.context.id.split(".", 1)[0]
        self._removed: deque[Mapping[str, int]] = deque()
        self._late: deque[weakref.ref[LateArray]] = deque()
        self._all_prompts: list[str] = []
        self.changed()

    def changed(self) -> None:
        """Compute the threshold of each class; learn new prompts, in the order of the changes."""
        self._all_prompts = list(dict.fromkeys([*self._all_prompts, *(self.prompts or ())]))
        self._of_prompts: dict[tuple[str, ...], _Classes] = {}
        self._classes = self._classes_of(self.model.labels)

    def _classes_of(self, labels: tuple[str, ...]) -> _Classes:
        """Return the classes of a network with these labels, and the options that they are decoded with."""
        card = self.model
        min_score = self.min_score
        default = min_score if isinstance(min_score, (int, float)) else card.score
        scores = np.full(max(1, len(labels)), default, np.float32)
        for name, score in min_score.items() if isinstance(min_score, dict) else ():
            if name in labels:
                scores[labels.index(name)] = score
        wanted = labels if self.labels is None else self.labels
        scores[[name not in wanted or not name for name in labels]] = np.inf
        options = ReadOptions(
            min_score=scores,
            iou=card.iou if self.iou is None else self.iou,
            agnostic=self.class_agnostic,
            multi_label=self.multi_label,
            top_k=self.top_k,
            min_size=self.min_size,
            max_size=np.inf if self.max_size is None else self.max_size,
        )
        return _Classes(labels, options)

    def _classes_in(self, batch: Batch) -> _Classes:
        """Return the classes of a batch's outputs: its prompts, or those of the card."""
        texts = batch.prompts
        if not texts:
            return self._classes
        if texts not in self._of_prompts:
            self._all_prompts = list(dict.fromkeys([*self._all_prompts, *filter(None, texts)]))
            ids = np.array([self._all_prompts.index(text) if text else -1 for text in texts], np.int32)
            self._of_prompts = {texts: replace(self._classes_of(texts), ids=ids)}
        return self._of_prompts[texts]

    def process(self, batch: Batch) -> Batch:
        """Add the table named after the stage; on a GPU its copy to the host is under way when this returns."""
        sizes = np.array([(frame.width, frame.height) for frame in batch.frames], np.int64)
        make = self._decode(batch, sizes) if batch.outputs else self._empty
        if batch.crops is not None and len(batch.crops):
            make = self._merged(batch, make)
        elif batch.crops is None and batch.rows is not None:
            make = _of_frames(batch.rows, make)
        make = self._renumbered(batch, make)
        table: dict[str, Detections] = {}

        def take() -> Detections:
            # Branches may call this from two threads: `setdefault` accepts one result, and only that one is counted.
            if "made" not in table:
                new_table, removed = make()
                if table.setdefault("made", new_table) is new_table:
                    self._removed.append(removed)
            return table["made"]

        batch.tables[self._table] = take() if batch.xp is np else take
        batch.outputs = {}
        batch.geometry = None
        batch.rows = None
        batch.crops = None
        batch.prompts = ()
        self._count()
        return batch

    def _decode(self, batch: Batch, sizes: np.ndarray) -> _MakeTable:
        """Start to decode the outputs; the returned function makes the table."""
        assert batch.geometry is not None
        geometry = batch.geometry
        outputs = batch.outputs
        classes = self._classes_in(batch)
        sizes = sizes if batch.rows is None else sizes[batch.rows]
        if isinstance(outputs, LazyOutputs):
            parts = [
                (rows.start, self._decode_run(batch, of_run, geometry[rows], sizes[rows], classes))
                for rows, of_run in outputs.runs()
            ]
            return lambda: _joined(parts)
        return self._decode_run(batch, outputs, geometry, sizes, classes)

    def _decode_run(
        self, batch: Batch, outputs: Mapping[str, Array], geometry: np.ndarray, sizes: np.ndarray, classes: _Classes
    ) -> _MakeTable:
        if batch.xp is np or not self._family.host_only:
            return self._decode_outputs(outputs, geometry, sizes, classes)
        self.context.counters.add(ON_HOST)
        outputs = self._family.used(outputs, len(geometry))
        names = list(outputs)
        wait = fetch(list(outputs.values()))
        return lambda: self._decode_outputs(dict(zip(names, wait(), strict=True)), geometry, sizes, classes)()

    def _decode_outputs(
        self, outputs: Mapping[str, Array], geometry: np.ndarray, sizes: np.ndarray, classes: _Classes
    ) -> _MakeTable:
        """Start to decode the outputs on their device; the returned function makes the table."""
        card = self.model
        size = card.input.size
        table, late = begin_table(self._family, outputs, geometry, sizes, size, classes.options, classes.labels)
        if late is not None:
            self._bound(late)

        def make() -> tuple[Detections, dict[str, int]]:
            decoded, counts, lost = table()
            causes = dict(zip(CAUSES, counts[:, 1:].sum(axis=0).tolist(), strict=True))
            return decoded.with_columns(skeleton=card.skeleton), causes | {NO_ROOM: lost}

        return make

    def _bound(self, late: LateArray) -> None:
        """Move what tables of earlier batches left on the device to the host, if many are still held."""
        self._late.append(weakref.ref(late))
        if len(self._late) > _MAX_LATE and (oldest := self._late.popleft()()) is not None:
            oldest.to_host()

    def _empty(self) -> tuple[Detections, dict[str, int]]:
        """Make an empty table: the network did not run."""
        return Detections.empty(self.model.labels), {}

    def _merged(self, batch: Batch, make: _MakeTable) -> _MakeTable:
        """Make the table of the frames from that of their regions."""
        crops = batch.crops
        rows = batch.rows
        geometry = batch.geometry
        options = self._classes_in(batch).options
        assert crops is not None
        assert rows is not None
        assert geometry is not None
        regions = self._regions
        scale = geometry[:, :2]
        frames = FrameGeometry.of(batch.frames)

        def merge() -> tuple[Detections, dict[str, int]]:
            table, removed = make()
            merged, removed_by_merge = merge_regions(table, regions, rows, crops, scale, frames, options)
            return merged, Counter(removed) + Counter(removed_by_merge)

        return merge

    def _renumbered(self, batch: Batch, make: _MakeTable) -> _MakeTable:
        """Number the classes of prompts by all prompts so far: a tracker below compares numbers over a change."""
        ids = self._classes_in(batch).ids
        labels = tuple(self._all_prompts)
        if ids is None:
            return make

        def renumbered() -> tuple[Detections, dict[str, int]]:
            table, causes = make()
            return table.with_columns(class_id=ids[table.class_id], labels=labels), causes

        return renumbered

    def close(self) -> None:
        """Add the remaining counts."""
        self._count()

    def _count(self) -> None:
        while self._removed:
            for cause, n in self._removed.popleft().items():
                if n:
                    self.context.counters.add(cause if cause == NO_ROOM else f"boxes removed: {cause}", n)


def _joined(parts: Sequence[tuple[int, _MakeTable]]) -> tuple[Detections, dict[str, int]]:
    """Make one table of those of several runs, each given with its first row."""
    tables = []
    causes = Counter[str]()
    for first, make in parts:
        table, removed = make()
        tables.append(table.with_columns(batch_row=table.batch_row + np.int32(first)))
        causes.update(removed)
    joined = Detections.concat(tables)
    return joined.with_columns(row_id=np.arange(len(joined), dtype=np.int32)), causes


def _of_frames(rows: np.ndarray, make: _MakeTable) -> _MakeTable:
    """Make the table of all frames from that of the frames that the network ran on."""

    def of_all_frames() -> tuple[Detections, dict[str, int]]:
        table, causes = make()
        return table.with_columns(batch_row=rows[table.batch_row]), causes

    return of_all_frames


class PostprocessMasks(Postprocess, writes=("detections", "mask")):
    """`postprocess` of a network whose objects have masks."""


class PostprocessCorners(Postprocess, writes=("detections", "corners")):
    """`postprocess` of a network whose boxes are rotated."""


class PostprocessKeypoints(Postprocess, writes=("detections", "keypoints")):
    """`postprocess` of a network whose objects have keypoints."""


@dataclass(eq=False)
class DecodeCrops(Postprocess, name="postprocess", writes=("results",), device_copy=_RESULTS_COPY):
    """Decode the outputs of crops: the result of each is the columns of its best object, or None."""

    def process(self, batch: Batch) -> Batch:
        """Set the crops' results."""
        crops = batch.crops
        assert crops is not None
        sizes = np.array([(frame.width, frame.height) for frame in batch.frames], np.int64)
        make = self._decode(batch, sizes) if len(crops) else self._empty

        def results() -> np.ndarray:
            rows, removed = make()
            self._removed.append(removed)
            return best(rows, crops.rects)

        batch.crops = replace(crops, results=results() if batch.xp is np else cache(results))
        batch.tensor = batch.geometry = None
        batch.outputs = {}
        self._count()
        return batch


def best(table: Detections, rects: np.ndarray) -> np.ndarray:
    """Return for each crop the columns of the object that fills it best, as a mapping; None if nothing was found.

    Each column has one row; lazy columns are not read.

    Args:
        table: the detections; `batch_row` is the crop.
        rects: (m, 4) the crops.
    """
    results = np.full(len(rects), None)
    fills = np.zeros(len(rects))
    columns = stored(table.extra)
    names = [name for name in _CROP_COLUMNS if name in columns]
    for i, crop in enumerate(table.batch_row.tolist()):
        share = float(iou_matrix(table.xyxy[i : i + 1], rects[crop : crop + 1].astype(np.float32))[0, 0])
        if share > fills[crop]:
            fills[crop] = share
            results[crop] = {name: columns[name][i : i + 1] for name in names}
    return results


@dataclass(eq=False)
class FetchVectors(
    BatchStage,
    name="postprocess",
    reads=("outputs",),
    writes=("results",),
    splits_outputs=True,
    device_copy=_RESULTS_COPY,
):
    """Start the copy of the network's results to the host, a vector per crop, and release the outputs."""

    model: Model

    def open(self) -> None:
        """Find the network's family."""
        self._family: Any = family_of(self.model)

    def process(self, batch: Batch) -> Batch:
        """Set the crops' results."""
        crops = batch.crops
        assert crops is not None
        results: Any = _NO_RESULTS
        if len(crops):
            wait = fetch([self._selected(batch, len(crops))])
            finish = self.finish
            results = cache(lambda: finish(wait()[0]))
        batch.crops = replace(crops, results=results)
        batch.tensor = None
        batch.outputs = {}
        return batch

    def _selected(self, batch: Batch, count: int) -> Array:
        if not isinstance(batch.outputs, LazyOutputs):
            return self.select(batch.outputs)[:count]
        runs = batch.outputs.runs()
        return batch.xp.concatenate([self.select(outputs)[: rows.stop - rows.start] for rows, outputs in runs])

    def select(self, outputs: Mapping[str, Array]) -> Array:
        """Return what is copied to the host, a row per crop."""
        return self._family.vectors(outputs)

    def finish(self, fetched: np.ndarray) -> np.ndarray:
        """Convert the copied rows to results, on the host."""
        return np.asarray(self._family.finish(fetched))


class FetchMaps(
    FetchVectors, device_copy="the classes of pixels go from device to host, a byte a pixel, one copy a batch"
):
    """Start the copy of the class of each pixel to the host; of a network without scores, of each place of its map."""

    def _selected(self, batch: Batch, count: int) -> Array:
        """Return (count, room) of `pixel_classes`, or (count, h, w) that the batch's geometry maps to the frame."""
        assert batch.rows is not None
        assert batch.geometry is not None
        frames = [batch.frames[row] for row in batch.rows.tolist()]
        sizes_wh = np.array([(frame.width, frame.height) for frame in frames])
        room = int(sizes_wh.prod(axis=1).max())
        classes = len(self.model.labels)
        whole = [(slice(0, count), batch.outputs)]
        class_arrays = []
        for rows, outputs in batch.outputs.runs() if isinstance(batch.outputs, LazyOutputs) else whole:
            scores = self._family.scores(outputs, classes)
            length = rows.stop - rows.start
            if scores is None:
                class_arrays.append(self._family.maps(outputs, classes)[:length])
                continue
            places = batch.geometry[rows], sizes_wh[rows], self.model.input.size
            class_arrays.append(pixel_classes(scores[:length], *places, room))
        return class_arrays[0] if len(class_arrays) == 1 else batch.xp.concatenate(class_arrays)

    def finish(self, fetched: np.ndarray) -> np.ndarray:
        """Return the maps unchanged."""
        return fetched
