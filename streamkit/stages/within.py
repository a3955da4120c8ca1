"""Objects found within objects: `of:` in `detect`, such as the plates of cars. They come into a table of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamkit.data import Batch
from streamkit.stage import Part
from streamkit.stages.finding import READ, RUN, some
from streamkit.stages.infer import Infer
from streamkit.stages.objects import select
from streamkit.stages.postprocess import Postprocess, _Make
from streamkit.stages.preprocess import Preprocess
from streamkit.stages.views import Together


def finding_within(stage: Any) -> list[Part]:
    """The parts of a detector with `of`: every object of every frame is looked at, since what is in it moves."""
    return [
        select(stage.of, every=0.0, forget=1.0, pad=stage.pad),
        Part("preprocess", Preprocess, some(stage, ("model", "batch"))),
        Part("infer", Infer, some(stage, (*RUN, "batch"))),
        Part("postprocess", FindWithin, some(stage, READ)),
    ]


class FindWithin(Postprocess):
    """`postprocess` of crops: what is found in several objects that overlap is one object."""

    def _together(self, batch: Batch, sizes: np.ndarray, make: _Make) -> _Make:
        if not len(batch.crops or ()):  # of which there is no geometry
            return make
        return super()._together(batch, sizes, make)

    def _put(self, batch: Batch, sizes: np.ndarray) -> Together:
        assert batch.rows is not None
        assert batch.crops is not None
        assert batch.geometry is not None
        return TogetherWithin(self._views, batch.rows, batch.crops.rects, batch.geometry[:, :2], sizes)


@dataclass(slots=True)
class TogetherWithin(Together):
    """Puts what was found in a frame's objects together: no crop is cut from a larger one."""

    def _within(self) -> np.ndarray:
        return self.rects
