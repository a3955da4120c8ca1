"""Names of events, as options such as `when` have them: STAGE.KIND, or STAGE for all of a stage's events.

Of a stage with several rules STAGE.RULE.KIND is the event of one of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from streamkit.data import Event
from streamkit.yamlfile import did_you_mean

if TYPE_CHECKING:
    from streamkit.graph import Node


class Occasions:
    """The events that an option names.

    Args:
        when: a name, or several, or None for no event.
    """

    def __init__(self, when: str | Collection[str] | None) -> None:
        self._names = frozenset([when] if isinstance(when, str) else when or ())

    def __contains__(self, event: Event) -> bool:
        if event.stage in self._names or f"{event.stage}.{event.kind}" in self._names:
            return True
        return "rule" in event.data and f"{event.stage}.{event.data['rule']}.{event.kind}" in self._names


def strange(
    when: str | Collection[str] | None, node: Node, nodes: Mapping[str, Node],
    others: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> Iterator[str]:  # fmt: skip
    """What is wrong with the names in an option of `node`: events that no stage above it writes.

    Args:
        when: the option.
        node: the stage that has it.
        nodes: all stages by id.
        others: what is no stage of the graph and writes events for `node` all the same, with their kinds.
    """
    above = {id_: nodes[id_] for id_ in nodes if id_ in _above(node, nodes)}
    known = {id_: _kinds(one) for id_, one in above.items() if "events" in one.type.writes}
    own = [name for id_, kinds in others.items() for name in (id_, *(f"{id_}.{kind}" for kind in kinds))]
    names = [name for id_, kinds in known.items() for name in ([f"{id_}.{kind}" for kind in kinds] or [id_])] + own
    for name in [when] if isinstance(when, str) else when or ():
        if name in own:
            continue
        id_ = _stage_of(name, nodes)
        if id_ is None:
            yield f"no stage writes the event {name!r}{did_you_mean(name, names, all_if_few=True)}"
        elif "events" not in nodes[id_].type.writes:
            yield f"{id_} writes no events, so there is no {name!r}{did_you_mean(name, names, all_if_few=True)}"
        elif id_ not in above:
            yield f"{node.id} does not see the events of {id_}; write from: {id_}, or put it behind {id_}"
        elif name != id_ and known[id_] and name.removeprefix(f"{id_}.") not in known[id_]:
            mine = [f"{id_}.{kind}" for kind in known[id_]]
            yield f"{id_} writes no event {name!r}{did_you_mean(name, mine, all_if_few=True)}"


def _kinds(node: Node) -> tuple[str, ...]:
    """The kinds of a stage's events, and those of each of its rules."""
    kinds = node.type.emits
    rules = node.options.get("rules", ()) if getattr(node.type, "has_rules", False) else ()
    return (*kinds, *(f"{rule}.{kind}" for rule in rules for kind in kinds))


def _stage_of(name: str, nodes: Collection[str]) -> str | None:
    """The stage that a name speaks of; ids may have dots in them."""
    found = [id_ for id_ in nodes if name == id_ or name.startswith(f"{id_}.")]
    return max(found, key=len, default=None)


def _above(node: Node, nodes: Mapping[str, Node]) -> set[str]:
    found: set[str] = set()
    for name in node.inputs:
        if name in nodes:
            found |= {name} | _above(nodes[name], nodes)
    return found
