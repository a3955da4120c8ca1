"""What the stages above a rule detect, measure and emit, read from the graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamkit.analytics.per_source_steps import PositionOptions
from streamkit.analytics.shapes import by_name
from streamkit.config.plan import Graph, Node, stages_above
from streamkit.rules.scope import DirectionScope, Scope, ZoneScope

_SIDES = {"up": (0.0, -1.0), "right": (1.0, 0.0), "down": (0.0, 1.0), "left": (-1.0, 0.0)}
_OWN = {"pixels", "tensor", "outputs", "detections", "track_id", "events", "attributes", "embedding", "answers"}


def above(graph: Graph, node: Node) -> Scope:
    """The scope of a rule in a stage: what the stages above it provide."""
    found = Scope(tracked=False)
    labels: dict[str, None] | None = {}
    columns: set[str] = set()
    for one in _above(graph, node):
        found.stages = tuple(dict.fromkeys([*found.stages, one.table]))
        writes = set(one.type.spec.writes)
        columns |= writes - _OWN
        found.tracked |= "track_id" in writes
        if "events" in writes:
            found.events[one.id] = one.type.spec.emits
        if "detections" in writes:
            found.detectors = (*found.detectors, one.table)
            card = one.options.get("model")
            if card is None or labels is None:
                labels = None
            else:
                labels |= dict.fromkeys(one.options.get("labels") or card.labels)
        if "attributes" in writes:
            _attributes(one, found)
        tells = {"entered", "headed"} & set(one.type.spec.emits)
        made: Any = one.type(**one.options) if tells else None  # with the defaults of what is left out
        if "entered" in tells and hasattr(made, "polygon"):
            view = PositionOptions(made.units, made.anchor, made.predicted)
            areas = by_name(made.polygon)
            found.zones[one.id] = ZoneScope(areas, tuple(made.labels), view, made.margin, made.hold, made.max_gap)
        if "headed" in tells and hasattr(made, "directions"):
            arrows = {name: (a[-1][0] - a[0][0], a[-1][1] - a[0][1]) for name, a in made.directions.items()}
            found.ways = DirectionScope(arrows or _SIDES, bool(arrows) and made.units == "share", made.tolerance)
    found.labels, found.columns = None if labels is None else tuple(labels), frozenset(columns)
    return found


def _attributes(node: Node, found: Scope) -> None:
    card = node.options.get("model")
    name = node.options.get("attribute") or node.table
    into = found.attributes if "of" in node.options else found.facts
    into[name] = None if card is None else tuple(card.labels)


def _above(graph: Graph, node: Node) -> Iterator[Node]:
    """The stages above, each after its inputs."""
    seen = stages_above(graph.nodes, node)
    yield from (one for id_, one in graph.nodes.items() if id_ in seen)
