# SPDX-License-Identifier: Apache-2.0
"""What the head and its nodes send to each other over Ray, and how long each waits for the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamkit.core.data import Event
from streamkit.core.logs import StoredMessage
from streamkit.runtime.multiprocess.messages import SourceOrder
from streamkit.runtime.observe.alarms import ActiveAlarm
from streamkit.runtime.observe.report_merge import WorkerReport

LEASE_S = 6.0
"""A node stops its sources if the head has not acknowledged a report for so long. A library may hold the GIL for a few
seconds while it loads a network; see `SILENT_S` of `runtime/multiprocess/worker_handle.py`."""
LOST_S = 9.0
"""The head gives a node's sources to others if it has had no report for so long. By then the node has stopped them: its
lease began when it sent the last report that the head acknowledged, which is before the head received that one."""


@dataclass(frozen=True, slots=True)
class NodeJob:
    """What a node needs to run the pipeline.

    Attributes:
        name: the node's name.
        folder: where it keeps its files, in a folder with its name.
        files: content of the pipeline's files by relative path.
        pipeline: the YAML among them.
        environment: variables that the YAML names.
        address: the address at which it serves its API to the head.
        token: the token that each request to that API needs.
        allow_files: whether added sources may read its files and devices.
        keep_events: how long events are kept there, such as `30d`.
        keep_size: maximum size of the events there, such as `2GB`.
    """

    name: str
    folder: Path
    files: Mapping[str, bytes]
    pipeline: str
    environment: Mapping[str, str]
    address: str
    token: str
    allow_files: bool
    keep_events: str
    keep_size: str


@dataclass(frozen=True, slots=True)
class NodeOrders:
    """Everything that a node is to do; it compares this with what it does.

    Attributes:
        number: increases with each change.
        sources: the sources to read, by id.
        settings: options that were changed since the YAML was read, by stage.
        now_s: the head's monotonic clock when this was sent.
    """

    number: int
    sources: Mapping[str, SourceOrder]
    settings: Mapping[str, Mapping[str, Any]]
    now_s: float


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An event with its number in the node's store, its time in seconds since 1970, and its small image."""

    number: int
    time_s: float
    event: Event
    jpeg: bytes | None


@dataclass(slots=True)
class NodeReport:
    """The state of a node.

    Attributes:
        number: of the latest orders that were executed.
        port: where it serves its API; 0 before that.
        ready: whether its stages are open and frames are accepted.
        failure: why its pipeline has ended; empty while it runs.
        device: the names of its devices.
        busy: share of the time in which its busiest stage worked, 0 to 1; None if unknown.
        cores: its CPU cores.
        gpus: its GPUs.
        worker: the states of its sources, and what it has counted.
        alarms: its raised alarms.
        rules: the rule of each alarm, and how often it was raised.
        refused: why sources could not be added, by id.
        events: events above the number that was asked for, in order.
        events_until: number up to which the events are complete.
        messages: what was logged since the last report.
    """

    number: int = 0
    port: int = 0
    ready: bool = False
    failure: str = ""
    device: str = ""
    busy: float | None = None
    cores: int = 1
    gpus: int = 0
    worker: WorkerReport = field(default_factory=WorkerReport)
    alarms: list[ActiveAlarm] = field(default_factory=list)
    rules: dict[str, tuple[str, int]] = field(default_factory=dict)
    refused: dict[str, tuple[SourceOrder, str]] = field(default_factory=dict)
    events: list[NodeEvent] = field(default_factory=list)
    events_until: int = 0
    messages: list[StoredMessage] = field(default_factory=list)
