"""Finds the key points of people, or of whatever a network knows."""

from __future__ import annotations

from streamkit.stage import Part, stage
from streamkit.stages.details import detailing
from streamkit.stages.finding import Finding, finding


@stage("pose", reads="pixels", writes=("detections", "keypoints"))
class Pose(Finding):
    """Find objects with their key points; with `of`, the points of objects that another stage found.

    Records have `"keypoints": [[x, y, score], ...]` in source pixels, in the order of the card's `keypoints`. A network
    for one person, such as MoveNet, is best asked about each: `of: detect.person`.

    Options:
        model: the model's card, with task: pose.
        of: give key points to these objects, as detect, detect.person or {stage: detect, labels: [person, dog]}.
        min_size: drop boxes whose shorter side is below this, in source pixels; with `of`, do not ask about them.
    """

    def parts(self) -> list[Part]:
        """The stages with their share of the options."""
        return finding(self) if self.of is None else detailing(self)
