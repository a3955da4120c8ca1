"""The cost of an emitter as a number that no machine changes: its Python calls per frame, beside `jsonl` and alone."""

import json
import threading
from collections import Counter

import pytest

from benchmarks.emitters import OBJECTS, add_stages
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core import records
from streamkit.core.data import Device
from streamkit.core.stage import Collecting, FrameStage, default_registry, stage
from streamkit.emit.client import Client
from streamkit.emit.emitter import Emitter
from streamkit.runtime.execution import runners
from streamkit.runtime.pipeline import PipelineRun

BATCH = 50


class Taker(Client):
    """Takes records, all that come within its time at once."""

    gather_s = 60.0

    def __init__(self):
        self.received = []

    def connect(self):
        pass

    def deliver(self, messages):
        self.received += messages

    def close(self):
        pass


@pytest.fixture
def registry():
    stages = default_registry()
    add_stages(stages)
    with Collecting(stages):

        @stage("nowhere")
        class Nowhere(Emitter):
            """Sends records to a client without a server."""

            taker: object
            topic: str = "cameras/{source}"
            template_options = ("topic",)

            def client(self):
                return self.taker

        @stage("adds_event")
        class AddsEvent(FrameStage):
            """Adds an event to each frame."""

            def process(self, frame):
                frame.emit("seen")

    return stages


def run(registry, stages, count, folder):
    """Run `count` frames; returns the messages that were sent."""
    taker = Taker()
    text = json.dumps(
        {
            "device": "cpu",
            "batch": {"size": BATCH, "max_wait": "60s"},
            "sources": {"gate": {"stage": "numbered_frames", "uri": "none", "count": count}},
            "stages": {
                "ten_objects": {},
                **stages,
                "nowhere": {"taker": None, "spool": {"path": str(folder / "spool")}},
            },
        }
    )
    graph = build(read_text(text, registry=registry))
    graph.nodes["nowhere"].options["taker"] = taker
    assert PipelineRun(graph, Device("cpu")).run() == 0
    assert len(taker.received) == count
    return taker.received


def calls(registry, stages, count, folder):
    """The Python calls of the emitter's threads, by function."""
    counters = []

    def profile(frame, event, arg):
        if event == "call":
            if not hasattr(local, "calls"):
                local.calls = Counter()
                if threading.current_thread().name.partition("/")[0] in ("nowhere", "background"):
                    counters.append(local.calls)
            local.calls[frame.f_code.co_qualname] += 1

    local = threading.local()
    threading.setprofile(profile)
    try:
        run(registry, stages, count, folder)
    finally:
        threading.setprofile(None)
    return sum(counters, Counter())


@pytest.mark.parametrize(
    ("beside", "limit"),
    [
        pytest.param(["jsonl"], 1.2, id="beside jsonl"),
        pytest.param([], 3.5, id="alone"),
    ],
)
def test_a_frame_takes_few_python_calls_in_an_emitter(registry, beside, limit, tmp_path):
    stages = {name: {"path": str(tmp_path / "out.jsonl")} for name in beside}
    calls(registry, stages, BATCH, tmp_path)
    start, end = (calls(registry, stages, count, tmp_path) for count in (200, 950))
    each = {name: (end[name] - start[name]) / 750 for name in end}
    listed = "\n".join(f"{n:6.2f} {name}" for name, n in sorted(each.items(), key=lambda pair: -pair[1]) if n > 0.01)
    assert sum(each.values()) <= limit, f"Python calls per frame:\n{listed}"


def test_consecutive_sinks_share_formatted_lines(registry, tmp_path, monkeypatch):
    formatted = []

    def batch_lines(batch):
        formatted.append(len(batch))
        return records.batch_lines(batch)

    monkeypatch.setattr(runners, "batch_lines", batch_lines)
    monkeypatch.setattr(registry.get("jsonl"), "encode", batch_lines)
    sinks = {name: {"path": str(tmp_path / f"out.{name}")} for name in ("jsonl", "csv")}
    received = run(registry, sinks, 100, tmp_path)
    assert formatted == [BATCH, BATCH]
    lines = (tmp_path / "out.jsonl").read_bytes().splitlines()
    for message, line in zip(received, lines, strict=True):
        assert message.topic == "cameras/gate"
        assert message.body == b'{"id":"%b",%b' % (message.id.encode(), line[1:])
        assert len(json.loads(line)["objects"]) == OBJECTS


def test_data_added_after_a_sink_is_in_the_records_of_the_next_sink(registry, tmp_path):
    received = run(registry, {"jsonl": {"path": str(tmp_path / "out.jsonl")}, "adds_event": {}}, 100, tmp_path)
    assert not any(json.loads(line)["events"] for line in (tmp_path / "out.jsonl").read_text().splitlines())
    assert [[event["kind"] for event in json.loads(message.body)["events"]] for message in received] == [["seen"]] * 100
