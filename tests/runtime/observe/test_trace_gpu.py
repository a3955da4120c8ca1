"""When a CUDA stream was at what: with a stand-in whose clock can be set, and on a GPU."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from streamkit.core.data import Device
from streamkit.runtime.observe import trace
from streamkit.runtime.observe.trace import GpuSpans


class FakeCuda:
    """A host clock, and a GPU that does what it is given later, by a clock that runs a little faster."""

    def __init__(self, drift: float) -> None:
        self.now_s, self.free_s, self.drift, self.events = 1000.0, 0.0, drift, 0

    def Event(self):
        self.events += 1
        return FakeEvent(self)

    def get_current_stream(self):
        return self

    def get_elapsed_time(self, first, second):
        return np.float32((second.at_s - first.at_s) * (1 + self.drift) * 1e3)

    def work(self, seconds: float) -> None:
        self.free_s = max(self.free_s, self.now_s) + seconds


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda

    def record(self, stream) -> None:
        self.at_s = max(self.cuda.free_s, self.cuda.now_s)

    def synchronize(self) -> None:
        self.cuda.now_s = max(self.cuda.now_s, self.at_s)

    @property
    def done(self) -> bool:
        return self.cuda.now_s >= self.at_s


def spans_of(monkeypatch, drift: float = 0.0):
    cuda, taken = FakeCuda(drift), []
    monkeypatch.setattr(trace.time, "perf_counter", lambda: cuda.now_s)
    spans = GpuSpans(SimpleNamespace(xp=SimpleNamespace(cuda=cuda)), lambda *span: taken.append(span))
    return cuda, spans, taken


def test_spans_lie_where_the_gpu_was_and_not_where_the_host_asked(monkeypatch):
    cuda, spans, taken = spans_of(monkeypatch)
    for name, seconds in (("a", 0.5), ("b", 0.25)):
        spans.begin(name, {"of": name})
        cuda.work(seconds)
        spans.end()
    assert taken == [], "the GPU is not done, and nobody waits for it"
    assert cuda.now_s == 1000.0
    cuda.now_s = 1002.0
    spans.collect()
    assert taken == [("a", 1000.0, 1000.5, {"of": "a"}), ("b", 1000.5, 1000.75, {"of": "b"})]


def test_what_is_over_is_taken_when_the_next_span_ends(monkeypatch):
    cuda, spans, taken = spans_of(monkeypatch)
    for number in range(10):
        spans.begin(str(number), None)
        cuda.work(0.01)
        spans.end()
        cuda.now_s += 0.1
    assert [name for name, *_ in taken] == [str(n) for n in range(9)]
    assert cuda.events < 8, "events are used again"


@pytest.mark.parametrize("drift", [2e-5, -2e-5])
def test_clocks_that_drift_do_not_part_in_a_day(monkeypatch, drift):
    cuda, spans, taken = spans_of(monkeypatch, drift)
    wanted = []
    for number in range(24 * 60):
        cuda.now_s += 60.0
        spans.begin(str(number), None)
        wanted.append(cuda.now_s)
        cuda.work(0.02)
        spans.end()
        cuda.now_s += 0.03
        spans.collect()
    begun = np.array([span[1] for span in taken])
    length = np.array([span[2] - span[1] for span in taken])
    assert np.abs(begun - wanted).max() < 0.011, "within the time until it was seen to be over"
    assert np.abs(length - 0.02).max() < 1e-5
    assert (begun[1:] >= begun[:-1] + length[:-1]).all()


@pytest.mark.gpu
def test_a_gpu_at_work_is_shown_and_not_waited_for():
    import cupy

    taken = []
    source = r"""extern "C" __global__ void spin(long long ns) {
        long long begun; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begun));
        long long now = begun;
        while (now - begun < ns) asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    }"""
    spin = cupy.RawKernel(source, "spin")
    with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True) as stream:
        spin((1,), (1,), (np.int64(1000),))
        stream.synchronize()
        spans = GpuSpans(Device("cuda"), lambda *span: taken.append(span))
        begun = time.perf_counter()
        for number in range(4):
            spans.begin(str(number), None)
            spin((1,), (1,), (np.int64(50_000_000),))
            spans.end()
        launched = time.perf_counter()
        assert launched - begun < 0.05, "nobody waited"
        stream.synchronize()
        over = time.perf_counter()
        spans.collect(over=True)
    assert [name for name, *_ in taken] == list("0123")
    for number, (_, first, last, _) in enumerate(taken):
        assert last - first == pytest.approx(0.05, abs=0.005)
        assert first == pytest.approx(begun + 0.05 * number, abs=0.01)
    assert taken[-1][2] <= over
