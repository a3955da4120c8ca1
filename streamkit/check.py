"""What `run.py check` looks at: the graph, the networks that its cards name, and the tests in the YAML."""

from __future__ import annotations

from streamkit.errors import ConfigError, Problem
from streamkit.graph import Graph, build
from streamkit.plan import Config
from streamkit.testcases import form_problems, read_tests


def check(config: Config) -> Graph:
    """Make the graph of a configuration, and check it, its networks and its tests.

    Raises:
        ConfigError: with every problem of all of them. What the tests say of a graph that is wrong is not looked at,
            but for their form.
    """
    try:
        graph = build(config)
    except ConfigError as error:
        raise ConfigError([*error.problems, *form_problems(config.tests)]) from None
    problems: list[Problem] = []
    for one in (check_networks, read_tests):
        try:
            one(graph)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return graph


def check_networks(graph: Graph) -> None:
    """Look at the network of every card that a stage names; no device is touched.

    Raises:
        ConfigError: networks are missing or do not fit their cards; each problem at the `model:` of the YAML.
    """
    from streamkit.models.network import check_model

    problems: list[Problem] = []
    for node in graph.nodes.values():
        card = node.options.get("model")
        if card is None:
            continue
        try:
            check_model(card)
        except ConfigError as error:
            place, _ = node.place.follow(["model"])
            told = f"{node.table}: model card {card.name} ({card.path})"
            problems += [place.problem(f"{told}: {problem.text}") for problem in error.problems]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
