"""A pipeline as values: `Config`, as `pipeline_config` reads it, and `Graph`, as `graph` builds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamkit.config.alarms import AlarmConfig
from streamkit.core.errors import Problem
from streamkit.core.fault_schedule import Fault
from streamkit.core.stage import BatchStage, Registry, Sink, Stage, ships
from streamkit.core.yaml_tree import YamlNode

DECODE = "decode"
"""The id of the decoded frames, which stages read from without any stage of that name."""


@dataclass(slots=True)
class RunOptions:
    """A stage's `run:`; only the runner reads it.

    Attributes:
        queue: batches that may wait before the stage.
        on_error: `skip` marks a frame as failed if the stage raises, and continues; `stop` ends the run.
        instances: parallel copies of a batch stage; None lets the runner choose.
    """

    queue: int = 4
    on_error: str = "skip"
    instances: int | None = None


@dataclass(slots=True)
class BatchOptions:
    """`batch:` in the YAML.

    Attributes:
        size: maximum number of frames in a batch.
        max_wait_s: how long the oldest frame may wait for more, in seconds.
        max_latency_s: maximum age of a live frame at the end of the graph, in seconds; None lets the runner choose.
    """

    size: int | None = None
    max_wait_s: float = 0.04
    max_latency_s: float | None = None


@dataclass(slots=True)
class SourceConfig:
    """One source: its id, its stage class and options, and the faults that the runner injects."""

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
    """A pipeline as its YAML describes it, checked except for what needs the graph."""

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
        options: arguments of its constructor.
        inputs: ids of the stages it reads from; `decode` for the decoded frames.
        readers: ids of the stages that read from it.
        run: the runner's options.
        available: words that can be read after it.
        place: its place in the YAML, for messages.
        in_place: whether a stage that draws may draw on its input surfaces, because nothing else reads them.
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
        """The name of the table that a detector writes: the id of its stage in the YAML."""
        return self.id.split(".", 1)[0]

    @property
    def reads(self) -> tuple[str, ...]:
        """The words that it reads with its current options."""
        more = tuple(word for option, word in self.type.spec.reads_if.items() if self.options.get(option))
        return (*self.type.spec.reads, *more)

    @property
    def on_device(self) -> bool:
        """Whether the stage's arrays are on the pipeline's device; other stages work on the host."""
        return issubclass(self.type, BatchStage)


@dataclass(slots=True)
class Graph:
    """A checked pipeline.

    Attributes:
        sources: the sources, in the order of the file.
        nodes: the stages by id, each after its inputs.
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
        """The paths that stages write files and folders to, as templates with `{source}` and other names."""
        writers = [node for node in self.nodes.values() if issubclass(node.type, Sink) or ships(node.type)]
        found = [node.options.get("path", getattr(node.type, "path", None)) for node in writers]
        return [path for path in found if isinstance(path, str) and path != "-"]

    @property
    def ends(self) -> list[Node]:
        """The stages that no other stage reads from."""
        return [node for node in self.nodes.values() if not node.readers]


def stages_above(nodes: Mapping[str, Node], node: Node) -> dict[str, Node]:
    """The stages that `node` reads from, directly or indirectly, by id and the nearest first.

    Each is visited once: the number of paths through branches that meet repeatedly grows exponentially.
    """
    found: dict[str, Node] = {}
    todo = list(node.inputs)
    for name in todo:
        if name in nodes and name not in found:
            found[name] = nodes[name]
            todo += nodes[name].inputs
    return found
