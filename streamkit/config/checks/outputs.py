"""Checks that every sink has an output of its own."""

from __future__ import annotations

import os

from streamkit.config.plan import Graph, Node, stages_above
from streamkit.core.errors import Problem
from streamkit.core.stage import Sink
from streamkit.media.uris import mask


def check_outputs(graph: Graph, problems: list[Problem]) -> None:
    """Refuse sinks or sources that would write the same file, and two formats on standard output."""
    claimed: dict[str, Node] = {}
    for node in graph.nodes.values():
        if not issubclass(node.type, Sink):
            continue
        option = node.type.spec.target or "path"
        path, place = node.options.get(option), node.place.follow([option])[0]
        if not isinstance(path, str):
            continue
        if node.type.spec.one_source and "{source}" not in path and len(graph.sources) > 1:
            what = f"{len(graph.sources)} sources into the one {'file ' if option == 'path' else ''}{mask(path)}"
            problems.append(place.problem(f'{node.id}: {what}; write "{{source}}" into the {option}'))
        if node.options.get("encoder") == "copy" and _drawn(graph, node):
            text = (
                "encoder: copy takes the source's own packets, without what is drawn above it; read from decode instead"
            )
            problems.append(node.place.follow(["encoder"])[0].problem(f"{node.id}: {text}"))
        file, name = os.path.normpath(path), "standard output" if path == "-" else mask(path)
        if file in claimed and (path != "-" or claimed[file].type is not node.type):
            text = f"{node.id}: {claimed[file].id} writes {name} already; give it a path of its own"
            problems.append(place.problem(text))
        claimed[file] = node


def _drawn(graph: Graph, node: Node) -> bool:
    """Whether a stage above changes the frames."""
    return any("pixels" in one.type.spec.writes for one in stages_above(graph.nodes, node).values())
