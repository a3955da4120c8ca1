"""Detection within objects, `of:` in `detect`, such as number plates of cars. The results have a table of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.core.data import Batch
from streamkit.core.stage import CompositePart
from streamkit.stages.inference.detector_base import READ, RUN, some
from streamkit.stages.inference.infer import Infer
from streamkit.stages.inference.inference_regions import RegionMerger
from streamkit.stages.inference.objects import select
from streamkit.stages.inference.postprocess import Postprocess, _Make
from streamkit.stages.inference.preprocess import Preprocess


def finding_within(stage: Any) -> list[CompositePart]:
    """Return the parts of a detector with `of`: it runs on every object of every frame, since the contents move."""
    return [
        select(stage.of, every=0.0, track_ttl=1.0, pad=stage.pad),
        CompositePart("preprocess", Preprocess, some(stage, ("model", "batch"))),
        CompositePart("infer", Infer, some(stage, (*RUN, "batch"))),
        CompositePart("postprocess", CropPostprocess, some(stage, READ)),
    ]


class CropPostprocess(Postprocess):
    """`postprocess` of crops: an object found in several overlapping crops is reported once."""

    def _together(self, batch: Batch, sizes: np.ndarray, make: _Make) -> _Make:
        if not len(batch.crops or ()):  # of which there is no geometry
            return make
        return super()._together(batch, sizes, make)

    def _put(self, batch: Batch, sizes: np.ndarray) -> RegionMerger:
        assert batch.rows is not None
        assert batch.crops is not None
        assert batch.geometry is not None
        return CropMerger(self._views, batch.rows, batch.crops.rects, batch.geometry[:, :2], sizes)


@dataclass(slots=True)
class CropMerger(RegionMerger):
    """Merges what was found in a frame's objects: each crop is a whole region, not a tile of a larger one."""

    def _within(self) -> np.ndarray:
        return self.rects
