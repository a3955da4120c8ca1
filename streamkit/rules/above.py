"""What a rule may speak of: what the stages above it find, measure and tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamkit.analytics.rounds import View
from streamkit.analytics.shapes import Shape, by_name

if TYPE_CHECKING:
    from streamkit.plan import Graph, Node


@dataclass(frozen=True, slots=True)
class Zone:
    """The areas of a stage `zone`, and what it counts as being in them.

    Attributes:
        areas: by name; '' for a single one that has none.
        labels: the classes it watches; all where there is none.
        view: which point of an object counts, and in which units.
        margin, hold_s, max_gap_s: its options.
    """

    areas: Mapping[str, Shape]
    labels: tuple[str, ...] = ()
    view: View = field(default_factory=View)
    margin: float | None = None
    hold_s: float = 0.0
    max_gap_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Ways:
    """The directions of a stage `direction`: x and y of each arrow."""

    arrows: dict[str, tuple[float, float]]
    share: bool = False
    tolerance: float = 45.0


@dataclass(slots=True)
class Above:
    """What the stages above a rule give.

    Attributes:
        labels: all classes that objects can have; None where that is not known.
        zones: by the id of their stage.
        events: the kinds of each stage's events; none where they are not known.
        attributes: the attributes of objects, and what each can be; likewise for whole frames in `facts`.
        columns: what else is measured of objects.
        ways: the directions, where a stage tells them.
        tracked: whether objects have tracks.
        stages: the ids of all stages above.
        detectors: the ids of the stages that find objects.
    """

    labels: tuple[str, ...] | None = None
    zones: dict[str, Zone] = field(default_factory=dict)
    events: dict[str, tuple[str, ...]] = field(default_factory=dict)
    attributes: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    facts: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    columns: frozenset[str] = frozenset()
    ways: Ways | None = None
    tracked: bool = True
    stages: tuple[str, ...] = ()
    detectors: tuple[str, ...] = ()


_SIDES = {"up": (0.0, -1.0), "right": (1.0, 0.0), "down": (0.0, 1.0), "left": (-1.0, 0.0)}
_OWN = {"pixels", "tensor", "outputs", "detections", "track_id", "events", "attributes", "embedding", "answers"}


def above(graph: Graph, node: Node) -> Above:
    """What stands above one stage of a graph."""
    found = Above(tracked=False)
    labels: dict[str, None] | None = {}
    columns: set[str] = set()
    for one in _above(graph, node):
        found.stages = tuple(dict.fromkeys([*found.stages, one.table]))
        writes = set(one.type.writes)
        columns |= writes - _OWN
        found.tracked |= "track_id" in writes
        if "events" in writes:
            found.events[one.id] = one.type.emits
        if "detections" in writes:
            found.detectors = (*found.detectors, one.table)
            card = one.options.get("model")
            if card is None or labels is None:
                labels = None
            else:
                labels |= dict.fromkeys(one.options.get("labels") or card.labels)
        if "attributes" in writes:
            _attributes(one, found)
        tells = {"entered", "headed"} & set(one.type.emits)
        made: Any = one.type(**one.options) if tells else None  # with the defaults of what is left out
        if "entered" in tells and hasattr(made, "polygon"):
            view = View(made.units, made.anchor, made.predicted)
            areas = by_name(made.polygon)
            found.zones[one.id] = Zone(areas, tuple(made.labels), view, made.margin, made.hold, made.max_gap)
        if "headed" in tells and hasattr(made, "directions"):
            arrows = {name: (a[-1][0] - a[0][0], a[-1][1] - a[0][1]) for name, a in made.directions.items()}
            found.ways = Ways(arrows or _SIDES, bool(arrows) and made.units == "share", made.tolerance)
    found.labels, found.columns = None if labels is None else tuple(labels), frozenset(columns)
    return found


def _attributes(node: Node, found: Above) -> None:
    card = node.options.get("model")
    name = node.options.get("attribute") or node.table
    into = found.attributes if "of" in node.options else found.facts
    into[name] = None if card is None else tuple(card.labels)


def _above(graph: Graph, node: Node) -> Iterator[Node]:
    """The stages above, each after all it reads from."""
    from streamkit.plan import stages_above

    seen = stages_above(graph.nodes, node)
    yield from (one for id_, one in graph.nodes.items() if id_ in seen)
