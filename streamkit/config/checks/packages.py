"""Checks that the packages that stages need are installed."""

from __future__ import annotations

from streamkit.config.plan import Graph
from streamkit.core.errors import ConfigError, MissingPackage, Problem, StreamkitError


def check_packages(graph: Graph) -> None:
    """Probe every stage for missing packages of install extras; nothing is opened.

    Raises:
        ConfigError: packages are missing; each problem at the stage that needs it, with the command that installs it.
    """
    problems: list[Problem] = []
    for node in graph.nodes.values():
        try:
            node.type(**node.options).probe()
        except MissingPackage as error:
            problems.append(node.place.problem(f"{node.table}: {error}"))
        except StreamkitError:
            pass  # an encoder or a protocol that is not there: `run` says so for the device that it takes
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
