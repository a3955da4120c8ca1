"""Which device has which sources, and which sinks its sources have in common with those of another."""

from __future__ import annotations

from streamkit.errors import ConfigError
from streamkit.plan import Graph, Node
from streamkit.stage import Sink


def share_out(graph: Graph) -> list[tuple[str, list[str]]]:
    """Each device of the pipeline with the ids of its sources: in turn, in the order of the YAML.

    Devices that no source is left for are not among them.

    Raises:
        ConfigError: a sink that needs pixels would get them from several processes, or `state` several processes'.
    """
    wanted = graph.config.device
    devices = wanted if isinstance(wanted, list) else [wanted]
    sources = [source.id for source in graph.sources]
    count = max(1, min(len(devices), len(sources)))
    shares = [(device, sources[i :: len(devices)]) for i, device in enumerate(devices[:count])]
    if len(shares) > 1:
        if graph.config.state is not None:
            raise ConfigError("state keeps the changes of one process, and each device has its own; name one device")
        problems = [
            node.place.problem(
                f"{node.id} reads pixels of sources on several devices, and pixels never leave theirs; {_way_out(node)}"
            )
            for node in shared_sinks(graph)
            if "pixels" in node.reads
        ]
        if problems:
            raise ConfigError(problems)
    return shares


def shared_sinks(graph: Graph) -> list[Node]:
    """The sinks of which several sources have one instance: those without `{source}` in their path.

    One that wants packets is where the packets are, and each device has its own; likewise one that always wants
    pixels and has all sources.
    """
    return [
        node
        for node in graph.nodes.values()
        if issubclass(node.type, Sink)
        and not node.type.wants_packets
        and not ("pixels" in node.type.reads and not node.type.target)
        and "{source}" not in str(node.options.get(node.type.target))
    ]


def _way_out(node: Node) -> str:
    for option in node.type.reads_if:
        if node.options.get(option):
            return f"leave out {option}, or name one device"
    return 'write "{source}" into its path, so that each source has its own, or name one device'
