"""What a run's timeline shows: every thread, its work and its waiting, as they were, in a file that viewers take."""

import json
import pickle
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from support.timelines import REGISTRY, Gray, chain, check, run, spans

from streamkit import __version__
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read, read_text
from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import OutputError
from streamkit.core.stage import Sink, Stage, default_registry
from streamkit.media.reader import VideoReader
from streamkit.media.surfaces import SurfacePool
from streamkit.runtime.execution.ordered_executor import ThreadedExecutor
from streamkit.runtime.observe import trace as module
from streamkit.runtime.observe.trace import Log, Recorder, Trace, TraceEvent
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig


def test_every_thread_has_its_track_and_every_batch_its_spans(tmp_path):
    _, timeline, _ = run(tmp_path / "t.json", chain())
    tracks = {e["args"]["name"] for e in timeline["traceEvents"] if e["name"] == "thread_name"}
    assert {"source/0", "batcher", "look/0", "take/0"} <= tracks
    for name in ("look", "take"):
        ran = [e["args"] for e in spans(timeline, name) if e["args"]["frames"]]
        assert sorted(ran, key=lambda a: a["batch"]) == [{"batch": n, "frames": 2} for n in range(3)]
    decoded = spans(timeline, "decode", "source/0")
    assert len(decoded) == 7, "six frames and the end"
    assert {e["args"]["source"] for e in decoded} == {"cam"}
    assert len(spans(timeline, "open take", "take/0")) == 1


def test_spans_have_the_duration_and_cpu_time_of_the_work(tmp_path):
    _, timeline, _ = run(tmp_path / "t.json", chain(look="sleeps_s: 0.03, works_s: 0.02"))
    ran = [e for e in spans(timeline, "look") if e["args"]["frames"]]
    assert len(ran) == 3
    for span in ran:
        assert span["dur"] >= 50e3
        assert 20e3 <= span["tdur"] < 0.8 * span["dur"], "what it slept is not time on a core"
    assert spans(timeline, "take")[0]["ts"] >= ran[0]["ts"] + ran[0]["dur"], (
        "a batch is not written before it is looked at"
    )


@pytest.mark.alone
@pytest.mark.parametrize(
    ("slow", "says"),
    [
        ({"look": "works_s: 0.04"}, r"look is busy \d+ % of the time.*: this stage is the limit"),
        (
            {"take": "sleeps_s: 0.03"},
            r"take is busy \d+ % of the time: writing is the limit; \d+ % of its work is wait",
        ),
    ],
)
def test_the_bottleneck_of_the_run_is_named(tmp_path, slow, says):
    name = next(iter(slow))
    for _ in range(5):  # where others want the cores, it is right to name those
        _, timeline, messages = run(tmp_path / "t.json", chain("count: 24", **slow))
        busy = {lane: shares["busy"] for lane, shares in timeline["otherData"]["shares of time"].items()}
        if re.match(says, messages[-1]) and busy["source"] < 0.5:
            break
    assert re.match(says, messages[-1]), messages
    assert busy[name] > 0.7
    assert busy["source"] < 0.5, "it waited for room"


def test_gpu_work_counts_from_the_start_of_the_run(tmp_path):
    trace = Trace(tmp_path / "t.json")
    trace.started_s = 100.0
    track = trace.add("detect", "cuda:0")
    track.gpu_span("detect", 90.0, 99.0, None)  # before: shown, but not counted
    assert track.sums.work_s["detect"] == 0.0
    track.gpu_span("detect", 98.0, 100.5, None)
    assert track.sums.work_s["detect"] == pytest.approx(0.5)
    track.gpu_span("detect", 101.0, 101.25, {"batch": 3})
    assert track.sums.work_s["detect"] == pytest.approx(0.75)
    first, last, dropped = trace.log.kept()
    assert [(event.start_s, event.ended_s) for event in first + last] == [(90.0, 99.0), (98.0, 100.5), (101.0, 101.25)]
    assert dropped == 0


def test_the_log_counts_dropped_events():
    log = Log(10)
    threads = [
        threading.Thread(target=lambda: [log.add(TraceEvent(0, "work", "x", 0, 0, None, None)) for _ in range(500)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, last, dropped = log.kept()
    assert len(first) + len(last) + dropped == 2000
    assert len(last) == 5
    assert 5 <= len(first) <= 8, "threads that come at once may all see room"


def test_tracks_of_ended_threads_are_reused(tmp_path):
    trace = Trace(tmp_path / "t.json")
    tracks = []
    together = threading.Barrier(2)

    def work(meet: bool) -> None:
        track = trace.current_track()
        tracks.append(track)
        if meet:
            together.wait(10)
        assert trace.current_track() is track
        track.close()

    for meet in (False, False, True, True, False):
        threads = [threading.Thread(target=work, args=(meet,), name="ahead/0") for _ in range(1 + meet)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(tracks) == 7
    assert len(trace.tracks) == len(set(tracks)) == 2
    trace.finish()


def test_threads_of_a_parallel_decoder_have_tracks(tmp_path):
    def worker(part: int) -> Iterator[int]:
        for number in range(3):
            time.sleep(0.02)
            yield 10 * part + number

    trace = Trace(tmp_path / "t.json")
    numbers = ThreadedExecutor(Device("cpu"), 1, trace.current_track).run(iter(range(6)), [worker, worker], 1)
    assert list(numbers) == [10 * part + number for part in range(6) for number in range(3)]
    trace.finish()
    timeline = check(json.loads((tmp_path / "t.json").read_text()))
    for track in ("ahead/0", "ahead/1"):
        assert sum(e["dur"] for e in spans(timeline, "decode", track)) > 100e3
    assert spans(timeline, "wait for its turn"), "the later of two parts waits"
    assert spans(timeline, "wait for decoding", threading.current_thread().name)


def test_spans_of_a_failing_stage_are_complete(tmp_path):
    running, timeline, _ = run(tmp_path / "t.json", chain(look="fails: true"))
    assert running.report(1)["stages"]["look"]["failed"] == 6
    assert len([e for e in spans(timeline, "look") if e["args"]["frames"]]) == 3


def test_a_run_that_cannot_start_writes_its_timeline(tmp_path):
    trace = Trace(tmp_path / "t.json")
    text = "sources: {cam: {stage: gray}}\nstages: {jsonl: {path: " + str(tmp_path) + "}}"
    registry = default_registry()
    registry.add(Gray)
    running = PipelineRun(build(read_text(text, registry=registry)), Device("cpu"), trace=trace)
    with pytest.raises(OutputError):
        running.run()
    lines = trace.finish()
    assert spans(check(json.loads((tmp_path / "t.json").read_text())), "open jsonl")
    assert len(lines) == 1, "nothing ran: nothing was the limit"


def test_without_a_trace_nothing_is_wrapped():
    running = PipelineRun(build(read_text(chain(), registry=REGISTRY)), Device("cpu"))
    spans_ = running._spans()
    assert spans_.call("wait", running.run, waiting=True) == running.run
    assert running.run() == 0


def test_an_unwritable_path_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*t\.json: a part of the path is a file"):
        Trace(tmp_path / "file" / "t.json")
    with pytest.raises(OutputError, match="it is a folder"):
        Trace(tmp_path)


def test_nvtx_ranges_are_pushed_if_the_package_is_installed(tmp_path, monkeypatch):
    pushed: dict[str, list[str]] = {}
    popped: dict[str, int] = {}
    nvtx = ModuleType("nvtx")

    def push_range(name: str) -> None:
        pushed.setdefault(threading.current_thread().name, []).append(name)

    def pop_range() -> None:
        here = threading.current_thread().name
        popped[here] = popped.get(here, 0) + 1

    nvtx.push_range = push_range  # type: ignore[attr-defined]
    nvtx.pop_range = pop_range
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    run(tmp_path / "t.json", chain())
    assert {name: len(names) for name, names in pushed.items()} == popped
    assert sum(names.count("look") for thread, names in pushed.items() if thread.startswith("look/")) >= 1
    assert set(pushed) >= {"source/0", "batcher", "take/0"}


def test_the_shipped_pipeline_has_a_span_per_stage_and_frame(tmp_path, root, monkeypatch):
    monkeypatch.chdir(root)
    outputs = {"stages.video.path": str(tmp_path / "s.mp4"), "stages.jsonl.path": str(tmp_path / "s.jsonl")}
    trace = Trace(tmp_path / "t.json")
    graph = build(read(root / "pipeline.yaml", set_=outputs))
    running = PipelineRun(graph, Device("cpu"), RunConfig(limit=24), trace=trace)
    assert running.run() == 0
    messages = trace.finish()
    timeline = check(json.loads((tmp_path / "t.json").read_text()))
    for name in ("detect.preprocess", "detect.infer", "detect.postprocess", "draw", "video", "jsonl"):
        assert sum(e["args"]["frames"] for e in spans(timeline, name)) == 24
    assert len(spans(timeline, "decode", "source/0")) == 24
    for name, stage_ in running.report(0)["stages"].items():
        seconds = sum(e["dur"] for e in spans(timeline, name)) / 1e6
        assert seconds >= stage_["seconds"] - 0.001
        if name == "detect.infer":  # nothing to close when a source ends
            assert seconds == pytest.approx(stage_["seconds"], rel=0.05, abs=0.02)
    batches = [{e["args"]["batch"]: e for e in spans(timeline, n)} for n in ("detect.infer", "draw", "video", "jsonl")]
    for batch_number in batches[0]:
        if all(batch_number in other for other in batches):
            ends = [other[batch_number]["ts"] + other[batch_number]["dur"] for other in batches]
            begins = [other[batch_number]["ts"] for other in batches]
            assert all(end <= begin for end, begin in zip(ends[:-1], begins[1:], strict=True)), (
                "a batch is in one place"
            )
    assert "busy" in messages[-1]


def test_waits_of_a_live_source_for_packets_are_recorded(tmp_path, root):
    trace = Trace(tmp_path / "t.json")
    device = Device("cpu")
    reader = VideoReader(
        str(root / "samples/street.mp4"), device, SurfacePool(device), Counters(), spans=trace.current_track()
    )
    reader.info = replace(reader.info, live=True)
    with closing(reader):
        shown = sum(1 for _ in reader.frames())
    waits = [event for event in trace.log.kept()[0] if event.name == "wait for packets"]
    assert 0 < len(waits) <= shown + 1, "one a packet; those under 10 µs are not shown"
    trace.finish()


@pytest.mark.gpu
def test_a_gpu_has_separate_tracks(tmp_path, root, monkeypatch):
    monkeypatch.chdir(root)
    outputs = {"stages.video.encoder": "cpu", "stages.video.path": str(tmp_path / "s.mp4")}
    outputs["stages.jsonl.path"] = str(tmp_path / "s.jsonl")
    trace = Trace(tmp_path / "t.json")
    graph = build(read(root / "pipeline.yaml", set_=outputs))
    assert PipelineRun(graph, Device("cuda"), trace=trace).run() == 0
    trace.finish()
    timeline = check(json.loads((tmp_path / "t.json").read_text()))
    processes = {e["args"]["name"]: e["pid"] for e in timeline["traceEvents"] if e["name"] == "process_name"}
    assert set(processes) == {"streamkit", "cuda:0"}
    for name in ("detect.preprocess", "detect.infer", "detect.postprocess"):
        host = {e["args"]["batch"]: e for e in spans(timeline, name) if e["cat"] == "stage"}
        gpu = {e["args"]["batch"]: e for e in spans(timeline, name) if e["cat"] == "gpu"}
        assert set(gpu) == set(host)
        assert {e["pid"] for e in gpu.values()} == {processes["cuda:0"]}
        for number, span in gpu.items():
            # the two clocks are aligned once, by an event that is waited for
            # a thread switch may come between its two notes: 5 ms, and more beside other processes
            assert span["ts"] > host[number]["ts"] - 50_000, "the GPU does not begin before the host says so"
            assert span["dur"] > 0


class Clock:
    """The time and the CPU time of the calling thread."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.cpu_s = 7.0

    def perf_counter(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return self.cpu_s

    def at(self, now_s: float, cpu_s: float | None = None) -> None:
        self.now_s = now_s
        self.cpu_s = self.cpu_s if cpu_s is None else cpu_s


@pytest.fixture
def clock(monkeypatch):
    fake_clock = Clock()
    monkeypatch.setattr(module, "time", fake_clock)
    monkeypatch.setattr(module, "_nvtx", lambda: None)
    return fake_clock


@pytest.fixture
def trace(tmp_path, clock):
    return Trace(tmp_path / "t.json")


def logged(trace):
    first, last, _ = trace.log.kept()
    return first + last


def numbered(*numbers: int) -> list[TraceEvent]:
    return [TraceEvent(0, "work", "x", number, number, None, None) for number in numbers]


@pytest.mark.parametrize(
    ("keep", "first", "last"),
    [(10, range(5), range(15, 20)), (5, range(2), range(18, 20)), (2, [0], [19]), (1, [0], [19]), (0, [0], [19])],
)
def test_the_log_keeps_equally_many_first_and_last_events(keep, first, last):
    log = Log(keep)
    for event in numbered(*range(20)):
        log.add(event)
    assert log.kept() == (numbered(*first), numbered(*last), 20 - len(first) - len(last))


def test_nested_spans_are_counted_once(trace, clock):
    trace.started_s = 100.0
    track = trace.add("look/0")
    clock.at(100.0, 1.0)
    track.begin("stage", "look")
    for start_s, ended_s, cpu_s in ((101.0, 103.0, 1.5), (104.0, 105.0, 0.5)):
        clock.at(start_s)
        track.begin("work", "open")
        clock.at(ended_s, clock.cpu_s + cpu_s)
        track.end("work")
    clock.at(106.0)
    track.begin("wait", "wait")
    clock.at(106.5, clock.cpu_s + 0.25)
    track.end("wait")
    clock.at(110.0, 4.0)
    track.end("stage", {"batch": 3})
    assert track.sums.work_s == {"open": 3.0, "look": 6.5}
    assert track.sums.wait_s == {"wait": 0.5}
    assert track.sums.cpu_s == 3.0
    assert logged(trace) == [
        (0, "work", "open", 101.0, 103.0, (1.0, 1.5), None),
        (0, "work", "open", 104.0, 105.0, (2.5, 0.5), None),
        (0, "wait", "wait", 106.0, 106.5, None, None),
        (0, "stage", "look", 100.0, 110.0, (1.0, 3.0), {"batch": 3}),
    ]


def test_time_before_the_start_is_not_counted(trace, clock):
    trace.started_s = 100.0
    track = trace.add("look/0")
    for start_s, ended_s in ((90.0, 95.0), (95.0, 100.0)):
        clock.at(start_s)
        track.begin("work", "open")
        clock.at(ended_s)
        track.end("work")
    assert (track.sums.work_s, track.sums.cpu_s) == ({}, 0.0)
    clock.at(97.0)
    track.begin("work", "look")
    clock.at(98.0)
    track.begin("work", "inner")
    clock.at(99.0)
    track.end("work")
    track.begin("work", "inner")
    clock.at(101.0)
    track.end("work")
    clock.at(103.0)
    track.end("work")
    assert track.sums.work_s == {"inner": 1.0, "look": 2.0}
    assert len(logged(trace)) == 5, "what came before is shown"


def test_short_waits_are_counted_but_hidden_and_short_work_is_shown(trace, clock):
    trace.started_s = 0.0
    track = trace.add("look/0")
    for kind, took_s in (("wait", 9e-6), ("wait", 12e-6), ("work", 1e-6)):
        clock.at(1.0)
        track.begin(kind, kind)
        clock.at(1.0 + took_s)
        track.end(kind)
    assert [(event.kind, round(event.ended_s - 1.0, 7)) for event in logged(trace)] == [("wait", 12e-6), ("work", 1e-6)]
    assert track.sums.wait_s["wait"] == pytest.approx(21e-6)


def lanes():
    """Two lanes: one that detects, with two stages, and one that writes, with two inputs; and four queues."""

    def node(id_, of, writes, *inputs):
        stage_type = type(id_, (of,), {})
        stage_type.spec = SimpleNamespace(writes=writes)
        return SimpleNamespace(id=id_, type=stage_type, inputs=inputs)

    detecting = [node("detect", Stage, ("outputs",), "batcher"), node("draw", Stage, ("pixels",), "detect")]
    writing = [node("video", Sink, (), "draw", "detect")]
    queues = [SimpleNamespace(waiting=0) for _ in range(4)]
    lane_list = [
        SimpleNamespace(nodes=detecting, inputs=queues[1:2]),
        SimpleNamespace(nodes=writing, inputs=queues[2:4]),
    ]
    return lane_list, queues


def test_the_length_of_a_queue_is_recorded_on_change(trace, clock):
    lane_list, queues = lanes()
    track = trace.add("look/0")
    clock.at(200.0)
    trace.start(lane_list, queues[0])
    assert trace.started_s == 200.0
    assert trace._roles == {"detect": "network", "draw": "", "video": "output"}

    def at(now_s, *waiting):
        for queue, number in zip(queues, waiting, strict=True):
            queue.waiting = number
        before = len(logged(trace))
        clock.at(now_s)
        track.begin("wait", "wait")
        track.end("wait")
        return {event.name: event.about["waiting"] for event in logged(trace)[before:]}

    names = "frames in the batcher", "batches from batcher to detect", "batches from draw to video"
    assert at(200.0, 0, 0, 0, 0) == {}, "all were empty at the start"
    assert at(200.004, 3, 0, 0, 0) == {}, "it is not time yet"
    assert at(200.0051, 3, 0, 2, 0) == {names[0]: 3, names[2]: 2}
    event = logged(trace)[0]
    assert event == (0, "queue", names[0], 200.0051, 200.0051, None, {"waiting": 3})
    assert at(200.0099, 9, 9, 9, 9) == {}
    assert at(200.0102, 3, 1, 2, 4) == {names[1]: 1, "batches from detect to video": 4}
    assert at(200.1, 2, 1, 2, 4) == {names[0]: 2}
    assert at(200.2, 0, 1, 2, 4) == {names[0]: 0}


def written(trace):
    messages = trace.finish()
    return json.loads(trace.path.read_text()), messages


def test_the_timeline_of_a_small_run_has_the_expected_events(trace, clock):
    """Everything in it, in its order."""
    look = trace.add("look/0")
    batcher = trace.add("batcher")
    source = trace.add("source/cam")
    stream = trace.add("look/0", "cuda:0")
    ahead = trace.add("ahead/0")
    trace.started_s = 100.0
    clock.at(100.5, 7.25)
    look.begin("stage", "look")
    clock.at(101.75, 7.5)
    look.end("stage", {"batch": 0})
    for track, name in ((source, "decode"), (ahead, "decode")):
        clock.at(102.0)
        track.begin("work", name)
        clock.at(102.5)
        track.end("work")
    clock.at(103.0)
    batcher.begin("wait", "wait for frames")
    clock.at(104.0)
    batcher.end("wait")
    stream.gpu_span("look", 101.0, 101.5, None)
    trace.log.add(TraceEvent(0, "queue", "frames in the batcher", 103.0, 103.0, None, {"waiting": 2}))
    timeline, messages = written(trace)
    processes = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "streamkit"}},
        {"ph": "M", "name": "process_sort_index", "pid": 1, "args": {"sort_index": 0}},
        {"ph": "M", "name": "process_name", "pid": 2, "args": {"name": "cuda:0"}},
        {"ph": "M", "name": "process_sort_index", "pid": 2, "args": {"sort_index": 1}},
    ]
    threads = []
    for pid, tid, name, rank in (
        (1, 1, "look/0", 10),
        (1, 2, "batcher", 6),
        (1, 3, "source/cam", 2),
        (2, 4, "look/0", 13),
        (1, 5, "ahead/0", 4),
    ):
        threads += [
            {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}},
            {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": rank}},
        ]
    decode = {"name": "decode", "pid": 1, "ts": 2e6, "ph": "X", "cat": "work", "dur": 0.5e6, "tts": 7.5e6, "tdur": 0}
    assert timeline["displayTimeUnit"] == "ms"
    assert timeline["traceEvents"] == [
        *processes,
        *threads,
        {
            "name": "look",
            "pid": 1,
            "ts": 0.5e6,
            "ph": "X",
            "cat": "stage",
            "tid": 1,
            "dur": 1.25e6,
            "tts": 7.25e6,
            "tdur": 0.25e6,
            "args": {"batch": 0},
        },
        {**decode, "tid": 3},
        {**decode, "tid": 5},
        {"name": "wait for frames", "pid": 1, "ts": 3e6, "ph": "X", "cat": "wait", "tid": 2, "dur": 1e6},
        {"name": "look", "pid": 2, "ts": 1e6, "ph": "X", "cat": "gpu", "tid": 4, "dur": 0.5e6},
        {"name": "frames in the batcher", "pid": 1, "ts": 3e6, "ph": "C", "args": {"waiting": 2}},
    ]
    text = "look is busy 100 % of the time: this stage is the limit; 80 % of its work is waiting for a core, a device, "
    text += "a disk or Python's lock"
    assert timeline["otherData"] == {
        "made by": f"streamkit {__version__}",
        "limit": text,
        "events omitted": 0,
        "waits not shown": "shorter than 10 µs; they are in the shares",
        "shares of time": {
            "look": {"threads": 1, "busy": 1.0, "look": 1.0, "on a CPU core": 0.2},
            "batcher": {"threads": 1, "busy": 0.0, "wait for frames": 1.0, "on a CPU core": 0.0},
            "source": {"threads": 2, "busy": 1.0, "decode": 1.0, "on a CPU core": 0.0},
        },
    }
    assert messages == [f"profile: {trace.path}, 6 events; ui.perfetto.dev opens it", text]


def test_the_timeline_says_where_events_are_omitted(tmp_path, clock):
    trace = Trace(tmp_path / "t.json", keep=6)
    trace.add("look/0")
    for number in range(1207):
        trace.log.add(TraceEvent(0, "wait", "x", 100.0 + number, 100.25 + number, None, None))
    timeline, messages = written(trace)
    events = [event for event in timeline["traceEvents"] if event["ph"] != "M"]
    assert [(event["ph"], event["ts"]) for event in events] == [
        ("X", 0.0),
        ("X", 1e6),
        ("X", 2e6),
        ("i", 2.25e6),
        ("X", 1204e6),
        ("X", 1205e6),
        ("X", 1206e6),
    ]
    gap = {"ph": "i", "s": "p", "name": "1,201 events are omitted here", "pid": 1, "tid": 1, "ts": 2.25e6}
    assert events[3] == gap
    assert timeline["otherData"]["events omitted"] == 1201
    assert timeline["otherData"]["limit"] is None
    assert messages == [
        f"profile: {trace.path}, 6 events; ui.perfetto.dev opens it",
        "profile: 1,201 events in the middle are omitted, to bound memory and file size",
    ]


def test_recordings_of_all_processes_are_merged_into_a_timeline(tmp_path, clock):
    trace = Trace(tmp_path / "t.json", keep=12)
    assert trace.share(2) == 4
    assert (trace.log._half, trace.log._last.maxlen) == (2, 2)
    for name in ("worker 0", "worker 1", "worker 2"):
        trace.expect(name)
    trace.add("jsonl")
    trace.log.add(TraceEvent(0, "stage", "jsonl", 105.0, 106.0, None, None))
    for number, name in ((1, "worker 1"), (0, "worker 0")):
        other = Recorder(4)
        other.add("detect/0")
        other.add("detect/0", "cuda:0")
        other._roles = {"detect": "network"}
        other.tracks[0].sums.work_s["detect"] = 9.0 + number
        start_s = 101.0 + number
        other.log.add(TraceEvent(0, "queue", "frames in the batcher", start_s, start_s, None, {"waiting": number}))
        other.log.add(TraceEvent(1, "gpu", "detect", start_s, start_s + 2.0, None, None))
        for _ in range(4 * number):
            other.log.add(TraceEvent(0, "stage", "detect", start_s, start_s + 3.0, None, None))
        trace.receive(name, pickle.loads(pickle.dumps(other.recording())))
    timeline, messages = written(trace)
    events = timeline["traceEvents"]
    assert {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"} == {
        1: "streamkit",
        2: "worker 0",
        3: "worker 0, cuda:0",
        4: "worker 1",
        5: "worker 1, cuda:0",
    }
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert threads == {(1, 1): "jsonl", (2, 2): "detect/0", (3, 3): "detect/0", (4, 4): "detect/0", (5, 5): "detect/0"}
    ranks = [e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"]
    assert ranks == sorted(set(ranks)), "the threads of a process stand together"
    assert [(e["ph"], e["name"], e["pid"], e["ts"]) for e in events if e["ph"] != "M"] == [
        ("X", "jsonl", 1, 5e6),
        ("C", "frames in the batcher", 2, 1e6),
        ("X", "detect", 3, 1e6),
        ("C", "frames in the batcher", 4, 2e6),
        ("X", "detect", 5, 2e6),
        ("i", "2 events are omitted here", 4, 4e6),
        ("X", "detect", 4, 2e6),
        ("X", "detect", 4, 2e6),
    ]
    about = timeline["otherData"]
    assert (about["events omitted"], about["processes without events"]) == (2, ["worker 2"])
    assert about["shares of time"]["detect"]["threads"] == 2
    assert about["limit"] == messages[-1]
    assert messages[-1].startswith("detect is busy 100 % of the time, on each of 2 threads: the network is the limit")
    assert messages[:-1] == [
        f"profile: {trace.path}, 7 events; ui.perfetto.dev opens it",
        "profile: 2 events in the middle are omitted, to bound memory and file size",
        "profile: no events of worker 2, which died",
    ]
