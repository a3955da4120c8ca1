"""The way of frames, without their pixels, from the processes of a fleet to the sinks that their sources share.

In a process a `Relay` stands in such a sink's place and puts every frame into the process's `Uplink`; the parent
process has the sink itself, in `SharedSinks`. Every step is bounded: a slow sink makes the sources wait.
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

from streamkit.counters import Counters
from streamkit.data import Batch, Device, Frame
from streamkit.plan import Node
from streamkit.runtime.channel import Aborted, Channel
from streamkit.runtime.lane import Lane, Worker
from streamkit.runtime.metrics import Histogram, StageMeter
from streamkit.runtime.runners import runner
from streamkit.stage import Context, Sink

Item = tuple[str, bytes | None, str]
"""A sink's id, a packed frame or None, and the source that ends there where it is None; of no sink: everywhere."""

_DEPTH, _AT_ONCE = 32, 16
_PLAIN = {type(None), bool, int, float, str, datetime, date}


def pack(frame: Frame) -> bytes:
    """The frame without pixels, to be read by `unpack` in another process.

    An object of a plugin's own class among an event's data goes as the value or text that its record would have: such
    a class has another name in another process.
    """
    events = [replace(event, data=_portable(event.data), key=None) for event in frame.events]
    bare = replace(frame, surface=None, shown={}, counters=None, account=None, packet=None, stage="", events=events)
    return pickle.dumps(bare, protocol=5)


def unpack(packed: bytes) -> Frame:
    """The frame that `pack` made."""
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
    """A process's end: sends what is put, a few items in a message where several wait.

    Args:
        connection: to the parent process, which reads it to its end.
        depth: items that may wait.
    """

    def __init__(self, connection: Connection, depth: int = _DEPTH) -> None:
        self._connection, self._depth = connection, depth
        self._items: deque[Item] = deque()
        self._closed = self._aborted = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._send, name="uplink", daemon=True)
        self._thread.start()

    def put(self, sink: str, packed: bytes | None, source: str = "") -> None:
        """Add an item; wait while there are too many. Once the run is given up, items are dropped."""
        with self._changed:
            while len(self._items) >= self._depth and not self._aborted:
                self._changed.wait()
            if not self._aborted:
                self._items.append((sink, packed, source))
                self._changed.notify_all()

    def abort(self) -> None:
        """The run is given up: drop what waits and what comes."""
        with self._changed:
            self._aborted = True
            self._items.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Send the rest, and end."""
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


class Relay(Sink):
    """Stands in a process for a sink that the parent process has."""

    def __init__(self, uplink: Uplink, sink: str) -> None:
        self._uplink, self._sink = uplink, sink

    def write(self, frame: Frame) -> None:
        """Send the frame."""
        self._uplink.put(self._sink, pack(frame))

    def end(self, source: str) -> None:
        """Tell the sink that no frame of `source` will come any more."""
        self._uplink.put(self._sink, None, source)


class SharedSinks:
    """The parent process's end: the sinks, each on a thread, as in a run of one process.

    Args:
        nodes: the sinks.
        sources: the ids of all sources.
        addresses: their addresses.
        streams: the numbers of their video streams, where they set one.
        say: takes messages for the user.
        fail: takes an error that ends the run.
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
        def context(id_: str) -> Context:
            return Context(id_, Device("cpu"), (1,), 1, Counters(), say, addresses, streams=streams)

        self._fail = fail
        self.finished = Counter[str]({node.id: 0 for node in nodes})
        self.latency: dict[str, Histogram] = {}
        self.runners = {node.id: runner(node, context, fail, sources) for node in nodes}
        self._lanes = {node.id: Lane([node], inputs=[Channel(node.run.queue)]) for node in nodes}
        self._locks = {node.id: threading.Lock() for node in nodes}
        self._sequence = Counter[str]()

    def open(self) -> None:
        """Open every sink, one after the other; returns when all are open or one has failed."""
        for id_, lane in self._lanes.items():
            ready = threading.Event()
            worker = Worker(lane, [self.runners[id_]], Device("cpu"), ready.set, self._fail, self._count)
            thread = threading.Thread(target=_then_abort, args=(worker, lane.inputs[0]), name=id_, daemon=True)
            lane.threads.append(thread)
            thread.start()
            ready.wait()

    def put(self, items: Sequence[Item]) -> None:
        """Give the sinks what came from one process; wait while one of them has too much before it."""
        for id_ in dict.fromkeys(sink for sink, _, _ in items):
            frames = [unpack(packed) for sink, packed, _ in items if sink == id_ and packed is not None]
            ended = tuple(source for sink, packed, source in items if sink == id_ and packed is None)
            for position, frame in enumerate(frames):
                frame.position = position
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
        """No frame comes any more: write the rest and close every sink that was opened."""
        for lane in self._lanes.values():
            lane.inputs[0].close()
        for lane in self._lanes.values():
            for thread in lane.threads:
                while thread.is_alive():  # awake often enough that signals are handled
                    thread.join(0.2)

    def abort(self) -> None:
        """Drop what waits; the sinks are closed."""
        for lane in self._lanes.values():
            lane.inputs[0].abort()

    def report(self) -> dict[str, Any]:
        """What the sinks add to a run's report."""
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


def _then_abort(worker: Worker, channel: Channel) -> None:
    """Run a sink's worker; whoever still brings batches when it has ended is not to wait for ever."""
    worker()
    channel.abort()
