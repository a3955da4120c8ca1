"""Checks that the events an option names are written by a stage above it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType

from streamkit.config.alarms import KINDS
from streamkit.config.alarms import STAGE as ALARMS
from streamkit.config.plan import Graph, Node, stages_above
from streamkit.core.errors import Problem
from streamkit.core.stage import Sink
from streamkit.core.text import did_you_mean
from streamkit.emit.emitter import Emitter


def check_events(graph: Graph, problems: list[Problem]) -> None:
    """Refuse a sink's `when` that names events of stages that are not above it."""
    for node in graph.nodes.values():
        if not issubclass(node.type, Sink):
            continue
        place = node.place.follow(["when"])[0]
        others = {ALARMS: KINDS} if graph.config.alarms and issubclass(node.type, Emitter) else {}
        told = strange(node.options.get("when"), node, graph.nodes, others)
        problems.extend(place.problem(f"{node.id}: {text}") for text in told)
        if not node.type.spec.wants_packets:
            continue
        if graph.sources and not any(source.type.spec.reads_packets for source in graph.sources):
            text = "records the packets of videos and cameras, and no source here has any"
            problems.append(node.place.problem(f"{node.id} {text}"))


def strange(
    when: str | Collection[str] | None, node: Node, nodes: Mapping[str, Node],
    others: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Iterator[str]:  # fmt: skip
    """Problems with the event names in an option of `node`: events that no stage above it writes.

    Args:
        when: the option's value.
        node: the stage with the option.
        nodes: all stages by id.
        others: ids outside the graph whose events `node` also receives, with the kinds of each.
    """
    ids = stages_above(nodes, node)
    above = {id_: nodes[id_] for id_ in nodes if id_ in ids}
    known = {id_: _kinds(one) for id_, one in above.items() if "events" in one.type.spec.writes}
    own = [name for id_, kinds in others.items() for name in (id_, *(f"{id_}.{kind}" for kind in kinds))]
    names = [name for id_, kinds in known.items() for name in ([f"{id_}.{kind}" for kind in kinds] or [id_])] + own
    for name in [when] if isinstance(when, str) else when or ():
        if name in own:
            continue
        id_ = _stage_of(name, nodes)
        if id_ is None:
            yield f"no stage writes the event {name!r}{did_you_mean(name, names, all_if_few=True)}"
        elif "events" not in nodes[id_].type.spec.writes:
            yield f"{id_} writes no events, so there is no {name!r}{did_you_mean(name, names, all_if_few=True)}"
        elif id_ not in above:
            yield f"{node.id} does not see the events of {id_}; write from: {id_}, or put it behind {id_}"
        elif name != id_ and known[id_] and name.removeprefix(f"{id_}.") not in known[id_]:
            mine = [f"{id_}.{kind}" for kind in known[id_]]
            yield f"{id_} writes no event {name!r}{did_you_mean(name, mine, all_if_few=True)}"


def _kinds(node: Node) -> tuple[str, ...]:
    """The kinds of a stage's events, and of the events of each of its rules."""
    kinds = node.type.spec.emits
    rules = node.options.get("rules", ()) if node.type.spec.has_rules else ()
    return (*kinds, *(f"{rule}.{kind}" for rule in rules for kind in kinds))


def _stage_of(name: str, nodes: Collection[str]) -> str | None:
    """The stage that an event name refers to; ids may contain dots."""
    found = [id_ for id_ in nodes if name == id_ or name.startswith(f"{id_}.")]
    return max(found, key=len, default=None)
