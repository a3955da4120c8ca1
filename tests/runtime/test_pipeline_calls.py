"""The cost of the graph itself as a number that no machine changes: its Python calls per frame."""

import threading
from collections import Counter

import pytest

from streamkit.bench.graph_cost import add_stages
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.stage import BatchStage, Collecting, FrameStage, Registry, default_registry, stage
from streamkit.runtime.pipeline import PipelineRun

PIPELINE = """
    device: cpu
    batch: {size: 3, max_wait: 60s}  # full batches, whatever the timing
    sources: {empty: {stage: empty_frames, uri: none, count: COUNT}}
    stages:
      BATCH: {}
      FRAME: {}
      watch_memory: {}
"""
THREADS = ("source", "batcher", "watch_memory")
WAITS = {  # how often threads wait for each other depends on the machine
    "AwaitedCondition.wait",
    "AwaitedCondition.notify_all",
    "Condition.wait",
    "Condition.notify_all",
    "Condition.notify",
    "Channel._ready",
    "Batcher._due",
    "Batcher._idle",
    "Batcher._patience",
    "Batcher._oldest",
}


@pytest.fixture
def registry() -> Registry:
    registry = default_registry()
    add_stages(registry)
    with Collecting(registry):

        @stage("plugin_batch")
        class PluginBatch(BatchStage):
            def process(self, batch: Batch) -> Batch:
                return batch

        @stage("plugin_frame")
        class PluginFrame(FrameStage):
            def process(self, frame: Frame) -> None:
                return

    return registry


def calls(registry: Registry, stages: tuple[str, str], count: int) -> Counter[str]:
    """The Python calls of the threads that pass frames on, by function, in a run over this many frames."""
    counters: list[Counter[str]] = []

    def profile(frame, event, arg):
        if event == "call":
            if not hasattr(local, "calls"):
                local.calls = Counter()
                if threading.current_thread().name.partition("/")[0] in (*THREADS, *stages):
                    counters.append(local.calls)
            local.calls[frame.f_code.co_qualname] += 1

    text = PIPELINE.replace("COUNT", str(count)).replace("BATCH", stages[0]).replace("FRAME", stages[1])
    run = PipelineRun(build(read_text(text, registry=registry)), Device("cpu"))
    local = threading.local()
    threading.setprofile(profile)
    try:
        assert run.run() == 0
    finally:
        threading.setprofile(None)
    assert run.frames == count
    return sum(counters, Counter())


@pytest.mark.parametrize(
    ("stages", "limit"),
    [
        pytest.param(("idle_batch", "idle_frame"), 28.3, id="built-in"),
        pytest.param(("plugin_batch", "plugin_frame"), 43.0, id="plugins"),  # with their copies and checks
    ],
)
def test_a_frame_takes_few_python_calls_in_the_graph(registry, stages, limit):
    calls(registry, stages, 30)
    start, end = (calls(registry, stages, count) for count in (300, 1500))
    each = {name: (end[name] - start[name]) / 1200 for name in end if name not in WAITS}
    listed = "\n".join(f"{n:6.2f} {name}" for name, n in sorted(each.items(), key=lambda entry: -entry[1]) if n > 0.01)
    assert sum(each.values()) <= limit, f"Python calls per frame:\n{listed}"  # Python 3.12 inlines comprehensions
