"""Passes frames, without pixels, from worker processes to the sinks that sources of several processes share.

In a worker process a `RelaySink` replaces such a sink and puts every frame into the process's `Uplink`; the parent
process runs the sink itself, in `SharedSinks`. Every step is bounded: a slow sink makes the sources wait.
"""

from __future__ import annotations

import contextlib
import pickle
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import orjson

from streamkit.config.plan import Node
from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.stage import Sink
from streamkit.runtime.execution.channel import Aborted, Channel
from streamkit.runtime.execution.future import join, start
from streamkit.runtime.execution.lane import Lane, LaneThread
from streamkit.runtime.execution.meters import Histogram, StageMeter
from streamkit.runtime.execution.runners import runner
from streamkit.runtime.execution.stage_runner import Fail, MakeContext
from streamkit.runtime.execution.tables import new_batch

Item = tuple[str, bytes | None, str]
"""Id of the sink, packed frame, source that ends if there is no frame. Without a sink, it ends everywhere."""

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
        context: creates the context of a sink.
        fail: receives an error that ends the run.
    """

    def __init__(self, nodes: Sequence[Node], sources: Sequence[str], context: MakeContext, fail: Fail) -> None:
        self._fail = fail
        self.finished = Counter[str]({node.id: 0 for node in nodes})
        self.latency: dict[str, Histogram] = {}
        self.runners = {node.id: runner(node, context, fail, sources) for node in nodes}
        self._lanes = {node.id: Lane([node], inputs=[Channel(node.run.queue)]) for node in nodes}

    def open(self) -> None:
        """Open every sink, one after the other; return when all are open or one has failed."""
        for id_, lane in self._lanes.items():
            ready = threading.Event()
            worker = LaneThread(lane, [self.runners[id_]], Device("cpu"), ready.set, self._fail, self._count)
            lane.threads.append(start(id_, worker))
            ready.wait()

    def put(self, items: Sequence[Item]) -> None:
        """Pass the items of one process to the sinks; wait while the queue of a sink is full."""
        for id_ in dict.fromkeys(sink for sink, _, _ in items):
            frames = [unpack(packed) for sink, packed, _ in items if sink == id_ and packed is not None]
            ended = tuple(source for sink, packed, source in items if sink == id_ and packed is None)
            with contextlib.suppress(Aborted):
                self._lanes[id_].inputs[0].put(new_batch(frames, np, ended=ended))

    def close(self) -> None:
        """Write the queued frames, then close every open sink."""
        for lane in self._lanes.values():
            lane.inputs[0].close()
        for lane in self._lanes.values():
            for thread in lane.threads:
                join(thread)

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
