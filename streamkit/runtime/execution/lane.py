# SPDX-License-Identifier: Apache-2.0
"""A lane: a chain of stages between two channels, on one thread or on several in parallel."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from streamkit.config.plan import DECODE, Graph, Node
from streamkit.core.data import Batch, Detections, Device, Frame, FrameState
from streamkit.core.stage import BatchStage, Sink
from streamkit.core.surface import Color, Surface
from streamkit.core.tracing import Spans
from streamkit.runtime.execution.channel import Aborted, Channel, Outlet
from streamkit.runtime.execution.cores import pin_to_shared_cores
from streamkit.runtime.execution.device import LaneDevice, lane_device
from streamkit.runtime.execution.stage_runner import RAISED, Fail, Runner
from streamkit.runtime.execution.tables import merge_batches


@dataclass(slots=True)
class Lane:
    """A chain of stages that run one after the other on a thread.

    Attributes:
        nodes: the stages.
        workers: number of threads that share the lane's batches; each has its own instances of the stages.
        inputs: one channel for each input of the first stage.
        outlet: passes batches on to the next lanes.
        threads: the workers' threads.
        input_lock: lock held by the worker that takes a batch from each input.
    """

    nodes: list[Node]
    workers: int = 1
    inputs: list[Channel[Batch]] = field(default_factory=list)
    outlet: Outlet = field(default_factory=lambda: Outlet([], 1))
    threads: list[threading.Thread] = field(default_factory=list)
    input_lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @property
    def on_device(self) -> bool:
        """Whether its stages use arrays on the pipeline's device."""
        return self.nodes[0].on_device

    @property
    def mostly_waits(self) -> bool:
        """Whether its stages process no pixels on the host, so that its thread is idle most of the time."""
        return self.on_device or not any("pixels" in node.reads for node in self.nodes)


def partition(graph: Graph) -> list[Lane]:
    """Cut the graph into lanes.

    A stage joins the lane of its input if that is its only input, if it is that input's only reader, if both run on
    the device or both on the host, and if no table crosses between them. On the device, stages that need their batches
    in order have a lane of their own. Each sink has its own lane, so that writing blocks no other stage.
    """
    lanes: dict[str, Lane] = {}
    for node in graph.nodes.values():
        above = graph.nodes.get(node.inputs[0]) if len(node.inputs) == 1 else None
        if above is not None and _joins(above, node):
            lane = lanes[above.id]
            lane.nodes.append(node)
        else:
            lane = Lane([node])
        lanes[node.id] = lane
    return list({id(lane): lane for lane in lanes.values()}.values())


class OpeningOrder(NamedTuple):
    """The lanes in the order in which they open, each as often as it has workers.

    Attributes:
        side_by_side: open at the same time.
        meanwhile: open one after the other, beside those.
        after: open one after the other, once all of the above are open.
    """

    side_by_side: list[Lane]
    meanwhile: list[Lane]
    after: list[Lane]


def opening_order(lanes: Sequence[Lane], device: Device) -> OpeningOrder:
    """Decide which lanes open at the same time.

    Networks on a GPU do: they are tuned for seconds, mostly on one core each. The host's stages do not wait for them,
    as a tracker is compiled on its first run on a machine. Sinks do: they create files. Networks open
    alone with TensorRT: its engine of a second like network is loaded from the first one's file.
    """
    side_by_side = list[Lane]()
    meanwhile = list[Lane]()
    alone = list[Lane]()
    sinks = list[Lane]()
    for lane in lanes:
        if device.kind == "cpu" or _opens_alone(lane):
            place = alone
        elif issubclass(lane.nodes[0].type, Sink):
            place = sinks
        else:
            place = side_by_side if lane.on_device else meanwhile
        place.extend([lane] * lane.workers)
    return OpeningOrder(side_by_side, meanwhile, [*alone, *sinks])


def _opens_alone(lane: Lane) -> bool:
    options = [node.options for node in lane.nodes]
    return any(of_node.get("engine") == "tensorrt" for of_node in options)


def _joins(above: Node, node: Node) -> bool:
    sinks = issubclass(above.type, Sink) or issubclass(node.type, Sink)
    same_side = above.on_device == node.on_device
    alike = same_side and (not node.on_device or above.keeps_states == node.keeps_states)
    return not sinks and len(above.readers) == 1 and alike and "detections" not in above.type.spec.writes


def connect(graph: Graph, lanes: Sequence[Lane]) -> Outlet:
    """Create the channels between the lanes; return the outlet for the batcher."""
    readers: dict[str, list[Channel[Batch]]] = {}
    for lane in lanes:
        for name in lane.nodes[0].inputs:
            channel = Channel[Batch](lane.nodes[0].run.queue, sole=len(lane.nodes[0].inputs) == 1)
            lane.inputs.append(channel)
            readers.setdefault(name, []).append(channel)
    for lane in lanes:
        lane.outlet = Outlet(readers.get(lane.nodes[-1].id, []), lane.workers)
    return Outlet(readers.get(DECODE, []), 1)


class LaneThread:
    """One thread of a lane.

    Args:
        lane: the lane.
        runners: the lane's stages, for this thread only.
        device: the pipeline's device.
        ready: called once every stage is open.
        fail: receives an error that ends the run.
        finished: called with each batch that has passed the lane.
        spans: returns the calling thread's track in the timeline of the run.

    Attributes:
        device: synchronizes the lane with the device.
    """

    def __init__(
        self,
        lane: Lane,
        runners: Sequence[Runner],
        device: Device,
        ready: Callable[[], None],
        fail: Fail,
        finished: Callable[[Lane, Batch], None],
        spans: Callable[[], Spans] = Spans,
    ) -> None:
        self.lane = lane
        self.runners = runners
        for runner, after in itertools.pairwise(runners):
            runner.splits_outputs = after.node.type.spec.splits_outputs
        self._ready = ready
        self._fail = fail
        self._finished = finished
        self._spans = spans
        self.device: LaneDevice = lane_device(device, lane.on_device)
        self._on = device
        self._stream_on = device if lane.on_device else None

    def __call__(self) -> None:
        """Open the stages, process batches until the inputs are closed, close the stages."""
        opened: list[Runner] = []
        if self.lane.mostly_waits:
            pin_to_shared_cores(self._on)
        try:
            with self.device.activate():
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
                    for channel in self.lane.inputs:  # without a reader, a writer would wait forever
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
        acquire = spans.call("wait for the GPU", self.device.acquire, waiting=True)
        stages = [spans.stage(runner.node.id, runner.run, self._stream_on) for runner in self.runners]
        release = spans.call("wait for the GPU", self.device.release, waiting=True)
        put = spans.call("wait for output", self.lane.outlet.put, waiting=True)
        while (batch := take()) is not None:
            acquire(batch)
            for run in stages:
                batch = run(batch)
            release(batch)
            self._finished(self.lane, batch)
            put(batch)
            del batch  # or this thread would hold the frames while it waits for the next batch

    def _next(self) -> Batch | None:
        batches: list[Batch] = []
        with self.lane.input_lock:  # or two workers of one lane would each take a part of two batches
            for channel in self.lane.inputs:
                if (batch := channel.get()) is None:
                    return None
                batches.append(batch)
        return batches[0] if len(batches) == 1 else merge_batches(batches)

    def _close(self, opened: Sequence[Runner]) -> None:
        self.device.synchronize()
        self._spans().close()
        for runner in opened:
            try:
                runner.finish()
            except BaseException as error:
                self._fail(error)


_SIZE_WH = (640, 360)


def prewarm(runners: Sequence[Runner], device: Device) -> None:
    """Call the stages that declare `warms_up`, up to the first that does not, with blank frames in every batch size.

    Only in the smallest one where networks are tuned after the first frames: until then, they run in steps of that
    size. Nothing is counted, and exceptions are suppressed: the first real frame reports them. Call this
    on the lane's thread with its CUDA stream current, after the stages are open.

    Args:
        runners: the runners of one lane, in order.
        device: the lane's device.
    """
    first = itertools.takewhile(lambda runner: runner.node.type.spec.warms_up, runners)
    stages = [stage for runner in first for stage in runner.instances()]
    lengths = stages[0].context.batch_sizes if stages else ()
    for length in lengths[:1] if stages and stages[0].context.runtime.future.held else lengths:
        batch = blank_batch(device, length)
        with contextlib.suppress(*RAISED):
            for stage in stages:
                assert isinstance(stage, BatchStage)
                with stage.context.uncounted():
                    batch = stage.process(batch)
            for name in batch.tables:
                batch.table(name)


def blank_batch(device: Device, length: int) -> Batch:
    """Create a batch of black frames that share one surface, with one object each.

    Args:
        device: where the surface is allocated.
        length: number of frames.
    """
    width, height = _SIZE_WH
    data = device.xp.full((height * 3 // 2, width), 16, np.uint8)
    data[height:] = 128
    surface = Surface(data, Color())
    frames = [  # not the first of a source, on which stages report problems of a source
        Frame("warm-up", index + 1, 0.0, width, height, surface=surface, _state=FrameState(ordinal=index + 1))
        for index in range(length)
    ]
    table = Detections(
        xyxy=np.tile(np.array([[8, 8, 72, 72]], np.float32), (length, 1)),
        score=np.ones(length, np.float32),
        class_id=np.zeros(length, np.int32),
        batch_row=np.arange(length, dtype=np.int32),
        labels=("object",),
    )
    return Batch(frames, xp=device.xp, tables={"warm-up": table})
