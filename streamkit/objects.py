"""Whether objects are there where they are wanted: those an `of:` names, those of frames that `every:` leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.errors import Problem
from streamkit.plan import DECODE
from streamkit.units import Of
from streamkit.yamlfile import did_you_mean

if TYPE_CHECKING:
    from streamkit.graph import Graph, Node


def check_of(graph: Graph, problems: list[Problem]) -> None:
    """Refuse an `of:` whose stage or label there is not; each at its place in the YAML."""
    for node in graph.nodes.values():
        of = node.options.get("of")
        if not isinstance(of, Of):
            continue
        place, _ = node.place.follow(["of", "stage"] if isinstance(_said(node), dict) else ["of"])
        found = _detectors(graph, node)
        if of.stage not in found:
            problems.append(place.problem(f"{node.table}.of: {_no_stage(graph, of.stage, found)}"))
            continue
        place, _ = node.place.follow(["of", "labels"])
        problems.extend(place.problem(f"{node.table}.of: {text}") for text in _unknown(found[of.stage], of))


def check_gaps(graph: Graph) -> None:
    """Warn of a detector that leaves out frames while no tracker below says where its objects are meanwhile."""
    for node in graph.nodes.values():
        every = node.options.get("every")
        if node.type.name != "look" or not isinstance(every, int) or every < 2 or _tracked(graph, node):
            continue
        place, _ = node.place.follow(["every"])
        text = (
            f"{node.table}.every: {every} leaves all other frames without objects; `track: {{}}` below it gives them "
            "those that it expects"
        )
        graph.config.warnings.append(place.problem(text))


def _tracked(graph: Graph, node: Node) -> bool:
    left, seen = list(node.readers), set[str]()
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
        if "track_id" in graph.nodes[name].type.writes:
            return True
        left.extend(graph.nodes[name].readers)
    return False


def _said(node: Node) -> Any:
    return node.place.follow(["of"])[0].value


def _detectors(graph: Graph, node: Node) -> dict[str, Node]:
    """The stages above `node` that make objects, by the id that a YAML knows them by."""
    found: dict[str, Node] = {}
    left, seen = list(node.inputs), set[str]()
    while left:
        name = left.pop()
        if name == DECODE or name in seen:
            continue
        seen.add(name)
        above = graph.nodes[name]
        left.extend(above.inputs)
        if "detections" in above.type.writes:
            found[above.table] = above
    return found


def _no_stage(graph: Graph, name: str, found: dict[str, Node]) -> str:
    known = {node.table for node in graph.nodes.values()}
    there = f"; objects come from {', '.join(sorted(found))}" if found else "; put a detector such as detect above it"
    if name not in known:
        return f"there is no stage {name!r}{did_you_mean(name, known) or there}"
    if any("detections" in node.type.writes for node in graph.nodes.values() if node.table == name):
        return f"{name} does not stand above this stage{there}"
    return f"{name} finds no objects{there}"


def _unknown(detector: Node, of: Of) -> list[str]:
    """What is wrong with the labels; nothing is known of a detector without a model."""
    card = detector.options.get("model")
    if card is None:
        return []
    wanted = detector.options.get("labels")
    found = []
    for label in of.labels:
        if label not in card.labels:
            found.append(f"{detector.table} has no class {label!r}{did_you_mean(label, card.labels, all_if_few=True)}")
        elif wanted is not None and label not in wanted:
            found.append(f"{detector.table} keeps no {label!r}: its labels are {', '.join(wanted)}")
    return found
