"""The plan of a pipeline: which stage reads from which, in order, and where host and device meet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from streamkit.alarms import KINDS
from streamkit.alarms import STAGE as ALARMS
from streamkit.emit.emitter import Emitter
from streamkit.errors import ConfigError, Problem
from streamkit.media.uris import mask
from streamkit.objects import check_gaps, check_labels, check_of
from streamkit.occasions import strange
from streamkit.plan import DECODE, Config, Insert, RunOptions, SourceConfig, StageConfig
from streamkit.privacy import check_hidden
from streamkit.rules.checking import check_rules
from streamkit.stage import BatchStage, Composite, FrameStage, Sink, Stage, StreamStage
from streamkit.words import check_words, words_read
from streamkit.yamlfile import Node as YamlNode
from streamkit.yamlfile import did_you_mean


@dataclass(slots=True)
class Node:
    """One stage of the graph.

    Attributes:
        id: the stage's id; `detect.infer` for a part of a composite.
        type: its class.
        options: what its constructor takes.
        inputs: ids of the stages it reads from; `decode` for the decoded frames.
        readers: ids of the stages that read from it.
        run: the runner's options.
        available: what can be read after it.
        place: where it stands in the YAML, for messages.
        in_place: whether a stage that draws may draw on the surfaces it is given: nothing else reads them.
    """

    id: str
    type: type[Stage]
    options: dict[str, Any]
    inputs: list[str]
    run: RunOptions
    place: YamlNode
    readers: list[str] = field(default_factory=list)
    available: frozenset[str] = frozenset()
    in_place: bool = False

    @property
    def table(self) -> str:
        """The name of the table that a detector makes: the id of its stage in the YAML."""
        return self.id.split(".", 1)[0]

    @property
    def on_device(self) -> bool:
        """Whether the stage's arrays are on the pipeline's device; the others work on the host."""
        return issubclass(self.type, BatchStage)


@dataclass(slots=True)
class Graph:
    """A checked pipeline.

    Attributes:
        sources: the sources, in the order of the file.
        nodes: the stages by id, each after all it reads from.
        outputs: ids of the stages that read the decoded frames.
        aliases: ids of composites, and the id of the last part of each.
    """

    config: Config
    sources: list[SourceConfig]
    nodes: dict[str, Node]
    outputs: list[str]
    aliases: dict[str, str]

    @property
    def ends(self) -> list[Node]:
        """The stages that nothing reads from."""
        return [node for node in self.nodes.values() if not node.readers]


def build(config: Config) -> Graph:
    """Make the graph of a configuration.

    Raises:
        ConfigError: with every problem of the configuration and of the graph.
    """
    problems = config.problems
    nodes, aliases = _expand(config, problems)
    _check_parts(config, nodes, problems)
    graph = _wired(config, _order(nodes, problems), aliases)
    if not problems:  # with an unknown stage about, what it would have written is not known
        check_words(graph, problems)
        _check_sinks(graph, problems)
        _check_occasions(graph, problems)
        check_of(graph, problems)
        check_labels(graph, problems)
        check_gaps(graph)
        check_hidden(graph, problems)
        for node in graph.nodes.values():
            node.in_place = hasattr(node.type, "in_place") and _sole_reader(graph, node)
    check_rules(graph, problems)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return graph


def with_nodes(graph: Graph, nodes: Iterable[Node]) -> Graph:
    """The pipeline with these nodes in place of its own, each after all it reads from; more sinks, or fewer nodes."""
    mine = {node.id: replace(node, inputs=list(node.inputs), readers=[]) for node in nodes}
    return _wired(graph.config, mine, {name: last for name, last in graph.aliases.items() if last in mine})


def _wired(config: Config, nodes: dict[str, Node], aliases: dict[str, str]) -> Graph:
    """The graph of ordered nodes: each learns who reads from it."""
    graph = Graph(config, config.sources, nodes, [], aliases)
    for node in nodes.values():
        for name in node.inputs:
            (graph.outputs if name == DECODE else nodes[name].readers).append(node.id)
    return graph


def with_source(graph: Graph, source: SourceConfig) -> list[SourceConfig]:
    """The sources of a graph and one more, checked as `build` checks them: stages can read it, sinks can tell it apart.

    Raises:
        ConfigError: with every problem.
    """
    problems: list[Problem] = []
    more = replace(graph, sources=[*graph.sources, source])
    if not set(source.type.writes) >= {word for name in graph.outputs for word in words_read(graph.nodes[name])}:
        check_words(more, problems)
    _check_sinks(more, problems)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return more.sources


def _expand(config: Config, problems: list[Problem]) -> tuple[dict[str, Node], dict[str, str]]:
    """Replace composites by their parts and put inserted stages between them."""
    nodes: dict[str, Node] = {}
    aliases: dict[str, str] = {}
    for stage in config.stages:
        inputs = stage.inputs
        if not issubclass(stage.type, Composite):
            nodes[stage.id] = Node(stage.id, stage.type, stage.options, inputs, stage.run, stage.node)
            continue
        for name, kind, options in _parts(stage, problems):
            id_ = f"{stage.id}.{name}"
            nodes[id_] = Node(id_, kind, options, inputs, stage.run, stage.node)
            inputs, aliases[stage.id] = [id_], id_
    for node in nodes.values():
        node.inputs = [aliases.get(name, name) for name in node.inputs]
    return nodes, aliases


def _parts(stage: StageConfig, problems: list[Problem]) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    composite = stage.type(**stage.options)
    assert isinstance(composite, Composite)
    left = list(stage.insert)
    for part in composite.parts():
        yield part.name, part.type, part.options
        for insert in [i for i in left if i.after == part.name]:
            left.remove(insert)
            yield insert.type.name, insert.type, insert.options
    names = [part.name for part in composite.parts()]
    problems.extend(_misplaced(insert, stage.id, names) for insert in left)


def _misplaced(insert: Insert, id_: str, names: list[str]) -> Problem:
    return insert.node.problem(
        f"{id_} has no part {insert.after!r}{did_you_mean(insert.after, names)}; its parts: {', '.join(names)}"
    )


def _check_parts(config: Config, nodes: dict[str, Node], problems: list[Problem]) -> None:
    """A `from` may name a part of a composite; refuse parts that there are not."""
    known = {DECODE, *nodes}
    broken = {stage.id for stage in config.stages}
    for node in list(nodes.values()):
        for name in node.inputs:
            if name not in known and (name.split(".")[0] in broken and "." in name):
                text = f"{node.id}.from: there is no stage {name!r}{did_you_mean(name, known)}"
                problems.append(node.place.problem(text))


def _order(nodes: dict[str, Node], problems: list[Problem]) -> dict[str, Node]:
    """Sort so that each node comes after its inputs; report a cycle with its whole path."""
    done: dict[str, Node] = {}
    path: list[str] = []
    reported: set[frozenset[str]] = set()

    def visit(name: str) -> None:
        if name in done or name not in nodes:
            return
        if name in path:
            cycle = [*path[path.index(name) :], name]
            if frozenset(cycle) not in reported:
                reported.add(frozenset(cycle))
                text = f"the stages read from each other in a circle: {' -> '.join(reversed(cycle))}"
                problems.append(nodes[name].place.problem(text))
            return
        path.append(name)
        for source in nodes[name].inputs:
            visit(source)
        path.pop()
        done[name] = nodes[name]

    for name in nodes:
        visit(name)
    for node in done.values():
        node.inputs = [name for name in node.inputs if name == DECODE or name in done]
    return done


def _sole_reader(graph: Graph, node: Node) -> bool:
    """Whether the surfaces that come to `node` are read by no other branch, and kept by no sink on the way."""
    while node.inputs != [DECODE]:
        above = graph.nodes[node.inputs[0]]
        if len(node.inputs) > 1 or len(above.readers) > 1 or issubclass(above.type, Sink):
            return False
        node = above
    return len(graph.outputs) == 1


def _check_occasions(graph: Graph, problems: list[Problem]) -> None:
    """A sink acts on events of the stages above it: refuse names of others."""
    for node in graph.nodes.values():
        if not issubclass(node.type, Sink):
            continue
        place = node.place.follow(["when"])[0]
        others = {ALARMS: KINDS} if graph.config.alarms and issubclass(node.type, Emitter) else {}
        told = strange(node.options.get("when"), node, graph.nodes, others)
        problems.extend(place.problem(f"{node.id}: {text}") for text in told)
        if not node.type.wants_packets:
            continue
        if graph.sources and not any(getattr(source.type, "reads_packets", False) for source in graph.sources):
            text = "records the packets of videos and cameras, and no source here has any"
            problems.append(node.place.problem(f"{node.id} {text}"))


def _check_sinks(graph: Graph, problems: list[Problem]) -> None:
    """Refuse two sinks, or two sources, that would write one file, and two formats on standard output."""
    claimed: dict[str, Node] = {}
    for node in graph.nodes.values():
        if not issubclass(node.type, Sink):
            continue
        option = node.type.target or "path"
        path, place = node.options.get(option), node.place.follow([option])[0]
        if not isinstance(path, str):
            continue
        if getattr(node.type, "one_source", False) and "{source}" not in path and len(graph.sources) > 1:
            what = f"{len(graph.sources)} sources into the one {'file ' if option == 'path' else ''}{mask(path)}"
            problems.append(place.problem(f'{node.id}: {what}; write "{{source}}" into the {option}'))
        if node.options.get("encoder") == "copy" and _drawn(graph, node):
            text = (
                "encoder: copy takes the source's own packets, without what is drawn above it; read from decode instead"
            )
            problems.append(node.place.follow(["encoder"])[0].problem(f"{node.id}: {text}"))
        file, name = os.path.normpath(path), "standard output" if path == "-" else mask(path)
        if file in claimed and (path != "-" or claimed[file].type is not node.type):
            text = f"{node.id}: {claimed[file].id} writes {name} already; give it a path of its own"
            problems.append(place.problem(text))
        claimed[file] = node


def _drawn(graph: Graph, node: Node) -> bool:
    """Whether a stage above changes the pictures."""
    above = [graph.nodes[name] for name in node.inputs if name != DECODE]
    return any("pixels" in one.type.writes or _drawn(graph, one) for one in above)


# --------------------------------------------------------------------------------------------------------- pictures


def kind_name(kind: type[Stage]) -> str:
    """The kind of a stage in a word of the design: source, batch, stream, frame, sink."""
    for base, name in ((BatchStage, "batch"), (StreamStage, "stream"), (FrameStage, "frame"), (Sink, "sink")):
        if issubclass(kind, base):
            return name
    return "source"


def crossings(graph: Graph, node: Node) -> list[str]:
    """What crosses between device and host on the way into `node`, as `run.py graph` says it."""
    found = []
    for name in node.inputs:
        above = graph.nodes.get(name)
        if above is not None and above.on_device and "detections" in above.type.writes:
            found.append(f"{name} -> {node.id}: the table goes from device to host, one copy a batch")
    crossing = getattr(node.type, "crossing", None)
    if crossing and not ("pixels" in node.type.reads_if.values() and "pixels" not in words_read(node)):
        found.append(f"{node.id}: {crossing}")
    elif issubclass(node.type, Sink) and "pixels" in words_read(node):
        found.append(f"{node.id}: pixels stay on the device with nvenc, and go to the host with the cpu encoder")
    if node.on_device and "pixels" in node.type.writes:
        found.append(f"{node.id}: what to draw goes from host to device, one copy a batch")
    return found


def as_text(graph: Graph, device: str) -> str:
    """The graph for a terminal: sources with their addresses, secrets masked; each stage with its inputs; crossings."""
    lines = [f"{source.id}: {mask(str(source.options.get('uri', source.type.name)))}" for source in graph.sources]
    width = max((len(node.id) for node in graph.nodes.values()), default=0)
    lines.append(f"{DECODE:<{width}}  frames    {device}")
    for node in graph.nodes.values():
        where = device if node.on_device else "host"
        lines.append(
            f"{node.id:<{width}}  {kind_name(node.type):<8}  {where:<6}  from {', '.join(node.inputs)}"
            + (f"  adds {', '.join(node.type.writes)}" if node.type.writes else "")
        )
    if device != "cpu":
        lines.extend(f"crossing  {text}" for node in graph.nodes.values() for text in crossings(graph, node))
    return "\n".join(lines)


def as_mermaid(graph: Graph, device: str) -> str:
    """The graph as a Mermaid flow chart; a dotted arrow where host and device meet."""
    names = {id_: f"s{i}" for i, id_ in enumerate([DECODE, *graph.nodes])}
    lines = ["flowchart LR", *(f'    in{i}(["{source.id}"]) --> s0' for i, source in enumerate(graph.sources))]
    lines.append(f'    s0["{DECODE}"]')
    for node in graph.nodes.values():
        shape = '[/"{}"/]' if issubclass(node.type, Sink) else '["{}"]'
        lines.append(f"    {names[node.id]}{shape.format(node.id)}")
        for name in node.inputs:
            above = name == DECODE or graph.nodes[name].on_device
            arrow = "-.->" if device != "cpu" and above != node.on_device else "-->"
            lines.append(f"    {names[name]} {arrow} {names[node.id]}")
    return "\n".join(lines)
