"""Which device is chosen and why, and the hand-over between CUDA streams, shown with a stand-in for CuPy."""

import contextlib
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from support.messages import collect

from streamkit.core.data import Batch, Color, Device, Frame, Surface
from streamkit.core.errors import ConfigError, DeviceError
from streamkit.core.text import install_command
from streamkit.models import onnxruntime_package
from streamkit.runtime.execution import device as devices
from streamkit.runtime.execution.device import CudaLane, HostLane, LaneDevice, choose, gpu_trouble, lane_device


def test_the_cpu_needs_no_packages_and_logs_nothing():
    logged = collect()
    assert choose("cpu") == choose(["cpu"]) == Device("cpu")
    assert logged == []


def test_device_names_are_compared_by_value(monkeypatch):
    monkeypatch.setattr(devices, "gpu_trouble", lambda index: "the fan is off")
    assert choose("".join("cpu")) == choose("".join("auto")) == Device("cpu")


@pytest.mark.parametrize("wanted", [["cuda:0", "cuda:1"], ["cpu", "cuda"], []])
def test_a_pipeline_has_a_single_device(wanted):
    with pytest.raises(ConfigError, match="only one device is supported here; name one"):
        choose(wanted)


def test_auto_selects_the_cpu_with_the_reason(monkeypatch):
    monkeypatch.setattr(devices, "gpu_trouble", lambda index: "the fan is off")
    monkeypatch.setattr(devices, "_warned", set())
    logged = collect()
    assert choose("auto") == Device("cpu")
    assert logged == ["running on the CPU: the fan is off"]


def test_the_reason_for_the_cpu_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(devices, "gpu_trouble", lambda index: "the fan has stopped")
    monkeypatch.setattr(devices, "_warned", set())
    choose("auto")
    choose("auto")
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize(("wanted", "index"), [("auto", 0), ("cuda", 0), ("cuda:0", 0), ("cuda:3", 3), (["cuda:1"], 1)])
def test_auto_selects_a_working_gpu(wanted, index, monkeypatch):
    checked = []
    monkeypatch.setattr(devices, "gpu_trouble", checked.append)
    assert choose(wanted) == Device("cuda", index)
    assert checked == [index]


def test_a_requested_gpu_is_used_or_refused(monkeypatch):
    monkeypatch.setattr(devices, "gpu_trouble", lambda index: f"there is no GPU {index}, only 1")
    with pytest.raises(
        DeviceError, match=r"device cuda:4 cannot be used: there is no GPU 4, only 1; `streamkit doctor"
    ):
        choose("cuda:4")


def module(name: str, **parts) -> ModuleType:
    package = ModuleType(name)
    package.__dict__.update(parts)
    return package


def cupy_with(count) -> ModuleType:
    return module("cupy", cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=count)))


def no_driver() -> int:
    raise RuntimeError("cudaErrorNoDevice:\n no CUDA-capable device")


@pytest.mark.parametrize(
    ("cupy", "ort", "index", "trouble"),
    [
        (None, None, 0, ("the package cupy is missing; python -m pip uninstall -y onnx", "there is no NVIDIA driver")),
        (no_driver, None, 0, "no NVIDIA GPU or driver (cudaErrorNoDevice: no CUDA-capable device)"),
        (lambda: 2, ["CUDAExecutionProvider"], 2, "there is no GPU 2, only 2"),
        (lambda: 2, ["CUDAExecutionProvider"], 5, "there is no GPU 5, only 2"),
        (lambda: 2, None, 1, "the package onnxruntime-gpu is missing; python -m pip uninstall -y onnxruntime"),
        (
            lambda: 1,
            ["CPUExecutionProvider"],
            0,
            "the onnxruntime installed has no CUDA provider; python -m pip uninst",
        ),
        (lambda: 1, ["CUDAExecutionProvider", "CPUExecutionProvider"], 0, None),
    ],
)
def test_each_missing_requirement_is_named(cupy, ort, index, trouble, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None if cupy is None else cupy_with(cupy))
    providers = None if ort is None else module("onnxruntime", get_available_providers=lambda: ort)
    monkeypatch.setitem(sys.modules, "onnxruntime", providers)
    trouble_text = gpu_trouble(index)
    assert trouble_text is None if trouble is None else trouble_text.startswith(trouble)
    if trouble_text is not None and "pip" in trouble_text:
        assert trouble_text.endswith(
            f"; python -m pip uninstall -y onnxruntime onnxruntime-gpu && {install_command('gpu')}"
        )


def test_cuda_means_the_first_gpu(monkeypatch):
    monkeypatch.setitem(
        sys.modules, "onnxruntime", module("onnxruntime", get_available_providers=lambda: ["CUDAExecutionProvider"])
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy_with(lambda: 1))
    assert gpu_trouble() is None
    monkeypatch.setitem(sys.modules, "cupy", cupy_with(lambda: 0))
    assert gpu_trouble() == "there is no GPU 0, only 0"


@pytest.mark.parametrize("installed", [False, True])
def test_without_cupy_the_driver_shows_what_is_missing(installed, monkeypatch):
    loaded = []

    def load(name):
        loaded.append(name)
        if not installed:
            raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(onnxruntime_package, "ctypes", SimpleNamespace(CDLL=load))
    monkeypatch.setitem(sys.modules, "cupy", None)
    trouble_text = gpu_trouble()
    if installed:
        assert trouble_text.startswith("the package cupy is missing; ")
    else:
        assert trouble_text == "there is no NVIDIA driver on this machine"
    assert loaded == ["libcuda.so.1"]


def test_a_gpu_is_described(monkeypatch):
    runtime = SimpleNamespace(
        memGetInfo=lambda: (3 << 30, 8 << 30),
        getDeviceProperties=lambda index: {"name": f"GPU of {index}".encode()},
        driverGetVersion=lambda: 12990,
        runtimeGetVersion=lambda: 12000,
        getDeviceCount=lambda: 2,
    )
    cuda = SimpleNamespace(
        Device=lambda index: contextlib.nullcontext(SimpleNamespace(compute_capability="120")), runtime=runtime
    )
    monkeypatch.setitem(sys.modules, "cupy", module("cupy", cuda=cuda))
    assert devices.describe_gpu(1) == {
        "name": "GPU of 1",
        "compute": "12.0",
        "free": 3 << 30,
        "total": 8 << 30,
        "driver": (12, 99),
        "runtime": (12, 0),
    }
    assert devices.gpu_count() == 2


def test_each_lane_has_its_synchronization():
    assert type(lane_device(Device("cpu"), True)) is type(lane_device(Device("cpu"), False)) is LaneDevice
    assert type(lane_device(Device("cuda"), False)) is HostLane


def test_hand_over_does_nothing_on_the_cpu():
    lane = LaneDevice()
    batch = Batch([])
    with lane.activate():
        lane.acquire(batch)
        lane.release(batch)
        lane.synchronize()
    assert batch.ready is None


# --------------------------------------------------------------------------------------------------- CUDA, pretended


class Event:
    """An event that is done when the test says so."""

    def __init__(self, log, disable_timing=False):
        self.log = log
        self.done = False
        self.number = None

    def record(self, stream):
        self.number = sum(entry[0] == "record" for entry in self.log)
        self.log.append(("record", self.number))

    def synchronize(self):
        self.done = True
        self.log.append(("synchronize", self.number))


class Stream(contextlib.AbstractContextManager):
    def __init__(self, log, non_blocking=False):
        assert non_blocking  # or it would wait for the null stream, and that for it
        self.log = log

    def __exit__(self, *error):
        self.log.append(("leave stream",))

    def wait_event(self, event):
        self.log.append(("wait", event))

    def synchronize(self):
        self.log.append(("settle",))


@pytest.fixture
def log():
    return []


@pytest.fixture
def lane(log, monkeypatch):
    def event(disable_timing, block=None):
        assert block in (True, None)  # or a thread that waits would use a core; None: nobody waits
        assert disable_timing
        return Event(log, disable_timing)

    cuda = SimpleNamespace(
        Device=contextlib.nullcontext, Stream=lambda non_blocking: Stream(log, non_blocking), Event=event
    )
    monkeypatch.setitem(sys.modules, "cupy", module("cupy", cuda=cuda, ndarray=type("ndarray", (), {})))
    cuda_lane = lane_device(Device("cuda"), True)
    assert isinstance(cuda_lane, CudaLane)
    return cuda_lane


def batch_of(*ready) -> Batch:
    surfaces = [Surface(np.zeros((6, 4), np.uint8), Color(), ready=event) for event in ready]
    return Batch([Frame("a", i, 0.0, 4, 4, surface) for i, surface in enumerate(surfaces)])


def test_a_device_lane_waits_for_batch_and_decoders_on_its_stream(lane, log):
    with lane.activate():
        batch = batch_of("decoded 0", None, "decoded 2")
        batch.frames.append(Frame("b", 0, 0.0, 4, 4))  # one without pixels
        batch.ready = "lane before"
        lane.acquire(batch)
    assert log == [("wait", "lane before"), ("wait", "decoded 0"), ("wait", "decoded 2"), ("leave stream",)]
    assert all(frame.surface.awaited for frame in batch.frames[:3])


def test_a_batch_carries_an_event_after_its_work(lane, log):
    with lane.activate():
        batch = batch_of(None)
        lane.acquire(batch)
        lane.release(batch)
        assert isinstance(batch.ready, Event)
        assert log == [("record", 0)]


def test_hanging_gpu_work_is_visible_from_another_thread(lane, log):
    assert lane.stuck_s(100.0) == 0  # it has not started
    with lane.activate():
        assert [lane.stuck_s(now_s) for now_s in (100.0, 100.5, 130.0)] == [0, 0.5, 30]
        assert log == [("record", 0)]
        lane._probe[0].synchronize()
        assert [lane.stuck_s(now_s) for now_s in (130.5, 131.0)] == [0, 0.5]  # it has gone on
    assert LaneDevice().stuck_s(1e6) == 0


def test_inputs_of_a_lane_are_retained_until_the_gpu_has_read_them(lane, log):
    import weakref

    with lane.activate():
        batch = batch_of(None)
        read = weakref.ref(batch.frames[0].surface)
        lane.acquire(batch)
        batch.frames[0].surface = Surface(np.zeros((6, 4), np.uint8), Color())  # drawn anew
        lane.release(batch)
        first = batch.ready
        assert read() is not None
        follow = batch_of(None)
        lane.acquire(follow)
        lane.release(follow)
        assert read() is not None  # the event has not come yet
        first.done = True
        lane.release(follow)
        assert read() is None
        lane.synchronize()
        assert ("settle",) in log
        assert not lane._pending


def test_a_lane_runs_no_further_ahead_than_a_few_batches(lane, log):
    with lane.activate():
        for _ in range(10):
            batch = batch_of(None)
            lane.acquire(batch)
            lane.release(batch)
            assert len(lane._pending) <= 4
    waited = [number for name, *rest in log if name == "synchronize" for number in rest]
    assert waited == list(range(6))


def test_settling_an_unused_lane_does_nothing(lane):
    lane.synchronize()


def test_a_host_lane_waits_on_its_thread_once(log):
    host = HostLane(Device("cuda"))
    batch = batch_of(None)
    batch.ready = Event(log)
    host.acquire(batch)
    host.acquire(batch)
    assert [entry[0] for entry in log] == ["synchronize"]
    assert batch.ready is None


def test_a_host_lane_makes_its_gpu_current(monkeypatch):
    calls = []

    @contextlib.contextmanager
    def current(index):
        calls.append(("enter", index))
        yield
        calls.append(("leave", index))

    runtime = SimpleNamespace(
        setDevice=lambda index: calls.append(("set", index)), deviceSynchronize=lambda: calls.append(("settle",))
    )
    monkeypatch.setitem(sys.modules, "cupy", module("cupy", cuda=SimpleNamespace(Device=current, runtime=runtime)))
    with HostLane(Device("cuda", 2)).activate():
        calls.append(("work",))
    assert calls == [("enter", 2), ("set", 2), ("settle",), ("work",), ("leave", 2)]


@pytest.mark.gpu
def test_a_real_gpu_is_selected():
    assert gpu_trouble(0) is None
    assert devices.gpu_count() >= 1
    assert choose("auto") == Device("cuda", 0)
    description = devices.describe_gpu(0)
    assert description["total"] >= description["free"] > 0
    assert description["name"]
    assert f"GPU {devices.gpu_count()}" in gpu_trouble(devices.gpu_count())


@pytest.mark.gpu
def test_a_real_hand_over_orders_work_between_streams():
    import cupy

    first = CudaLane(Device("cuda"))
    second = CudaLane(Device("cuda"))
    with first.activate():
        batch = Batch([], cupy)
        first.acquire(batch)
        work = cupy.ones((2048, 2048), np.float32)
        for _ in range(20):
            work = work @ work / 2048
        batch.tensor = work + 1
        first.release(batch)
    with second.activate():
        second.acquire(batch)
        total = batch.tensor.sum()
        second.release(batch)
        HostLane(Device("cuda")).acquire(batch)
        assert batch.ready is None
        np.testing.assert_allclose(float(total), 2 * 2048**2, rtol=1e-3)
        second.synchronize()
    first.synchronize()
