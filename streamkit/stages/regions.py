"""Semantic segmentation: a class for each place of the picture, kept as a mask for each class among a frame's facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from streamkit.data import Batch
from streamkit.ops import rle
from streamkit.ops.masks import class_masks
from streamkit.stage import BatchStage, Part, Score, StreamStage
from streamkit.stages.finding import RUN, some
from streamkit.stages.infer import Infer
from streamkit.stages.objects import SelectFrames
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


@dataclass(eq=False)
class FetchMaps(BatchStage):
    """Take the best class of each place, and start the maps on their way to the host.

    Options:
        model: the card of the network.
    """

    name: ClassVar[str] = "postprocess"
    reads: ClassVar[tuple[str, ...]] = ("outputs",)
    writes: ClassVar[tuple[str, ...]] = ("answers",)
    crossing: ClassVar[str] = "the maps of classes go from device to host, a byte a place, one copy a batch"

    model: Model

    def open(self) -> None:
        """Find the network's family."""
        from streamkit.models.families import family

        self._family: Any = family(self.model.family)

    def process(self, batch: Batch) -> Batch:
        """Give the whole frames their maps; the geometry stays, it says where the map's places are."""
        from streamkit.ops.transfer import fetch

        crops = batch.crops
        assert crops is not None
        wait = fetch([self._family.maps(batch.outputs, len(self.model.labels))[: len(crops)]])
        answers: Callable[[], np.ndarray] = lambda: wait()[0]  # noqa: E731
        batch.crops = replace(crops, answers=answers() if batch.xp is np else answers)
        batch.outputs = {}
        return batch


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
        crops, rows = batch.crops, batch.rows
        assert crops is not None
        assert rows is not None
        assert batch.geometry is not None
        names, size = self.model.labels, self.model.input.size
        for row, classes, geometry in zip(rows.tolist(), crops.answered(), batch.geometry, strict=True):
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
