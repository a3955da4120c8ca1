# SPDX-License-Identifier: Apache-2.0
"""A stage that needs detections only: it emits events when there are too many objects."""

from dataclasses import field
from typing import Annotated

from streamkit import Count, Frame, FrameStage, stage


@stage("count_objects", reads="detections", writes="events")
class CountObjects(FrameStage):
    """Emit `crowded` when there are more objects of a class than `more_than`, and `cleared` afterwards."""

    label: Annotated[str | None, "the class to count; all classes by default."] = None
    more_than: Annotated[Count, "the highest number that is not crowded."] = 10
    margin: Annotated[
        Count,
        "`cleared` is emitted when the number is this much lower, so that a flickering box does not cause an event on "
        "every frame.",
    ] = 1
    crowded: bool = field(default=False, init=False)

    def process(self, frame: Frame) -> None:
        """Count this frame's objects."""
        labels = frame.detections.label
        count = len(labels) if self.label is None else labels.count(self.label)
        if not self.crowded and count > self.more_than:
            self.crowded = True
            frame.emit("crowded", count=count)
        elif self.crowded and count <= self.more_than - self.margin:
            self.crowded = False
            frame.emit("cleared", count=count)
