"""Assigns sources to processes, and finds the sinks that sources of several processes share."""

from __future__ import annotations

from collections.abc import Sequence

from streamkit.config.plan import Graph, Node
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Sink, scope_of
from streamkit.core.yaml_tree import YamlNode

PIXELS = "reads pixels of sources in several processes, but pixels are never copied between processes"
OF_MAIN = "is a stage of the main script, which other processes do not run"
ONE_PROCESS = "name one device with processes: 1"


def assign_sources(
    graph: Graph, counts: Sequence[int] | None = None, *, keep_running: bool = False
) -> list[tuple[str, list[str]]]:  # fmt: skip
    """Assign the sources to the processes of the pipeline, round robin in the order of the YAML.

    Args:
        graph: the graph.
        counts: processes on each of the first devices, such as `ProcessPlan.counts`; by default the YAML's `processes`,
            or 1, on all of them.
        keep_running: whether sources may be added later.

    Returns:
        Each process by its device, with the ids of its sources. Unless sources may come, processes without a source are
        omitted. Devices come in turn, so that few sources use all of them.

    Raises:
        ConfigError: with several processes, a shared sink needs pixels, a stage has the scope `pipeline`, or a stage is
            defined in the main script.
    """
    wanted = graph.config.device
    devices = wanted if isinstance(wanted, list) else [wanted]
    counts = [graph.config.processes or 1] * len(devices) if counts is None else counts
    processes = [
        device for turn in range(max(counts)) for device, count in zip(devices, counts, strict=False) if turn < count
    ]
    sources = [source.id for source in graph.sources]
    used = len(processes) if keep_running else max(1, min(len(processes), len(sources)))
    shares = [(device, sources[i :: len(processes)]) for i, device in enumerate(processes[:used])]
    if len(shares) > 1:
        problems = [
            node.place.problem(f"{node.id} {PIXELS}; {fix(node)}, or {ONE_PROCESS}") for node in pixel_sinks(graph)
        ]
        problems += [
            node.place.problem(f"{node.id} looks across sources (scope: pipeline); {ONE_PROCESS}")
            for node in graph.nodes.values()
            if scope_of(node.type) == "pipeline"
        ]
        problems += [
            place.problem(f"{id_} {OF_MAIN}; move it to a file and name that under plugins, or {ONE_PROCESS}")
            for id_, place in stages_of_main(graph)
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


def pixel_sinks(graph: Graph) -> list[Node]:
    """The shared sinks that read pixels, which no process has of all sources."""
    return [node for node in shared_sinks(graph) if "pixels" in node.reads]


def fix(node: Node) -> str:
    """What to change at a shared sink that reads pixels, so that several processes can run the pipeline."""
    for option in node.type.spec.reads_if:
        if node.options.get(option):
            return f"leave out {option}"
    return 'write "{source}" into its path, so that each source has its own'


def stages_of_main(graph: Graph) -> list[tuple[str, YamlNode]]:
    """The ids and places of the sources and stages that the main script defines."""
    parts = [(source.id, source.type, source.node) for source in graph.sources]
    parts += [(node.id, node.type, node.place) for node in graph.nodes.values()]
    return [(id_, place) for id_, type_, place in parts if type_.__module__ == "__main__"]
