"""What a network says of objects that another has found: masks and key points, `of:` in `segment` and `pose`.

The parts behind those of `objects.py`: the network finds objects in each crop, and the one that fills its crop best is
the object that was asked about. Nothing is kept over time: masks and points are of one frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from streamkit.crops import answers, once
from streamkit.data import Batch, Detections
from streamkit.ops.boxes import iou_matrix
from streamkit.stage import Part, StreamStage
from streamkit.stages.finding import RUN, some
from streamkit.stages.infer import Infer
from streamkit.stages.objects import select
from streamkit.stages.postprocess import Postprocess
from streamkit.stages.preprocess import Preprocess
from streamkit.units import Model, Of

COLUMNS = ("mask", "keypoints")


def detailing(stage: Any) -> list[Part]:
    """The parts of a composite with `of`."""
    read = {**some(stage, ("model", "min_score", "iou", "labels")), "agnostic": True}
    return [
        select(stage.of, every=0.0, forget=1.0, pad=stage.pad, min_size=stage.min_size),
        Part("preprocess", Preprocess, {"model": stage.model, "batch": stage.batch}),
        Part("infer", Infer, {**some(stage, RUN), "batch": stage.batch}),
        Part("postprocess", ReadCrops, read),
        Part("keep", _WITH[stage.model.task], {"model": stage.model, "of": stage.of}),
    ]


@dataclass(eq=False)
class ReadCrops(Postprocess):
    """Read the outputs of crops: the answer to each is the best object's columns, or None.

    Options:
        model: the card of the network.
        min_score: the least score of an object.
        iou: of non-max suppression.
        agnostic: objects suppress each other whatever their class.
        labels: these classes only.
    """

    name: ClassVar[str] = "postprocess"
    writes: ClassVar[tuple[str, ...]] = ("answers",)
    crossing: ClassVar[str] = "the answers go from device to host, one copy a batch"

    def process(self, batch: Batch) -> Batch:
        """Give the crops their answers."""
        crops = batch.crops
        assert crops is not None
        sizes = np.array([(frame.width, frame.height) for frame in batch.frames], np.int64)
        make = self._reading(batch, sizes) if len(crops) else self._nothing

        def found() -> np.ndarray:
            made, removed = make()
            self._removed.append(removed)
            return best(made, crops.rects)

        batch.crops = replace(crops, answers=found() if batch.xp is np else once(found))
        batch.tensor = batch.geometry = None
        batch.outputs = {}
        self._count()
        return batch


def best(table: Detections, rects: np.ndarray) -> np.ndarray:
    """For each crop the columns of the object that fills it best, as a mapping; None where nothing was found.

    Args:
        table: what was found; `batch_row` is the crop.
        rects: (m, 4) the crops.
    """
    answers = np.full(len(rects), None)
    fills = np.zeros(len(rects))
    names = [name for name in COLUMNS if name in table.extra]
    for i, crop in enumerate(table.batch_row.tolist()):
        share = float(iou_matrix(table.xyxy[i : i + 1], rects[crop : crop + 1].astype(np.float32))[0, 0])
        if share > fills[crop]:
            fills[crop], answers[crop] = share, {name: table.extra[name][i] for name in names}
    return answers


@dataclass(eq=False)
class KeepDetails(StreamStage):
    """Give every object of the table its mask or key points; the crops leave the batch.

    Options:
        model: the card of the network.
        of: the objects.
    """

    name: ClassVar[str] = "keep"
    reads: ClassVar[tuple[str, ...]] = ("answers",)

    model: Model
    of: Of

    def attach(self, table: Detections, answers: list[Any]) -> Detections:
        """The table with the column; an answer or None for each row."""
        raise NotImplementedError

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Add the column."""
        table, found = batch.table(self.of.stage), answers(batch)
        keys = zip(table.batch_row.tolist(), table.row_id.tolist(), strict=True)
        batch.tables[self.of.stage] = self.attach(table, [found.get(key) for key in keys])
        batch.crops = batch.rows = None
        return batch


class KeepMasks(KeepDetails):
    """Give every object its mask."""

    writes: ClassVar[tuple[str, ...]] = ("mask",)

    def attach(self, table: Detections, answers: list[Any]) -> Detections:
        """See `KeepDetails.attach`."""
        masks = np.full(len(table), None)
        masks[:] = [answer and answer["mask"] for answer in answers]
        return table.with_columns(mask=masks)


class KeepPoints(KeepDetails):
    """Give every object its key points."""

    writes: ClassVar[tuple[str, ...]] = ("keypoints",)

    def open(self) -> None:
        """Find how many points an object has."""
        from streamkit.models.families import family_of
        from streamkit.models.network import inspect

        outputs = {name: output.dims for name, output in inspect(self.model.file).outputs.items()}
        self._points = family_of(self.model).points(outputs, len(self.model.labels))

    def attach(self, table: Detections, answers: list[Any]) -> Detections:
        """See `KeepDetails.attach`."""
        k = self._points or max((len(answer["keypoints"]) for answer in answers if answer), default=0)
        points = np.full((len(table), k, 3), np.nan, np.float32)
        for row, answer in zip(points, answers, strict=True):
            if answer:
                row[:] = answer["keypoints"]
        return table.with_columns(keypoints=points, skeleton=self.model.skeleton)


_WITH: dict[str, type[KeepDetails]] = {"segment": KeepMasks, "pose": KeepPoints}
