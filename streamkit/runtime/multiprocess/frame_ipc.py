"""Passes frames, without pixels, from worker processes to the sinks that sources of several processes share.

In a worker process a `RelaySink` replaces such a sink and puts every frame into the process's `Uplink`; the parent
process runs the sink itself, in `SharedSinks`. Every step is bounded: a slow sink makes the sources wait.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date, datetime
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import orjson

from streamkit.config.plan import Node
from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.stage import Context, RuntimeContext, Sink
from streamkit.runtime.execution.channel import Aborted, Channel
from streamkit.runtime.execution.lane import Lane, LaneThread
from streamkit.runtime.execution.meters import Histogram, StageMeter
from streamkit.runtime.execution.runners import runner

Item = tuple[str, bytes | None, str]
"""A sink's id, a packed frame or None, and the source that ends there where it is None; of no sink: everywhere."""

_DEPTH, _AT_ONCE = 32, 16
_PLAIN = {type(None), bool, int, float, str, datetime, date}


def pack(frame: Frame) -> bytes:
    """Serialise a frame without its pixels, for `unpack` in another process.

    Objects of a plugin's own classes in an event's data are converted to the value or text that a record would contain:
    the class may have another name in the other process.
    """
    events = [replace(event, data=_portable(event.data), key=None) for event in frame.events]
    state = replace(frame._state, stage="", counters=None, source_state=None, packet_ref=None)
    bare = replace(frame, surface=None, shown={}, events=events, _state=state)
    return pickle.dumps(bare, protocol=5)


def unpack(packed: bytes) -> Frame:
    """Restore a frame from `pack`."""
    frame: Frame = pickle.loads(packed)
    return frame


def _portable(value: Any) -> Any:
    if type(value) in _PLAIN or (isinstance(value, (np.ndarray, np.generic)) and value.dtype != object):
        return value
    if isinstance(value, dict):
        return {key if type(key) in _PLAIN else str(key): _portable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_portable(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return {_portable(item) for item in value}
    try:
        return orjson.loads(orjson.dumps(value))
    except TypeError:
        return str(value)


class Uplink:
    """The worker's end of the frame pipe; sends several waiting items in one message.

    Args:
        connection: to the parent process, which reads it until it is closed.
        depth: maximum number of queued items.
    """

    def __init__(self, connection: Connection, depth: int = _DEPTH) -> None:
        self._connection, self._depth = connection, depth
        self._items: deque[Item] = deque()
        self._closed = self._aborted = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._send, name="uplink", daemon=True)
        self._thread.start()

    def put(self, sink: str, packed: bytes | None, source: str = "") -> None:
        """Add an item; wait while the queue is full. Items are dropped once the run is aborted."""
        with self._changed:
            while len(self._items) >= self._depth and not self._aborted:
                self._changed.wait()
            if not self._aborted:
                self._items.append((sink, packed, source))
                self._changed.notify_all()

    def abort(self) -> None:
        """Abort: drop queued and later items."""
        with self._changed:
            self._aborted = True
            self._items.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Send the queued items, and close the connection."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._connection.close()

    def _send(self) -> None:
        try:
            while items := self._take():
                self._connection.send(items)
        except OSError:  # the parent process is gone; `share` ends this one
            self.abort()

    def _take(self) -> list[Item]:
        with self._changed:
            while not self._items and not self._closed and not self._aborted:
                self._changed.wait()
            items = [self._items.popleft() for _ in range(min(_AT_ONCE, len(self._items)))]
            self._changed.notify_all()
            return items


class RelaySink(Sink):
    """Replaces a sink that the parent process runs."""

    def __init__(self, uplink: Uplink, sink: str) -> None:
        self._uplink, self._sink = uplink, sink

    def write(self, frame: Frame) -> None:
        """Send the frame to the parent process."""
        self._uplink.put(self._sink, pack(frame))

    def end(self, source: str) -> None:
        """Tell the sink that `source` has ended."""
        self._uplink.put(self._sink, None, source)


class SharedSinks:
    """The parent's end of the frame pipes: the shared sinks, each on a thread, as in a run of one process.

    Args:
        nodes: the sinks.
        sources: ids of all sources.
        addresses: addresses of the sources, by id.
        streams: video stream numbers of the sources that set one, by id.
        say: receives messages for the user.
        fail: receives an error that ends the run.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        sources: Sequence[str],
        addresses: dict[str, str],
        streams: dict[str, int],
        say: Callable[[str], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        runtime = RuntimeContext(addresses=addresses, streams=streams)

        def context(id_: str) -> Context:
            return Context(id_, Device("cpu"), (1,), 1, Counters(), say, runtime)

        self._fail = fail
        self.finished = Counter[str]({node.id: 0 for node in nodes})
        self.latency: dict[str, Histogram] = {}
        self.runners = {node.id: runner(node, context, fail, sources) for node in nodes}
        self._lanes = {node.id: Lane([node], inputs=[Channel(node.run.queue)]) for node in nodes}
        self._locks = {node.id: threading.Lock() for node in nodes}
        self._sequence = Counter[str]()

    def open(self) -> None:
        """Open every sink, one after the other; return when all are open or one has failed."""
        for id_, lane in self._lanes.items():
            ready = threading.Event()
            worker = LaneThread(lane, [self.runners[id_]], Device("cpu"), ready.set, self._fail, self._count)
            thread = threading.Thread(target=_then_abort, args=(worker, lane.inputs[0]), name=id_, daemon=True)
            lane.threads.append(thread)
            thread.start()
            ready.wait()

    def put(self, items: Sequence[Item]) -> None:
        """Pass the items of one process to the sinks; wait while the queue of a sink is full."""
        for id_ in dict.fromkeys(sink for sink, _, _ in items):
            frames = [unpack(packed) for sink, packed, _ in items if sink == id_ and packed is not None]
            ended = tuple(source for sink, packed, source in items if sink == id_ and packed is None)
            for position, frame in enumerate(frames):
                frame._state.position = position
            well = [frame for frame in frames if frame.error is None]
            batch = Batch(well, np, failed=[frame for frame in frames if frame.error is not None], ended=ended)
            with self._locks[id_]:  # kept while it waits: batches come in the order of their numbers
                batch.sequence = self._sequence[id_]
                try:
                    self._lanes[id_].inputs[0].put(batch)
                except Aborted:
                    continue
                self._sequence[id_] += 1

    def close(self) -> None:
        """Write the queued frames, then close every open sink."""
        for lane in self._lanes.values():
            lane.inputs[0].close()
        for lane in self._lanes.values():
            for thread in lane.threads:
                while thread.is_alive():  # awake often enough that signals are handled
                    thread.join(0.2)

    def abort(self) -> None:
        """Drop queued frames; the sinks are closed."""
        for lane in self._lanes.values():
            lane.inputs[0].abort()

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


def _then_abort(worker: LaneThread, channel: Channel) -> None:
    """Run a sink's worker; then abort its channel, so that no writer waits for ever."""
    worker()
    channel.abort()
