"""Object detection: preprocess, infer and postprocess in one stage."""

from __future__ import annotations

from typing import Annotated

from streamkit.core.stage import CompositePart, Count, stage
from streamkit.core.units import Of
from streamkit.stages.inference.crop_detector import finding_within
from streamkit.stages.inference.detector_base import DetectorBase, finding, only_with


@stage("detect", reads="pixels", writes="detections")
class Detect(DetectorBase):
    """Detect objects with a network: preprocess, infer and postprocess in one stage.

    `run.py graph` shows the parts; `insert: {after: preprocess, stage: my_stage}` puts a stage between them.
    """

    of: Annotated[
        Of | None,
        "detect within these objects only, as detect, detect.car or {stage: detect, labels: [car, truck]}; the results "
        "have a table of their own, named after this stage.",
    ] = None
    every: Annotated[
        Count,
        "run on every n-th frame of each source only; the frames between cost no inference, and a `track` stage below "
        "fills them with predicted objects, marked `predicted`.",
    ] = 1

    def check_use(self) -> None:
        """See `DetectorBase.check_use`; here objects are also found within others."""
        if self.of is None:
            only_with(self, "crops are made with of", ("pad", "batch"))
        else:
            only_with(self, "with of, the network sees crops of objects", ("roi", "units", "anchor", "tiles", "every"))

    def parts(self) -> list[CompositePart]:
        """Return the parts with their options."""
        return finding(self) if self.of is None else finding_within(self)
