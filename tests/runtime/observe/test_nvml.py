"""What the driver's library says of a GPU, from a stand-in of the library."""

import ctypes
import struct
import sys
from types import SimpleNamespace

import pytest

from streamkit.runtime.observe import nvml
from streamkit.runtime.observe.nvml import GpuUtilization, Nvml


class FakeLibrary:
    """The driver's library: writes its C structures, and returns 0 where it succeeds."""

    def __init__(self, **returned: int) -> None:
        self.returned = returned
        self.calls = []
        self.sizes = (1000, 250, 750)

    def _done(self, name: str) -> int:
        self.calls.append(name)
        return self.returned.get(name, 0)

    def nvmlInit_v2(self):
        return self._done("init")

    def nvmlShutdown(self):
        return self._done("shutdown")

    def nvmlDeviceGetHandleByPciBusId_v2(self, address, handle):
        handle._obj.value = {b"0000:03:00.0": 3, b"0000:04:00.0": 4}[address]
        return self._done("handle")

    def nvmlDeviceGetUtilizationRates(self, handle, rates):
        ctypes.memmove(ctypes.addressof(rates._obj), struct.pack("=II", 10 * handle.value, 77), 8)
        return self._done("rates")

    def nvmlDeviceGetDecoderUtilization(self, handle, decoder, period_us):
        decoder._obj.value = 5 * handle.value
        period_us._obj.value = 167_000
        return self._done("decoder")

    def nvmlDeviceGetName(self, handle, text, size):
        text.value = f"NVIDIA H{handle.value}00".encode()[: size - 1]
        return self._done("name")

    def nvmlDeviceGetMemoryInfo(self, handle, memory_info):
        ctypes.memmove(ctypes.addressof(memory_info._obj), struct.pack("=QQQ", *self.sizes), 24)
        return self._done("memory")


@pytest.fixture
def opened(monkeypatch):
    def open_(index: int = 0, **returned: int) -> tuple[Nvml, FakeLibrary]:
        library = FakeLibrary(**returned)
        addresses = ["0000:03:00.0", "0000:04:00.0"]
        runtime = SimpleNamespace(deviceGetPCIBusId=lambda number: addresses[number])
        monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
        monkeypatch.setattr(nvml.ctypes, "CDLL", lambda name: {"libnvidia-ml.so.1": library}[name])
        return Nvml(index), library

    return open_


def test_the_gpu_is_selected_by_address_and_shares_are_0_to_1(opened):
    first, _ = opened(0)
    second, _ = opened(1)
    assert first.use() == GpuUtilization(gpu=0.3, decoder=0.15)
    assert second.use() == GpuUtilization(gpu=0.4, decoder=0.2)


def test_values_missing_in_the_driver_are_none(opened):
    assert opened(0, rates=3)[0].use() == GpuUtilization(gpu=None, decoder=0.15)
    assert opened(0, decoder=3)[0].use() == GpuUtilization(gpu=0.3, decoder=None)
    assert opened(0, rates=-1, decoder=-1)[0].use() == GpuUtilization() == (None, None)
    assert opened(0, memory=3)[0].memory() is None
    assert opened(0, memory=-1)[0].memory() is None


def test_the_share_of_used_memory_is_computed(opened):
    gpu, library = opened()
    assert gpu.memory() == 0.75
    library.sizes = (1, 1, 0)
    assert gpu.memory() == 0.0
    library.sizes = (0, 0, 0)
    assert gpu.memory() is None


@pytest.mark.parametrize("returned", [{"init": 9}, {"init": -1}, {"handle": 6}, {"handle": -1}])
def test_a_library_that_fails_to_initialize_gives_no_values(opened, returned):
    gpu, library = opened(0, **returned)
    assert library.calls == (["init"] if "init" in returned else ["init", "handle", "shutdown"])
    assert (gpu.use(), gpu.memory()) == (GpuUtilization(), None)
    gpu.close()
    assert "rates" not in library.calls
    assert library.calls.count("shutdown") == ("handle" in returned)


def test_there_are_no_values_without_the_library_or_cupy(opened, monkeypatch):
    opened()

    def absent(name):
        raise OSError(name)

    monkeypatch.setattr(nvml.ctypes, "CDLL", absent)
    assert (Nvml(0).use(), Nvml(0).memory()) == (GpuUtilization(), None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    gpu = Nvml(0)
    assert (gpu.use(), gpu.memory()) == (GpuUtilization(), None)
    gpu.close()


def test_the_library_is_closed_once(opened):
    gpu, library = opened()
    assert library.calls == ["init", "handle"]
    gpu.close()
    gpu.close()
    assert library.calls == ["init", "handle", "shutdown"]
    assert (gpu.use(), gpu.memory()) == (GpuUtilization(), None)


def test_memory_is_in_bytes_and_none_without_the_library(opened):
    gpu, _ = opened()
    assert (gpu.free_bytes(), gpu.used_bytes(), gpu.total_bytes()) == (250, 750, 1000)
    gpu, _ = opened(memory=3)
    assert (gpu.free_bytes(), gpu.used_bytes(), gpu.total_bytes()) == (None, None, None)
    gpu, _ = opened(init=1)
    assert gpu.free_bytes() is None


def test_the_name_of_the_gpu_is_read(opened):
    assert opened(1)[0].name() == "NVIDIA H400"
    assert opened(0, name=1)[0].name() is None
    assert opened(0, init=1)[0].name() is None
