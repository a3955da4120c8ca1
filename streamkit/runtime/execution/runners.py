"""Runners of batch, stream and frame stages, and the choice of a stage's runner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streamkit.config.plan import Node
from streamkit.core.crops import LazyRows
from streamkit.core.data import Batch
from streamkit.core.errors import StreamkitError
from streamkit.core.stage import BatchStage, FrameStage, Sink, Stage, StreamStage
from streamkit.emit.emitter import Emitter
from streamkit.runtime.execution.emitter_runner import EmitterRunner
from streamkit.runtime.execution.isolation import BatchSnapshot, StateCopies
from streamkit.runtime.execution.lossy_sink import LossySinkRunner
from streamkit.runtime.execution.output_check import check_batch, check_frame, check_tables
from streamkit.runtime.execution.sink_runner import SinkRunner
from streamkit.runtime.execution.stage_runner import RAISED, MakeContext, Runner
from streamkit.runtime.execution.surface_check import PixelGuard
from streamkit.runtime.execution.tables import join, split

_LOST = "batches without state rollback"


class BatchRunner(Runner):
    """Runs a batch stage."""

    stage: BatchStage | None = None

    def open(self) -> None:
        """Create and open the instance."""
        stage = self.make()
        stage.open()
        assert isinstance(stage, BatchStage)
        self.stage = stage

    def instances(self) -> Iterable[Stage]:
        """The single instance."""
        return () if self.stage is None else (self.stage,)

    def process(self, batch: Batch) -> Batch:
        """Call the stage."""
        assert self.stage is not None
        if (
            isinstance(batch.tensor, LazyRows)
            and "tensor" in self.stage.spec.reads
            and not self.stage.spec.splits_tensor
        ):
            batch.tensor = batch.tensor[:]  # one that is put between expects an array
        return _called(self, self.stage.process, batch)

    def remember(self, batch: Batch) -> Callable[[], None] | None:
        """Snapshot the frames; plugin stages only."""
        return BatchSnapshot(batch.frames).restore if self.apart else None

    def close(self) -> None:
        """Close the instance."""
        if self.stage is not None:
            self.stage.close()


class StreamRunner(Runner):
    """Runs a stream stage and keeps a state for each source."""

    stage: StreamStage | None = None

    def open(self) -> None:
        """Create and open the instance."""
        stage = self.make()
        stage.open()
        assert isinstance(stage, StreamStage)
        self.stage, self.states = stage, dict[str, Any]()
        self._kept = StateCopies(self.states, self._lost)

    def instances(self) -> Iterable[Stage]:
        """The single instance."""
        return () if self.stage is None else (self.stage,)

    def process(self, batch: Batch) -> Batch:
        """Call the stage with the states of the sources in the batch."""
        assert self.stage is not None
        for frame in batch.frames:
            if frame.source not in self.states:
                self.states[frame.source] = self.stage.new_state(frame.source)
        stage = self.stage
        return _called(self, lambda given: stage.process(given, self.states), batch)

    def remember(self, batch: Batch) -> Callable[[], None] | None:
        """Snapshot frames and states; plugin stages only."""
        return BatchSnapshot(batch.frames, self._kept).restore if self.apart else None

    def _lost(self, why: str) -> None:
        if not self.counters[_LOST]:
            self._context(self.node.id).log(f"{self.node.id}: {why}; further ones are counted in the report")
        self.counters.add(_LOST)

    def end(self, source: str) -> None:
        """Drop the source's state."""
        if self.stage is not None and source in self.states:
            self.stage.end(source, self.states.pop(source))

    def close(self) -> None:
        """Close the instance."""
        if self.stage is not None:
            self.stage.close()


class FrameRunner(Runner):
    """Runs a frame stage: one instance per source, created at its first frame."""

    def __init__(self, node: Node, context: MakeContext, fail: Callable[[BaseException], None]) -> None:
        super().__init__(node, context, fail)
        self._instances: dict[str, FrameStage] = {}

    def instances(self) -> Iterable[Stage]:
        """The instances of sources that have had a frame."""
        return self._instances.values()

    def process(self, batch: Batch) -> Batch:
        """Call each frame's instance; tables that it changed become the batch's tables."""
        if batch.tables:  # those of the frames are left of earlier stages
            for frame in batch.frames:
                frame.tables = {}
        split(batch)
        before = [dict(frame.tables) for frame in batch.frames]
        errors = self._checked(batch) if self.apart else self._each(batch)
        for row in errors:
            batch.frames[row].tables = dict(before[row])
        join(batch, before)
        return self.failed(batch, errors) if errors else batch

    def _each(self, batch: Batch) -> dict[int, BaseException]:
        """Call the frames' instances; return the errors by row."""
        errors: dict[int, BaseException] = {}
        for row, frame in enumerate(batch.frames):
            try:
                self._instance(frame.source).process(frame)
            except StreamkitError:
                raise
            except RAISED as error:
                errors[row] = error
        return errors

    def _checked(self, batch: Batch) -> dict[int, BaseException]:
        """Call the instances of a plugin's stage, and validate what it leaves; what was raised, by row."""
        reported = [(list(frame.events), dict(frame.facts)) for frame in batch.frames]
        with PixelGuard(batch.frames) as pixels:
            errors = self._each(batch)
        for row, frame in enumerate(batch.frames):  # after all of them: a stage may keep frames and change them later
            try:
                self.copied(pixels.take([frame], batch.xp))
                check_tables(frame.tables)
                check_frame(frame)
            except (TypeError, ValueError) as error:
                errors.setdefault(row, error)
                frame.events, frame.facts = reported[row]
        if errors:
            pixels.restore(errors)
        return dict(sorted(errors.items()))

    def _instance(self, source: str) -> FrameStage:
        found = self._instances.get(source)
        if found is None:
            made = self.opened(source)
            assert isinstance(made, FrameStage)
            found = self._instances[source] = made
        return found

    def end(self, source: str) -> None:
        """Close the source's instance."""
        self._unopened.pop(source, None)
        instance = self._instances.pop(source, None)
        if instance is not None:
            instance.close()

    def close(self) -> None:
        """Close the remaining instances, even if closing one of them fails."""
        for source in list(self._instances):
            self.kept(partial(self.end, source), f" as that of {source} was closed")


def _called(runner: Runner, process: Callable[[Batch], Batch], batch: Batch) -> Batch:
    """Call a stage on a batch; a plugin stage gets private tables, and its result is validated."""
    if not runner.apart:
        return process(batch)
    before = BatchSnapshot(batch.frames)
    own = replace(batch, frames=list(batch.frames), outputs=dict(batch.outputs), tables=dict(batch.tables))
    with PixelGuard(batch.frames, freeze=not runner.node.in_place, on_host=not runner.node.on_device) as pixels:
        try:
            made = process(own)
        except BaseException:
            pixels.restore()  # what it has said of the frames until then stays
            raise
    if not isinstance(made, Batch):  # the runner refuses it
        return made
    try:
        check_batch(made, batch, runner.node.type)
        runner.copied(pixels.take(made.frames, batch.xp))
    except (TypeError, ValueError):
        before.restore()
        raise
    return made


def runner(node: Node, context: MakeContext, fail: Callable[[BaseException], None], sources: Sequence[str]) -> Runner:
    """Create the runner for a node."""
    if issubclass(node.type, Sink) and node.type.spec.may_drop:
        return LossySinkRunner(node, context, fail, sources)
    if issubclass(node.type, Emitter):
        return EmitterRunner(node, context, fail, sources)
    if issubclass(node.type, Sink):
        return SinkRunner(node, context, fail, sources)
    for kind, made in ((BatchStage, BatchRunner), (StreamStage, StreamRunner), (FrameStage, FrameRunner)):
        if issubclass(node.type, kind):
            return made(node, context, fail)
    raise TypeError(f"{node.id}: a stage of kind {node.type.__name__} cannot stand under stages")
