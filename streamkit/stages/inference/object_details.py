"""Masks and keypoints of objects that another stage found: `of:` in `segment` and `pose`.

These parts follow those of `objects.py`: the network detects objects in each crop, and the one that fills its crop best
is the object in question. Nothing is kept over time: masks and keypoints belong to one frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamkit.core.crops import once
from streamkit.core.data import Batch, Detections
from streamkit.core.stage import CompositePart, StreamStage
from streamkit.core.units import Of
from streamkit.models.card_option import Model
from streamkit.ops.boxes import iou_matrix
from streamkit.stages.inference.detector_base import RUN, some
from streamkit.stages.inference.infer import Infer
from streamkit.stages.inference.objects import answers, select
from streamkit.stages.inference.postprocess import Postprocess
from streamkit.stages.inference.preprocess import Preprocess

COLUMNS = ("mask", "keypoints")


def detailing(stage: Any) -> list[CompositePart]:
    """Return the parts of a composite with `of`."""
    read = {**some(stage, ("model", "min_score", "iou", "labels")), "agnostic": True}
    return [
        select(stage.of, every=0.0, track_ttl=1.0, pad=stage.pad, min_size=stage.min_size),
        CompositePart("preprocess", Preprocess, {"model": stage.model, "batch": stage.batch}),
        CompositePart("infer", Infer, {**some(stage, RUN), "batch": stage.batch}),
        CompositePart("postprocess", ReadCrops, read),
        CompositePart("keep", _WITH[stage.model.task], {"model": stage.model, "of": stage.of}),
    ]


@dataclass(eq=False)
class ReadCrops(
    Postprocess,
    name="postprocess",
    writes=("answers",),
    device_copy="the answers go from device to host, one copy a batch",
):
    """Decode the outputs of crops: the result of each is the columns of its best object, or None.

    Attributes:
        model: the model card.
        min_score: minimum score of an object.
        iou: threshold of non-max suppression.
        agnostic: objects suppress each other across classes.
        labels: these classes only.
    """

    def process(self, batch: Batch) -> Batch:
        """Set the crops' results."""
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
    """Return for each crop the columns of the object that fills it best, as a mapping; None if nothing was found.

    Args:
        table: the detections; `batch_row` is the crop.
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
class KeepDetails(StreamStage, name="keep", reads=("answers",)):
    """Give every object of the table its mask or keypoints; remove the crops from the batch.

    Attributes:
        model: the model card.
        of: which objects.
    """

    model: Model
    of: Of

    def attach(self, table: Detections, answers: list[Any]) -> Detections:
        """Return the table with the column added, from a result or None for each row."""
        raise NotImplementedError

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Add the column."""
        table, found = batch.table(self.of.stage), answers(batch)
        keys = zip(table.batch_row.tolist(), table.row_id.tolist(), strict=True)
        batch.tables[self.of.stage] = self.attach(table, [found.get(key) for key in keys])
        batch.crops = batch.rows = None
        return batch


class KeepMasks(KeepDetails, writes=("mask",)):
    """Give every object its mask."""

    def attach(self, table: Detections, answers: list[Any]) -> Detections:
        """See `KeepDetails.attach`."""
        masks = np.full(len(table), None)
        masks[:] = [answer and answer["mask"] for answer in answers]
        return table.with_columns(mask=masks)


class KeepPoints(KeepDetails, writes=("keypoints",)):
    """Give every object its keypoints."""

    def open(self) -> None:
        """Read the number of keypoints of an object from the network's file."""
        from streamkit.models.card import family_of
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
