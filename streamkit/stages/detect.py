"""Finds objects: preprocess, infer and postprocess in one, as the model's card says."""

from __future__ import annotations

from streamkit.stage import Count, Part, stage
from streamkit.stages.finding import Finding, finding, only_with
from streamkit.stages.within import finding_within


@stage("detect", reads="pixels", writes="detections")
class Detect(Finding):
    """Find objects with a network: preprocess, infer and postprocess in one.

    `run.py graph` shows the parts; `insert: {after: preprocess, stage: my_stage}` puts a stage between them.

    Options:
        of: look within these objects only, as detect, detect.car or {stage: detect, labels: [car, truck]}; what is
            found has a table of its own, named after this stage.
        every: look at each source's every so many-th frame only; those between cost no inference, and a `track` stage
            below gives them the objects that it expects, marked `predicted`.
    """

    every: Count = 1

    def check_use(self) -> None:
        """See `Finding.check_use`; here objects are also found within others."""
        if self.of is None:
            only_with(self, "crops are made with of", ("pad", "batch"))
        else:
            only_with(self, "with of, the network sees crops of objects", ("roi", "units", "anchor", "tiles", "every"))

    def parts(self) -> list[Part]:
        """The stages with their share of the options."""
        return finding(self) if self.of is None else finding_within(self)
