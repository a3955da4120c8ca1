"""What a lane is, the channels around it, the steps of its thread, and what stages see while they warm up."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.config.plan import Graph
from streamkit.core.data import Batch, Detections, Device, Frame
from streamkit.core.stage import BatchStage, Collecting, Context, FrameStage, Sink, default_registry, stage
from streamkit.core.tracing import Spans
from streamkit.runtime.execution import lane as module
from streamkit.runtime.execution.channel import Aborted, Channel, Outlet
from streamkit.runtime.execution.device import LaneDevice
from streamkit.runtime.execution.future import held_until
from streamkit.runtime.execution.lane import Lane, LaneThread, blank_batch, connect, partition, prewarm

REGISTRY = default_registry()

with Collecting(REGISTRY):

    @stage("device", reads="pixels", warms_up=True)
    class OnDevice(BatchStage):
        """A stage of the device."""

    @stage("host", writes="events")
    class OnHost(FrameStage):
        """A stage of the host."""

    @stage("looks", reads="pixels", writes="events")
    class Looks(FrameStage):
        """A stage of the host that reads pixels."""

    @stage("out")
    class Out(Sink):
        """A sink."""


def graph(*lines: str) -> Graph:
    text = "sources: {a: 'test://'}\nstages:\n" + "".join(f"  {line}\n" for line in lines)
    return build(read_text(text, registry=REGISTRY))


# ------------------------------------------------------------------------------------------------------------ lanes


def test_a_lane_begins_with_one_worker_and_an_outlet_without_readers():
    lane = Lane([])
    assert (lane.nodes, lane.workers, lane.inputs, lane.threads) == ([], 1, [], [])
    assert (lane.outlet._readers, lane.outlet._workers) == ([], 1)
    assert "input_lock" not in repr(lane)
    with pytest.raises(AttributeError):
        lane.wokers = 2


def test_a_lane_is_on_the_side_of_its_first_stage():
    device, host = SimpleNamespace(on_device=True, reads=()), SimpleNamespace(on_device=False, reads=())
    assert Lane([device, host]).on_device
    assert not Lane([host, device]).on_device


@pytest.mark.parametrize(
    ("lines", "waits"),
    [
        (["device:"], True),
        (["host:"], True),
        (["looks:"], False),
        (["host:", "looks:"], False),
        (["looks:", "host:"], False),
    ],
)
def test_a_thread_mostly_waits_unless_its_stages_read_pixels_on_the_host(lines, waits):
    (lane,) = partition(graph(*lines))
    assert lane.mostly_waits is waits


def test_the_channels_of_a_lane_are_those_of_its_first_stage_and_its_outlet_that_of_its_last():
    stage_graph = graph(
        "a: {stage: host, run: {queue: 2}}",
        "b: {stage: host, from: decode}",
        "c: {stage: host, from: [a, b], run: {queue: 3}}",
        "d: {stage: host, run: {queue: 5}}",
        "e: {stage: host, run: {queue: 6}}",
        "out: {run: {queue: 7}}",
    )
    lanes = partition(stage_graph)
    assert [[node.id for node in lane.nodes] for lane in lanes] == [["a"], ["b"], ["c", "d", "e"], ["out"]]
    lanes[2].workers = 3
    first = connect(stage_graph, lanes)
    a, b, rest, out = lanes
    assert [[channel._depth for channel in lane.inputs] for lane in lanes] == [[2], [4], [3, 3], [7]]
    assert [[channel.sole for channel in lane.inputs] for lane in lanes] == [[True], [True], [False, False], [True]]
    assert (a.outlet._readers, b.outlet._readers) == ([rest.inputs[0]], [rest.inputs[1]])
    assert (rest.outlet._readers, out.outlet._readers) == ([out.inputs[0]], [])
    assert [lane.outlet._workers for lane in lanes] == [1, 1, 3, 1]
    assert (first._readers, first._workers) == ([a.inputs[0], b.inputs[0]], 1)


# ---------------------------------------------------------------------------------------------------------- threads


class Noted(Spans):
    """Notes the names that it is given, and what waits."""

    def __init__(self, log):
        self.log = log

    def call(self, name, call, *, waiting=False):
        self.log.append((name, waiting))
        return call

    def stage(self, name, run, device=None):
        self.log.append((f"stage {name}", device))
        return run


class Idle:
    """A runner that does nothing but raise where it is told to."""

    def __init__(self, error=None):
        self.node, self.error = SimpleNamespace(id="it"), error

    def start(self):
        pass

    def finish(self):
        pass

    def run(self, batch):
        if self.error is not None:
            raise self.error
        return batch


@pytest.fixture
def worker(monkeypatch):
    """Run the thread of a lane of these stages to its end on this thread; what it did in which order."""
    log = []

    def run(line, device, *, batches=1, error=None):
        (lane,) = partition(graph(line))
        lane.inputs = [Channel(4)]
        for sequence in range(batches):
            lane.inputs[0].put(Batch([Frame("a", sequence, 0.0, 4, 4)], sequence=sequence))
        lane.inputs[0].close()
        runners = [Idle(error)]
        failures = []
        spans = Noted(log)
        thread = LaneThread(
            lane, runners, device, lambda: log.append("ready"), failures.append,
            lambda lane, batch: log.append(("finished", batch.sequence)), lambda: spans,
        )  # fmt: skip
        assert thread._stream_on is (device if line == "device:" else None)
        thread()
        return lane, failures, log

    monkeypatch.setattr(module, "lane_device", lambda device, on_device: LaneDevice())
    monkeypatch.setattr(module, "pin_to_shared_cores", lambda device: log.append(("pin", device)))
    monkeypatch.setattr(module, "prewarm", lambda runners, device: log.append(("prewarm", len(runners), device)))
    return run


CPU, GPU = Device(), Device("cuda")
WAITS = [("wait for input", True), ("wait for the GPU", True)]
LEAVES = [("wait for the GPU", True), ("wait for output", True)]


@pytest.mark.parametrize(
    ("line", "device", "before", "stream"),
    [
        ("device:", GPU, [("pin", GPU), ("open it", False), ("warm up", False), ("prewarm", 1, GPU)], GPU),
        ("device:", CPU, [("pin", CPU), ("open it", False)], CPU),
        ("host:", GPU, [("pin", GPU), ("open it", False)], None),
        ("looks:", GPU, [("open it", False)], None),
    ],
)
def test_the_steps_of_a_thread_and_which_of_them_wait(worker, line, device, before, stream):
    _, failures, log = worker(line, device)
    assert failures == []
    assert log == [*before, "ready", *WAITS, ("stage it", stream), *LEAVES, ("finished", 0), "ready"]


def test_who_writes_to_a_lane_that_has_failed_does_not_wait_for_room(worker):
    lane, failures, _ = worker("host:", CPU, batches=3, error=RuntimeError("no"))
    assert [str(error) for error in failures] == ["no"]
    with pytest.raises(Aborted):
        lane.inputs[0].put(Batch([]))


@pytest.mark.parametrize("short", [0, 1])
def test_a_lane_ends_when_one_of_its_inputs_does(short):
    lane = Lane([SimpleNamespace(on_device=False)], inputs=[Channel(2), Channel(2)], outlet=Outlet([], 1))
    lane.inputs[1 - short].put(Batch([Frame("a", 0, 0.0, 4, 4)]))
    for channel in lane.inputs:
        channel.close()
    assert LaneThread(lane, [], CPU, print, print, print)._next() is None


# ---------------------------------------------------------------------------------------------------------- warm up


class Warm(BatchStage):
    """Notes the length of its batches, and leaves a table that is made when somebody asks for it."""

    def __init__(self, log, name, sizes, error=None):
        self.log, self.name, self.error = log, name, error
        self.context = Context(batch_sizes=sizes)

    def process(self, batch):
        self.log.append((self.name, len(batch)))
        if self.error is not None:
            raise self.error

        def late():
            self.log.append((f"table of {self.name}", len(batch)))
            return Detections.empty()

        batch.tables[self.name] = late
        return batch


def warming(*stages, warms_up=True):
    spec = SimpleNamespace(warms_up=warms_up)
    return [
        SimpleNamespace(
            node=SimpleNamespace(type=SimpleNamespace(spec=spec)), instances=lambda instance=instance: [instance]
        )
        for instance in stages
    ]


def test_tables_that_are_still_to_come_are_waited_for_behind_the_last_stage():
    log = []
    prewarm(warming(Warm(log, "a", (2, 4)), Warm(log, "b", (9,))), CPU)
    sizes = [(name, size) for size in (2, 4) for name in ("a", "b", "table of a", "table of b")]
    assert log == sizes  # the sizes are those of the first stage


def test_where_networks_are_tuned_after_the_first_frames_one_size_is_warmed_up():
    log = []
    first = Warm(log, "a", (2, 4))
    first.context.runtime.future = held_until(threading.Event())
    prewarm(warming(first), CPU)
    assert log == [("a", 2), ("table of a", 2)]


def test_a_size_that_raises_does_not_keep_the_others_from_warming_up():
    log = []
    broken = Warm(log, "a", (1, 2), error=SystemExit(1))
    counters = broken.context.counters
    prewarm(warming(broken, Warm(log, "b", (1,))), CPU)
    assert log == [("a", 1), ("a", 2)]
    assert broken.context.counters is counters


def test_without_a_stage_that_warms_up_nothing_is_called():
    log = []
    prewarm(warming(Warm(log, "a", (1,)), warms_up=False), CPU)
    prewarm([], CPU)
    assert log == []


@pytest.mark.parametrize("length", [1, 3])
def test_a_blank_batch_is_one_black_picture_with_one_object_on_each_frame(length):
    batch = blank_batch(CPU, length)
    assert [(frame.source, frame.index, frame.pts_s, frame.width, frame.height) for frame in batch.frames] == [
        ("warm-up", number, 0.0, 640, 360) for number in range(1, length + 1)
    ]
    assert [frame._state.ordinal for frame in batch.frames] == list(range(1, length + 1))
    assert len({id(frame.surface) for frame in batch.frames}) == 1
    data = batch.frames[0].surface.data
    assert (data.shape, data.dtype) == ((540, 640), np.uint8)
    assert (set(data[:360].flat), set(data[360:].flat)) == ({16}, {128})
    assert list(batch.tables) == ["warm-up"]
    table = batch.table("warm-up")
    assert table.xyxy.tolist() == [[8.0, 8.0, 72.0, 72.0]] * length
    assert (table.score.tolist(), table.class_id.tolist()) == ([1.0] * length, [0] * length)
    assert (table.batch_row.tolist(), table.labels) == (list(range(length)), ("object",))
