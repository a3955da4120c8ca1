# SPDX-License-Identifier: Apache-2.0
"""What every run of a pipeline has, whether in this process, in several, or on the nodes of a cluster."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from streamkit.config.plan import SourceConfig
from streamkit.core.data import Event
from streamkit.core.timeline import LastFrame
from streamkit.runtime.control.graph_changes import ChangeableRun
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_status import RemovedSources
from streamkit.runtime.observe.alarms import ActiveAlarm
from streamkit.runtime.observe.event_counts import EventSeries
from streamkit.runtime.observe.health import HealthSnapshot
from streamkit.runtime.observe.run_counts import RunCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """How a graph is run, in this process and in others: each passes them on.

    Attributes:
        limit: maximum number of frames per source.
        keep_running: whether to run until `stop`, even without sources: sources may be added later.
        realtime: play files at their own speed unless the YAML sets one, so that no file competes with cameras.
        refused: sources that fail without being read, with the reason.
        live_may_come: whether live sources may be added; by default, if the run keeps running without sources.
        expected_live: number of live sources that may be added to a process at once; it is ready for them when its
            networks are tuned.
        parallel_files: number of files that a process reads at the same time; by default, the device decides.
        reserved_cores: number of CPU cores that a process uses; by default, all that it may use.
        per_source: make batches of one source each, all full but the last of a source: the same batches in every run.
    """

    limit: int | None = None
    keep_running: bool = False
    realtime: bool = False
    refused: Mapping[str, str] = field(default_factory=dict)
    live_may_come: bool | None = None
    expected_live: int = 0
    parallel_files: int | None = None
    reserved_cores: int | None = None
    per_source: bool = False


DEFAULT = RunConfig()


class RunDevice(Protocol):
    """A device of a run: a `Device`, or the devices of a node. `str` names it."""

    @property
    def kind(self) -> str:
        """`cpu`, `cuda`, or `node` for all devices of a machine."""

    @property
    def index(self) -> int:
        """The number of a CUDA device; 0 for others."""


class RunSources(Protocol):
    """The sources of a run, as others see them."""

    @property
    def removed(self) -> RemovedSources:
        """Totals of the removed sources."""


class RunAlarms(Protocol):
    """The alarms of a run: `Alarms` evaluates them here, `ClusterAlarms` reads those of the nodes."""

    @property
    def raised(self) -> list[ActiveAlarm]:
        """The active alarms, oldest first."""

    def listen(self, seen: Callable[[float, Event], None], /) -> None:
        """Call `seen` with each event of an alarm, and the time in seconds since 1970."""

    def rules(self) -> dict[str, tuple[str, int]]:
        """The rule of each alarm, and how often it was raised."""

    def facts(self) -> HealthSnapshot:
        """The current facts."""

    def report(self) -> dict[str, Any]:
        """The `alarms` part of the report."""


class Stoppable(Protocol):
    """Work that a signal may stop: a run, or a batch over many files."""

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""

    def stop(self) -> None:
        """End the work in order: decoded frames may drain for a few seconds, and every file is closed.

        A second call ends it at once. A signal handler may call it: it takes no lock that the main thread may hold.
        """


class Run(ChangeableRun, Stoppable, Protocol):
    """One run of a graph: `PipelineRun`, `WorkerFleet`, `ClusterRun`, or `ReloadingPipeline` over one of them.

    Any thread may read it and call its methods, except for `run`, which the main thread calls once.
    """

    @property
    def sources(self) -> RunSources:
        """The sources."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """Address of each source, by id."""

    @property
    def limit(self) -> int | None:
        """Maximum number of frames per source."""

    @property
    def devices(self) -> Sequence[RunDevice]:
        """The devices that the run uses."""

    @property
    def device(self) -> RunDevice:
        """The first of them."""

    @property
    def alarms(self) -> RunAlarms:
        """The alarms on the run itself."""

    # --------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Run to the end and return the exit code: 0, 1 if a source or frame failed, 130 if the run was stopped.

        Raises:
            StreamkitError: the run could not start, or could not continue.
        """

    @property
    def ready(self) -> bool:
        """Whether frames are accepted."""

    @property
    def opening(self) -> list[str]:
        """What is being opened: ids of stages, or names of nodes."""

    @property
    def fatal(self) -> BaseException | None:
        """The error that ends the run."""

    @property
    def seconds(self) -> float:
        """Duration of the run once it is over; 0 until then."""

    @property
    def hung_threads(self) -> Sequence[threading.Thread]:
        """Threads that hung in a call at the end of the run and were abandoned."""

    # ------------------------------------------------------------------------------------------------- changes

    def add(self, source: SourceConfig, after: LastFrame | None = None, paused: bool = False) -> None:
        """See `Controls.add`."""

    def pause(self, id_: str, paused: bool = True) -> None:
        """See `Controls.pause`."""

    def changeable(self, id_: str) -> dict[str, Any]:
        """See `Controls.changeable`."""

    def set(self, id_: str, values: Mapping[str, Any]) -> None:
        """See `Controls.set`."""

    def trigger(self, id_: str, source: str, **data: Any) -> None:
        """See `Controls.trigger`."""

    def forgetting(
        self, sources: Iterable[str], settings: Mapping[str, Collection[str]]
    ) -> AbstractContextManager[None]:
        """See `Controls.forgetting`."""

    # ------------------------------------------------------------------------------------------------- counting

    @property
    def frames(self) -> int:
        """Number of frames that have reached the end of the graph."""

    @property
    def finished(self) -> Mapping[str, int]:
        """Frames by end of the graph."""

    @property
    def detections(self) -> Mapping[str, int]:
        """Objects by table."""

    @property
    def events(self) -> Mapping[str, int]:
        """Events by kind."""

    @property
    def event_counts(self) -> Mapping[EventSeries, int]:
        """Events by source, stage, kind, shape, direction and class."""

    @property
    def latency(self) -> Mapping[str, Histogram]:
        """From a frame's arrival to each end of the graph."""

    def run_counts(self) -> RunCounts:
        """All counts that several processes merge."""

    def counts(self) -> dict[str, int]:
        """Counters of all sources and stages by name: drops, failures, fallbacks."""

    def meters(self) -> dict[str, dict[str, Any]]:
        """Metrics of each stage, by id."""

    def queues(self) -> dict[str, int]:
        """Frames and batches that wait, by the stage they wait for."""

    def lost_nodes(self) -> list[str]:
        """The machines of the run that are not there, each as a text for the user."""

    def health(self) -> HealthSnapshot:
        """The facts of `config/alarms.py`; those that no alarm names may be missing."""

    def report(self, exit_code: int) -> dict[str, Any]:
        """The report of the run, for `--report` and the summary."""


class RebuiltRun(Run, Protocol):
    """A run that may replace an earlier one of the same pipeline.

    Attributes:
        carried: the file through which stages pass on counts; set before the run.
    """

    carried: Path | None
