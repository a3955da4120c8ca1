"""What a timeline holds, number by number: by clocks that the tests set."""

import json
import pickle
import threading
from types import SimpleNamespace

import pytest

from streamkit import __version__
from streamkit.core.data import Batch, Device
from streamkit.core.stage import Sink, Stage
from streamkit.runtime.observe import trace as module
from streamkit.runtime.observe.trace import Log, Recorder, Trace, TraceEvent


class Clock:
    """The time and the CPU time of the calling thread."""

    def __init__(self) -> None:
        self.now_s, self.cpu_s = 100.0, 7.0

    def perf_counter(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return self.cpu_s

    def at(self, now_s: float, cpu_s: float | None = None) -> None:
        self.now_s, self.cpu_s = now_s, self.cpu_s if cpu_s is None else cpu_s


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
def test_the_log_keeps_as_many_first_events_as_last_ones(keep, first, last):
    log = Log(keep)
    for event in numbered(*range(20)):
        log.add(event)
    assert log.kept() == (numbered(*first), numbered(*last), 20 - len(first) - len(last))


def test_a_log_that_is_not_full_drops_nothing():
    log = Log(10)
    for event in numbered(*range(7)):
        log.add(event)
    assert log.kept() == (numbered(*range(5)), numbered(5, 6), 0)


def test_spans_within_spans_are_not_counted_twice(trace, clock):
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


def test_a_span_is_taken_from_the_one_that_it_is_in(trace, clock):
    trace.started_s = 100.0
    track = trace.add("look/0")
    for number, name in enumerate(("outer", "middle", "inner")):
        clock.at(101.0 + number, 1.0 + number / 8)
        track.begin("work", name)
    for now_s, cpu_s in ((107.0, 2.0), (112.0, 4.0), (120.0, 9.0)):
        clock.at(now_s, cpu_s)
        track.end("work")
    assert track.sums.work_s == {"inner": 4.0, "middle": 6.0, "outer": 9.0}
    assert track.sums.cpu_s == 8.0


def test_only_what_comes_after_the_start_is_counted(trace, clock):
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


def test_short_waits_are_counted_but_not_shown_and_short_work_is(trace, clock):
    trace.started_s = 0.0
    track = trace.add("look/0")
    for kind, took_s in (("wait", 9e-6), ("wait", 12e-6), ("work", 1e-6)):
        clock.at(1.0)
        track.begin(kind, kind)
        clock.at(1.0 + took_s)
        track.end(kind)
    assert [(event.kind, round(event.ended_s - 1.0, 7)) for event in logged(trace)] == [("wait", 12e-6), ("work", 1e-6)]
    assert track.sums.wait_s["wait"] == pytest.approx(21e-6)


def test_calls_and_items_are_work_unless_they_are_said_to_be_waits(trace):
    track, closed = trace.add("source/0"), []

    def items():
        try:
            yield from "abc"
        finally:
            closed.append(True)

    assert track.call("add", max)(3, 4, key=lambda number: -number) == 3
    track.call("wait", lambda: None, waiting=True)()
    assert list(track.each("read", items(), about={"source": "cam"})) == ["a", "b", "c"]
    assert [(event.kind, event.name, event.about) for event in logged(trace)] == [
        ("work", "add", None), *[("work", "read", {"source": "cam"})] * 4
    ]  # fmt: skip
    assert next(track.each("take", items(), waiting=True)) == "a"
    assert closed == [True, True]
    assert not track._open


def test_a_call_that_fails_ends_its_span(trace):
    track = trace.add("source/0")
    with pytest.raises(ZeroDivisionError):
        track.call("divide", lambda: 1 / 0)()
    with pytest.raises(ZeroDivisionError):
        track.stage("look", lambda batch: 1 / 0)(Batch([], sequence=4))
    assert [(event.name, event.about) for event in logged(trace)] == [
        ("divide", None), ("look", {"batch": 4, "frames": 0})
    ]  # fmt: skip


def test_a_stage_shows_its_batches_and_anything_else_without_attributes(trace):
    track, batch = trace.add("look/0"), Batch([SimpleNamespace(), SimpleNamespace()], sequence=9)
    look = track.stage("look", lambda argument: argument, Device("cpu"))
    assert look(batch) is batch
    assert look("end") == "end"
    assert [event.about for event in logged(trace)] == [{"batch": 9, "frames": 2}, None]
    assert len(trace.tracks) == 1, "the work of a host has no track of a stream"


def test_ranges_for_nsight_are_pushed_and_popped_in_order(tmp_path, clock, monkeypatch):
    seen = []
    nvtx = SimpleNamespace(push_range=lambda name: seen.append(name), pop_range=lambda: seen.append("pop"))
    monkeypatch.setattr(module, "_nvtx", lambda: nvtx)
    track = Trace(tmp_path / "t.json").add("look/0")
    track.begin("stage", "look")
    track.begin("wait", "wait")
    track.end("wait")
    track.end("stage")
    assert seen == ["look", "wait", "pop", "pop"]


def test_tracks_are_numbered_and_free_ones_are_taken_by_threads_of_the_same_name(trace):
    places = []

    def work(close: bool) -> None:
        track = trace.current_track()
        places.append((track.number, track.name, track.process))
        if close:
            track.close()
            places.append(trace.current_track().number)

    for name, close in (("a", True), ("b", False), ("a", False), ("b", False)):
        thread = threading.Thread(target=work, args=(close,), name=name)
        thread.start()
        thread.join()
    assert places == [
        (0, "a", "streamkit"), 0, (1, "b", "streamkit"), (2, "a", "streamkit"), (3, "b", "streamkit")
    ]  # fmt: skip
    assert [track.number for track in trace.tracks] == [0, 1, 2, 3]


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


def test_a_queue_is_recorded_when_its_length_has_changed(trace, clock):
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
    return json.loads(trace._path.read_text()), messages


def test_the_file_of_a_small_run(trace, clock):
    """Everything in it, in its order."""
    look, batcher, source = trace.add("look/0"), trace.add("batcher"), trace.add("source/cam")
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
        (1, 1, "look/0", 10), (1, 2, "batcher", 6), (1, 3, "source/cam", 2), (2, 4, "look/0", 13), (1, 5, "ahead/0", 4)
    ):  # fmt: skip
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
            "name": "look", "pid": 1, "ts": 0.5e6, "ph": "X", "cat": "stage", "tid": 1, "dur": 1.25e6, "tts": 7.25e6,
            "tdur": 0.25e6, "args": {"batch": 0},
        },
        {**decode, "tid": 3},
        {**decode, "tid": 5},
        {"name": "wait for frames", "pid": 1, "ts": 3e6, "ph": "X", "cat": "wait", "tid": 2, "dur": 1e6},
        {"name": "look", "pid": 2, "ts": 1e6, "ph": "X", "cat": "gpu", "tid": 4, "dur": 0.5e6},
        {"name": "frames in the batcher", "pid": 1, "ts": 3e6, "ph": "C", "args": {"waiting": 2}},
    ]  # fmt: skip
    text = "look is busy 100 % of the time: this stage is the limit; 80 % of its work is waiting for a core, a device, "
    text += "a disk or Python's lock"
    assert timeline["otherData"] == {
        "made by": f"streamkit {__version__}", "limit": text, "events omitted": 0,
        "waits not shown": "shorter than 10 µs; they are in the shares",
        "shares of time": {
            "look": {"threads": 1, "busy": 1.0, "look": 1.0, "on a CPU core": 0.2},
            "batcher": {"threads": 1, "busy": 0.0, "wait for frames": 1.0, "on a CPU core": 0.0},
            "source": {"threads": 2, "busy": 1.0, "decode": 1.0, "on a CPU core": 0.0},
        },
    }  # fmt: skip
    assert messages == [f"profile: {trace._path}, 6 events; ui.perfetto.dev opens it", text]


def test_the_timeline_says_where_events_are_omitted(tmp_path, clock):
    trace = Trace(tmp_path / "t.json", keep=6)
    trace.add("look/0")
    for number in range(1207):
        trace.log.add(TraceEvent(0, "wait", "x", 100.0 + number, 100.25 + number, None, None))
    timeline, messages = written(trace)
    events = [event for event in timeline["traceEvents"] if event["ph"] != "M"]
    assert [(event["ph"], event["ts"]) for event in events] == [
        ("X", 0.0), ("X", 1e6), ("X", 2e6), ("i", 2.25e6), ("X", 1204e6), ("X", 1205e6), ("X", 1206e6)
    ]  # fmt: skip
    gap = {"ph": "i", "s": "p", "name": "1,201 events are omitted here", "pid": 1, "tid": 1, "ts": 2.25e6}
    assert events[3] == gap
    assert timeline["otherData"]["events omitted"] == 1201
    assert timeline["otherData"]["limit"] is None
    assert messages == [
        f"profile: {trace._path}, 6 events; ui.perfetto.dev opens it",
        "profile: 1,201 events in the middle are omitted, to bound memory and file size",
    ]


def test_the_recordings_of_all_processes_are_one_timeline(tmp_path, clock):
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
        1: "streamkit", 2: "worker 0", 3: "worker 0, cuda:0", 4: "worker 1", 5: "worker 1, cuda:0"
    }  # fmt: skip
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert threads == {(1, 1): "jsonl", (2, 2): "detect/0", (3, 3): "detect/0", (4, 4): "detect/0", (5, 5): "detect/0"}
    ranks = [e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index"]
    assert ranks == sorted(set(ranks)), "the threads of a process stand together"
    assert [(e["ph"], e["name"], e["pid"], e["ts"]) for e in events if e["ph"] != "M"] == [
        ("X", "jsonl", 1, 5e6),
        ("C", "frames in the batcher", 2, 1e6), ("X", "detect", 3, 1e6),
        ("C", "frames in the batcher", 4, 2e6), ("X", "detect", 5, 2e6), ("i", "2 events are omitted here", 4, 4e6),
        ("X", "detect", 4, 2e6), ("X", "detect", 4, 2e6),
    ]  # fmt: skip
    about = timeline["otherData"]
    assert (about["events omitted"], about["processes without events"]) == (2, ["worker 2"])
    assert about["shares of time"]["detect"]["threads"] == 2
    assert about["limit"] == messages[-1]
    assert messages[-1].startswith("detect is busy 100 % of the time, on each of 2 threads: the network is the limit")
    assert messages[:-1] == [
        f"profile: {trace._path}, 7 events; ui.perfetto.dev opens it",
        "profile: 2 events in the middle are omitted, to bound memory and file size",
        "profile: no events of worker 2, which died",
    ]


def test_times_are_in_whole_nanoseconds_of_the_run(trace, clock):
    trace.add("look/0")
    trace.log.add(TraceEvent(0, "work", "x", 100.0000012344, 100.0000052346, (1e-7, 3.4567e-6), None))
    event = written(trace)[0]["traceEvents"][-1]
    assert (event["ts"], event["dur"], event["tts"], event["tdur"]) == (1.234, 4.001, 0.1, 3.457)


def test_two_hundred_thousand_events_are_kept_unless_told_otherwise(trace):
    assert (trace.log._half, trace.log._last.maxlen) == (100_000, 100_000)
