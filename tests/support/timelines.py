"""Runs with a timeline, fake stages of a given duration, and a check of the timeline's format."""

import hashlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Batch, Color, Device, Frame, Surface
from streamkit.core.stage import BatchStage, Collecting, Registry, Sink, Source, stage
from streamkit.runtime.observe.trace import Trace
from streamkit.runtime.pipeline import PipelineRun

REGISTRY = Registry()
_BLOCK = bytes(1 << 20)

with Collecting(REGISTRY):

    @stage("gray", writes="pixels")
    class Gray(Source):
        """Gray frames, each of which takes a given time."""

        count: int = 6
        takes_s: float = 0.0

        def frames(self) -> Iterator[Frame]:
            wait = self.context.runtime.spans.call("wait for the light", time.sleep, waiting=True)
            for index in range(self.count):
                wait(self.takes_s)
                surface = Surface(np.full((72, 64), 128, np.uint8), Color())
                yield Frame(self.context.id, index, index / 25, 64, 48, surface)

    @stage("look", reads="pixels")
    class Look(BatchStage):
        """Sleeps, works, or fails."""

        sleeps_s: float = 0.0
        works_s: float = 0.0
        fails: bool = False

        def process(self, batch: Batch) -> Batch:
            if self.fails:
                raise ValueError("it cannot be seen")
            time.sleep(self.sleeps_s)
            until = time.thread_time() + self.works_s
            while time.thread_time() < until:
                hashlib.sha256(_BLOCK)  # which lets go of Python's lock: the other threads are not held up
            return batch

    @stage("take")
    class Take(Sink):
        """Takes a given time for a frame."""

        sleeps_s: float = 0.0

        def write(self, frame: Frame) -> None:
            time.sleep(self.sleeps_s)


def run(path: Path, text: str, **trace_options: Any) -> tuple[PipelineRun, dict[str, Any], list[str]]:
    """Run a pipeline with a timeline; return the run, the file's content, and the messages."""
    trace = Trace(path, **trace_options)
    running = PipelineRun(build(read_text(text, registry=REGISTRY)), Device("cpu"), trace=trace)
    running.run()
    messages = trace.finish()
    return running, check(json.loads(path.read_text())), messages


def check(profile: dict[str, Any]) -> dict[str, Any]:
    """Check that the content follows the format; return it."""
    named = {(e["pid"], e["tid"]) for e in profile["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    assert {e["ph"] for e in profile["traceEvents"]} <= set("XCMi")
    open_until: dict[tuple[int, int], list[float]] = {}
    for event in sorted(spans(profile), key=lambda e: (e["ts"], -e["dur"])):
        at = event["pid"], event["tid"]
        assert at in named
        assert event["dur"] >= 0
        assert event["cat"] in ("work", "wait", "stage", "gpu")
        ended = round(event["ts"] + event["dur"], 3)
        outer = open_until.setdefault(at, [])
        while outer and outer[-1] <= event["ts"]:
            outer.pop()
        assert not outer or ended <= outer[-1], f"{event} ends after the span that it is in"
        outer.append(ended)
    for event in profile["traceEvents"]:
        if event["ph"] == "C":
            assert event["args"]["waiting"] >= 0
        assert event["ph"] == "M" or event["ts"] >= 0
        assert isinstance(event["pid"], int)
        assert isinstance(event["name"], str)
    return profile


def spans(profile: dict[str, Any], name: str | None = None, track: str | None = None) -> list[dict[str, Any]]:
    tracks = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in profile["traceEvents"]
        if e["ph"] == "M"
        if e["name"] == "thread_name"
    }
    return [
        e
        for e in profile["traceEvents"]
        if e["ph"] == "X" and name in (None, e["name"]) and track in (None, tracks[e["pid"], e["tid"]])
    ]


CHAIN = """
batch: {{size: 2, max_wait: 5}}
sources:
  cam: {{stage: gray, {gray}}}
stages:
  look: {{{look}}}
  take: {{{take}}}
"""


def chain(gray: str = "count: 6", look: str = "", take: str = "") -> str:
    return CHAIN.format(gray=gray, look=look, take=take)
