"""Keypoint detection."""

from __future__ import annotations

from typing import Annotated

from streamkit.core.stage import CompositePart, stage
from streamkit.core.units import Of, Pixels
from streamkit.models.card_option import Model
from streamkit.stages.inference.detector_base import DetectorBase, finding
from streamkit.stages.inference.object_details import detailing


@stage("pose", reads="pixels", writes=("detections", "keypoints"))
class Pose(DetectorBase):
    """Find objects with their keypoints; with `of`, the keypoints of objects that another stage found.

    Records have `"keypoints": [[x, y, score], ...]` in source pixels, in the order of the card's `keypoints`. A network
    for one person, such as MoveNet, works best on crops of each: `of: detect.person`.
    """

    model: Annotated[Model, "the model card, with task: pose."]
    of: Annotated[
        Of | None,
        "give keypoints to these objects, as detect, detect.person or {stage: detect, labels: [person]}.",
    ] = None
    min_size: Annotated[
        Pixels, "discard boxes whose shorter side is below this, in source pixels; with `of`, skip such objects."
    ] = 0.0

    def parts(self) -> list[CompositePart]:
        """Return the parts with their options."""
        return finding(self) if self.of is None else detailing(self)
