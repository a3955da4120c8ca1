"""Semantic segmentation: a class for each place of a frame, kept as one mask per class in the frame's facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.core.data import Array, Batch
from streamkit.core.stage import CompositePart, Score, StreamStage
from streamkit.models.card_option import Model
from streamkit.ops import rle
from streamkit.ops.masks import class_masks
from streamkit.stages.inference.detector_base import RUN, some
from streamkit.stages.inference.infer import Infer
from streamkit.stages.inference.objects import FetchAnswers, SelectFrames, answers
from streamkit.stages.inference.preprocess import Preprocess

BACKGROUND = "background"
FACT = "segmentation"


def telling_regions(stage: Any) -> list[CompositePart]:
    """Return the parts of `segment` with a semantic network."""
    return [
        CompositePart("select", SelectFrames, {"every": 0.0}),
        CompositePart("preprocess", Preprocess, {"model": stage.model}),
        CompositePart("infer", Infer, some(stage, RUN)),
        CompositePart("postprocess", FetchMaps, {"model": stage.model}),
        CompositePart("keep", KeepRegions, some(stage, ("model", "labels", "min_share"))),
    ]


class FetchMaps(
    FetchAnswers, device_copy="the maps of classes go from device to host, a byte a place, one copy a batch"
):
    """Take the best class of each place, and start the copy of the class maps to the host.

    Attributes:
        model: the model card.
    """

    def asked(self, batch: Batch) -> Array:
        """Return the maps; the batch's geometry maps their places to the frame."""
        return self._family.maps(batch.outputs, len(self.model.labels))

    def finish(self, fetched: np.ndarray) -> np.ndarray:
        """Return the maps unchanged."""
        return fetched


@dataclass(eq=False)
class KeepRegions(StreamStage, name="keep", reads=("answers",), writes=(FACT,)):
    """Make the masks of the classes, and attach them to each frame.

    Attributes:
        model: the model card.
        labels: the classes to keep; all but `background` by default.
        min_share: omit a class that covers less than this share of the frame.
    """

    model: Model
    labels: list[str] | None = None
    min_share: Score = 0.0

    def process(self, batch: Batch, states: Mapping[str, Any]) -> Batch:
        """Set the fact `segmentation`: masks by label."""
        names, size = self.model.labels, self.model.input.size
        geometries = () if batch.geometry is None else batch.geometry  # None where no frame was asked about
        for ((row, _), classes), geometry in zip(answers(batch).items(), geometries, strict=True):
            frame = batch.frames[row]
            found: dict[str, Any] = dict(frame.facts.get(FACT, {}))
            for number, mask in class_masks(classes, geometry, (frame.width, frame.height), size).items():
                name = names[number] if number < len(names) else str(number)
                wanted = name in self.labels if self.labels is not None else name != BACKGROUND
                if wanted and rle.area(mask) >= self.min_share * frame.width * frame.height:
                    found[f"{self.context.id.split('.', 1)[0]}.{name}" if name in found else name] = mask
            frame.facts[FACT] = found
        batch.crops = batch.rows = batch.geometry = None
        return batch
