"""Names of events, as options such as `when` have them: STAGE.KIND, or STAGE for all of a stage's events."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
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
        return event.stage in self._names or f"{event.stage}.{event.kind}" in self._names


def strange(when: str | Collection[str] | None, node: Node, nodes: Mapping[str, Node]) -> Iterator[str]:
    """What is wrong with the names in an option of `node`: events that no stage above it writes.

    Args:
        when: the option.
        node: the stage that has it.
        nodes: all stages by id.
    """
    above = {id_: nodes[id_] for id_ in nodes if id_ in _above(node, nodes)}
    known = {id_: one.type.emits for id_, one in above.items() if "events" in one.type.writes}
    names = [name for id_, kinds in known.items() for name in ([f"{id_}.{kind}" for kind in kinds] or [id_])]
    for name in [when] if isinstance(when, str) else when or ():
        id_ = _stage_of(name, nodes)
        if id_ is None:
            yield f"no stage writes the event {name!r}{did_you_mean(name, names, all_if_few=True)}"
        elif "events" not in nodes[id_].type.writes:
            yield f"{id_} writes no events, so there is no {name!r}{did_you_mean(name, names, all_if_few=True)}"
        elif id_ not in above:
            yield f"{node.id} does not see the events of {id_}; write from: {id_}, or put it behind {id_}"
        elif name != id_ and known[id_] and name.removeprefix(f"{id_}.") not in known[id_]:
            own = [f"{id_}.{kind}" for kind in known[id_]]
            yield f"{id_} writes no event {name!r}{did_you_mean(name, own, all_if_few=True)}"


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
