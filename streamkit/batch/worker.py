# SPDX-License-Identifier: Apache-2.0
"""A worker: one warm pipeline, which processes files one after the other, or several in parallel."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from streamkit.batch.job import BatchJob, BatchSettings, Outcome, printable
from streamkit.batch.messages import FileProgress, FileRead, Leaving, Progress
from streamkit.batch.pipeline import graph_for, source_options
from streamkit.batch.probe import cause
from streamkit.batch.processed_duration import PROCESSED_S, MeasuredSource
from streamkit.batch.remote import opened
from streamkit.config.plan import Graph, SourceConfig
from streamkit.core.errors import OutputError, SourceError, describe
from streamkit.media.uris import is_path, mask
from streamkit.runtime.execution.future import PeriodicTimer, start
from streamkit.runtime.multiprocess.children import ParentConnection, end_at_once
from streamkit.runtime.multiprocess.messages import Finish, Now, Ready
from streamkit.runtime.observe import telemetry

if TYPE_CHECKING:
    from streamkit.runtime.ingest.source_status import SourceState


PROGRESS_EVERY_S = 1.0
"""How often a worker reports its progress, in seconds."""


class BatchWorker:
    """Keeps one pipeline open for all its files; plugins and networks are loaded once.

    Args:
        settings: the pipeline and the output formats.
        device: as in a YAML: `cpu`, `cuda:0`, `auto`.
        slots: number of files read at once. One more may be queued; it is opened when one has been read.
        cores: number of CPU cores to use; None for all that the process may use.
        part: the number of its process from 0, and the number of processes that share the machine.
        graph: the pipeline with the data set's sinks; by default that of the settings.

    Raises:
        StreamkitError: the pipeline cannot be built or opened.
    """

    def __init__(
        self,
        settings: BatchSettings,
        device: str = "auto",
        slots: int = 1,
        cores: int | None = None,
        part: tuple[int, int] = (0, 1),
        graph: Graph | None = None,
    ) -> None:
        from streamkit.runtime.execution.cores import pin_process
        from streamkit.runtime.execution.device import choose
        from streamkit.runtime.warm_pipeline import WarmPipeline

        self.settings = settings
        self.slots = slots
        chosen = choose(device)
        pin_process(chosen, *part)
        self._names: dict[str, str] = {}
        graph = graph or graph_for(settings, device, self._names)
        self._place = next(iter(graph.nodes.values())).place
        self._warm = WarmPipeline(graph, chosen, slots=slots, reserved_cores=cores)
        self._jobs: dict[str, BatchJob] = {}
        self._warm.begin()

    def process(self, job: BatchJob, on_read: Callable[[], None] = lambda: None) -> Outcome:
        """Process one file; thread-safe.

        Args:
            job: the job.
            on_read: called when the file's last frame has been read, so that another file may start.

        Returns:
            The result; `again` is set if the file may not be the cause of a failure.
        """
        start_s = time.perf_counter()
        path = job.file.uri
        copied = False
        self._jobs[job.key] = job
        self._names[job.key] = job.file.name
        try:
            with opened(job.file, self.settings.out) as (path, file):
                copied = file is None and not is_path(job.file.uri)
                options = {"uri": path, "file": file, **source_options(self.settings.selection)}
                state = self._warm.send(SourceConfig(job.key, MeasuredSource, options, self._place), on_read)
        except Exception as error:  # from the copy, or from the end of the whole pipeline
            return _failed(job, start_s, *self._cause(error), _without(path, describe(error)))
        finally:
            del self._jobs[job.key], self._names[job.key]
        facts = {**state.facts, **_error_counts(state), **({"copied": True} if copied else {})}
        counts: dict[str, Any] = {
            "frames": state.out,
            "objects": state.objects,
            "duration_s": facts.pop(PROCESSED_S, 0.0),
            "facts": facts,
        }
        if state.raised is not None and not self._ends_before(state) and not self._keeps(state):
            text = _without(job.file.uri, _without(path, state.error or ""))
            return _failed(job, start_s, *cause(state.raised), text, **counts)
        if state.failed and state.failed >= state.out:
            return _failed(job, start_s, "stage", False, f"every frame failed: {state.first_failure}", **counts)
        return Outcome(job, "done", seconds=time.perf_counter() - start_s, **counts)

    @property
    def over(self) -> bool:
        """Whether its pipeline has ended, so that it cannot process more files."""
        return self._warm.fatal is not None or self._warm.stopping

    def progress(self) -> list[FileProgress]:
        """The progress of each file in progress."""
        in_progress = []
        states = self._warm.states
        for key, job in list(self._jobs.items()):
            frames = 0
            done = 0.0
            if (state := states.get(key)) is not None:
                length_s = self.settings.selection.length_s(state.facts.get("duration_s"))
                frames = state.out
                done = min(1.0, max(0.0, state.pts_s / length_s)) if length_s else 0.0
            in_progress.append(FileProgress(key, job.file.name, frames, done))
        return in_progress

    def metrics(self) -> Any:
        """A registry with the metrics of its pipeline, for all files together."""
        from streamkit.runtime.observe.metrics import registry

        return registry(self._warm, by_source=False)

    def close(self) -> bool:
        """Stop the pipeline and abandon files in progress. False if something hangs: the process must exit hard."""
        return self._warm.end()

    def _ends_before(self, state: SourceState) -> bool:
        """Whether a source failed only because its video ends before `--start`, which is no failure."""
        none = isinstance(state.raised, SourceError) and state.raised.cause is None and not state.out
        return none and self.settings.selection.misses(state.facts.get("duration_s"), state.facts.get("fps"))

    def _keeps(self, state: SourceState) -> bool:
        """Whether a source failed only because some of its frames are damaged; the good ones count."""
        damaged = isinstance(state.raised, SourceError) and state.raised.cause == "damaged"
        return damaged and state.out > 0 and not self.settings.strict

    def _cause(self, error: Exception) -> tuple[str, bool]:
        """The category of a failure, and whether a retry may help."""
        if self.over and not isinstance(error, OutputError):
            return "stage", True  # any of the files in progress may be the cause
        return cause(error)


def work(
    link: ParentConnection, settings: BatchSettings, device: str, slots: int, cores: int | None, part: tuple[int, int]
) -> None:
    """Run a worker process: open the pipeline, and process files, each on its own thread, until stopped."""
    exported = telemetry.open_telemetry()
    worker = BatchWorker(settings, device, slots, cores, part)
    link.send(Ready())

    def do(job: BatchJob) -> None:
        outcome = worker.process(job, lambda: link.send(FileRead(job.key)))
        if worker.over:
            link.send(Leaving())
        link.deliver(outcome)
        if worker.over and not worker.progress():
            end_at_once()  # the pipeline has ended: the pool starts a new process

    with (
        telemetry.exporting(exported, lambda: worker.metrics()),
        PeriodicTimer(PROGRESS_EVERY_S, lambda: link.send(Progress(tuple(worker.progress())))),
    ):
        for order in link.orders():
            match order:
                case BatchJob() as job:
                    start(f"file/{job.key}", partial(do, job))
                case Now():
                    end_at_once()
                case Finish():
                    break
    if not worker.close():
        end_at_once()


def _without(path: str, cause: str) -> str:
    """A cause without the leading path of the file, which may be that of a copy."""
    return cause.removeprefix(mask(path)).lstrip(": ")


def _failed(job: BatchJob, start_s: float, kind: str, again: bool, cause: str, **counts: Any) -> Outcome:
    return Outcome(job, "failed", printable(cause), kind, again, seconds=time.perf_counter() - start_s, **counts)


def _error_counts(state: SourceState) -> dict[str, int]:
    """The numbers of concealed errors, damaged frames and failed frames."""
    from streamkit.media.av_decoder import CONCEALED, UNDECODABLE

    counts = dict(state.counters.values)
    concealed = counts.get(CONCEALED, 0)
    reported = state.raised.damaged if isinstance(state.raised, SourceError) else 0
    return {
        "concealed_errors": concealed,
        "damaged_frames": max(reported, concealed + counts.get(UNDECODABLE, 0)),
        "failed_frames": state.failures,
    }
