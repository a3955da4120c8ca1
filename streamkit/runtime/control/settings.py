# SPDX-License-Identifier: Apache-2.0
"""Stage options that can be changed while a pipeline runs: those that the stage lists in `changeable`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from streamkit.config.checks.rules import broken_rules, moved_zones
from streamkit.config.plan import Graph, Node
from streamkit.config.validate import OptionValidator, refusal
from streamkit.core.errors import ConfigError, Problem
from streamkit.core.options import options
from streamkit.core.text import did_you_mean
from streamkit.core.yaml_tree import tree


def changeable(graph: Graph, id_: str) -> dict[str, Any]:
    """Changeable options of a stage with their current values.

    Args:
        graph: the running graph.
        id_: the stage's id; for a composite, the options of all its parts.

    Raises:
        ConfigError: the stage does not exist.
    """
    return {name: value_of(node, name) for node in nodes_of(graph, id_) for name in node.type.spec.changeable}


def checked(graph: Graph, id_: str, values: Mapping[str, Any]) -> list[tuple[Node, dict[str, Any]]]:
    """Validate new option values of a stage as values in the YAML are; return them by node.

    An option that several parts of a composite have with the same value, such as `prompts`, changes in all of them.

    Raises:
        ConfigError: lists every problem.
    """
    nodes = nodes_of(graph, id_)
    changeable_names = changeable(graph, id_)
    problems: list[Problem] = []
    for name in values:
        if name not in changeable_names:
            may = did_you_mean(name, changeable_names) or (
                f"; {', '.join(changeable_names)} may" if changeable_names else ""
            )
            problems.append(Problem(id_, 0, 0, f"{name} cannot change while the pipeline runs{may}"))
    changes: list[tuple[Node, dict[str, Any]]] = []
    validate = OptionValidator(graph.config.folder, problems, graph.config.registry)
    parts = nodes_of(graph, whole) if (whole := nodes[0].table) in graph.aliases else nodes
    for node in parts:
        names = [name for name in node.type.spec.changeable if _follows(node, name, nodes)]
        node_values = {name: value for name, value in values.items() if name in names}
        new = validate.some(node.type, tree(node_values, id_))
        if new and not problems:
            if (reason := refusal(node.type, {**node.options, **new})) is not None:
                problems.append(Problem(id_, 0, 0, reason))
            changes.append((node, new))
    if not problems:
        after = {node.id: replace(node, options={**node.options, **new}) for node, new in changes}
        whole_graph = replace(graph, nodes={**graph.nodes, **after})
        problems += [Problem(id_, 0, 0, text) for text in broken_rules(whole_graph)]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))  # parts with the same option have the same problem
    return changes


def follow_zones(graph: Graph) -> list[Node]:
    """Give the stages with rules the areas of the stages above, after options have changed; return those stages."""
    moved = list(moved_zones(graph))
    for node, scope in moved:
        node.options = {**node.options, "above": scope}
    return [node for node, _ in moved]


def _follows(node: Node, name: str, changed: Sequence[Node]) -> bool:
    """Whether an option of a node changes with that of `changed` nodes: it is one of them, or has the same value."""
    return any(
        node is other or (name in other.type.spec.changeable and value_of(node, name) == value_of(other, name))
        for other in changed
    )


def nodes_of(graph: Graph, id_: str) -> list[Node]:
    """The stage with that id, or the parts of that composite."""
    if id_ in graph.nodes:
        return [graph.nodes[id_]]
    parts = [node for node in graph.nodes.values() if id_ in graph.aliases and node.table == id_]
    if not parts:
        raise ConfigError(f"there is no stage {id_!r}{did_you_mean(id_, [*graph.nodes, *graph.aliases])}")
    return parts


def value_of(node: Node, name: str) -> Any:
    """The value of an option; its default if unset."""
    if name in node.options:
        return node.options[name]
    return next(option.default for option in options(node.type) if option.name == name)
