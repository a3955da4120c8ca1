"""A lane: a chain of stages on a thread, or on several that work side by side, between two channels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamkit.data import Batch, Device
from streamkit.plan import DECODE, Graph, Node
from streamkit.runtime.channel import Aborted, Channel, Outlet
from streamkit.runtime.device import LaneDevice, lane_device
from streamkit.runtime.host import share_cores
from streamkit.runtime.nodes import Runner
from streamkit.runtime.prewarm import prewarm
from streamkit.runtime.tables import merge_batches
from streamkit.spans import Spans
from streamkit.stage import Sink


@dataclass(slots=True)
class Lane:
    """A chain of stages that run one after the other on a thread.

    Attributes:
        nodes: the stages.
        workers: how many threads, each with its own instances, share the lane's batches.
        inputs: a channel for each stage the first one reads from.
        outlet: where batches go on to.
        threads: the workers' threads.
        taking: held by the worker that takes a batch of each input.
    """

    nodes: list[Node]
    workers: int = 1
    inputs: list[Channel] = field(default_factory=list)
    outlet: Outlet = field(default_factory=lambda: Outlet([], 1))
    threads: list[threading.Thread] = field(default_factory=list)
    taking: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def on_device(self) -> bool:
        """Whether its stages' arrays are on the pipeline's device."""
        return self.nodes[0].on_device

    @property
    def mostly_waits(self) -> bool:
        """Whether its stages do no work on pixels on the host, and so leave a core to others most of the time."""
        return self.on_device or not any("pixels" in node.reads for node in self.nodes)


def partition(graph: Graph) -> list[Lane]:
    """Cut the graph into lanes.

    A stage goes on in its input's lane where that is its only input and it the only reader, both are of the device or
    both of the host, and no table crosses between them. A sink has a lane of its own: writing waits for nobody.
    """
    lanes: dict[str, Lane] = {}
    for node in graph.nodes.values():
        above = graph.nodes.get(node.inputs[0]) if len(node.inputs) == 1 else None
        if above is not None and _go_on(above, node):
            lane = lanes[above.id]
            lane.nodes.append(node)
        else:
            lane = Lane([node])
        lanes[node.id] = lane
    return list({id(lane): lane for lane in lanes.values()}.values())


def _go_on(above: Node, node: Node) -> bool:
    sinks = issubclass(above.type, Sink) or issubclass(node.type, Sink)
    same_side = above.on_device == node.on_device
    return not sinks and len(above.readers) == 1 and same_side and "detections" not in above.type.writes


def connect(graph: Graph, lanes: Sequence[Lane]) -> Outlet:
    """Make the channels between the lanes; return the outlet that the batcher puts batches into."""
    readers: dict[str, list[Channel]] = {}
    for lane in lanes:
        for name in lane.nodes[0].inputs:
            channel = Channel(lane.nodes[0].run.queue, sole=len(lane.nodes[0].inputs) == 1)
            lane.inputs.append(channel)
            readers.setdefault(name, []).append(channel)
    for lane in lanes:
        lane.outlet = Outlet(readers.get(lane.nodes[-1].id, []), lane.workers)
    return Outlet(readers.get(DECODE, []), 1)


class Worker:
    """One thread of a lane.

    Args:
        lane: the lane.
        runners: the lane's stages, for this thread alone.
        device: the pipeline's.
        ready: called once when every stage is open.
        fail: takes an error that ends the run.
        finished: called with each batch at the end of the graph.
        spans: gives the calling thread's place in the run's timeline.
    """

    def __init__(
        self,
        lane: Lane,
        runners: Sequence[Runner],
        device: Device,
        ready: Callable[[], None],
        fail: Callable[[BaseException], None],
        finished: Callable[[Lane, Batch], None],
        spans: Callable[[], Spans] = Spans,
    ) -> None:
        self.lane, self.runners = lane, runners
        self._ready, self._fail, self._finished, self._spans = ready, fail, finished, spans
        self._device: LaneDevice = lane_device(device, lane.on_device)
        self._on, self._stream_on = device, device if lane.on_device else None

    def __call__(self) -> None:
        """Open the stages, run batches through them until there are no more, close the stages."""
        opened: list[Runner] = []
        if self.lane.mostly_waits:
            share_cores(self._on)
        try:
            with self._device.enter():
                try:
                    for runner in self.runners:
                        opened.append(runner)
                        self._spans().call(f"open {runner.node.id}", runner.start)()
                    if self._stream_on is not None and self._on.kind == "cuda":
                        self._spans().call("warm up", prewarm)(self.runners, self._on)
                    self._ready()
                    self._loop()
                except Aborted:
                    pass
                except BaseException as error:
                    self._fail(error)
                    for channel in self.lane.inputs:  # nobody reads them any more, and who writes would wait for ever
                        channel.abort()
                finally:
                    self._close(opened)
        except BaseException as error:
            self._fail(error)
        finally:
            self._ready()
            self.lane.outlet.close()

    def _loop(self) -> None:
        spans = self._spans()
        take = spans.call("wait for input", self._next, waiting=True)
        receive = spans.call("wait for the GPU", self._device.receive, waiting=True)
        stages = [spans.stage(runner.node.id, runner.run, self._stream_on) for runner in self.runners]
        hand_on = spans.call("wait for the GPU", self._device.hand_on, waiting=True)
        put = spans.call("wait for output", self.lane.outlet.put, waiting=True)
        while (batch := take()) is not None:
            receive(batch)
            for run in stages:
                batch = run(batch)
            hand_on(batch)
            self._finished(self.lane, batch)
            put(batch)
            del batch  # or this thread would hold the pictures while it waits for the next

    def _next(self) -> Batch | None:
        with self.lane.taking:  # or two workers of one lane would each take a part of two batches
            batches: list[Any] = [channel.get() for channel in self.lane.inputs]
        if any(batch is None for batch in batches):
            return None
        return batches[0] if len(batches) == 1 else merge_batches(batches)

    def _close(self, opened: Sequence[Runner]) -> None:
        self._device.settle()
        self._spans().close()
        for runner in opened:
            try:
                runner.finish()
            except BaseException as error:
                self._fail(error)
