# SPDX-License-Identifier: Apache-2.0
"""A stage that detects which tracks cross a line, and in which direction. The built-in `line_counter` does more."""

from dataclasses import field
from typing import Annotated

from streamkit import Frame, FrameStage, Point, stage


@stage("tripwire", reads="track_id", writes="events", emits=("crossed",))
class Tripwire(FrameStage):
    """Emit `crossed` when a track's foot point passes from one side of the line to the other.

    Seen from the line's first point toward its second, `in` is from left to right, and `out` from right to left. The
    foot point is the middle of a box's lower edge; it has to pass between the line's two ends.
    """

    line: Annotated[tuple[Point, Point], "the line's two ends, [[x, y], [x, y]] in source pixels."]
    feet: dict[int, Point] = field(default_factory=dict, init=False)  # where each track was last

    def process(self, frame: Frame) -> None:
        """Compare each track's step with the line."""
        a, b = self.line
        tracks = frame.detections[frame.detections.track_id >= 0]
        feet = (tracks.foot / frame.shape_scale).tolist()  # as if the camera still had the size of its first frame
        for track, foot in zip(tracks.track_id.tolist(), feet, strict=True):
            before = self.feet.pop(track, foot)
            self.feet[track] = foot
            was = right_of(a, b, before)
            now = right_of(a, b, foot)
            if was != now and right_of(before, foot, a) != right_of(before, foot, b):
                frame.emit("crossed", track_id=track, direction="in" if now else "out")
        while len(self.feet) > 10_000:  # the longest unseen first, so that months of tracks do not add up
            del self.feet[next(iter(self.feet))]


def right_of(a: Point, b: Point, p: Point) -> bool:
    """Whether `p` is to the right of the line from `a` to `b`, in an image, where y points down."""
    return (b[0] - a[0]) * (p[1] - a[1]) > (b[1] - a[1]) * (p[0] - a[0])
