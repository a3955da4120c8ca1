"""Checks that the networks of model cards exist and fit them."""

from __future__ import annotations

from streamkit.config.plan import Graph
from streamkit.core.errors import ConfigError, MissingPackage, Problem


def check_networks(graph: Graph) -> None:
    """Check the network of every card that a stage names; no device is used.

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
        except MissingPackage:
            continue  # a problem that `check_packages` reports
        except ConfigError as error:
            place, _ = node.place.follow(["model"])
            told = f"{node.table}: model card {card.name} ({card.path})"
            problems += [place.problem(f"{told}: {problem.text}") for problem in error.problems]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
