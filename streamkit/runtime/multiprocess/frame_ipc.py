"""Passes frames, without pixels, from worker processes to the sinks that sources of several processes share.

In a worker process a `RelaySink` replaces such a sink and puts every batch into the process's `Uplink`; the parent
process runs the sink itself, in `SharedSinks`. A batch travels as flat columns: the tables of all its frames as they
are, and one tuple per frame. Every step is bounded: a slow sink makes the sources wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import pickle
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from multiprocessing.connection import Connection, Pipe
from typing import Any

import numpy as np
import orjson

from streamkit.config.plan import Node
from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Device, Event, Frame, FrameState
from streamkit.core.detections import Detections
from streamkit.core.stage import Sink
from streamkit.core.tracing import Spans
from streamkit.runtime.execution.channel import Aborted, Channel
from streamkit.runtime.execution.future import join, start
from streamkit.runtime.execution.graph_outputs import FrameListener
from streamkit.runtime.execution.lane import Lane, LaneThread
from streamkit.runtime.execution.meters import Histogram, StageMeter
from streamkit.runtime.execution.runners import runner
from streamkit.runtime.execution.stage_runner import Fail, MakeContext

Item = tuple[str, bytes | None, str]
"""Id of the sink, packed batch, source that ends if there is no batch. Without a sink, it ends everywhere."""

_DEPTH, _AT_ONCE = 2, 2  # batches
_PIPE_BYTES = 16_384
_PLAIN = {type(None), bool, int, float, str, datetime, date}


def pack(frames: Sequence[Frame], tables: dict[str, Detections], others: Sequence[Frame] = ()) -> bytes:
    """Serialise frames without their pixels, for `unpack` in another process.

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
    made = Batch([_frame(*row) for row in rows], tables=tables)
    for row, own in others:
        frame = _frame(*row)
        frame.tables = own
        (made.frames if frame.error is None else made.failed).append(frame)
    return made


def _columns(frame: Frame) -> tuple[Any, ...]:
    """The values of a frame that sinks need, in the order of `_frame`."""
    events = [replace(event, data=portable(event.data), key=None) for event in frame.events] if frame.events else ()
    return (
        frame.source, frame.index, frame.pts_s, frame.width, frame.height, frame.time_s, frame.due_s, frame.facts,
        frame.error, frame.damaged, events, frame._state.position,
    )  # fmt: skip


def _frame(
    source: str, index: int, pts_s: float, width: int, height: int, time_s: float | None, due_s: float | None,
    facts: dict[str, Any], error: str | None, damaged: bool, events: Sequence[Event], position: int,
) -> Frame:  # fmt: skip
    return Frame(
        source, index, pts_s, width, height, None, time_s, due_s, {}, list(events), facts, {}, error, damaged,
        _state=FrameState(position),
    )  # fmt: skip


def portable(value: Any) -> Any:
    """A value of an event as one that every process can load: classes of plugins become what a record would contain."""
    if type(value) in _PLAIN or (isinstance(value, (np.ndarray, np.generic)) and value.dtype != object):
        return value
    if isinstance(value, dict):
        return {key if type(key) in _PLAIN else str(key): portable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [portable(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {portable(item) for item in value}
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        return str(value)


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
        self._connection, self._items = connection, Channel[Item](depth)
        self._thread = start("uplink", self._send)

    def put(self, sink: str, packed: bytes | None, source: str = "") -> None:
        """Add an item; wait while the queue is full. Items are dropped once the run is aborted."""
        with contextlib.suppress(Aborted):
            self._items.put((sink, packed, source))

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
    """Replaces a sink that the parent process runs."""

    def __init__(self, uplink: Uplink, sink: str) -> None:
        self._uplink, self._sink = uplink, sink
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
        frames, tables, others = self._frames, self._tables, self._others
        self._frames, self._tables, self._others = [], {}, []
        if frames or others:
            self._uplink.put(self._sink, pack(frames, tables, others))

    def end(self, source: str) -> None:
        """Tell the sink that `source` has ended."""
        self._uplink.put(self._sink, None, source)


class SharedSinks:
    """The parent's end of the frame pipes: the shared sinks, each on a thread, as in a run of one process.

    Args:
        nodes: the sinks.
        sources: ids of all sources.
        context: creates the context of a sink.
        fail: receives an error that ends the run.
        owner: returns the process that reads a source now; None if the source was removed.
        spans: returns the calling thread's track in the timeline of the run.

    Attributes:
        lanes: the lane of each sink.
    """

    def __init__(
        self, nodes: Sequence[Node], sources: Sequence[str], context: MakeContext, fail: Fail,
        owner: Callable[[str], object] = lambda source: None, spans: Callable[[], Spans] = Spans,
    ) -> None:  # fmt: skip
        self._fail, self._owner, self._spans = fail, owner, spans
        self._listeners: list[FrameListener] = []
        # by sink, then by source and process: the index of the last frame, and that up to which frames are repeated;
        # infinite if the source has ended
        self._last: dict[str, dict[tuple[str, object], float]] = {node.id: {} for node in nodes}
        self._repeated: dict[str, dict[tuple[str, object], float]] = {node.id: {} for node in nodes}
        self.finished = Counter[str]({node.id: 0 for node in nodes})
        self.latency: dict[str, Histogram] = {}
        self.runners = {node.id: runner(node, context, fail, sources) for node in nodes}
        self._lanes = {node.id: Lane([node], inputs=[Channel(node.run.queue)]) for node in nodes}
        self.lanes = list(self._lanes.values())

    def open(self) -> None:
        """Open every sink, one after the other; return when all are open or one has failed."""
        for id_, lane in self._lanes.items():
            ready = threading.Event()
            runners = [self.runners[id_]]
            worker = LaneThread(lane, runners, Device("cpu"), ready.set, self._fail, self._count, self._spans)
            lane.threads.append(start(id_, worker))
            ready.wait()

    def put(self, items: Sequence[Item], process: object = None) -> None:
        """Pass the items of one process to the sinks; wait while the queue of a sink is full."""
        for sink, packed, source in items:
            batch = self._end(sink, source, process) if packed is None else self._new(sink, unpack(packed), process)
            if batch is not None:
                with contextlib.suppress(Aborted):
                    self._lanes[sink].inputs[0].put(batch)

    def _new(self, sink: str, batch: Batch, process: object) -> Batch | None:
        """The frames of a batch that the sink has not had; None if there are none."""
        last, repeated = self._last[sink], self._repeated[sink]
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

    def _end(self, sink: str, source: str, process: object) -> Batch | None:
        """Let a source end, unless the sink has had its end from another process."""
        key, last = (source, process), self._last[sink]
        ended = self._repeated[sink].pop(key, -1) == math.inf
        if self._owner(source) is process:
            last[key] = math.inf
        else:  # it was removed, and may have been added again elsewhere
            last.pop(key, None)
        return None if ended else Batch([], ended=(source,))

    def delivered(self, source: str, process: object) -> int:
        """Index of the last frame of a source that a process has passed to a sink; -1 if there is none."""
        found = [last.get((source, process), -1) for last in self._last.values()]
        return int(max((index for index in found if index < math.inf), default=-1))

    def skip_repeated(self, source: str, before: object, process: object, *, replaced: bool = False) -> None:
        """Skip what the process `before` has passed of a source, which `process` reads from its beginning again.

        An end that has come may be that of an earlier source with the same id, if the source has `replaced` one.
        """
        for sink, last in self._last.items():
            had = max(last.get((source, before), -1), self._repeated[sink].get((source, before), -1))
            if had >= 0 and not (replaced and had == math.inf):
                self._repeated[sink][source, process] = had

    def forget_source(self, source: str) -> None:
        """Forget the last frames of a source that was removed."""
        for last in self._last.values():
            for key in [key for key in list(last) if key[0] == source]:
                last.pop(key, None)

    def forget_process(self, process: object) -> None:
        """Forget the last frames of a process that has died."""
        for known in (*self._last.values(), *self._repeated.values()):
            for key in [key for key in list(known) if key[1] is process]:
                known.pop(key, None)

    def close(self) -> None:
        """Write the queued frames, then close every open sink."""
        for lane in self._lanes.values():
            lane.inputs[0].close()
        for lane in self._lanes.values():
            for thread in lane.threads:
                join(thread)

    def listen(self, seen: FrameListener) -> None:
        """Pass the frames with events of the sinks to `seen`, with those events; see `GraphOutputs.listen`."""
        self._listeners.append(seen)

    def abort(self) -> None:
        """Drop queued frames; the sinks are closed."""
        for lane in self._lanes.values():
            lane.inputs[0].abort()

    def queues(self) -> dict[str, int]:
        """Batches queued for each sink."""
        return {id_: sum(channel.waiting for channel in lane.inputs) for id_, lane in self._lanes.items()}

    def report(self) -> dict[str, Any]:
        """The sinks' part of the report."""
        return {
            "counts": Counters.total(one.counters for one in self.runners.values()),
            "stages": {id_: StageMeter.total([one.meter]) for id_, one in self.runners.items()},
        }

    def _count(self, lane: Lane, batch: Batch) -> None:
        id_, now = lane.nodes[0].id, time.monotonic()
        frames = [*batch.frames, *batch.failed]
        self.finished[id_] += len(frames)
        for frame in frames:
            if frame.due_s is not None:
                self.latency.setdefault(id_, Histogram()).add(now - frame.due_s)
        if self._listeners:
            shown = [(frame, own) for frame in frames if (own := [one for one in frame.events if one.stage == id_])]
            for seen in self._listeners if shown else ():
                seen(shown)
