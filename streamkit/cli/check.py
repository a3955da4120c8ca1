# SPDX-License-Identifier: Apache-2.0
"""What `streamkit check` checks: the graph, packages, the networks of cards, and the tests in the YAML."""

from __future__ import annotations

from streamkit.config.checks.stages import check_networks, check_packages
from streamkit.config.graph import build
from streamkit.config.plan import Config, Graph
from streamkit.core.errors import ConfigError, Problem
from streamkit.testing.yaml_tests import form_problems, read_tests


def check(config: Config) -> Graph:
    """Build the graph of a configuration, and check it, its packages, its networks and its tests.

    Raises:
        ConfigError: with every problem of all of them. If the graph has problems, only the form of the tests is
            checked.
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
