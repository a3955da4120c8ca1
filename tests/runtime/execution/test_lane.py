"""How a graph is cut into lanes, and how they are joined by channels."""

import threading
import time

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.config.plan import DECODE
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.stage import BatchStage, Collecting, FrameStage, Sink, StreamStage, default_registry, stage
from streamkit.runtime.execution.channel import Channel, Outlet
from streamkit.runtime.execution.lane import Lane, LaneThread, connect, opening_order, partition
from streamkit.runtime.execution.sizes import instances
from streamkit.runtime.execution.stage_runner import Runner

REGISTRY = default_registry()

with Collecting(REGISTRY):

    @stage("device_a", reads="pixels")
    class DeviceA(BatchStage):
        """A stage of the device."""

    @stage("device_b", reads="pixels")
    class DeviceB(BatchStage):
        """Another."""

    @stage("collects", reads="pixels", on_device=True)
    class Collects(StreamStage):
        """A stage of the device that keeps something of each source."""

    @stage("find", reads="pixels", writes="detections")
    class Find(BatchStage):
        """A detector."""

    @stage("follow", reads="detections", writes="track_id")
    class Follow(StreamStage):
        """A stage of the host."""

    @stage("each", writes="events")
    class Each(FrameStage):
        """Another."""

    @stage("looks", reads="pixels", writes="events")
    class Looks(FrameStage):
        """A stage of the host that reads pixels."""

    @stage("out")
    class Out(Sink):
        """A sink."""


def graph(*lines):
    text = "sources: {a: 'test://'}\nstages:\n" + "".join(f"  {line}\n" for line in lines)
    return build(read_text(text, registry=REGISTRY))


def cut(*lines) -> list[list[str]]:
    return [[node.id for node in lane.nodes] for lane in partition(graph(*lines))]


@pytest.mark.parametrize(
    ("lines", "lanes"),
    [
        (["device_a:", "device_b:", "find:"], [["device_a", "device_b", "find"]]),
        # no table crosses from one stage to the next within a lane, and device and host never share one
        (["find:", "device_a:"], [["find"], ["device_a"]]),
        (["device_a:", "each:"], [["device_a"], ["each"]]),
        (["each:", "device_a:"], [["each"], ["device_a"]]),
        (["find:", "follow:", "each:", "out:"], [["find"], ["follow", "each"], ["out"]]),
        # a sink waits for nobody and nobody for it
        (["each:", "o1: {stage: out}", "o2: {stage: out}"], [["each"], ["o1"], ["o2"]]),
        (["o1: {stage: out}", "each:"], [["o1"], ["each"]]),
        # where the graph branches and where branches meet
        (
            ["device_a:", "device_b: {from: device_a}", "x: {stage: device_b, from: device_a}"],
            [["device_a"], ["device_b"], ["x"]],
        ),
        (
            ["find:", "follow: {from: find}", "each: {from: find}", "out: {from: [follow, each]}"],
            [["find"], ["follow"], ["each"], ["out"]],
        ),
        (
            [
                "e1: {stage: each}",
                "e2: {stage: each, from: decode}",
                "e3: {stage: each, from: [e1, e2]}",
                "e4: {stage: each}",
            ],
            [["e1"], ["e2"], ["e3", "e4"]],
        ),
    ],
)
def test_a_graph_is_cut_into_lanes(lines, lanes):
    assert cut(*lines) == lanes


@pytest.mark.parametrize(
    ("device", "options", "order"),
    [
        ("cpu", {}, ([], [], ["find", "each", "each", "device_a", "out"])),
        ("cuda", {"engine": "auto"}, (["find", "device_a"], ["each", "each"], ["out"])),
        ("cuda", {"engine": "tensorrt"}, (["device_a"], ["each", "each"], ["find", "out"])),
    ],
)
def test_networks_on_a_gpu_open_in_parallel_with_host_stages(device, options, order):
    lanes = partition(graph("find:", "each:", "device_a:", "out:"))
    lanes[0].nodes[0].options.update(options)
    lanes[1].workers = 2
    opened = opening_order(lanes, Device(device))
    assert tuple([lane.nodes[0].id for lane in part] for part in opened) == order


def test_a_lane_runs_on_the_device_or_on_the_host():
    lanes = partition(graph("find:", "follow:", "out:"))
    assert [lane.on_device for lane in lanes] == [True, False, False]


def test_a_stage_that_keeps_states_on_the_device_has_a_lane_of_its_own():
    lanes = partition(graph("device_a:", "collects:", "device_b:", "each:"))
    assert [[node.id for node in lane.nodes] for lane in lanes] == [["device_a"], ["collects"], ["device_b"], ["each"]]
    assert [lane.on_device for lane in lanes] == [True, True, True, False]
    assert [instances(lane.nodes, Device(), 4) for lane in lanes] == [4, 1, 4, 1]


@pytest.mark.parametrize(
    ("lines", "waits"),
    [
        (["find:"], True),
        (["each:"], True),
        (["looks:"], False),
        (["each:", "looks:"], False),
        (["looks:", "each:"], False),
    ],
    ids=["device", "host", "host pixels", "then pixels", "pixels first"],
)
def test_a_lane_mostly_waits_unless_its_stages_read_pixels_on_the_host(lines, waits):
    (lane,) = partition(graph(*lines))
    assert lane.mostly_waits is waits


def test_each_reader_has_a_separate_channel_with_its_depth():
    stage_graph = graph("device_a:", "each: {run: {queue: 2}}", "out: {from: [decode, each], run: {queue: 7}}")
    lanes = partition(stage_graph)
    first = connect(stage_graph, lanes)
    device, each, out = lanes
    assert [len(lane.inputs) for lane in lanes] == [1, 1, 2]
    assert first._readers == [device.inputs[0], out.inputs[0]]
    assert device.outlet._readers == [each.inputs[0]]
    assert each.outlet._readers == [out.inputs[1]]
    assert out.outlet._readers == []
    assert (each.inputs[0]._depth, [channel._depth for channel in out.inputs]) == (2, [7, 7])
    assert DECODE not in stage_graph.nodes


class Fake(Runner):
    """A runner that notes what it is asked."""

    def __init__(self, log, trouble=""):
        self.node = graph("device_a:").nodes["device_a"]
        self.log = log
        self.trouble = trouble

    def start(self):
        self.log.append(("open", threading.get_ident()))
        if self.trouble == "open":
            raise RuntimeError("in open")

    def run(self, batch):
        self.log.append(("run", threading.get_ident()))
        if self.trouble == "run":
            raise RuntimeError("in run")
        return batch

    def finish(self):
        self.log.append(("close", threading.get_ident()))
        if self.trouble == "close":
            raise RuntimeError("in close")


def work(*runners, batches=2):
    (lane,) = partition(graph("device_a:", "device_b:"))
    inlet = Channel(10)
    result = Channel(10)
    lane.inputs = [inlet]
    lane.outlet = Outlet([result], 1)
    for sequence in range(batches):
        inlet.put(Batch([Frame("a", sequence, 0.0, 4, 4)], sequence=sequence))
    inlet.close()
    failures = []
    ready = []
    finished = []
    done: list[tuple[Lane, Batch]] = finished
    worker = LaneThread(
        lane,
        runners,
        Device(),
        lambda: ready.append(True),
        failures.append,
        lambda lane, batch: done.append((lane, batch)),
    )
    thread = threading.Thread(target=worker)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    out = []
    while (batch := result.get()) is not None:  # the outlet is closed, whatever happened
        out.append(batch.sequence)
    assert ready
    return failures, [batch.sequence for _, batch in finished], out, thread.ident


def test_a_worker_opens_runs_and_closes_on_one_thread():
    log = []
    failures, finished, out, ident = work(Fake(log), Fake(log))
    assert (failures, finished, out) == ([], [0, 1], [0, 1])
    assert [name for name, _ in log] == ["open"] * 2 + ["run"] * 4 + ["close"] * 2
    assert {thread for _, thread in log} == {ident}


@pytest.mark.parametrize(
    ("trouble", "calls", "out"),
    [
        ("open", ["open", "close"], []),
        ("run", ["open", "open", "run", "close", "close"], []),
        ("close", ["open"] * 2 + ["run"] * 4 + ["close"] * 2, [0, 1]),
    ],
)
def test_opened_stages_are_closed_after_any_error(trouble, calls, out):
    log = []
    failures, _, sequences, _ = work(Fake(log, trouble), Fake(log))
    assert [str(error) for error in failures] == [f"in {trouble}"]
    assert [name for name, _ in log] == calls
    assert sequences == out


def test_a_waiting_worker_retains_no_batch():
    import gc
    import weakref

    import numpy as np

    from streamkit.core.data import Color, Surface

    (lane,) = partition(graph("device_a:", "device_b:"))
    inlet = Channel(1)
    result = Channel(1)
    lane.inputs = [inlet]
    lane.outlet = Outlet([result], 1)
    worker = LaneThread(lane, [Fake([])], Device(), lambda: None, lambda error: None, lambda lane, batch: None)
    thread = threading.Thread(target=worker)
    thread.start()
    surface = Surface(np.zeros((6, 4), np.uint8), Color())
    alive = weakref.ref(surface)
    inlet.put(Batch([Frame("a", 0, 0.0, 4, 4, surface)]))
    del surface
    assert result.get() is not None
    inlet.put(Batch([Frame("a", 1, 0.0, 4, 4)], sequence=1))
    assert result.get() is not None
    gc.collect()
    assert alive() is None
    inlet.close()
    thread.join(5)


class Slow(Channel):
    """A channel that lets other threads in before it gives a batch."""

    def get(self):
        time.sleep(0.001)
        return super().get()


def test_workers_that_share_a_lane_take_the_same_batch_of_each_branch():
    (lane,) = partition(graph("device_a:"))
    lane.workers = 3
    lane.inputs = [Slow(100), Slow(100)]
    for number in range(60):
        for side, channel in enumerate(lane.inputs):
            frame = Frame("a", number, number / 25, 64, 48, facts={f"side {side}": number})
            channel.put(Batch([frame], sequence=number))
    for channel in lane.inputs:
        channel.close()
    taken = []

    def work():
        worker = LaneThread(lane, [], Device(), lambda: None, lambda error: None, lambda lane, batch: None)
        while (batch := worker._next()) is not None:
            taken.append(batch)

    threads = [threading.Thread(target=work) for _ in range(lane.workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(batch.sequence for batch in taken) == list(range(60))
    for batch in taken:
        assert batch.frames[0].facts == {"side 0": batch.sequence, "side 1": batch.sequence}
