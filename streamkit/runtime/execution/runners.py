# SPDX-License-Identifier: Apache-2.0
"""Runners of each kind of stage, and the choice of a stage's runner."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streamkit.config.plan import Node
from streamkit.core.crops import LazyOutputs, dense
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.errors import OutputError, StreamkitError, describe
from streamkit.core.logs import STAGE
from streamkit.core.records import batch_lines
from streamkit.core.stage import BatchStage, FrameStage, Sink, Stage, StreamStage
from streamkit.emit.emitter import Emitter
from streamkit.emit.sender import DROPPED_BY_BROKER, Sender
from streamkit.emit.spool import DROPPED as SPOOL_DROPPED
from streamkit.io.outputs import fill_path
from streamkit.runtime.execution import isolation
from streamkit.runtime.execution.channel import Channel
from streamkit.runtime.execution.device import lane_device
from streamkit.runtime.execution.future import ThreadFuture, start
from streamkit.runtime.execution.isolation import BatchSnapshot, PixelGuard, StateCopies
from streamkit.runtime.execution.stage_runner import RAISED, Fail, MakeContext, Runner
from streamkit.runtime.execution.tables import join, split

DROPPED = "frames dropped: stage busy"
_LOST = "batches without state rollback"
_DEPTH = 8
_GRACE_S = 4.0
_POLL_S = 0.02


def runner(node: Node, context: MakeContext, fail: Fail, sources: Sequence[str]) -> Runner:
    """Create the runner for a node."""
    if issubclass(node.type, Sink):
        lossy = node.type.spec.may_drop
        emits = issubclass(node.type, Emitter)
        kind = LossySinkRunner if lossy else EmitterRunner if emits else SinkRunner
        return kind(node, context, fail, sources)
    for stage, runner_type in ((BatchStage, BatchRunner), (StreamStage, StreamRunner), (FrameStage, FrameRunner)):
        if issubclass(node.type, stage):
            return runner_type(node, context, fail)
    raise TypeError(f"{node.id}: a stage of kind {node.type.__name__} cannot be used under stages")


class BatchRunner(Runner):
    """Runs a batch stage."""

    stage: Any = None
    _copies: StateCopies | None = None

    def open(self) -> None:
        """Create and open the instance."""
        self.stage = self.instance(None)

    def process(self, batch: Batch) -> Batch:
        """Call the stage."""
        spec = self.node.type.spec
        if ("tensor" in spec.reads and not spec.splits_tensor) or "pixels" in spec.writes:
            batch.tensor = dense(batch.tensor)  # the stage expects an array, or changes what rows are created from
        processed = self._called(self.stage.process, batch)
        if isinstance(processed, Batch) and isinstance(processed.outputs, LazyOutputs) and not self.splits_outputs:
            processed.outputs = processed.outputs.whole(processed.xp)
        return processed

    def _called(self, process: Callable[[Batch], Batch], batch: Batch) -> Batch:
        """Call a stage on a batch; an isolated stage gets private tables, and its result is validated."""
        if not self.isolated:
            return process(batch)
        before = BatchSnapshot(batch.frames) if len(batch.frames) == 1 else None  # `run` restores several itself
        private_batch = replace(
            batch, frames=list(batch.frames), outputs=dict(batch.outputs), tables=dict(batch.tables)
        )
        with PixelGuard(batch.frames, freeze=not self.node.in_place, on_host=not self.node.on_device) as pixels:
            try:
                processed = process(private_batch)
            except BaseException:
                pixels.restore()  # events and facts that it has reported until then are kept
                raise
        if not isinstance(processed, Batch):  # the runner refuses it
            return processed
        try:
            isolation.check_batch(processed, batch, self.node.type)
            self.count_copies(pixels.take(processed.frames, batch.xp))
        except (TypeError, ValueError):
            if before is not None:
                before.restore()
            raise
        return processed

    def snapshot(self, batch: Batch) -> Callable[[], None] | None:
        """Snapshot the frames, and the states of a stream stage."""
        return BatchSnapshot(batch.frames, self._copies).restore

    def close(self) -> None:
        """Close the instance."""
        if self.stage is not None:
            self.stage.close()


class StreamRunner(BatchRunner):
    """Runs a stream stage and keeps a state for each source."""

    def open(self) -> None:
        """Create and open the instance."""
        super().open()
        self.states: dict[str, Any] = {}
        self._copies = StateCopies(self.states, self._lost)

    def process(self, batch: Batch) -> Batch:
        """Call the stage with the states of the sources in the batch."""
        for frame in batch.frames:
            if frame.source not in self.states:
                self.states[frame.source] = self.stage.new_state(frame.source)
        return self._called(lambda passed_batch: self.stage.process(passed_batch, self.states), batch)

    def run(self, batch: Batch) -> Batch:
        """Also pass batches of failed frames only to a stage with late results: one may be a closing frame."""
        if batch.failed and not batch.frames and self.node.type.spec.late_results:
            self.guard(partial(self.process, batch), " on failed frames")
        return super().run(batch)

    def _lost(self, why: str) -> None:
        if not self.counters[_LOST]:
            self.log(f"{self.node.id}: {why}; further occurrences are counted in the report")
        self.counters.add(_LOST)

    def end(self, source: str) -> None:
        """Drop the source's state."""
        if source in self.states:
            self.stage.end(source, self.states.pop(source))


class FrameRunner(Runner):
    """Runs a frame stage: one instance per source, created at its first frame."""

    def process(self, batch: Batch) -> Batch:
        """Call each frame's instance; tables that it changed become the batch's tables."""
        if batch.tables:  # the frames' own tables are those of earlier stages
            for frame in batch.frames:
                frame.tables = {}
        split(batch)
        before = [dict(frame.tables) for frame in batch.frames]
        errors = self._checked(batch) if self.isolated else self._each(batch)
        for row in errors:
            batch.frames[row].tables = dict(before[row])
        join(batch, before)
        return self.failed(batch, errors) if errors else batch

    def _each(self, batch: Batch) -> dict[int, BaseException]:
        """Call the frames' instances; return the errors by row."""
        errors: dict[int, BaseException] = {}
        instances = self._instances
        for row, frame in enumerate(batch.frames):
            try:
                returned = (instances.get(frame.source) or self.instance(frame.source)).process(frame)
                if returned is not None and returned is not frame:
                    raise TypeError(_refused_return(returned))
            except StreamkitError:
                raise
            except RAISED as error:
                errors[row] = error
        return errors

    def _checked(self, batch: Batch) -> dict[int, BaseException]:
        """Call the instances of an isolated stage, and validate the frames afterwards; return the errors by row."""
        reported = [(list(frame.events), dict(frame.facts)) for frame in batch.frames]
        with PixelGuard(batch.frames) as pixels:
            errors = self._each(batch)
        for row, frame in enumerate(batch.frames):  # after all of them: a stage may keep frames and change them later
            try:
                self.count_copies(pixels.take([frame], batch.xp))
                isolation.check_tables(frame.tables)
                isolation.check_frame(frame)
            except (TypeError, ValueError) as error:
                errors.setdefault(row, error)
                frame.events, frame.facts = reported[row]
        if errors:
            pixels.restore(errors)
        return dict(sorted(errors.items()))

    def end(self, source: str) -> None:
        """Close the source's instance."""
        if (instance := self.pop_instance(source)) is not None:
            instance.close()

    def close(self) -> None:
        """Close the remaining instances, even if closing one of them fails."""
        for source in list(self._instances):
            self.guard(partial(self.end, source), f" as the instance of source {source} was closed")


def _refused_return(value: object) -> str:
    """The error for what the `process` of a frame stage, or its function, must not return."""
    text = f"a frame stage must return None or its frame, got {isolation.type_text(value)}; "
    if hasattr(value, "__array_interface__") or hasattr(value, "__cuda_array_interface__"):
        return text + "frame.image() is a copy: to change the picture, assign frame.surface, an NV12 Surface"
    return text + "assign frame.detections, or call frame.emit(...)"


# -------------------------------------------------------------------------------------------------------------- sinks


class SinkRunner(Runner):
    """Runs a sink: one instance per path, all frames in order; reports outputs that cannot be written.

    Sources may come and go. If the path contains `{source}`, an instance is closed when its source ends; otherwise the
    instance stays open until the end of the run, as more sources may come.

    Args:
        sources: the ids of the sources that are known before the start.
    """

    def __init__(self, node: Node, context: MakeContext, fail: Fail, sources: Sequence[str]) -> None:
        super().__init__(node, context, fail)
        self._first = next(iter(sources), "none")
        self._failed_paths: set[Any] = set()
        self._target = node.type.spec.target
        self._template = node.options.get(self._target)
        self._per_source = isinstance(self._template, str) and "{source}" in self._template
        self.keeps_lines = node.type.spec.built_in and not node.type.spec.writes
        self._encodes = node.type.encode is not Sink.encode  # type: ignore[attr-defined]

    def open(self) -> None:
        """Open a shared output, so that a folder without write permission is detected before the first frame."""
        path = self._path(self._first)
        if self._per_source:
            self.make(**self._options(path)).probe()
        else:
            self.instance(path, **self._options(path))

    def process(self, batch: Batch) -> Batch:
        """Write every frame of the batch in order, including failed ones."""
        encoded = self._encoded(batch) if self._encodes else {}
        if not encoded:
            split(batch)
        frames = batch.frames
        if batch.failed:
            self.mark(batch.failed)
            frames = sorted([*batch.frames, *batch.failed], key=lambda frame: frame._state.position)
        errors: dict[int, BaseException] = {}
        for frame in frames:
            path = self._path(frame.source) if self._per_source else self._template
            if path in self._failed_paths:
                continue
            try:
                sink = self._instances.get(path) or self.instance(path, **self._options(path))
                if encoded and id(frame) in encoded:
                    sink.write_encoded(frame, encoded[id(frame)])
                else:
                    sink.write(frame)
            except OutputError as error:
                self._output_failed(path, error)
            except StreamkitError:
                raise
            except Exception as error:
                row = next((i for i, f in enumerate(batch.frames) if f is frame), None)
                if row is None:  # it failed in an earlier stage, and now it also has no record
                    self._frame_failed(frame, error)
                else:
                    errors[row] = error
        for path, sink in self._instances.items():
            if path not in self._failed_paths:
                self._guarded_output(path, sink.flush, " as the batch was flushed")
        return self.failed(batch, errors) if errors else batch

    def _guarded_output(self, path: Any, call: Callable[[], None], when: str) -> None:
        """Flush or close an output. Nothing is raised, or the batch would be retried and written twice."""
        try:
            call()
        except (StreamkitError, OSError) as error:
            self._output_failed(path, error)
        except Exception as error:
            self.report_error(error, when)

    def _output_failed(self, path: Any, error: Exception) -> None:
        """End the run; nothing further is written to this output."""
        self._failed_paths.add(path)
        self._fail(error if isinstance(error, StreamkitError) else OutputError(describe(error)))

    def _encoded(self, batch: Batch) -> dict[int, Any]:
        """Encode all frames at once, by the frame's identity; empty if the sink encodes frame by frame."""
        if _has_frame_tables(batch):
            return {}
        try:
            encode = self.node.type.encode  # type: ignore[attr-defined]
            encoded = _lines(batch) if encode is batch_lines else encode(batch)
            return dict(zip(map(id, batch.frames), encoded, strict=True))
        except StreamkitError:
            raise
        except Exception:  # encoding frame by frame finds the frame that fails
            return {}

    def run(self, batch: Batch) -> Batch:
        """Also write batches that contain failed frames only."""
        if batch.failed and not batch.frames:
            self.process(batch)
        return super().run(batch)

    def _path(self, source: str) -> Any:
        return fill_path(str(self._template), source) if self._per_source else self._template

    def _options(self, path: Any) -> dict[str, Any]:
        """The options of the instance for a path that differ from the YAML."""
        return {} if path is None else {self._target: path}

    def end(self, source: str) -> None:
        """Notify the source's instance; close it if no other source uses it."""
        path = self._path(source)
        instance = self._instances.get(path)
        self._unopened.pop(path, None)
        if instance is None:
            return
        try:
            instance.end(source)
            if self._per_source:
                del self._instances[path]
                instance.close()
        except OutputError as error:  # the other files are still written
            self._output_failed(path, error)

    def close(self) -> None:
        """Close the remaining instances, even if closing one of them fails."""
        for path in list(self._instances):
            self._guarded_output(path, self._instances.pop(path).close, " as it was closed")


def _lines(batch: Batch) -> list[bytes]:
    """The lines of the frames, made once for all sinks that follow each other."""
    if batch.lines is None:
        batch.lines = batch_lines(batch)
    return batch.lines


def _has_frame_tables(batch: Batch) -> bool:
    """Whether the tables are the frames' own, and not the batch's."""
    return not batch.tables and any(frame.tables for frame in batch.frames)


class EmitterRunner(SinkRunner):
    """Runs an emitter, whose sender never blocks the pipeline: it empties the spool on its own thread."""

    _sending: ThreadFuture[None] | None = None

    def opened(self, key: Any, **replaced: Any) -> Stage:
        """Create and open the instance, and start its sender."""
        emitter = super().opened(key, **replaced)
        assert isinstance(emitter, Emitter)
        self._sending = ThreadFuture(partial(self._send, emitter.sender))
        return emitter

    def _send(self, sender: Sender, over: Callable[[], bool]) -> None:
        STAGE.set(self.node.id)
        sender.run(over)

    def process(self, batch: Batch) -> Batch:
        """Write the frames of the batch, at once where the emitter sends each as its line."""
        sink = self._instances.get(None)
        if sink is None or not sink.sends_lines or batch.failed or self._failed_paths or _has_frame_tables(batch):
            return super().process(batch)
        try:
            sink.write_lines(batch.frames, _lines(batch))
        except StreamkitError:
            raise
        except Exception:  # nothing was written; frame by frame, the one that fails is found
            return super().process(batch)
        self._guarded_output(None, sink.flush, " as the batch was flushed")
        return batch

    def close(self) -> None:
        """Drain the spool while the broker accepts records, within `drain_timeout`; stop the sender; log lost records.

        A lost record is neither delivered nor in the spool; the run then ends with exit code 1.
        """
        for path, sink in self._instances.items():
            self._guarded_output(path, sink.flush, " as it was flushed")
            _drain(sink)
        if self._sending is not None:
            self._sending.drop()
        super().close()
        names = (*SPOOL_DROPPED, *DROPPED_BY_BROKER)
        if lost := [f"{self.counters[name]:,} {name}" for name in names if self.counters[name]]:
            self.meter.other_errors += 1
            self.log(f"{self.node.id} lost records: {'; '.join(lost)}")


def _drain(sink: Emitter) -> None:
    """Wait until all is sent, or nothing has been accepted for `drain_timeout`; time spent without a broker counts."""
    before = -1
    taken_s = 0.0
    sender = sink.sender
    sender.draining = True
    while sink.queue.waiting:
        now_s = time.monotonic()
        if sender.delivered > before:  # records that a client returned and accepts again do not count
            before = sender.delivered
            taken_s = now_s
        failing_since_s = sender.failing_since_s
        if now_s - (taken_s if failing_since_s is None else min(taken_s, failing_since_s)) > sink.drain_timeout:
            return
        time.sleep(_POLL_S)


class LossySinkRunner(SinkRunner):
    """Runs a sink with `may_drop`: one instance per source, each on its own thread that never blocks the pipeline.

    An exception of such a sink is logged and counted; the run continues.
    """

    def __init__(self, node: Node, context: MakeContext, fail: Fail, sources: Sequence[str]) -> None:
        super().__init__(node, context, fail, sources)
        self._threads: dict[str, LossySinkThread] = {}
        self._leaving: list[LossySinkThread] = []

    def instances(self) -> Iterable[Stage]:
        """The instances of sources that have had a frame."""
        return [sink_thread.sink for sink_thread in self._threads.values()]

    def open(self) -> None:
        """Check the sink's options before the first frame."""
        self._sink(self._first).probe()

    def process(self, batch: Batch) -> Batch:
        """Queue every frame for its source's thread."""
        split(batch)
        for frame in batch.frames:
            thread = self._threads.get(frame.source)
            if thread is None:
                sink = self._sink(frame.source)
                name = f"{self.node.id}/{frame.source}"
                thread = LossySinkThread(sink, sink.context.device, name, self._on_failure)
                self._threads[frame.source] = thread
            if thread.frames.push(replace(frame, tables=dict(frame.tables), events=list(frame.events))):
                thread.sink.context.counters.add(DROPPED)
        return batch

    def _sink(self, source: str) -> Sink:
        sink = self.make(**self._options(self._path(source)))
        assert isinstance(sink, Sink)
        return sink

    def end(self, source: str) -> None:
        """Let the source's thread finish."""
        thread = self._threads.pop(source, None)
        self._leaving = [sink_thread for sink_thread in self._leaving if sink_thread.thread.is_alive()]
        if thread is not None:
            thread.frames.close()
            self._leaving.append(thread)

    def close(self) -> None:
        """Wait a few seconds for the threads; log each one that hangs and abandon it."""
        for source in list(self._threads):
            self.end(source)
        until_s = time.monotonic() + _GRACE_S
        for sink_thread in self._leaving:
            sink_thread.thread.join(max(0.0, until_s - time.monotonic()))
            if sink_thread.thread.is_alive():
                self.log(f"{sink_thread.thread.name} does not end and is abandoned")

    def _on_failure(self, frame: Frame | None, error: Exception) -> None:
        if frame is not None:
            self._frame_failed(frame, error)
            return
        self.counters.add("instances failed")
        self.log(f"{self.node.id} failed: {error}")


class LossySinkThread:
    """One source's instance of a sink, on its own thread, with a short queue of the newest frames.

    Args:
        sink: the instance, not yet open.
        device: the pipeline's device.
        name: name of the thread.
        failed: receives exceptions of the sink, with the frame, or None if the sink could not be opened or closed.

    Attributes:
        frames: its queue; once it is closed, the thread ends after the queued frames are written.
    """

    def __init__(
        self, sink: Sink, device: Device, name: str, failed: Callable[[Frame | None, Exception], None]
    ) -> None:
        self.sink = sink
        self._device = device
        self._failed = failed
        self.frames = Channel[Frame](_DEPTH)
        self.thread = start(name, self._run)

    def _run(self) -> None:
        try:
            with lane_device(self._device, False).activate():
                self.sink.open()
                try:
                    while (frame := self.frames.get()) is not None:
                        self._write(frame)
                        del frame  # or this thread would hold the frame while it waits for the next one
                finally:
                    self.sink.close()
        except Exception as error:
            self._failed(None, error)

    def _write(self, frame: Frame) -> None:
        try:
            self.sink.write(frame)
        except StreamkitError:
            raise
        except Exception as error:
            self._failed(frame, error)
