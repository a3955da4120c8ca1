# SPDX-License-Identifier: Apache-2.0
"""What rules may refer to: the stages above them, and the facts that their conditions look up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from streamkit.analytics.per_source_steps import PositionOptions
from streamkit.analytics.shapes import Shape
from streamkit.rules.language import NUMBER, TEXT, Fact, Typed
from streamkit.rules.syntax import walk


@dataclass(frozen=True, slots=True)
class ZoneScope:
    """The areas of a stage `zone`, and what it counts as being in them.

    Attributes:
        areas: by name; '' for a single one without a name.
        labels: the classes it uses; empty for all.
        view: which point of an object counts, and in which units.
        margin, debounce_s, track_ttl_s: its options.
    """

    areas: Mapping[str, Shape]
    labels: tuple[str, ...] = ()
    view: PositionOptions = field(default_factory=PositionOptions)
    margin: float | None = None
    debounce_s: float = 0.0
    track_ttl_s: float = 2.0


@dataclass(frozen=True, slots=True)
class DirectionScope:
    """The directions of a stage `direction`: x and y of each arrow."""

    arrows: dict[str, tuple[float, float]]
    share: bool = False
    tolerance: float = 45.0


@dataclass(slots=True)
class Scope:
    """Capabilities of the stages above a rule.

    Attributes:
        labels: all classes that objects can have; None if unknown.
        zones: by the id of their stage.
        events: the kinds of each stage's events; empty if unknown.
        attributes: the attributes of objects, and their possible values; likewise `facts` for whole frames.
        numbers: the attributes whose labels are numbers.
        columns: further measurements of objects.
        ways: the directions, if a stage reports them.
        tracked: whether objects have tracks.
        stages: the ids of all stages above.
        detectors: the ids of the stages that find objects.
        folder: the YAML's folder, for files that rules name.
    """

    labels: tuple[str, ...] | None = None
    zones: dict[str, ZoneScope] = field(default_factory=dict)
    events: dict[str, tuple[str, ...]] = field(default_factory=dict)
    attributes: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    facts: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    numbers: frozenset[str] = frozenset()
    columns: frozenset[str] = frozenset()
    ways: DirectionScope | None = None
    tracked: bool = True
    stages: tuple[str, ...] = ()
    detectors: tuple[str, ...] = ()
    folder: Path = Path()


OBJECT: dict[str, str] = {
    "label": TEXT,
    "score": NUMBER,
    "x1": NUMBER,
    "y1": NUMBER,
    "x2": NUMBER,
    "y2": NUMBER,
    "width": NUMBER,
    "height": NUMBER,
    "area": NUMBER,
    "track_id": NUMBER,
    "age_s": NUMBER,
    "detector": TEXT,
}
"""What every object has."""

ALIASES = {"class": "label", "speed": "speed_kmh", "heading": "heading_deg"}
MEASURED = {
    "speed_kmh": "speed",
    "heading_deg": "direction",
    "direction": "direction",
    "depth": "depth with a metric network",
    "relative_depth": "depth with a network of another family",
    "anomaly_score": "anomaly with of:",
}
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
    where: Callable[[Mapping[str, Any]], bool] | None = None


@dataclass(slots=True)
class Facts:
    """What rules look up, each under its key; filled by their vocabularies.

    Attributes:
        objects: facts of objects: a column's name, an `Area` for being in it, (an `Area`,) for how long, a `Happening`.
        counts: conditions whose objects are counted per frame.
        members: areas whose tracks are counted, and the class; None for all classes.
        happened: events that are counted per frame.
        frames: facts of whole frames: `source`, or (attribute, part). An `InFile` is a fact of either.
    """

    objects: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Typed] = field(default_factory=dict)
    members: dict[str, tuple[Area, str | None]] = field(default_factory=dict)
    happened: dict[str, Happening] = field(default_factory=dict)
    frames: dict[str, Any] = field(default_factory=dict)


def is_per_object(condition: Typed, facts: Facts) -> bool:
    """Whether a condition refers to one object."""
    return any(isinstance(part, Fact) and part.key in facts.objects for part in walk(condition))
