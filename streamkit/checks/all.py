"""What `run.py check` looks at: the graph, packages, the networks of cards, and the tests in the YAML."""

from __future__ import annotations

from streamkit.checks.networks import check_networks
from streamkit.checks.packages import check_packages
from streamkit.errors import ConfigError, Problem
from streamkit.graph import build
from streamkit.plan import Config, Graph
from streamkit.testcases import form_problems, read_tests


def check(config: Config) -> Graph:
    """Make the graph of a configuration, and check it, its packages, its networks and its tests.

    Raises:
        ConfigError: with every problem of all of them. What the tests say of a graph that is wrong is not looked at,
            but for their form.
    """
    try:
        graph = build(config)
    except ConfigError as error:
        raise ConfigError([*error.problems, *form_problems(config.tests)]) from None
    problems: list[Problem] = []
    for one in (check_packages, check_networks, read_tests):
        try:
            one(graph)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return graph
