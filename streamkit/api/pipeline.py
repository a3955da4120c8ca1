# SPDX-License-Identifier: Apache-2.0
"""`streamkit.Pipeline`: a running pipeline that a program controls."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from streamkit.api.arguments import Address, PipelineSources, added, plan
from streamkit.config.graph import with_source
from streamkit.config.plan import SourceConfig
from streamkit.core.errors import ConfigError, PipelineEnded, SourceError, StreamkitError
from streamkit.core.text import did_you_mean
from streamkit.runtime.frame_queue import FrameQueue
from streamkit.runtime.frame_stream import FrameStream
from streamkit.runtime.ingest.push_source import PushQueue, PushSource
from streamkit.runtime.observe.run_stats import PipelineStats, snapshot
from streamkit.runtime.run import RunConfig
from streamkit.runtime.run_thread import LoopRun, RunThread

_NO_LOOP = "this pipeline was started without a loop, so its frames go to its own sinks; iterate instead of start()"
_DEADLOCK = (
    "push would wait forever: the pipeline is full of frames that wait for the loop, and this thread runs the loop; "
    "push from another thread, read a frame for each one that you push, or set live: PushSource(live=True)"
)
_NOT_STARTED = (
    "push waits for the pipeline to begin: iterate over it, or call start(); a loop and a push that waits need a "
    "thread each"
)
_START_S = 5.0


class Pipeline:
    """A pipeline that runs while a program reads its frames, adds and removes sources, and pushes images.

    Iterate over it to read its frames; or call `run`, or `start` and `wait`, if its own sinks are all that reads them.
    Use it in a `with` block, which stops it at its end. Methods may be called from any thread.

    Args:
        sources: as for `streamkit.run`; a source may also be a `PushSource`. Without sources, add some.
        model: the model card of the detector; for sources only.
        stages: stages after the detector, in the shape of the YAML; for sources only.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; replaces the pipeline's.
        limit: maximum number of frames per source that reach the stages; those dropped before do not count.
        set: values that replace those of the pipeline, such as `{"stages.detect.min_score": 0.5}`.
        keep_running: run until `stop`, even when every source has ended: sources may be added later.

    Raises:
        ConfigError: with every problem of the pipeline.
        DeviceError: the device is not available.
    """

    def __init__(
        self,
        sources: PipelineSources | None = None,
        *,
        model: Address | None = None,
        stages: Mapping[str, Any] | None = None,
        device: str | None = None,
        limit: int | None = None,
        set: Mapping[str, Any] | None = None,  # noqa: A002  as the command's --set
        keep_running: bool = False,
    ) -> None:
        self._plan = plan(sources, model=model, stages=stages, device=device, limit=limit, set_=set, may_be_empty=True)
        self._limit = limit
        self._keep_running = keep_running
        self._lock = threading.RLock()
        self._thread: RunThread | None = None
        self._frames: FrameStream | None = None
        self._closed = False

    # ------------------------------------------------------------------------------------------------- the run

    def __iter__(self) -> FrameStream:
        """Begin the run, and iterate over its frames; a second loop continues where the first was left.

        Raises:
            ConfigError: the pipeline has no source, or was started without a loop.
            PipelineEnded: its frames have been read.
        """
        with self._lock:
            if self._frames is None:
                if self._thread is not None:
                    raise ConfigError(_NO_LOOP)
                queue = FrameQueue()
                self._thread = self._begin(queue)
                self._frames = FrameStream(self._thread, queue)
            elif self._frames.ended:
                raise PipelineEnded("the frames of this pipeline have been read; create another Pipeline to read again")
            return self._frames

    def start(self) -> None:
        """Begin the run without a loop: the pipeline's own sinks receive the frames. Returns at once.

        Raises:
            ConfigError: the pipeline has no source, or has started.
        """
        with self._lock:
            if self._thread is not None:
                raise ConfigError("the pipeline has already started; create another Pipeline for another run")
            self._thread = self._begin(None)

    def wait(self) -> dict[str, Any]:
        """Wait until the run that `start` began has ended; return its report, as `run --report` writes it.

        Raises:
            StreamkitError: the run could not start, or could not continue.
            SourceError: every source has failed; if some have, see `errors`.
        """
        thread = self._thread
        frames = self._frames
        if thread is None:
            raise ConfigError("the pipeline has not started; call start() before wait(), or run() for both")
        if frames is not None:
            raise ConfigError("a loop reads this pipeline's frames; the loop's end is the end of the run")
        try:
            return thread.wait()
        except KeyboardInterrupt:
            self.close()
            raise

    def run(self) -> dict[str, Any]:
        """Run to the end without a loop; return the report. Raises as `start` and `wait` do."""
        self.start()
        return self.wait()

    def stop(self) -> None:
        """End all sources, and return at once. The loop still gets the frames that are decoded, for a few seconds."""
        with self._lock:
            if self._thread is None:
                self._closed = True
            elif not self._thread.ended:
                self._thread.run.stop()

    def close(self) -> None:
        """Stop the run, and wait until its threads have ended and its files are closed.

        Ctrl-C meanwhile drops the frames in flight; once more, it leaves the threads to end on their own.
        """
        with self._lock:
            self._closed = True
            thread = self._thread
            frames = self._frames
        if frames is not None:
            frames.close()
        elif thread is not None:
            thread.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _begin(self, queue: FrameQueue | None) -> RunThread:
        if self._closed:
            raise PipelineEnded("the pipeline was stopped before it began; create another Pipeline")
        graph = self._plan.graph
        if not graph.sources and not self._keep_running:
            raise ConfigError(
                "the pipeline has no source; add one with add_source(), or set keep_running=True to add some later"
            )
        config = RunConfig(limit=self._limit, keep_running=self._keep_running)
        thread = RunThread(LoopRun(graph, self._plan.device, queue, config))
        thread.begin()
        return thread

    # ------------------------------------------------------------------------------------------------- sources

    def add_source(self, id_: str, source: Address | Mapping[str, Any] | PushSource) -> list[str]:
        """Add a source, before the run or while it runs.

        Args:
            id_: the id of its frames.
            source: a file, a folder or an address; a mapping with `uri` and options, as in the YAML; or a `PushSource`.

        Returns:
            The ids of the added sources: a folder of videos is one source for each file, `id_/name`.

        Raises:
            ConfigError: with every problem; no source is added.
            PipelineEnded: the run has ended.
        """
        with self._lock:
            self._refuse_ended()
            configs = added(self._plan, id_, source)
            ids: list[str] = []
            try:
                for config in configs:
                    self._add(config)
                    ids.append(config.id)
            except BaseException:
                for added_id in ids:
                    self.remove_source(added_id)
                raise
            return ids

    def remove_source(self, id_: str) -> None:
        """Remove a source; its frames in flight are still processed.

        Raises:
            ConfigError: the id is unknown.
        """
        with self._lock:
            if self._thread is not None:
                self._thread.run.remove(id_)
            else:
                sources = self._plan.graph.sources
                if id_ not in (ids := [source.id for source in sources]):
                    raise ConfigError(f"there is no source {id_!r}{did_you_mean(id_, ids, all_if_few=True)}")
                self._set_sources([source for source in sources if source.id != id_])
            queue = self._plan.queues.pop(id_, None)
        if queue is not None:
            queue.end(drop=True)

    def push(self, id_: str, image: Any, pts_s: float | None = None) -> None:
        """Push an image into a `PushSource`. The image is copied: it may be changed at once.

        While the pipeline is busy, this waits; into a source with `live`, it never waits, and older frames are dropped
        and counted. Copies between host and device are counted as `pixels to device` and `pixels to host`.

        Args:
            id_: the source's id.
            image: (height, width, 3) uint8 in the source's order of channels: a NumPy or CuPy array, or any object with
                `__dlpack__`, such as a PyTorch tensor; on the host or a GPU.
            pts_s: the frame's time in seconds, above that of the frame before; by default, the frame's number divided
                by the source's `fps`, or the clock for a live source.

        Raises:
            ConfigError: there is no push source with that id.
            PipelineEnded: the source or the pipeline has ended.
            TypeError: the image is no array.
            ValueError: the image's shape, dtype or size does not fit, or its time does not rise.
            StreamkitError: waiting would never end.
        """
        queue = self._queue(id_)
        self._refuse_ended()
        try:
            queue.push(image, pts_s, PushWait(self).check)
        except PipelineEnded:
            self._refuse_ended()
            raise

    def end(self, id_: str) -> None:
        """End a push source after the frames that were pushed. Raises ConfigError if there is none with that id."""
        self._queue(id_).end()

    def _queue(self, id_: str) -> PushQueue:
        queue = self._plan.queues.get(id_)
        if queue is None:
            if any(source.id == id_ for source in self._plan.graph.config.sources):
                raise ConfigError(f"source {id_!r} is read, not pushed; only a PushSource takes images")
            near = did_you_mean(id_, self._plan.queues, all_if_few=True)
            raise ConfigError(f"there is no push source {id_!r}{near}; add_source({id_!r}, PushSource()) adds one")
        return queue

    def _add(self, source: SourceConfig) -> None:
        if self._thread is not None:
            self._thread.run.add(source)
            return
        graph = self._plan.graph
        if any(other.id == source.id for other in graph.sources):
            raise ConfigError(f"there is a source {source.id!r} already; remove it first, or choose another id")
        self._set_sources(with_source(graph, source))

    def _set_sources(self, sources: list[SourceConfig]) -> None:
        """Set the sources of a pipeline that has not started."""
        self._plan.graph.sources = self._plan.graph.config.sources = sources

    def _refuse_ended(self) -> None:
        """Raise PipelineEnded if the run is over, or ends."""
        thread = self._thread
        if self._closed or (thread is not None and (thread.ended or thread.run.stopping)):
            error = None if thread is None else thread.error
            raise PipelineEnded("the pipeline has ended" + (f": {error}" if error else "; create another one"))

    # ------------------------------------------------------------------------------------------------- what it does

    @property
    def stats(self) -> PipelineStats:
        """A snapshot of the run: frames, rates, drops and errors of each source, times of each stage."""
        thread = self._thread
        return PipelineStats(0, 0.0, 0.0, {}, {}, {}) if thread is None else snapshot(thread.run)

    @property
    def errors(self) -> dict[str, SourceError]:
        """The sources that have failed so far, by id, each with its error."""
        return {} if self._thread is None else self._thread.errors

    @property
    def report(self) -> dict[str, Any]:
        """The report, as `run --report` writes it; until the end, that of the run so far. Empty before the run."""
        return {} if self._thread is None else self._thread.report

    def __repr__(self) -> str:
        thread = self._thread
        state = "not started" if thread is None else "ended" if thread.ended else "running"
        sources = [source.id for source in self._plan.graph.config.sources] if thread is None else thread.run.states
        return f"Pipeline({', '.join(sources)}; {state} on {self._plan.device})"


class PushWait:
    """Tells whether a push that waits can ever end.

    Args:
        pipeline: the pipeline that is pushed to.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._started_s = time.monotonic()

    def check(self) -> None:
        """Raise an error if it cannot."""
        self._pipeline._refuse_ended()
        thread = self._pipeline._thread
        if thread is None:
            if time.monotonic() - self._started_s > _START_S:
                raise StreamkitError(_NOT_STARTED)
        elif (queue := thread.run.queue) is not None and queue.waits_for_caller:
            raise StreamkitError(_DEADLOCK)
