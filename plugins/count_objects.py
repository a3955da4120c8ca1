"""A stage that needs detections only: says when it gets crowded."""

from dataclasses import field

from streamkit import Count, Frame, FrameStage, stage


@stage("count_objects", reads="detections", writes="events")
class CountObjects(FrameStage):
    """Emit `crowded` when more than so many objects of a class are seen, and `cleared` when it is over.

    Options:
        label: the class to count; all classes if left out.
        more_than: how many may be there.
        margin: `cleared` comes when the number is this much below again, so that a flickering box does not
            make an event with every frame.
    """

    label: str | None = None
    more_than: Count = 10
    margin: Count = 1
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
