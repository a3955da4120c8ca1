"""What a pipeline's YAML says, as values: the outcome of `config`, the input of `graph`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.errors import Problem
from streamkit.fault import Fault
from streamkit.stage import Registry, Stage
from streamkit.yamlfile import Node

if TYPE_CHECKING:
    from streamkit.alarms import AlarmConfig

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
    node: Node
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
    node: Node


@dataclass(slots=True)
class Insert:
    """A stage put between the parts of a composite."""

    after: str
    type: type[Stage]
    options: dict[str, Any]
    node: Node


@dataclass(slots=True)
class Config:
    """A pipeline as its YAML says it, checked but for what only the graph can tell."""

    file: str
    folder: Path
    registry: Registry
    device: str | list[str] = "auto"
    batch: BatchOptions = field(default_factory=BatchOptions)
    watchdog_s: float = 30.0
    state: Path | None = None
    sources: list[SourceConfig] = field(default_factory=list)
    stages: list[StageConfig] = field(default_factory=list)
    alarms: list[AlarmConfig] = field(default_factory=list)
    tests: list[Node] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
