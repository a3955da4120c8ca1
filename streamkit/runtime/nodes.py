"""Runs one stage of the graph on batches: calls it as its kind promises, and deals with what it raises.

A batch that raises is tried once more frame by frame; a frame that raises is marked and leaves the batch's rows, so
later stages pass it by, and sinks still write its record. What a stage raises elsewhere is told and counted; only an
output that cannot be written ends the run.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from streamkit.counters import Counters
from streamkit.data import Batch, Frame
from streamkit.errors import OutputError, StageError, StreamkitError, describe
from streamkit.plan import Node
from streamkit.runtime.apart import line_of
from streamkit.runtime.pixels import COPIED
from streamkit.stage import Context, Stage

MakeContext = Callable[[str], Context]

_TOLD = 20  # failed frames of a stage that are told one by one
RAISED = (Exception, SystemExit)
"""What a stage may raise; one that wants to end the process ends none but itself."""


class NotOpenedError(Exception):
    """A frame's instance could not be opened before; the text says why."""


class Runner:
    """One node of the graph on one thread.

    Args:
        node: the node.
        context: makes what an instance is told before `open`.
        fail: takes an error that ends the run.

    Attributes:
        call: since when, on the monotonic clock in seconds, and on which thread a call is under way; None without one.
        opening: whether it is opening the stage, which may load a network or compile.
        dead: an output of the stage cannot be written: batches pass it by.
    """

    def __init__(self, node: Node, context: MakeContext, fail: Callable[[BaseException], None]) -> None:
        from streamkit.runtime.metrics import StageMeter

        self.node, self.meter, self._context, self._fail = node, StageMeter(), context, fail
        self.counters = Counters()
        self.call: tuple[float, int] | None = None
        self.dead = self.opening = False
        self.apart = not node.type.__module__.startswith("streamkit.")  # a plugin's: see `runtime/apart.py`
        self._unopened: dict[Any, str] = {}  # why an instance could not be opened
        self._changes: deque[tuple[Mapping[str, Any], Callable[[], None]]] = deque()

    def make(self, **replaced: Any) -> Stage:
        """A new instance, told its context but not opened."""
        stage = self.node.type(**{**self.node.options, **replaced})
        if self.node.in_place:
            stage.in_place = True  # type: ignore[attr-defined]
        stage.context = self._context(self.node.id)
        stage.context.counters = self.counters
        return stage

    def opened(self, key: Any, **replaced: Any) -> Stage:
        """A new instance, open; one that cannot be opened is not tried again for every frame.

        Args:
            key: what the instance is for, such as a source.
            replaced: options that are not those of the YAML.
        """
        if (why := self._unopened.get(key)) is not None:
            raise NotOpenedError(why)  # a new one: what is raised again grows, and keeps its frame
        made = self.make(**replaced)
        try:
            made.open()
        except RAISED as error:
            line = line_of(error, self.node.type)
            self._unopened[key] = f"{describe(error)}{line and f' ({line})'}"
            raise
        return made

    def start(self) -> None:
        """Open the stage.

        Raises:
            StreamkitError: it cannot be; the text names it.
        """
        self.opening = True
        try:
            self.open()
        except StreamkitError:
            raise
        except RAISED as error:
            raise StreamkitError(str(self._failure(error, when=" as it was opened"))) from error
        finally:
            self.opening = False

    def finish(self) -> None:
        """Close the stage, and tell what that raises."""
        self.kept(self.close, " as it was closed")

    def open(self) -> None:
        """Open what is needed before the first frame."""

    def run(self, batch: Batch) -> Batch:
        """Run the stage on a batch of any length, also none."""
        self.call = time.monotonic(), threading.get_ident()
        try:
            if self._changes:
                self._change()
            if batch.frames and not self.dead:
                begun = time.perf_counter()
                self.mark(batch.frames)
                self.meter.frames += len(batch.frames)
                self.meter.batches += 1
                try:
                    batch = self._guarded(batch)
                except OutputError as error:
                    self._give_up(error)
                self.meter.seconds += time.perf_counter() - begun
            for source in batch.ended:
                self.kept(partial(self.end, source), f" as the source {source} ended")
        finally:
            self.call = None
        return batch

    def copied(self, surfaces: int) -> None:
        """Count surfaces that had to be copied before they were handed on."""
        if surfaces:
            self.counters.add(COPIED, surfaces)

    def change(self, values: Mapping[str, Any], refused: Callable[[], None] = lambda: None) -> None:
        """Give the stage's options new values before the next batch, or have it `refused`; from any thread."""
        self._changes.append((values, refused))

    def _change(self) -> None:
        while self._changes:
            values, refused = self._changes.popleft()
            changed: list[tuple[Stage, dict[str, Any]]] = []
            try:
                for instance in self.instances():
                    changed.append((instance, {name: getattr(instance, name) for name in values}))
                    _set(instance, values)
            except RAISED as error:
                self.trouble(error, f" as {', '.join(values)} changed, and keeps what was")
                for instance, before in changed:
                    self.kept(partial(_set, instance, before), " as it went back to what was")
                self.kept(refused, " as its change was taken back")

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
        restore = self.remember(batch) if len(batch.frames) > 1 else None
        try:
            return self._processed(batch)
        except StreamkitError:
            raise
        except RAISED as error:
            if len(batch.frames) == 1:
                return self.failed(batch, {0: error})
        if restore is not None:
            restore()
        return self._one_by_one(batch)

    def remember(self, batch: Batch) -> Callable[[], None] | None:
        """What puts back all that the stage may have changed before it raised, so that it can be called again."""
        return None

    def _processed(self, batch: Batch) -> Batch:
        """Call the stage; a batch that it made anew gets what only the runner knows."""
        made = self.process(batch)
        if not isinstance(made, Batch):
            raise TypeError(f"{self.node.type.__name__}.process must return a Batch, got {type(made).__name__}")
        if made is not batch:
            made.sequence, made.ended, made.ready = batch.sequence, batch.ended, made.ready or batch.ready
            own = set(map(id, made.failed))
            made.failed = [*(frame for frame in batch.failed if id(frame) not in own), *made.failed]
        return made

    def _one_by_one(self, batch: Batch) -> Batch:
        """Run the stage again on each frame alone, and join what goes well."""
        parts: list[Batch] = []
        errors: dict[int, BaseException] = {}
        for row in range(len(batch.frames)):
            try:
                parts.append(self._processed(batch.take([row])))
            except StreamkitError:
                raise
            except RAISED as error:
                errors[row] = error
        if not errors:
            return Batch.join(parts, batch)
        marked = self.failed(batch, errors)
        if not parts:
            return marked
        joined = Batch.join(parts, batch)
        joined.failed = marked.failed
        return joined

    def failed(self, batch: Batch, errors: Mapping[int, BaseException]) -> Batch:
        """Mark the frames of these rows failed and take them out; end the run where `on_error` is `stop`."""
        for row, error in errors.items():
            self._tell(batch.frames[row], error)
        well = [row for row in range(len(batch.frames)) if row not in errors]
        kept = batch.take(well) if well else Batch([], batch.xp, sequence=batch.sequence)
        kept.failed = [*batch.failed, *(batch.frames[row] for row in errors)]
        kept.ended, kept.ready = batch.ended, batch.ready
        return kept

    def _failure(self, error: BaseException, frame: Frame | None = None, when: str = "") -> StageError:
        known = not self.apart or isinstance(error, NotOpenedError)  # whose text has the line
        line = "" if known else line_of(error, self.node.type)
        return StageError(self.node.id, error, frame, when=when, line=line)

    def _give_up(self, error: OutputError) -> None:
        """End the run, whose other outputs are still to be written: what comes now passes this stage by."""
        self.dead = True
        self._fail(error)

    def kept(self, call: Callable[[], None], when: str) -> None:
        """Call what a stage does where no frame is at work, and keep what it raises from what else there is to do."""
        try:
            call()
        except OutputError as error:
            self._give_up(error)
        except RAISED as error:
            self.trouble(error, when)

    def trouble(self, error: BaseException, when: str) -> None:
        """Tell and count what was no frame's doing; end the run where `on_error` is `stop`."""
        told = self._failure(error, when=when)
        self.meter.troubles += 1
        self.counters.add("errors beside frames")
        if self.node.run.on_error == "stop":
            told.__cause__ = error
            self._fail(told)
        else:
            self._context(self.node.id).say(str(told))

    def _tell(self, frame: Frame, error: BaseException) -> None:
        told = self._failure(error, frame)
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


def _set(instance: Stage, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(instance, name, value)
    instance.changed()
