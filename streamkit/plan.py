"""A pipeline as values: what its YAML says, as `config` reads it, and the graph that `graph` makes of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamkit.alarms import AlarmConfig
from streamkit.errors import Problem
from streamkit.fault import Fault
from streamkit.stage import BatchStage, Registry, Sink, Stage, ships
from streamkit.yamlfile import Node as YamlNode

DECODE = "decode"
"""The id of the decoded frames, which stages read from without any stage of that name."""


@dataclass(slots=True)
class RunOptions:
    """What a stage's `run:` says; for the runner, the stage never sees it.

    Attributes:
        queue: batches that may wait before the stage.
        on_error: `skip` marks a frame that raises and goes on; `stop` ends the run.
        instances: copies of a batch stage that work side by side; None leaves it to the runner.
    """

    queue: int = 4
    on_error: str = "skip"
    instances: int | None = None


@dataclass(slots=True)
class BatchOptions:
    """`batch:` in the YAML.

    Attributes:
        size: frames a batch holds at most.
        max_wait_s: how long its oldest may wait for more.
        max_latency_s: how old a live frame may be at the end of the graph; None leaves it to the runner.
    """

    size: int | None = None
    max_wait_s: float = 0.04
    max_latency_s: float | None = None


@dataclass(slots=True)
class SourceConfig:
    """One source: its id, its stage class, that stage's options, and for the runner its faults on purpose."""

    id: str
    type: type[Stage]
    options: dict[str, Any]
    node: YamlNode
    fault: Fault | None = None


@dataclass(slots=True)
class StageConfig:
    """One entry of `stages:`."""

    id: str
    type: type[Stage]
    options: dict[str, Any]
    inputs: list[str]
    run: RunOptions
    insert: list[Insert]
    node: YamlNode


@dataclass(slots=True)
class Insert:
    """A stage put between the parts of a composite."""

    after: str
    type: type[Stage]
    options: dict[str, Any]
    node: YamlNode


@dataclass(slots=True)
class Config:
    """A pipeline as its YAML says it, checked but for what only the graph can tell."""

    file: str
    folder: Path
    registry: Registry
    plugins_failed: bool = False
    device: str | list[str] = "auto"
    batch: BatchOptions = field(default_factory=BatchOptions)
    watchdog_s: float = 30.0
    state: Path | None = None
    sources: list[SourceConfig] = field(default_factory=list)
    stages: list[StageConfig] = field(default_factory=list)
    alarms: list[AlarmConfig] = field(default_factory=list)
    tests: list[YamlNode] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)


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
    def reads(self) -> tuple[str, ...]:
        """The words of what it reads, with the options that it has."""
        more = tuple(word for option, word in self.type.reads_if.items() if self.options.get(option))
        return (*self.type.reads, *more)

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
    def output_paths(self) -> list[str]:
        """The paths of files and folders that stages write, with `{source}` and other names in them."""
        writers = [node for node in self.nodes.values() if issubclass(node.type, Sink) or ships(node.type)]
        found = [node.options.get("path", getattr(node.type, "path", None)) for node in writers]
        return [path for path in found if isinstance(path, str) and path != "-"]

    @property
    def ends(self) -> list[Node]:
        """The stages that nothing reads from."""
        return [node for node in self.nodes.values() if not node.readers]


def stages_above(nodes: Mapping[str, Node], node: Node) -> dict[str, Node]:
    """The stages that `node` reads from, directly or through others, by id and the nearest first.

    Each is visited once: branches that meet again and again have more ways through them than anybody can walk.
    """
    found: dict[str, Node] = {}
    todo = list(node.inputs)
    for name in todo:
        if name in nodes and name not in found:
            found[name] = nodes[name]
            todo += nodes[name].inputs
    return found
