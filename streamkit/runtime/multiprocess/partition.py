"""Assigns sources to devices, and finds the sinks that sources on several devices share."""

from __future__ import annotations

from streamkit.config.plan import Graph, Node
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Sink


def assign_sources(graph: Graph) -> list[tuple[str, list[str]]]:
    """Assign the sources to the devices of the pipeline, round robin in the order of the YAML.

    Returns:
        Each device with the ids of its sources; devices without a source are omitted.

    Raises:
        ConfigError: with several devices, a shared sink needs pixels, a stage is defined in the main script, or `state`
            is set.
    """
    wanted = graph.config.device
    devices = wanted if isinstance(wanted, list) else [wanted]
    sources = [source.id for source in graph.sources]
    count = max(1, min(len(devices), len(sources)))
    shares = [(device, sources[i :: len(devices)]) for i, device in enumerate(devices[:count])]
    if len(shares) > 1:
        if graph.config.state is not None:
            raise ConfigError("state supports one process, but each device has its own; name one device")
        parts = [(source.id, source.type, source.node) for source in graph.sources]
        parts += [(node.id, node.type, node.place) for node in graph.nodes.values()]
        problems = [
            place.problem(
                f"{id_} is a stage of the main script, which the processes of several devices do not run; move it to a "
                "file and name that under plugins, or name one device"
            )
            for id_, type_, place in parts
            if type_.__module__ == "__main__"
        ]
        problems += [
            node.place.problem(
                f"{node.id} reads pixels of sources on several devices, but pixels are never copied between devices; "
                f"{_fix(node)}"
            )
            for node in shared_sinks(graph)
            if "pixels" in node.reads
        ]
        if problems:
            raise ConfigError(problems)
    return shares


def shared_sinks(graph: Graph) -> list[Node]:
    """The sinks that several sources share: those without `{source}` in their path.

    A sink that wants packets runs in each worker process, where the packets are; so does a sink that always needs
    pixels and has no path.
    """
    return [
        node
        for node in graph.nodes.values()
        if issubclass(node.type, Sink)
        and not node.type.spec.wants_packets
        and not ("pixels" in node.type.spec.reads and not node.type.spec.target)
        and "{source}" not in str(node.options.get(node.type.spec.target))
    ]


def _fix(node: Node) -> str:
    for option in node.type.spec.reads_if:
        if node.options.get(option):
            return f"leave out {option}, or name one device"
    return 'write "{source}" into its path, so that each source has its own, or name one device'
