"""When a CUDA stream was at what: with a stand-in whose clock can be set, and on a GPU."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from streamkit.core.data import Device
from streamkit.runtime.observe import trace
from streamkit.runtime.observe.trace import GpuSpans, Trace


class FakeCuda:
    """A host clock, and a GPU that does what it is given later, by a clock that runs a little faster."""

    def __init__(self, drift: float) -> None:
        self.now_s = 1000.0
        self.free_s = 0.0
        self.drift = drift
        self.events = 0

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
    cuda = FakeCuda(drift)
    taken = []
    monkeypatch.setattr(trace.time, "perf_counter", lambda: cuda.now_s)
    spans = GpuSpans(SimpleNamespace(xp=SimpleNamespace(cuda=cuda)), lambda *span: taken.append(span))
    return cuda, spans, taken


def test_spans_have_gpu_times_and_not_launch_times(monkeypatch):
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


def test_finished_spans_are_collected_when_the_next_ends(monkeypatch):
    cuda, spans, taken = spans_of(monkeypatch)
    for number in range(10):
        spans.begin(str(number), None)
        cuda.work(0.01)
        spans.end()
        cuda.now_s += 0.1
    assert [name for name, *_ in taken] == [str(n) for n in range(9)]
    assert cuda.events < 8, "events are used again"


@pytest.mark.parametrize("drift", [2e-5, -2e-5])
def test_drifting_clocks_stay_aligned_for_a_day(monkeypatch, drift):
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
    starts_s = np.array([span[1] for span in taken])
    length = np.array([span[2] - span[1] for span in taken])
    assert np.abs(starts_s - wanted).max() < 0.011, "within the time until it was seen to be over"
    assert np.abs(length - 0.02).max() < 1e-5
    assert (starts_s[1:] >= starts_s[:-1] + length[:-1]).all()


def test_nested_spans_are_shown_one_after_the_other(monkeypatch):
    cuda, spans, taken = spans_of(monkeypatch)
    spans.begin("outer", None)
    cuda.work(0.25)
    spans.begin("inner", None)
    cuda.work(0.5)
    spans.end()
    spans.end()
    cuda.now_s = 1001.0
    spans.collect()
    assert [name for name, *_ in taken] == ["inner", "outer"]
    assert taken[0][1:3] == (1000.25, 1000.75)


def test_unfinished_spans_are_collected_once_the_work_ends(monkeypatch):
    cuda, spans, taken = spans_of(monkeypatch)
    spans.begin("a", None)
    cuda.work(0.5)
    spans.end()
    spans.collect()
    assert taken == []
    spans.collect(over=True)
    assert [name for name, *_ in taken] == ["a"]


def test_the_first_event_is_not_used_to_align_the_clocks(monkeypatch):
    """The first event of a stream is seen late."""
    synchronize = FakeEvent.synchronize

    def late(event) -> None:
        synchronize(event)
        event.cuda.now_s += 0.5 if event.cuda.events == 1 else 0.0

    monkeypatch.setattr(FakeEvent, "synchronize", late)
    cuda, spans, taken = spans_of(monkeypatch)
    assert cuda.events == 2
    cuda.work(1.0)
    spans.begin("a", None)
    cuda.work(0.25)
    spans.end()
    cuda.now_s = 1005.0
    spans.collect()
    assert taken == [("a", 1001.5, 1001.75, None)]


def test_gpu_spans_lie_between_launch_and_observed_end(monkeypatch):
    cuda, spans, taken = spans_of(monkeypatch, drift=0.01)
    cuda.now_s = 1010.0  # by the clock of the GPU, 10.1 s after the beginning
    spans.begin("a", None)
    cuda.work(1.0)
    spans.end()
    cuda.now_s = 1011.02
    spans.collect()
    (_, start_s, ended_s, _) = taken[0]
    assert start_s == pytest.approx(1010.01)
    assert ended_s == pytest.approx(1011.02)
    cuda, spans, taken = spans_of(monkeypatch, drift=-0.01)
    cuda.now_s = 1010.0
    spans.begin("a", None)
    cuda.work(1.0)
    spans.end()
    cuda.now_s = 1020.0
    spans.collect()
    assert taken[0][1:3] == (1010.0, pytest.approx(1010.99))


def test_events_are_pooled(monkeypatch):
    cuda, spans, taken = spans_of(monkeypatch)
    for number in range(100):
        spans.begin(str(number), None)
        cuda.work(0.01)
        spans.end()
        cuda.now_s += 0.1
        spans.collect()
        assert taken[-1][0] == str(number)
        assert cuda.events <= 5


def test_a_stage_on_a_gpu_has_a_separate_track(monkeypatch, tmp_path):
    cuda = FakeCuda(0.0)
    monkeypatch.setattr(trace.time, "perf_counter", lambda: cuda.now_s)
    device = SimpleNamespace(kind="cuda", xp=SimpleNamespace(cuda=cuda))
    timeline = Trace(tmp_path / "t.json")
    track = timeline.add("detect/0")
    timeline.started_s = 0.0

    def work(seconds: float) -> float:
        cuda.work(seconds)
        cuda.now_s += 0.0625
        return -seconds

    infer = track.stage("infer", work, device)
    draw = track.stage("draw", work, device)
    assert infer(0.5) == -0.5
    assert draw(0.25) == -0.25
    assert [(track.name, track.process) for track in timeline.tracks] == [
        ("detect/0", "streamkit"),
        ("detect/0", str(device)),
    ]
    stream = timeline.tracks[1]
    cuda.now_s = 1001.0
    monkeypatch.setattr(FakeEvent, "done", False)  # the end of the work is known before the events say so
    assert stream.sums.work_s == {}
    track.close()
    assert stream.sums.work_s == pytest.approx({"infer": 0.5, "draw": 0.25})
    assert track.sums.work_s == {"infer": 0.0625, "draw": 0.0625}
    timeline.finish()


@pytest.mark.gpu
@pytest.mark.alone
def test_a_busy_gpu_is_shown_without_waiting():
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
        start_s = time.perf_counter()
        for number in range(4):
            spans.begin(str(number), None)
            spin((1,), (1,), (np.int64(50_000_000),))
            spans.end()
        launched = time.perf_counter()
        assert launched - start_s < 0.05, "the launch does not wait"
        stream.synchronize()
        over = time.perf_counter()
        spans.collect(over=True)
    assert [name for name, *_ in taken] == list("0123")
    for number, (_, first, last, _) in enumerate(taken):
        assert last - first == pytest.approx(0.05, abs=0.005)
        assert first == pytest.approx(start_s + 0.05 * number, abs=0.01)
    assert taken[-1][2] <= over
