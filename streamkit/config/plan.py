# SPDX-License-Identifier: Apache-2.0
"""A pipeline as values: `Config`, as `pipeline_config` reads it, and `Graph`, as `graph` builds it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from streamkit.config.alarms import AlarmConfig
from streamkit.config.source_details import SourceDetails
from streamkit.core.errors import Problem
from streamkit.core.fault_schedule import Fault
from streamkit.core.masking import mask_address
from streamkit.core.stage import BatchStage, Registry, Sink, Stage, ships
from streamkit.core.units import Count, Seconds, Unit
from streamkit.core.yaml_tree import YamlNode

DECODE = "decode"
"""The id of the decoded frames, which stages read from without any stage of that name."""


_DEVICE = r"auto|cpu|cuda(:\d+)?"


_DEVICE_NAME = {"type": "string", "pattern": f"^({_DEVICE})$"}
_DEVICE_LIST = {"type": "array", "items": _DEVICE_NAME, "minItems": 1, "uniqueItems": True}
_DEVICE_SCHEMA = {"anyOf": [_DEVICE_NAME, _DEVICE_LIST]}


def _device(device: Any) -> Any:
    """Return the value; raise ValueError if it names no device, an unknown one, one twice, or `auto` among several."""
    names = device if isinstance(device, list) else [device]
    if not names:
        raise ValueError("must name a device; leave it out for auto")
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(_DEVICE, name):
            raise ValueError("must be auto, cpu, cuda or cuda:N")
    if "auto" in names and len(names) > 1:
        raise ValueError("must name each device of a list, as in [cuda:0, cuda:1], since auto selects a single one")
    times = Counter("cuda:0" if name == "cuda" else name for name in names)
    if len(times) < len(names):
        each = next(iter(times)) if len(times) == 1 else f"[{', '.join(times)}]"
        raise ValueError(
            "must list each device once: the number of processes on a GPU is chosen automatically, and device: "
            f"{{use: {each}, processes: {max(times.values())}}} sets it"
        )
    return device


def _state_file(path: Any) -> str:
    if isinstance(path, str) and path[-1:] not in ("", "/"):
        return path
    raise ValueError("must name a file, such as state.db")


@dataclass(slots=True)
class RunOptions:
    """Options of a stage that only the runner reads."""

    name: ClassVar[str] = "run"

    queue: Annotated[Count, "batches that may wait before the stage"] = 4
    on_error: Annotated[
        Literal["skip", "stop"],
        "skip marks a frame as failed if the stage raises, and continues; stop ends the run",
    ] = "skip"
    instances: Annotated[Count | None, "parallel copies of a batch stage; if not set, the runner chooses"] = None


@dataclass(slots=True)
class BatchOptions:
    """Maximum number of frames in a batch; or size, max_wait and max_latency."""

    name: ClassVar[str] = "batch"

    size: Annotated[
        Annotated[int, Unit("frames", minimum=1, maximum=1024)] | None,
        "maximum number of frames in a batch; if not set, the runner chooses",
    ] = None
    max_wait: Annotated[Seconds, "how long the oldest frame may wait for more"] = 0.04
    max_latency: Annotated[
        Seconds | None, "maximum age of a live frame at the end of the graph; if not set, the runner chooses"
    ] = None


@dataclass(slots=True)
class DeviceOptions:
    """Where a pipeline runs, and how many processes share each device."""

    name: ClassVar[str] = "device"

    use: Annotated[
        str | list[str],
        Unit("device", _device, schema=_DEVICE_SCHEMA),
        "auto uses a GPU if there is one; auto, cpu, cuda, cuda:1, or several: [cuda:0, cuda:1]",
    ] = "auto"
    processes: Annotated[
        Literal["auto"] | Count,
        "processes on each device; auto chooses by the sources, the stages, the cores and the memory",
    ] = "auto"


@dataclass(slots=True)
class PipelineOptions:
    """Options of the pipeline as a whole, at the top level of the YAML."""

    name: ClassVar[str] = "a pipeline"

    device: Annotated[
        str | list[str],
        Unit("device", _device, schema=_DEVICE_SCHEMA),
        "auto uses a GPU if there is one; auto, cpu, cuda, cuda:1, or several: [cuda:0, cuda:1]; or use and processes",
    ] = "auto"
    batch: Annotated[BatchOptions, BatchOptions.__doc__] = field(default_factory=BatchOptions)
    watchdog: Annotated[Seconds, "a stage whose call lasts longer is reported, with its stack"] = 30.0
    state: Annotated[
        Annotated[Path, Unit("file", _state_file, pattern="[^/]$")] | None,
        "a file that keeps what was added, removed, paused or changed while the pipeline ran",
    ] = None


class Unread(Stage):
    """The place of a stage that cannot be read, for the checks of the other stages. A graph that runs has none."""


@dataclass(slots=True)
class SourceConfig:
    """One source: its id, its stage class and options, the faults that the runner injects, and what people call it."""

    id: str
    type: type[Stage]
    options: dict[str, Any]
    node: YamlNode
    fault: Fault | None = None
    details: SourceDetails = field(default_factory=SourceDetails)


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
    """A pipeline as its YAML describes it, checked except for what needs the graph.

    Attributes:
        text: the YAML's text, as it was read; None if the pipeline has no file.
        device: the device, or several, as the YAML names them.
        device_place: where the YAML names it; None if it does not.
        processes: processes on each device; None lets the runtime choose.
        unread_sources: ids of entries of `sources` that cannot be read, with their class; None if that is unknown.
        sources_complete: whether every source is in `sources` or `unread_sources`.
        alarms_complete: whether every alarm is in `alarms`.
        missing: by source, why there is no file to read; the texts are among the warnings, as a file may come later.
    """

    file: str
    folder: Path
    registry: Registry
    text: str | None = None
    plugins_failed: bool = False
    device: str | list[str] = "auto"
    device_place: YamlNode | None = None
    processes: int | None = None
    batch: BatchOptions = field(default_factory=BatchOptions)
    watchdog_s: float = 30.0
    state: Path | None = None
    sources: list[SourceConfig] = field(default_factory=list)
    stages: list[StageConfig] = field(default_factory=list)
    alarms: list[AlarmConfig] = field(default_factory=list)
    tests: list[YamlNode] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    unread_sources: dict[str, type[Stage] | None] = field(default_factory=dict)
    sources_complete: bool = True
    alarms_complete: bool = True
    missing: dict[str, Problem] = field(default_factory=dict)

    def may_have_source(self, id_: str) -> bool:
        """Whether there is a source with this id, or may be one among those that cannot be read."""
        if not self.sources_complete or any(
            id_ == unread or id_.startswith(f"{unread}/") for unread in self.unread_sources
        ):
            return True
        return any(source.id == id_ for source in self.sources)


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
    def writes(self) -> tuple[str, ...]:
        """The words that it writes with its current options."""
        more = tuple(word for option, word in self.type.spec.writes_if.items() if self.options.get(option))
        return (*self.type.spec.writes, *more)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes that a detector knows, by its prompts, model card or options; empty if unknown before the run."""
        if name := self.type.spec.labels_attribute:
            return tuple(getattr(self.type(**self.options), name) or ())
        if prompts := self.options.get("prompts"):
            return tuple(prompts)
        return tuple(getattr(self.options.get("model"), "labels", ()))

    def problem(self, text: str, *path: Any) -> Problem:
        """A problem at the value of `path` in the stage's options; at the stage without a path."""
        return self.place.follow(path)[0].problem(text)

    @property
    def on_device(self) -> bool:
        """Whether the stage's arrays are on the pipeline's device; other stages work on the host."""
        return issubclass(self.type, BatchStage) or self.type.spec.on_device

    @property
    def keeps_states(self) -> bool:
        """Whether the stage keeps something of earlier batches, so that one thread calls it with them in order."""
        return not issubclass(self.type, BatchStage)


@dataclass(slots=True)
class Graph:
    """A checked pipeline.

    Attributes:
        sources: the sources, in the order of the file.
        nodes: the stages by id, each after its inputs.
        outputs: ids of the stages that read the decoded frames.
        aliases: ids of composites, and the id of the last part of each.
        uncertain: ids of the stages for which it is not certain what is above them, because something there cannot be
            read. A graph that runs has none.
    """

    config: Config
    sources: list[SourceConfig]
    nodes: dict[str, Node]
    outputs: list[str]
    aliases: dict[str, str]
    uncertain: frozenset[str] = frozenset()

    @property
    def certain(self) -> list[Node]:
        """The stages that can be checked against what is above them."""
        return [node for node in self.nodes.values() if node.id not in self.uncertain]

    def may_have_stage(self, id_: str) -> bool:
        """Whether there is a stage with this id, or may be one among the parts of those that cannot be read."""
        base = self.nodes.get(id_.split(".", 1)[0])
        return id_ in self.nodes or (base is not None and base.type is Unread)

    @property
    def output_paths(self) -> list[str]:
        """The paths that stages write files and folders to, as templates with `{source}` and other names."""
        return [target for target in self._targets if "://" not in target]

    @property
    def output_addresses(self) -> list[str]:
        """The addresses that stages send to, without their secrets."""
        return [mask_address(target) for target in self._targets if "://" in target]

    @property
    def _targets(self) -> list[str]:
        """What the stages write or send to, of their options `path` and `url`."""
        nodes = self.nodes.values()
        writers = [
            node for node in nodes if issubclass(node.type, Sink) or (node.type.spec.target and ships(node.type))
        ]
        targets = []
        for node in writers:
            target = node.options.get("path", getattr(node.type, "path", None)) or node.options.get("url")
            if isinstance(target, str) and target != "-":
                targets.append(target)
        return targets

    @property
    def ends(self) -> list[Node]:
        """The stages that no other stage reads from."""
        return [node for node in self.nodes.values() if not node.readers]


def stages_above(nodes: Mapping[str, Node], node: Node) -> dict[str, Node]:
    """The stages that `node` reads from, directly or indirectly, by id and the nearest first.

    Each is visited once: the number of paths through branches that meet repeatedly grows exponentially.
    """
    stages: dict[str, Node] = {}
    todo = list(node.inputs)
    for name in todo:
        if name in nodes and name not in stages:
            stages[name] = nodes[name]
            todo += nodes[name].inputs
    return stages
