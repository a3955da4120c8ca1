"""What a run's timeline shows: every thread, its work and its waiting, as they were, in a file that viewers take."""

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from types import ModuleType

import pytest
from support.timelines import REGISTRY, Gray, chain, check, run, spans

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read, read_text
from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import OutputError
from streamkit.core.stage import default_registry
from streamkit.media.reader import VideoReader
from streamkit.media.surfaces import SurfacePool
from streamkit.runtime.execution.ordered_executor import ThreadedExecutor
from streamkit.runtime.observe.trace import Log, Trace, TraceEvent
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


def test_spans_take_as_long_as_the_work_did(tmp_path):
    _, timeline, _ = run(tmp_path / "t.json", chain(look="sleeps_s: 0.03, works_s: 0.02"))
    ran = [e for e in spans(timeline, "look") if e["args"]["frames"]]
    assert len(ran) == 3
    for span in ran:
        assert span["dur"] >= 50e3
        assert 20e3 <= span["tdur"] < 0.8 * span["dur"], "what it slept is not time on a core"
    assert spans(timeline, "take")[0]["ts"] >= ran[0]["ts"] + ran[0]["dur"], (
        "a batch is not written before it is looked at"
    )


def test_a_wait_within_a_span_is_shown_and_is_no_work(tmp_path):
    _, timeline, messages = run(tmp_path / "t.json", chain(gray="count: 6, takes_s: 0.03"))
    waits = spans(timeline, "wait for the light", "source/0")
    decoded = spans(timeline, "decode", "source/0")
    assert len(waits) == 6
    assert all(any(d["ts"] <= w["ts"] and w["dur"] <= d["dur"] for d in decoded) for w in waits)
    share = timeline["otherData"]["shares of time"]["source"]
    assert share["wait for the light"] > 0.8
    assert share["decode"] < 0.2
    assert timeline["otherData"]["limit"] == messages[-1]


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
def test_the_limit_is_named(tmp_path, slow, says):
    name = next(iter(slow))
    for _ in range(5):  # where others want the cores, it is right to name those
        _, timeline, messages = run(tmp_path / "t.json", chain("count: 24", **slow))
        busy = {lane: shares["busy"] for lane, shares in timeline["otherData"]["shares of time"].items()}
        if re.match(says, messages[-1]) and busy["source"] < 0.5:
            break
    assert re.match(says, messages[-1]), messages
    assert busy[name] > 0.7
    assert busy["source"] < 0.5, "it waited for room"


def test_queues_are_counted(tmp_path):
    _, timeline, _ = run(tmp_path / "t.json", chain("count: 40", take="sleeps_s: 0.01"))
    lengths: dict[str, list[int]] = {}
    for event in timeline["traceEvents"]:
        if event["ph"] == "C":
            lengths.setdefault(event["name"], []).append(event["args"]["waiting"])
    assert max(lengths["batches from look to take"]) == 4, (
        "the queue before the slow stage is full, as `run.queue` says"
    )
    assert max(lengths["frames in the batcher"]) >= 2


def test_a_long_run_keeps_its_beginning_and_its_end(tmp_path):
    _, timeline, messages = run(tmp_path / "t.json", chain("count: 400"), keep=60)
    recorded = [e for e in timeline["traceEvents"] if e["ph"] in "XC"]
    assert len(recorded) == 60
    left = timeline["otherData"]["events omitted"]
    assert left > 400
    assert any(f"{left:,} events in the middle are omitted" in line for line in messages)
    gap = [e for e in timeline["traceEvents"] if e["ph"] == "i"]
    assert [f"{left:,} events are omitted here"] == [e["name"] for e in gap]
    assert spans(timeline, "open look")
    assert max(e["ts"] + e.get("dur", 0) for e in recorded) > gap[0]["ts"]
    assert timeline["otherData"]["shares of time"]["source"]["threads"] == 1, "sums are of the whole run"


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


def test_the_log_counts_what_it_lets_go():
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


def test_tracks_are_as_many_as_threads_at_a_time(tmp_path):
    trace, tracks = Trace(tmp_path / "t.json"), []
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


def test_a_video_decoded_in_pieces_shows_the_threads_that_do_it(tmp_path):
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


def test_a_failing_stage_leaves_whole_spans(tmp_path):
    running, timeline, _ = run(tmp_path / "t.json", chain(look="fails: true"))
    assert running.report(1)["stages"]["look"]["failed"] == 6
    assert len([e for e in spans(timeline, "look") if e["args"]["frames"]]) == 3


def test_a_run_that_cannot_begin_still_writes_what_there_was(tmp_path):
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


def test_a_path_that_cannot_be_written_is_known_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match=r"cannot write .*t\.json: a part of the path is a file"):
        Trace(tmp_path / "file" / "t.json")
    with pytest.raises(OutputError, match="it is a folder"):
        Trace(tmp_path)


def test_ranges_for_nsight_where_its_package_is_there(tmp_path, monkeypatch):
    pushed: dict[str, list[str]] = {}
    popped: dict[str, int] = {}
    nvtx = ModuleType("nvtx")

    def push_range(name: str) -> None:
        pushed.setdefault(threading.current_thread().name, []).append(name)

    def pop_range() -> None:
        here = threading.current_thread().name
        popped[here] = popped.get(here, 0) + 1

    nvtx.push_range, nvtx.pop_range = push_range, pop_range  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "nvtx", nvtx)
    run(tmp_path / "t.json", chain())
    assert {name: len(names) for name, names in pushed.items()} == popped
    assert sum(names.count("look") for thread, names in pushed.items() if thread.startswith("look/")) >= 1
    assert set(pushed) >= {"source/0", "batcher", "take/0"}


def test_the_pipeline_that_ships(tmp_path, root, monkeypatch):
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


def test_a_live_source_waits_for_its_packets(tmp_path, root):
    trace, device = Trace(tmp_path / "t.json"), Device("cpu")
    reader = VideoReader(
        str(root / "samples/street.mp4"), device, SurfacePool(device), Counters(), spans=trace.current_track()
    )  # fmt: skip
    reader.info = replace(reader.info, live=True)
    with closing(reader):
        shown = sum(1 for _ in reader.frames())
    waits = [event for event in trace.log.kept()[0] if event.name == "wait for packets"]
    assert 0 < len(waits) <= shown + 1, "one a packet; those under 10 µs are not shown"
    trace.finish()


@pytest.mark.gpu
def test_the_gpu_has_tracks_of_its_own(tmp_path, root, monkeypatch):
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
