# SPDX-License-Identifier: Apache-2.0
"""Passes frames, without pixels, from worker processes to the stages that the parent process runs for all sources.

These are the sinks that sources of several processes share, and the stages that look across sources, with all stages
below them. In a worker process a `RelaySink` replaces each that reads from the worker's stages, and puts every batch
into the process's `Uplink`; the parent process runs the stage itself, in `ParentStages`. A batch travels as flat
columns: the tables of all its frames as they are, and one tuple per frame. Every step is bounded: a slow sink makes
the sources wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import math
import pickle
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from fractions import Fraction
from multiprocessing.connection import Connection, Pipe
from typing import Any

import numpy as np
import orjson

from streamkit.config.plan import Graph
from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Device, Event, Frame, FrameState
from streamkit.core.detections import Detections
from streamkit.core.stage import Sink
from streamkit.core.text import text_of
from streamkit.core.tracing import CURRENT_BATCH, Spans
from streamkit.runtime.execution.channel import Aborted, Channel
from streamkit.runtime.execution.future import join, start
from streamkit.runtime.execution.graph_outputs import GraphOutputs
from streamkit.runtime.execution.lane import Lane, LaneThread, connect, partition
from streamkit.runtime.execution.meters import StageMeter
from streamkit.runtime.execution.runners import runner
from streamkit.runtime.execution.stage_runner import Fail, MakeContext
from streamkit.runtime.multiprocess.partition import (
    counted_across_sources,
    entries,
    shared_sinks,
    stages_across_sources,
)
from streamkit.runtime.observe import telemetry
from streamkit.runtime.observe.batch_traces import spans_with
from streamkit.runtime.observe.run_counts import RunCounts

Item = tuple[str, bytes | None, str]
"""Id of the stage, packed batch, and the trace context of the batch, empty unless it is traced.

Without a batch, the last is the source that ends; without a stage, it ends everywhere.
"""

# batches
_DEPTH = 2
_AT_ONCE = 2
_PIPE_BYTES = 16_384
_PLAIN = {type(None), bool, int, float, str, datetime, date}


def pack(frames: Sequence[Frame], tables: dict[str, Detections], others: Sequence[Frame] = ()) -> bytes:
    """Serialize frames without their pixels, for `unpack` in another process.

    Objects of a plugin's own classes in an event's data are converted to the value or text that a record would contain:
    the class may have another name in the other process.

    Args:
        frames: frames whose objects are in `tables`, one for each row of the batch.
        tables: the batch's tables.
        others: further frames, with tables of their own: those that have failed.
    """
    rows = [_columns(frame) for frame in frames]
    return pickle.dumps((rows, tables, [(_columns(frame), frame.tables) for frame in others]), protocol=5)


def unpack(packed: bytes) -> Batch:
    """Restore the batch from `pack`; `others` without an error follow the frames, with tables of their own."""
    rows, tables, others = pickle.loads(packed)
    batch = Batch([_frame(*row) for row in rows], tables=tables)
    for row, frame_tables in others:
        frame = _frame(*row)
        frame.tables = frame_tables
        (batch.frames if frame.error is None else batch.failed).append(frame)
    return batch


def _columns(frame: Frame) -> tuple[Any, ...]:
    """The values of a frame that another process needs, in the order of `_frame`."""
    state = frame._state
    events = [replace(event, data=portable(event.data), key=None) for event in frame.events] if frame.events else ()
    return (
        frame.source,
        frame.index,
        frame.pts_s,
        frame.width,
        frame.height,
        frame.time_s,
        frame.due_s,
        frame.facts,
        frame.error,
        frame.damaged,
        frame.pixel_aspect,
        events,
        state.position,
        state.ordinal,
        state.epoch,
        state.skipped_detectors,
        state.shape_size,
    )


def _frame(
    source: str,
    index: int,
    pts_s: float,
    width: int,
    height: int,
    time_s: float | None,
    due_s: float | None,
    facts: dict[str, Any],
    error: str | None,
    damaged: bool,
    pixel_aspect: Fraction,
    events: Sequence[Event],
    position: int,
    ordinal: int,
    epoch: int,
    skipped_detectors: frozenset[str],
    shape_size: tuple[int, int] | None,
) -> Frame:
    state = FrameState(
        position, ordinal=ordinal, epoch=epoch, skipped_detectors=skipped_detectors, shape_size=shape_size
    )
    copies = [replace(event, key=object()) for event in events]  # branches in this process merge by it
    return Frame(
        source,
        index,
        pts_s,
        width,
        height,
        None,
        time_s,
        due_s,
        {},
        copies,
        facts,
        {},
        error,
        damaged,
        pixel_aspect,
        _state=state,
    )


def portable(value: Any) -> Any:
    """A value of an event as one that every process can load: classes of plugins become what a record would contain."""
    if type(value) in _PLAIN or (isinstance(value, (np.ndarray, np.generic)) and value.dtype != object):
        return value
    if isinstance(value, dict):
        return {key if type(key) in _PLAIN else text_of(key): portable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [portable(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {portable(item) for item in value}
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        return text_of(value)


def frame_pipe() -> tuple[Connection, Connection]:
    """Create the pipe for the frames of a worker process: its end for reading, and its end for writing.

    Its buffer is small where the system can set that: a slow sink then waits for few frames, and these are recent.
    """
    reader, writer = Pipe(duplex=False)
    if hasattr(fcntl, "F_SETPIPE_SZ"):  # Linux
        fcntl.fcntl(writer.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    return reader, writer


class Uplink:
    """The worker's end of the frame pipe; sends several waiting items in one message.

    Args:
        connection: to the parent process, which reads it until it is closed.
        depth: maximum number of queued items.
    """

    def __init__(self, connection: Connection, depth: int = _DEPTH) -> None:
        self._connection = connection
        self._items = Channel[Item](depth)
        self._thread = start("uplink", self._send)

    def put(self, sink: str, packed: bytes | None, text: str = "") -> None:
        """Add an `Item`; wait while the queue is full. Items are dropped once the run is aborted."""
        with contextlib.suppress(Aborted):
            self._items.put((sink, packed, text))

    def abort(self) -> None:
        """Abort: drop queued and later items."""
        self._items.abort()

    def close(self) -> None:
        """Send the queued items, and close the connection."""
        self._items.close()
        self._thread.join()
        self._connection.close()

    def _send(self) -> None:
        try:
            while items := self._items.get_many(_AT_ONCE):
                self._connection.send(items)
        except OSError:  # the parent process is gone; `WorkerPipeline` ends this one
            self.abort()
        except Aborted:
            pass


class RelaySink(Sink):
    """Replaces a stage that the parent process runs and that reads from stages of a worker process."""

    def __init__(self, uplink: Uplink, sink: str) -> None:
        self._uplink = uplink
        self._sink = sink
        self._frames: list[Frame] = []
        self._tables: dict[str, Detections] = {}
        self._others: list[Frame] = []

    @staticmethod
    def encode(batch: Batch) -> list[dict[str, Detections]]:
        """See `Sink.encode`: for each frame, the tables of the whole batch."""
        tables = {name: batch.table(name) for name in batch.tables}
        return [tables] * len(batch.frames)

    def write_encoded(self, frame: Frame, encoded: dict[str, Detections]) -> None:
        """Add a frame whose objects are in the tables of its batch."""
        self._frames.append(frame)
        self._tables = encoded

    def write(self, frame: Frame) -> None:
        """Add a frame with tables of its own."""
        self._others.append(frame)

    def flush(self) -> None:
        """Send the frames of the batch to the parent process."""
        frames = self._frames
        tables = self._tables
        others = self._others
        self._frames = []
        self._tables = {}
        self._others = []
        if frames or others:
            trace = CURRENT_BATCH.get()
            self._uplink.put(self._sink, pack(frames, tables, others), trace.traceparent if trace else "")

    def end(self, source: str) -> None:
        """Tell the sink that `source` has ended."""
        self._uplink.put(self._sink, None, source)


class ParentStages:
    """The parent's end of the frame pipes: the stages that it runs for all sources, as in a run of one process.

    Batches of all processes reach such a stage in the order in which they arrive. One instance has all of them.

    Args:
        graph: the whole graph.
        sources: ids of all sources.
        context: creates the context of a stage.
        fail: receives an error that ends the run.
        owner: returns the process that reads a source now; None if the source was removed.
        spans: returns the calling thread's track in the timeline of the run.

    Attributes:
        lanes: the lanes: one for each shared sink, and those of the stages that look across sources.
        runners: the runner of each stage.
        outputs: counts what reaches the ends of these lanes.
    """

    def __init__(
        self,
        graph: Graph,
        sources: Sequence[str],
        context: MakeContext,
        fail: Fail,
        owner: Callable[[str], object] = lambda source: None,
        spans: Callable[[], Spans] = Spans,
    ) -> None:
        self._fail = fail
        self._owner = owner
        self._spans = spans
        self._traces = telemetry.batch_traces(graph)
        if self._traces is not None:
            self._spans = spans_with(self._traces, spans)
        across = stages_across_sources(graph)
        sinks = shared_sinks(graph)
        part = replace(graph, nodes=across)
        lanes = partition(part)
        connect(part, lanes)
        order = list(graph.nodes)
        self.lanes = sorted([*lanes, *(Lane([node]) for node in sinks)], key=lambda lane: order.index(lane.nodes[0].id))
        parent_stages = {*across, *(node.id for node in sinks)}
        firsts = {node.id for node in (*entries(across), *sinks)}
        self._entries = {lane.nodes[0].id: lane for lane in self.lanes if lane.nodes[0].id in firsts}
        for lane in self._entries.values():  # a worker has merged its branches
            lane.inputs = [Channel(lane.nodes[0].run.queue)]
        self._locks = {id_: threading.Lock() for id_ in self._entries}
        self._sequences = {id_: itertools.count() for id_ in self._entries}
        # by entry, then by source and process: the index of the last frame, and that up to which frames are repeated;
        # infinite if the source has ended
        self._last: dict[str, dict[tuple[str, object], float]] = {id_: {} for id_ in self._entries}
        self._repeated: dict[str, dict[tuple[str, object], float]] = {id_: {} for id_ in self._entries}
        self.runners = {
            id_: runner(graph.nodes[id_], context, fail, sources) for id_ in graph.nodes if id_ in parent_stages
        }
        outputs = self.outputs = GraphOutputs(graph, self.lanes, None)
        counted_here = counted_across_sources(graph) | {node.id for node in sinks}
        outputs.leave_out(set().union(*outputs.counted.values()) - counted_here)
        outputs.finished.update(dict.fromkeys(outputs.counted, 0))
        self.finished = outputs.finished
        self.latency = outputs.latency
        self.listen = outputs.listen

    def open(self) -> None:
        """Open every stage, lane by lane; return when all are open or one has failed."""
        for lane in self.lanes:
            ready = threading.Event()
            runners = [self.runners[node.id] for node in lane.nodes]
            worker = LaneThread(lane, runners, Device("cpu"), ready.set, self._fail, self.outputs.count, self._spans)
            lane.threads.append(start(lane.nodes[0].id, worker))
            ready.wait()

    def put(self, items: Sequence[Item], process: object = None) -> None:
        """Pass the items of one process to the stages; wait while the queue of a stage is full."""
        for entry, packed, text in items:
            batch = self._end(entry, text, process) if packed is None else self._new(entry, unpack(packed), process)
            if batch is not None:
                if packed is not None and text and self._traces is not None:
                    batch.trace = self._traces.join(text)
                with contextlib.suppress(Aborted), self._locks[entry]:  # lanes below expect the batches in sequence
                    batch.sequence = next(self._sequences[entry])
                    self._entries[entry].inputs[0].put(batch)

    def _new(self, entry: str, batch: Batch, process: object) -> Batch | None:
        """The frames of a batch that the stage has not had; None if there are none."""
        last = self._last[entry]
        repeated = self._repeated[entry]
        if repeated:

            def is_new(frame: Frame) -> bool:
                return frame.index > repeated.get((frame.source, process), -1)

            rows = [row for row, frame in enumerate(batch.frames) if is_new(frame)]
            failed = [frame for frame in batch.failed if is_new(frame)]
            if len(rows) < len(batch.frames):
                batch = batch.take(rows)
            batch.failed = failed
        frames = [*batch.frames, *batch.failed]
        last |= {(frame.source, process): frame.index for frame in frames}
        return batch if frames else None

    def _end(self, entry: str, source: str, process: object) -> Batch | None:
        """Let a source end, unless the stage has had its end from another process."""
        key = (source, process)
        last = self._last[entry]
        ended = self._repeated[entry].pop(key, -1) == math.inf
        if self._owner(source) is process:
            last[key] = math.inf
        else:  # it was removed, and may have been added again elsewhere
            last.pop(key, None)
        return None if ended else Batch([], ended=(source,))

    def delivered(self, source: str, process: object) -> int:
        """Index of the last frame of a source that a process has passed to a stage; -1 if there is none."""
        last_indices = [last.get((source, process), -1) for last in self._last.values()]
        return int(max((index for index in last_indices if index < math.inf), default=-1))

    def skip_repeated(self, source: str, before: object, process: object, *, replaced: bool = False) -> None:
        """Skip what the process `before` has passed of a source, which `process` reads from its beginning again.

        An end that has come may be that of an earlier source with the same id, if the source has `replaced` one.
        """
        for entry, last in self._last.items():
            had = max(last.get((source, before), -1), self._repeated[entry].get((source, before), -1))
            if had >= 0 and not (replaced and had == math.inf):
                self._repeated[entry][source, process] = had

    def forget_source(self, source: str) -> None:
        """Forget the last frames of a source that was removed."""
        for last in self._last.values():
            for key in [key for key in list(last) if key[0] == source]:
                last.pop(key, None)

    def forget_process(self, process: object) -> None:
        """Forget the last frames of a process that has died."""
        for by_source in (*self._last.values(), *self._repeated.values()):
            for key in [key for key in list(by_source) if key[1] is process]:
                by_source.pop(key, None)

    def close(self) -> None:
        """Process the queued frames, then close every open stage."""
        for lane in self._entries.values():
            lane.inputs[0].close()
        for lane in self.lanes:
            for thread in lane.threads:
                join(thread)

    def abort(self) -> None:
        """Drop queued frames; the stages are closed."""
        for lane in self.lanes:
            lane.outlet.abort()
        for lane in self._entries.values():
            lane.inputs[0].abort()

    def queues(self) -> dict[str, int]:
        """Batches queued for each lane, by its first stage."""
        return {lane.nodes[0].id: sum(channel.waiting for channel in lane.inputs) for lane in self.lanes}

    def run_counts(self) -> RunCounts:
        """These stages' part of the counts."""
        return RunCounts(
            finished=dict(self.finished),
            detections=dict(self.outputs.detections),
            events=dict(self.outputs.events),
            counts=Counters.total(runner.counters for runner in self.runners.values()),
            stages={id_: StageMeter.total([runner.meter]) for id_, runner in self.runners.items()},
            latency=dict(self.latency),
            event_counts=self.outputs.event_counter.counts(),
            labels=self.outputs.labels_by_table(),
            unsure=dict(self.outputs.unsure),
        )
