# SPDX-License-Identifier: Apache-2.0
"""Assigns sources to processes, and finds the stages that the parent process runs for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamkit.config.graph import with_nodes
from streamkit.config.plan import Graph, Node, stages_above
from streamkit.core.errors import ConfigError
from streamkit.core.stage import Sink, scope_of
from streamkit.core.yaml_tree import YamlNode
from streamkit.runtime.execution.graph_outputs import GraphOutputs
from streamkit.runtime.execution.lane import partition

PIXELS = "reads pixels of sources in several processes, but pixels are never copied between processes"
OF_MAIN = "is a stage of the main script, which other processes do not run"
ONE_PROCESS = "name one device with processes: 1"
ACROSS = "looks across sources (scope: pipeline)"
_BATCH_FIELDS = {"pixels": "pixels", "tensor": "tensors", "outputs": "network outputs"}
"""What never leaves the process of a source: the words of `reads`, as text for the user."""


def assign_sources(
    graph: Graph, counts: Sequence[int] | None = None, *, keep_running: bool = False
) -> list[tuple[str, list[str]]]:
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
        ConfigError: with several processes, a shared sink needs pixels, the parent process cannot run a stage that
            looks across sources or one below it, or a stage is defined in the main script.
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
        problems += [node.place.problem(f"{text}, or {ONE_PROCESS}") for node, text in problems_across_sources(graph)]
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
    pixels and has no path. Those among `stages_across_sources` are left out.
    """
    across = stages_across_sources(graph)
    return [
        node
        for node in graph.nodes.values()
        if issubclass(node.type, Sink)
        and node.id not in across
        and not node.type.spec.wants_packets
        and not ("pixels" in node.type.spec.reads and not node.type.spec.target)
        and "{source}" not in str(node.options.get(node.type.spec.target))
    ]


def stages_across_sources(graph: Graph) -> dict[str, Node]:
    """The stages that look across sources (scope `pipeline`) and all stages below them, by id, each after its inputs.

    With several processes, the parent process runs them.
    """
    stages: dict[str, Node] = {}
    for node in graph.nodes.values():
        if scope_of(node.type) == "pipeline" or any(name in stages for name in node.inputs):
            stages[node.id] = node
    return stages


def entries(across: Mapping[str, Node]) -> list[Node]:
    """The first of `stages_across_sources`: they read from stages of the worker processes only."""
    return [node for node in across.values() if not any(name in across for name in node.inputs)]


def without_stages_across_sources(graph: Graph) -> Graph:
    """The part of a graph above its `stages_across_sources`."""
    across = stages_across_sources(graph)
    return with_nodes(graph, [node for node in graph.nodes.values() if node.id not in across]) if across else graph


def counted_across_sources(graph: Graph) -> set[str]:
    """The stages and tables whose events and objects are counted at an end among `stages_across_sources`."""
    across = stages_across_sources(graph)
    counted = GraphOutputs(graph, partition(graph), None).counted if across else {}
    return {id_ for end, ids in counted.items() if end in across for id_ in ids}


def problems_across_sources(graph: Graph) -> list[tuple[Node, str]]:
    """The `stages_across_sources` that the parent process cannot run: what each lacks there, and what to change.

    Of a composite such as `classify`, only the first part is named.
    """
    across = stages_across_sources(graph)
    problems = dict[str, tuple[Node, str]]()
    for node in across.values():
        above = stages_above(across, node)
        tops = [entry for entry in entries(across) if entry is node or entry.id in above]
        missing = next((text for word, text in _BATCH_FIELDS.items() if word in node.reads), "")
        missing = "packets" if node.type.spec.wants_packets else missing
        if missing and scope_of(node.type) == "pipeline":
            text = f"{ACROSS} and reads {missing}, which never leave the process of a source; {_leave_out(node)}"
        elif missing:
            text = f"reads {missing} below {tops[0].id}, which {ACROSS}; {_move_above(graph, node, tops[0])}"
        elif len(tops) > 1 or (above and not all(name in across for name in node.inputs)):
            text = f"joins branches below {tops[0].id}, which {ACROSS}; let {tops[0].id} read from the joined branches"
        else:
            continue
        problems.setdefault(node.table, (node, f"{node.id} {text}"))
    return list(problems.values())


def _leave_out(node: Node) -> str:
    """How a stage that looks across sources can do without pixels."""
    set_ = [option for option in node.type.spec.reads_if if node.options.get(option)]
    return f"leave out {set_[0]}" if set_ else "compute what it needs in a stage above it, as a column or an event"


def _move_above(graph: Graph, node: Node, top: Node) -> str:
    """How a stage gets frames that have not passed `top`, which looks across sources."""
    if node.table == top.table:
        return f"move {top.id} below {node.table}"
    name = top.inputs[0]
    return f"set from: {graph.nodes[name].table if name in graph.nodes else name} at {node.table}"


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
