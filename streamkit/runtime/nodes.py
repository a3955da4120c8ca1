"""Runs one stage of the graph on batches: calls it as its kind promises, and deals with what it raises.

A batch that raises is tried once more frame by frame; a frame that raises is marked and leaves the batch's rows, so
later stages pass it by, and sinks still write its record.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from streamkit.counters import Counters
from streamkit.crops import Rows
from streamkit.data import Batch, Frame
from streamkit.errors import StageError, StreamkitError
from streamkit.plan import Node
from streamkit.runtime.tables import join, split
from streamkit.stage import BatchStage, Context, FrameStage, Stage, StreamStage

MakeContext = Callable[[str], Context]

_TOLD = 20  # failed frames of a stage that are told one by one


class Runner:
    """One node of the graph on one thread.

    Args:
        node: the node.
        context: makes what an instance is told before `open`.
        fail: takes an error that ends the run.

    Attributes:
        call: since when, on the monotonic clock in seconds, and on which thread a call is under way; None without one.
    """

    def __init__(self, node: Node, context: MakeContext, fail: Callable[[BaseException], None]) -> None:
        from streamkit.runtime.metrics import StageMeter

        self.node, self.meter, self._context, self._fail = node, StageMeter(), context, fail
        self.counters = Counters()
        self.call: tuple[float, int] | None = None
        self._changes: deque[Mapping[str, Any]] = deque()

    def make(self, **replaced: Any) -> Stage:
        """A new instance, told its context but not opened."""
        stage = self.node.type(**{**self.node.options, **replaced})
        if self.node.in_place:
            stage.in_place = True  # type: ignore[attr-defined]
        stage.context = self._context(self.node.id)
        stage.context.counters = self.counters
        return stage

    def open(self) -> None:
        """Open what is needed before the first frame."""

    def run(self, batch: Batch) -> Batch:
        """Run the stage on a batch of any length, also none."""
        self.call = time.monotonic(), threading.get_ident()
        try:
            if self._changes:
                self._change()
            if batch.frames:
                begun = time.perf_counter()
                self.mark(batch.frames)
                self.meter.frames += len(batch.frames)
                self.meter.batches += 1
                batch = self._guarded(batch)
                self.meter.seconds += time.perf_counter() - begun
            for source in batch.ended:
                self.end(source)
        finally:
            self.call = None
        return batch

    def change(self, values: Mapping[str, Any]) -> None:
        """Give the stage's options new values before the next batch; from any thread."""
        self._changes.append(values)

    def _change(self) -> None:
        while self._changes:
            values = self._changes.popleft()
            for instance in self.instances():
                for name, value in values.items():
                    setattr(instance, name, value)
                instance.changed()

    def instances(self) -> Iterable[Stage]:
        """The instances that are open now."""
        raise NotImplementedError

    def mark(self, frames: Sequence[Frame]) -> None:
        """Tell frames which stage is at work on them, and where it counts."""
        for frame in frames:
            frame.stage, frame.counters = self.node.id, self.counters

    def end(self, source: str) -> None:
        """No frame of `source` will come any more."""

    def close(self) -> None:
        """Close every instance that was opened."""

    def process(self, batch: Batch) -> Batch:
        """Call the stage."""
        raise NotImplementedError

    def _guarded(self, batch: Batch) -> Batch:
        try:
            return self._processed(batch)
        except StreamkitError:
            raise
        except Exception as error:
            if len(batch.frames) == 1:
                return self.failed(batch, {0: error})
        return self._one_by_one(batch)

    def _processed(self, batch: Batch) -> Batch:
        """Call the stage; a batch that it made anew gets what only the runner knows."""
        made = self.process(batch)
        if not isinstance(made, Batch):
            raise TypeError(f"{self.node.type.__name__}.process must return a Batch, got {type(made).__name__}")
        if made is not batch and made.sequence != batch.sequence:
            made.sequence, made.ended, made.ready = batch.sequence, batch.ended, batch.ready
            made.failed = made.failed or batch.failed
        return made

    def _one_by_one(self, batch: Batch) -> Batch:
        """Run the stage again on each frame alone, and join what goes well."""
        parts: list[Batch] = []
        errors: dict[int, Exception] = {}
        for row in range(len(batch.frames)):
            try:
                parts.append(self._processed(batch.take([row])))
            except StreamkitError:
                raise
            except Exception as error:
                errors[row] = error
        if not errors:
            return Batch.join(parts, batch)
        marked = self.failed(batch, errors)
        if not parts:
            return marked
        joined = Batch.join(parts, batch)
        joined.failed = marked.failed
        return joined

    def failed(self, batch: Batch, errors: dict[int, Exception]) -> Batch:
        """Mark the frames of these rows failed and take them out; end the run where `on_error` is `stop`."""
        for row, error in errors.items():
            self._tell(batch.frames[row], error)
        well = [row for row in range(len(batch.frames)) if row not in errors]
        kept = batch.take(well) if well else Batch([], batch.xp, sequence=batch.sequence)
        kept.failed = [*batch.failed, *(batch.frames[row] for row in errors)]
        kept.ended, kept.ready = batch.ended, batch.ready
        return kept

    def _tell(self, frame: Frame, error: Exception) -> None:
        told = StageError(self.node.id, error, frame)
        frame.error = frame.error or str(told)
        self.meter.failed += 1
        self.counters.add("frames failed")
        if frame.account is not None:
            frame.account.failures += 1
            frame.account.first_failure = frame.account.first_failure or str(told)
        if self.node.run.on_error == "stop":
            told.__cause__ = error
            self._fail(told)
        elif self.meter.failed <= _TOLD:
            self._context(self.node.id).say(str(told))
        elif self.meter.failed == _TOLD + 1:
            self._context(self.node.id).say(f"{self.node.id}: further frames fail; the report counts them")


class BatchRunner(Runner):
    """Runs a batch stage."""

    stage: BatchStage | None = None

    def open(self) -> None:
        """Make and open the instance."""
        stage = self.make()
        stage.open()
        assert isinstance(stage, BatchStage)
        self.stage = stage

    def instances(self) -> Iterable[Stage]:
        """The one instance."""
        return () if self.stage is None else (self.stage,)

    def process(self, batch: Batch) -> Batch:
        """Call the stage."""
        assert self.stage is not None
        if isinstance(batch.tensor, Rows) and "tensor" in self.stage.reads and not hasattr(self.stage, "takes_rows"):
            batch.tensor = batch.tensor[:]  # one that is put between expects an array
        return self.stage.process(batch)

    def close(self) -> None:
        """Close the instance."""
        if self.stage is not None:
            self.stage.close()


class StreamRunner(Runner):
    """Runs a stream stage; keeps a state for each source."""

    stage: StreamStage | None = None

    def open(self) -> None:
        """Make and open the instance."""
        stage = self.make()
        stage.open()
        assert isinstance(stage, StreamStage)
        self.stage, self.states = stage, dict[str, Any]()

    def instances(self) -> Iterable[Stage]:
        """The one instance."""
        return () if self.stage is None else (self.stage,)

    def process(self, batch: Batch) -> Batch:
        """Call the stage with the states of the sources in the batch."""
        assert self.stage is not None
        for frame in batch.frames:
            if frame.source not in self.states:
                self.states[frame.source] = self.stage.new_state(frame.source)
        return self.stage.process(batch, self.states)

    def end(self, source: str) -> None:
        """Drop the source's state."""
        if self.stage is not None and source in self.states:
            self.stage.end(source, self.states.pop(source))

    def close(self) -> None:
        """Close the instance."""
        if self.stage is not None:
            self.stage.close()


class FrameRunner(Runner):
    """Runs a frame stage: one instance a source, made when its first frame comes."""

    def __init__(self, node: Node, context: MakeContext, fail: Callable[[BaseException], None]) -> None:
        super().__init__(node, context, fail)
        self._instances: dict[str, FrameStage] = {}

    def instances(self) -> Iterable[Stage]:
        """Those of the sources that have had a frame."""
        return self._instances.values()

    def process(self, batch: Batch) -> Batch:
        """Call each frame's instance; tables that it changed become the batch's."""
        split(batch)
        before = [dict(frame.tables) for frame in batch.frames]
        errors: dict[int, Exception] = {}
        for row, frame in enumerate(batch.frames):
            try:
                self._instance(frame.source).process(frame)
            except StreamkitError:
                raise
            except Exception as error:
                errors[row] = error
        join(batch, before)
        return self.failed(batch, errors) if errors else batch

    def _instance(self, source: str) -> FrameStage:
        found = self._instances.get(source)
        if found is None:
            made = self.make()
            assert isinstance(made, FrameStage)
            made.open()
            found = self._instances[source] = made
        return found

    def end(self, source: str) -> None:
        """Close the source's instance."""
        instance = self._instances.pop(source, None)
        if instance is not None:
            instance.close()

    def close(self) -> None:
        """Close what is left."""
        for source in list(self._instances):
            self.end(source)
