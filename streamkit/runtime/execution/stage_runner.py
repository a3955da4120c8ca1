# SPDX-License-Identifier: Apache-2.0
"""Runs one stage on batches: calls it according to its kind, and handles its exceptions.

If a stage raises on a batch, the batch is retried frame by frame. A frame that raises again is marked as failed and
leaves the batch's rows: later stages skip it, and sinks still write its record. An exception outside of a frame is
logged and counted. Only an output that cannot be written ends the run.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from streamkit.config.plan import Node
from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Frame
from streamkit.core.errors import OutputError, StageError, StreamkitError, describe
from streamkit.core.logs import STAGE, LogOnce
from streamkit.core.stage import Context, RuntimeContext, Stage
from streamkit.runtime.execution.device import lost_device
from streamkit.runtime.execution.isolation import COPIED, line_of
from streamkit.runtime.execution.meters import StageMeter

logger = logging.getLogger(__name__)

MakeContext = Callable[[str], Context]
Fail = Callable[[BaseException], None]

_MAX_LOGGED = 20  # failed frames of a stage that are logged individually
RAISED = (Exception, SystemExit)
"""What a stage may raise. SystemExit is treated as an error of the stage and does not end the process."""


class NotOpenedError(Exception):
    """The instance for a frame failed to open earlier; the text gives the reason."""


class Runner:
    """Runs one node of the graph on one thread.

    Args:
        node: the node.
        context: creates the context of an instance.
        fail: receives an error that ends the run.

    Attributes:
        call: start time (monotonic, in seconds) and thread of the current call; None without one.
        opening: whether the stage is being opened, which may load a network or compile.
        dead: whether an output of the stage cannot be written; batches then skip the stage.
        isolated: whether the pipeline is protected from mistakes of the stage; see `isolation.py`.
        splits_outputs: whether the next stage of the lane makes `LazyOutputs`; they stay in the lane.
        log: logs a message about the stage, once per text.
    """

    splits_outputs = False
    keeps_lines = False

    def __init__(self, node: Node, context: MakeContext, fail: Fail) -> None:
        self.node = node
        self.meter = StageMeter()
        self._context = context
        self._fail = fail
        self.counters = Counters()
        self.call: tuple[float, int] | None = None
        self.dead = self.opening = False
        self._runtime: RuntimeContext | None = None  # of the instance that was made last
        self.isolated = not node.type.spec.built_in
        self.log = LogOnce(logger.warning)
        self._instances: dict[Any, Any] = {}
        self._unopened: dict[Any, str] = {}  # why an instance could not be opened
        self._changes: deque[tuple[Mapping[str, Any], Callable[[], None]]] = deque()

    def make(self, **replaced: Any) -> Stage:
        """Create an instance with its context, not yet open."""
        stage = self.node.type(**{**self.node.options, **replaced})
        stage.context = self._context(self.node.id)
        stage.context.counters = self.counters
        self._runtime = stage.context.runtime
        self._runtime.draws_in_place = self.node.in_place
        return stage

    @property
    def opening_text(self) -> str:
        """The id of the stage that is being opened, with what takes long; empty unless it is."""
        if not self.opening:
            return ""
        note = self._runtime.opening_note if self._runtime is not None else ""
        return f"{self.node.table} ({note})" if note else self.node.table

    def opened(self, key: Any, **replaced: Any) -> Stage:
        """Create and open an instance; one that fails to open is not retried for every frame.

        Args:
            key: identifies the instance, such as a source id.
            replaced: options that replace those of the YAML.
        """
        if (reason := self._unopened.get(key)) is not None:
            raise NotOpenedError(reason)  # a new exception: raising one again extends its traceback and keeps its frame
        stage = self.make(**replaced)
        try:
            stage.open()
        except RAISED as error:
            line = line_of(error, self.node.type)
            self._unopened[key] = f"{describe(error)}{line and f' ({line})'}"
            raise
        return stage

    def instance(self, key: Any, **replaced: Any) -> Any:
        """The open instance for a key; created on first access, see `opened`."""
        stage = self._instances.get(key)
        if stage is None:
            stage = self._instances[key] = self.opened(key, **replaced)
        return stage

    def pop_instance(self, key: Any) -> Any:
        """Remove the instance for a key and return it; None if there is none."""
        self._unopened.pop(key, None)
        return self._instances.pop(key, None)

    def start(self) -> None:
        """Open the stage.

        Raises:
            StreamkitError: it cannot be opened; the text names the stage.
        """
        self.opening = True
        token = STAGE.set(self.node.id)
        try:
            self.open()
        except StreamkitError:
            raise
        except RAISED as error:
            raise StreamkitError(str(self._failure(error, when=" as it was opened"))) from error
        finally:
            self.opening = False
            STAGE.reset(token)

    def finish(self) -> None:
        """Close the stage and report its exceptions."""
        token = STAGE.set(self.node.id)
        self.guard(self.close, " as it was closed")
        STAGE.reset(token)

    def open(self) -> None:
        """Open what is needed before the first frame."""

    def run(self, batch: Batch) -> Batch:
        """Run the stage on a batch of any length, including an empty one."""
        self.call = (time.monotonic(), threading.get_ident())
        token = STAGE.set(self.node.id)
        try:
            if self._changes:
                self._change()
            if batch.frames and not self.dead:
                start_s = time.perf_counter()
                meter = self.meter
                self.mark(batch.frames)
                meter.frames += len(batch.frames)
                meter.batches += 1
                try:
                    batch = self._guarded(batch)
                except OutputError as error:
                    self._give_up(error)
                if not self.keeps_lines:
                    batch.lines = None
                meter.seconds += time.perf_counter() - start_s
            for source in batch.ended:
                self.guard(partial(self.end, source), f" as the source {source} ended")
        finally:
            self.call = None
            STAGE.reset(token)
        return batch

    def count_copies(self, surfaces: int) -> None:
        """Count surfaces that had to be copied before they were passed on."""
        if surfaces:
            self.counters.add(COPIED, surfaces)

    def change(self, values: Mapping[str, Any], refused: Callable[[], None] = lambda: None) -> None:
        """Change options before the next batch, from any thread; `refused` is called if the stage rejects them."""
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
                self.report_error(error, f" as {', '.join(values)} changed; the old values are kept")
                for instance, before in changed:
                    self.guard(partial(_set, instance, before), " as the old values were restored")
                self.guard(refused, " as the change was reverted")

    def instances(self) -> Iterable[Stage]:
        """The open instances."""
        return self._instances.values()

    def mark(self, frames: Sequence[Frame]) -> None:
        """Set the current stage and its counters on the frames."""
        id_ = self.node.id
        counters = self.counters
        for frame in frames:
            state = frame._state
            state.stage = id_
            state.counters = counters

    def end(self, source: str) -> None:
        """Release what belongs to `source`: it has no further frames."""

    def close(self) -> None:
        """Close every open instance."""

    def process(self, batch: Batch) -> Batch:
        """Call the stage."""
        raise NotImplementedError

    def _guarded(self, batch: Batch) -> Batch:
        restore = self.snapshot(batch) if self.isolated and len(batch.frames) > 1 else None
        try:
            return self._processed(batch)
        except StreamkitError:
            raise
        except RAISED as error:
            if len(batch.frames) == 1:
                return self.failed(batch, {0: error})
        if restore is not None:
            restore()
        return self._frame_by_frame(batch)

    def snapshot(self, batch: Batch) -> Callable[[], None] | None:
        """Return a function that undoes the stage's changes to the batch before a retry; None if none is needed."""
        return None

    def _processed(self, batch: Batch) -> Batch:
        """Call the stage; copy fields that only the runner sets to a new batch."""
        output = self.process(batch)
        if not isinstance(output, Batch):
            raise TypeError(f"{self.node.type.__name__}.process must return a Batch, got {type(output).__name__}")
        if output is not batch:
            output.sequence = batch.sequence
            output.ended = batch.ended
            output.ready = output.ready or batch.ready
            failed_ids = set(map(id, output.failed))
            output.failed = [*(frame for frame in batch.failed if id(frame) not in failed_ids), *output.failed]
        return output

    def _frame_by_frame(self, batch: Batch) -> Batch:
        """Run the stage again on each frame alone, and join the frames that succeed."""
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
        """Mark the frames in these rows as failed and remove them; end the run if `on_error` is `stop`.

        Raises:
            DeviceLostError: the process can no longer use its GPU, so that all further frames would fail.
        """
        for row, error in errors.items():
            if (lost := lost_device(error)) is not None:
                raise lost from error
            self._frame_failed(batch.frames[row], error)
        well = [row for row in range(len(batch.frames)) if row not in errors]
        remaining = batch.take(well) if well else Batch([], batch.xp, sequence=batch.sequence)
        remaining.failed = [*batch.failed, *(batch.frames[row] for row in errors)]
        remaining.ended = batch.ended
        remaining.ready = batch.ready
        return remaining

    def _failure(self, error: BaseException, frame: Frame | None = None, when: str = "") -> StageError:
        has_line = not self.isolated or isinstance(error, NotOpenedError)  # its text has the line
        line = "" if has_line else line_of(error, self.node.type)
        return StageError(self.node.id, error, frame, when=when, line=line)

    def _give_up(self, error: OutputError) -> None:
        """End the run; batches skip this stage while the other outputs are still written."""
        self.dead = True
        self._fail(error)

    def guard(self, call: Callable[[], object], when: str) -> None:
        """Call a function of the stage outside of a frame; report exceptions so that other work continues."""
        try:
            call()
        except OutputError as error:
            self._give_up(error)
        except RAISED as error:
            self.report_error(error, when)

    def report_error(self, error: BaseException, when: str) -> None:
        """Log and count an exception outside of a frame; end the run if `on_error` is `stop`."""
        failure = self._failure(error, when=when)
        self.meter.other_errors += 1
        self.counters.add("errors outside of frames")
        if self.node.run.on_error == "stop":
            failure.__cause__ = error
            self._fail(failure)
        else:
            self.log(str(failure))

    def _frame_failed(self, frame: Frame, error: BaseException) -> None:
        failure = self._failure(error, frame)
        frame.error = frame.error or str(failure)
        self.meter.failed += 1
        self.counters.add("frames failed")
        if frame._state.source_state is not None:
            frame._state.source_state.failures += 1
            frame._state.source_state.first_failure = frame._state.source_state.first_failure or str(failure)
        if self.node.run.on_error == "stop":
            failure.__cause__ = error
            self._fail(failure)
        elif self.meter.failed <= _MAX_LOGGED:
            self.log(str(failure), extra={"source": frame.source})
        elif self.meter.failed == _MAX_LOGGED + 1:
            self.log(f"{self.node.id}: further frames fail; they are counted in the report")


def _set(instance: Stage, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        setattr(instance, name, value)
    instance.changed()
