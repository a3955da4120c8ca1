"""What rules may refer to: capabilities of the stages above them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streamkit.analytics.per_source_steps import PositionOptions
from streamkit.analytics.shapes import Shape


@dataclass(frozen=True, slots=True)
class ZoneScope:
    """The areas of a stage `zone`, and what it counts as being in them.

    Attributes:
        areas: by name; '' for a single one without a name.
        labels: the classes it uses; empty for all.
        view: which point of an object counts, and in which units.
        margin, hold_s, max_gap_s: its options.
    """

    areas: Mapping[str, Shape]
    labels: tuple[str, ...] = ()
    view: PositionOptions = field(default_factory=PositionOptions)
    margin: float | None = None
    hold_s: float = 0.0
    max_gap_s: float = 2.0


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
        columns: further measurements of objects.
        ways: the directions, if a stage reports them.
        tracked: whether objects have tracks.
        stages: the ids of all stages above.
        detectors: the ids of the stages that find objects.
    """

    labels: tuple[str, ...] | None = None
    zones: dict[str, ZoneScope] = field(default_factory=dict)
    events: dict[str, tuple[str, ...]] = field(default_factory=dict)
    attributes: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    facts: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    columns: frozenset[str] = frozenset()
    ways: DirectionScope | None = None
    tracked: bool = True
    stages: tuple[str, ...] = ()
    detectors: tuple[str, ...] = ()
