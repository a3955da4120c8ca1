# SPDX-License-Identifier: Apache-2.0
"""`--watch`: a pipeline that reloads its YAML and the plugins that it names.

An invalid edit is rejected with every problem, and the pipeline continues. Added, removed and changed sources, and
changed options that stages declare as changeable, are applied while the pipeline runs. After any other edit the frames
in flight drain, the files are closed, and the pipeline is rebuilt in this process; counts and track ids go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from streamkit.config.pipeline_config import plugin_names
from streamkit.config.plan import Graph
from streamkit.config.plugins import files_of
from streamkit.core.errors import StreamkitError, describe
from streamkit.runtime.control.graph_changes import (
    LiveChanges,
    alike,
    changed_settings,
    copied,
    edited_sources,
    rebuild_reasons,
    source_facts,
)
from streamkit.runtime.control.settings import value_of
from streamkit.runtime.control.stage_state import CarriedFile
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.future import PeriodicTimer
from streamkit.runtime.multiprocess.fleet import WorkerFleet
from streamkit.runtime.multiprocess.partition import assign_sources
from streamkit.runtime.observe.run_counts import RunCounts
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.prepare import prepare
from streamkit.runtime.run import RunConfig
from streamkit.runtime.run_delegate import R, RunDelegate

logger = logging.getLogger(__name__)

_POLL_S = 0.5
_OVER_RUNS = ("detections", "events", "counts", "stages", "labels", "unsure")


def watching(
    path: Path,
    load: Callable[[], Graph],
    limit: int | None,
    set_: Mapping[str, str] = MappingProxyType({}),
    make: Callable[[Graph], PipelineRun | WorkerFleet] | None = None,
    *,
    poll_s: float = _POLL_S,
) -> ReloadingPipeline[PipelineRun | WorkerFleet]:
    """Create a pipeline that follows its YAML, in one process or several.

    Args:
        path: the YAML.
        load: reads and checks it.
        limit: maximum number of frames per source.
        set_: values that override the YAML.
        make: creates a pipeline that keeps running without sources; by default one without a preview.
        poll_s: seconds between two checks of the files.

    Raises:
        ConfigError: the YAML is invalid.
    """

    def checked() -> Graph:
        graph = load()
        for name, _ in assign_sources(graph, keep_running=True):
            choose(name)  # an edit that names a missing device must not stop the running pipeline
        return graph

    def plain(graph: Graph) -> PipelineRun | WorkerFleet:
        return prepare(graph, path, set_, RunConfig(limit=limit, keep_running=True))

    return ReloadingPipeline(path, checked, make or plain, poll_s=poll_s)


class ReloadingPipeline(RunDelegate[R]):
    """Runs a pipeline and reloads its files; a `Run` over the current one.

    Args:
        path: the YAML.
        load: reads and checks it.
        make: creates a pipeline that keeps running without sources.
        poll_s: seconds between two checks of the files.

    Attributes:
        rejected: why the last edit of the files is not applied; empty if it is.
    """

    def __init__(
        self, path: Path, load: Callable[[], Graph], make: Callable[[Graph], R], *, poll_s: float = _POLL_S
    ) -> None:
        self._path = path
        self._poll_s = poll_s
        self._load = load
        self._make = make
        self._names: list[Path] = []  # the plugins that the YAML names, files and folders
        self._read: tuple[int, int, int] | None = None
        self._seen = self._applied = self._signature()
        self._graph = load()  # as in the YAML; live changes affect the copy of the pipeline only
        self._carried = CarriedFile()
        super().__init__(self._create(self._graph))
        self._next: Graph | None = None
        self._before: Graph | None = None
        self._live = LiveChanges()
        self.rejected = ""
        self._checking = False
        self._past: list[tuple[RunCounts, float]] = []
        self._lock = threading.Lock()
        self.stopping = False

    def run(self) -> int:
        """Run until stopped, and return the exit code.

        Raises:
            StreamkitError: the run could not start, or could not continue.
        """
        try:
            with PeriodicTimer(self._poll_s, self.check_files):
                return self._run_all()
        finally:
            self._carried.remove()

    def _run_all(self) -> int:
        while True:
            code = self._run_once()
            with self._lock:
                if self.stopping or self._next is None:
                    return code
                ended_run = self._running.run_counts(), self._running.seconds
                before = {source.id: source_facts(source) for source in self._running.graph.sources}
                graph = self._next
                self._next = None
                self._running = self._created(graph)
                self._past.append(ended_run)
                self._live.apply(self._graph, self._running)
                after = {source.id: source_facts(source) for source in self._running.graph.sources}
                self._carried.keep_sources({id_ for id_, facts in after.items() if facts == before.get(id_)})
            if self.stopping:
                self._running.stop()

    def _created(self, graph: Graph) -> R:
        """Create a pipeline of the new graph, or of the previous one if the new one cannot be created."""
        try:
            return self._create(graph)
        except StreamkitError as error:
            if self._before is None:
                raise
            logger.warning(f"{self._path}: the edit cannot be applied; the previous pipeline continues: {error}")
            self.rejected = str(error)
            self._graph = self._before
            self._before = None
            return self._create(self._graph)

    def _create(self, graph: Graph) -> R:
        running = self._make(copied(graph))
        running.carried = self._carried.path
        return running

    def _run_once(self) -> int:
        """Run the current pipeline; return to the previous one if its stages cannot be opened."""
        try:
            return self._running.run()
        except StreamkitError as error:
            if self._running.ready or self._before is None:
                raise
            logger.warning(f"{self._path}: the new stages cannot be opened; the previous pipeline continues: {error}")
            self.rejected = str(error)
            with self._lock:
                self._next = self._before
                self._graph = self._before
                self._before = None
            return 1

    def stop(self) -> None:
        """See `PipelineRun.stop`. Takes no lock: a signal may have interrupted the thread that holds it."""
        self.stopping = True
        self._running.stop()

    def check_files(self) -> None:
        """Check for changed files; apply them once they have not changed between two checks."""
        signature = self._signature()
        settled = signature == self._seen
        self._seen = signature
        if (
            not settled
            or signature == self._applied
            or signature is None
            or self._next is not None
            or not self._running.ready
        ):
            return
        self._checking = True
        self._applied = signature
        try:
            self._follow(self._load())
            self.rejected = ""
        except BaseException as error:  # a plugin may raise anything, even SystemExit; the next edit may fix it
            text = self.rejected = str(error) if isinstance(error, StreamkitError) else describe(error)
            logger.warning(f"{self._path}: the edit is rejected; the pipeline continues unchanged:\n{text}")
        finally:
            self._checking = False

    @property
    def pending(self) -> bool:
        """Whether the files have changed, and the change was neither applied nor rejected yet."""
        return self._checking or self._signature() != self._applied

    def _signature(self) -> tuple[Any, ...] | None:
        """Stamps of the YAML and of the plugins that it names; None while an editor replaces the file."""
        try:
            stamp = _stamp(self._path)
            if stamp != self._read:
                self._names = plugin_names(self._path)
                self._read = stamp
        except OSError:
            return None
        files = [file for name in self._names for file in files_of(name)]
        return stamp, *((file, _stamp(file) if file.exists() else None) for file in files)

    def _follow(self, new: Graph) -> None:
        """Apply the changes in the file; live changes to other sources and options are kept."""
        old = self._graph
        edited = edited_sources(self._graph, new)
        settings = changed_settings(self._graph, new)
        self._running.forget(edited, settings)
        self._graph = new
        if not alike(old, new):
            logger.info(
                f"{self._path}: the stages changed; the pipeline is rebuilt once the decoded frames have drained"
            )
            with self._lock:
                self._live = LiveChanges() if old.config.state is not None else self._changes(old)
                self._before = old
                self._next = new
                self._carried.begin()
                self._running.stop()
            return
        changes: list[str] = []
        for id_, values in settings.items():
            node = self._running.graph.nodes[id_]
            values = {name: value for name, value in values.items() if value != value_of(node, name)}
            if values:  # a call has not set them already
                self._running.apply(node, values)
                changes.append(f"options of {id_} changed: {', '.join(values)}")
        self._follow_sources(edited, new, changes)

    def _follow_sources(self, edited: Mapping[str, str], new: Graph, changes: list[str]) -> None:
        """Apply the edits of sources, and log them with the other changes."""
        wanted = {source.id: source for source in new.sources}
        present = {source.id: source_facts(source) for source in self._running.graph.sources}
        for id_, what in edited.items():
            source = wanted.get(id_)
            if present.get(id_) == (None if source is None else source_facts(source)):
                continue  # as the edit says already, by a call
            try:
                self._running.follow(id_, source)
                changes.append(f"source {id_} {what}")
            except StreamkitError as error:  # the sinks do not support it next to sources added by API calls
                changes.append(f"source {id_} cannot be {what}: {error}")
        logger.info(f"{self._path}: {'; '.join(changes) or 'no change that affects the pipeline'}")

    @property
    def ready(self) -> bool:
        """Whether every stage is open and frames are accepted, and no edit waits for the frames in flight."""
        return self._running.ready and self._next is None

    def live_changes(self) -> LiveChanges:
        """The differences of the running pipeline from the YAML that is applied."""
        return self._changes(self._graph)

    def _changes(self, base: Graph) -> LiveChanges:
        paused = [id_ for id_, state in list(self._running.states.items()) if state.state == "paused"]
        return LiveChanges.of(base, self._running.graph, paused)

    def rebuild_reasons(self, new: Graph) -> list[str]:
        """What a graph has that cannot be applied while the pipeline runs; see the function."""
        return rebuild_reasons(self._graph, new)

    @property
    def text(self) -> str:
        """The YAML's text that is applied, or is being applied."""
        return self._graph.config.text or ""

    # ------------------------------------------------------------------------------------------------- counting

    @property
    def frames(self) -> int:
        """Number of frames that reached the end of the graph, over all runs."""
        return self._running.frames + sum(counts.frames for counts, _ in self._past)

    @property
    def detections(self) -> dict[str, int]:
        """Objects by table, over all runs."""
        return self._over_runs(RunCounts(detections=dict(self._running.detections)), "detections").detections

    @property
    def events(self) -> dict[str, int]:
        """Events by kind, over all runs."""
        return self._over_runs(RunCounts(events=dict(self._running.events)), "events").events

    def counts(self) -> dict[str, int]:
        """See `PipelineRun.counts`; over all runs."""
        return self._over_runs(RunCounts(counts=self._running.counts()), "counts").counts

    def meters(self) -> dict[str, dict[str, Any]]:
        """See `PipelineRun.meters`; over all runs, of the stages that there are now."""
        present = self._running.meters()
        stages = self._over_runs(RunCounts(stages=present), "stages").stages
        return {id_: stages[id_] for id_ in present}

    def run_counts(self) -> RunCounts:
        """See `Run`; frames, latency, queues and events by source are those of the current run."""
        present = self._running.run_counts()
        total = self._over_runs(present, *_OVER_RUNS)
        return replace(present, **{name: getattr(total, name) for name in _OVER_RUNS})

    def _over_runs(self, present: RunCounts, *names: str) -> RunCounts:
        """The counts of the current run with those of the past ones; with `names`, only these."""
        return RunCounts.total([*(counts for counts, _ in self._past), present], *names)

    def report(self, exit_code: int) -> dict[str, Any]:
        """The report: sums over all runs; the sources are those of the last run."""
        report = self._running.report(exit_code)
        if not self._past:
            return report
        seconds = self._running.seconds + sum(seconds for _, seconds in self._past)
        report |= self._over_runs(self._running.run_counts()).report()
        report |= {"frames": self.frames, "seconds": round(seconds, 3), "restarts": len(self._past)}
        report["frames_per_s"] = round(self.frames / seconds, 2) if seconds else None
        return report


def _stamp(file: Path) -> tuple[int, int, int]:
    status = file.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino
