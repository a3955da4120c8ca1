"""What stages show on a frame beside objects: lines, zones and trails, for `draw`."""

from __future__ import annotations

from dataclasses import dataclass

Points = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Shown:
    """A line, a zone or a trail on one frame.

    Attributes:
        points: its corners (x, y), in `units`.
        units: pixels of the source, or share of the frame's width and height.
        closed: its last point is joined to its first.
        text: its label; empty for none.
        class_id: the class of the object that it is the trail of; None for what belongs to no object.
        track_id: that object's track.
        label: the name of that class.
    """

    points: Points
    units: str = "pixels"
    closed: bool = False
    text: str = ""
    class_id: int | None = None
    track_id: int = -1
    label: str = ""
