"""Semantic segmentation: a class for each place of the picture, kept as a mask for each class among a frame's facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from streamkit.crops import answers
from streamkit.data import Array, Batch
from streamkit.ops import rle
from streamkit.ops.masks import class_masks
from streamkit.stage import Part, Score, StreamStage
from streamkit.stages.finding import RUN, some
from streamkit.stages.infer import Infer
from streamkit.stages.objects import FetchAnswers, SelectFrames
from streamkit.stages.preprocess import Preprocess
from streamkit.units import Model

BACKGROUND = "background"
FACT = "segmentation"


def telling_regions(stage: Any) -> list[Part]:
    """The parts of `segment` with a semantic network."""
    return [
        Part("select", SelectFrames, {"every": 0.0}),
        Part("preprocess", Preprocess, {"model": stage.model}),
        Part("infer", Infer, some(stage, RUN)),
        Part("postprocess", FetchMaps, {"model": stage.model}),
        Part("keep", KeepRegions, some(stage, ("model", "labels", "min_share"))),
    ]


class FetchMaps(FetchAnswers):
    """Take the best class of each place, and start the maps on their way to the host.

    Options:
        model: the card of the network.
    """

    crossing: ClassVar[str] = "the maps of classes go from device to host, a byte a place, one copy a batch"

    def asked(self, batch: Batch) -> Array:
        """The maps; the batch's geometry says where their places are."""
        return self._family.maps(batch.outputs, len(self.model.labels))

    def finish(self, fetched: np.ndarray) -> np.ndarray:
        """They are as they should be."""
        return fetched


@dataclass(eq=False)
class KeepRegions(StreamStage):
    """Make the masks of the classes, and give each frame its own.

    Options:
        model: the card of the network.
        labels: the classes wanted; all but `background` if left out.
        min_share: a class that covers less of the picture is left out.
    """

    name: ClassVar[str] = "keep"
    reads: ClassVar[tuple[str, ...]] = ("answers",)
    writes: ClassVar[tuple[str, ...]] = (FACT,)

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
