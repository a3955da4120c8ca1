"""The runners of batch, stream and frame stages, and which runner a stage has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from streamkit.crops import Rows
from streamkit.data import Batch, Detections, Frame
from streamkit.emit.emitter import Emitter
from streamkit.errors import StreamkitError
from streamkit.plan import Node
from streamkit.runtime.apart import Before, Own, States, parts_of, same, touched
from streamkit.runtime.aside import AsideRunner
from streamkit.runtime.contract import check_batch, check_frame, check_tables
from streamkit.runtime.emitting import EmitRunner
from streamkit.runtime.nodes import RAISED, MakeContext, Runner
from streamkit.runtime.pixels import Pixels
from streamkit.runtime.sinks import SinkRunner
from streamkit.runtime.tables import join, split
from streamkit.stage import BatchStage, FrameStage, Sink, Stage, StreamStage

_LOST = "batches whose states were not put back"


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
        return _called(self, self.stage.process, batch)

    def remember(self, batch: Batch) -> Callable[[], None] | None:
        """Frames; of a plugin's stage."""
        return Before(batch.frames).restore if self.apart else None

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
        self._kept = States(self.states, self._lost)

    def instances(self) -> Iterable[Stage]:
        """The one instance."""
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
        """Frames and states; of a plugin's stage."""
        return Before(batch.frames, self._kept).restore if self.apart else None

    def _lost(self, why: str) -> None:
        if not self.counters[_LOST]:
            self._context(self.node.id).say(f"{self.node.id}: {why}; further ones are counted in the report")
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
    """Runs a frame stage: one instance a source, made when its first frame comes."""

    def __init__(self, node: Node, context: MakeContext, fail: Callable[[BaseException], None]) -> None:
        super().__init__(node, context, fail)
        self._instances: dict[str, FrameStage] = {}

    def instances(self) -> Iterable[Stage]:
        """Those of the sources that have had a frame."""
        return self._instances.values()

    def process(self, batch: Batch) -> Batch:
        """Call each frame's instance; tables that it changed become the batch's."""
        if self.apart:
            errors = self._apart(batch)
        else:
            split(batch)
            before = [dict(frame.tables) for frame in batch.frames]
            errors = self._each(batch)
            for row in errors:
                batch.frames[row].tables = dict(before[row])
            join(batch, before)
        return self.failed(batch, errors) if errors else batch

    def _each(self, batch: Batch) -> dict[int, BaseException]:
        """Call the frames' instances; what was raised, by row."""
        errors: dict[int, BaseException] = {}
        for row, frame in enumerate(batch.frames):
            try:
                self._instance(frame.source).process(frame)
            except StreamkitError:
                raise
            except RAISED as error:
                errors[row] = error
        return errors

    def _apart(self, batch: Batch) -> dict[int, BaseException]:
        """A plugin's stage gets tables of its own. It may hold on to them, so what it has changed is copied again."""
        frames, n = batch.frames, len(batch.frames)
        given = {name: batch.table(name).by_frame(n)[0] for name in batch.tables}
        own = {name: table.copy() for name, table in given.items()}
        changed = {name for frame in frames for name in frame.tables} if not own else set[str]()
        for frame in frames:  # where the batch has tables, others are what is left of earlier ones
            frame.tables = {} if own else {name: table.copy() for name, table in frame.tables.items()}
        split(replace(batch, tables=dict(own)))
        before = [dict(frame.tables) for frame in frames]
        parts = [{name: parts_of(table) for name, table in tables.items()} for tables in before]

        said = [(list(frame.events), dict(frame.facts)) for frame in frames]
        with Pixels(frames) as pixels:
            errors = self._each(batch)
        for row, frame in enumerate(frames):  # after all of them: a stage may hold on to the tables of earlier ones
            try:
                self.copied(pixels.take([frame], batch.xp))
                changed.update(_changed_tables(frame, before[row], parts[row]))
                check_frame(frame)
            except (TypeError, ValueError) as error:
                errors.setdefault(row, error)
                frame.events, frame.facts = said[row]
        changed.update(name for name in own if name not in changed and not same(own[name], given[name]))
        if errors:
            pixels.restore(errors)
            as_given = {name: table.split(n) for name, table in given.items()}
            for row in errors:
                before[row] = {name: part[row] for name, part in as_given.items()}
                frames[row].tables = dict(before[row])
        join(batch, before, changed)
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
        """Close what is left, also where one of them cannot be."""
        for source in list(self._instances):
            self.kept(partial(self.end, source), f" as that of {source} was closed")


def _changed_tables(frame: Frame, before: dict[str, Detections], parts: dict[str, list[Any]]) -> list[str]:
    """The names of the tables that a stage has changed, checked. Raises TypeError or ValueError."""
    check_tables(frame.tables, only=())
    changed = [
        name for name, table in frame.tables.items() if table is not before.get(name) or touched(table, parts[name])
    ]
    check_tables(frame.tables, only=changed)
    return changed


def _called(runner: Runner, process: Callable[[Batch], Batch], batch: Batch) -> Batch:
    """What a stage makes of a batch; a plugin's works on what is its own, and what it makes is checked."""
    if not runner.apart:
        return process(batch)
    own, before = Own(batch), Before(batch.frames)
    with Pixels(batch.frames, freeze=not runner.node.in_place, on_host=not runner.node.on_device) as pixels:
        try:
            made = process(own.batch)
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
    own.give_back(made)
    return made


def runner(node: Node, context: MakeContext, fail: Callable[[BaseException], None], sources: Sequence[str]) -> Runner:
    """The runner for a node's kind."""
    if issubclass(node.type, Sink) and node.type.may_drop:
        return AsideRunner(node, context, fail, sources)
    if issubclass(node.type, Emitter):
        return EmitRunner(node, context, fail, sources)
    if issubclass(node.type, Sink):
        return SinkRunner(node, context, fail, sources)
    for kind, made in ((BatchStage, BatchRunner), (StreamStage, StreamRunner), (FrameStage, FrameRunner)):
        if issubclass(node.type, kind):
            return made(node, context, fail)
    raise TypeError(f"{node.id}: a stage of kind {node.type.__name__} cannot stand under stages")
