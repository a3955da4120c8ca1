# SPDX-License-Identifier: Apache-2.0
"""What `streamkit check` checks: the graph, packages, the networks of cards, files, and the tests in the YAML."""

from __future__ import annotations

from collections.abc import Callable

from streamkit.config.checks.first_frames import check_first_frames
from streamkit.config.checks.stages import check_networks, check_packages
from streamkit.config.graph import assemble
from streamkit.config.plan import Config, Graph
from streamkit.core.errors import ConfigError, Problem, StreamkitError
from streamkit.runtime.execution.device import gpu_trouble
from streamkit.testing.yaml_tests import read_tests


def check(config: Config, *, placement: Callable[[Graph], object] | None = None, open_files: bool = False) -> Graph:
    """Build the graph of a configuration, and check it, its packages, its networks and its tests.

    Args:
        config: the configuration; what may be wrong is added to its `warnings`.
        placement: checks whether the devices and processes can run the graph; may raise StreamkitError. It is called
            only with a graph that could be read as a whole.
        open_files: whether to open the files among the sources, and the GPUs that `device` names.

    Raises:
        ConfigError: with every problem of all of them. What depends on a part that cannot be read is not checked.
    """
    graph, problems = assemble(config)
    checks: list[Callable[[Graph], object]] = [check_packages, check_networks, read_tests]
    is_whole = not graph.uncertain and not config.unread_sources and config.sources_complete
    if placement is not None and is_whole:
        checks.append(placement)
    for check_graph in checks:
        try:
            check_graph(graph)
        except ConfigError as error:
            problems += error.problems
        except StreamkitError as error:
            problems.append(Problem(config.file, 0, 0, str(error)))
    if open_files:
        check_first_frames(graph)
        _check_gpus(config)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return graph


def _check_gpus(config: Config) -> None:
    """Warn of each GPU that `device` names and this machine does not have."""
    names = config.device if isinstance(config.device, list) else [config.device]
    for name in names:
        if name in ("auto", "cpu"):
            continue
        trouble = gpu_trouble(int(name.partition(":")[2] or 0))
        if trouble is not None:
            text = f"device {name} cannot be used on this machine: {trouble}"
            place = config.device_place
            warning = Problem(config.file, 0, 0, text) if place is None else place.problem(text)
            config.warnings.append(warning)
