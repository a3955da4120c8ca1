"""Facts that rules look up, and their keys."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamkit.rules.ast import walk
from streamkit.rules.typecheck import NUMBER, TEXT, Fact, Typed

OBJECT: dict[str, str] = {
    "label": TEXT, "score": NUMBER, "x1": NUMBER, "y1": NUMBER, "x2": NUMBER, "y2": NUMBER, "width": NUMBER,
    "height": NUMBER, "area": NUMBER, "track_id": NUMBER, "age_s": NUMBER, "detector": TEXT,
}  # fmt: skip
"""What every object has."""

ALIASES = {"class": "label", "speed": "speed_kmh", "heading": "heading_deg"}
MEASURED = {"speed_kmh": "speed", "heading_deg": "direction", "direction": "direction"}
"""What is measured by a stage, and which."""


class Area(NamedTuple):
    """An area of a stage `zone`."""

    stage: str
    area: str

    def __str__(self) -> str:
        return f"{self.stage}.{self.area}" if self.area else self.stage


class Happening(NamedTuple):
    """Events of a stage: of one kind or any, with a condition on their data."""

    stage: str
    kind: str | None
    where: Any = None


@dataclass(slots=True)
class Facts:
    """What rules look up, each under its key; filled by their vocabularies.

    Attributes:
        objects: facts of objects: a column's name, an `Area` for being in it, (an `Area`,) for how long, a `Happening`.
        counts: conditions whose objects are counted per frame.
        members: areas whose tracks are counted, and the class; None for all classes.
        happened: events that are counted per frame.
        frames: facts of whole frames: `source`, or (attribute, part).
    """

    objects: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Typed] = field(default_factory=dict)
    members: dict[str, tuple[Area, str | None]] = field(default_factory=dict)
    happened: dict[str, Happening] = field(default_factory=dict)
    frames: dict[str, Any] = field(default_factory=dict)


def is_per_object(made: Typed, facts: Facts) -> bool:
    """Whether a condition refers to one object."""
    return any(isinstance(one, Fact) and one.key in facts.objects for one in walk(made))
