"""More live sources than a network can serve: all are served evenly, and what they get is fresh."""

import time

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device
from streamkit.core.stage import BatchStage, Collecting, default_registry, stage
from streamkit.runtime.ingest.batcher import QUEUE_FULL, TOO_OLD
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.run import RunConfig

SOURCES = 12
FPS = 50
FRAMES = 100
FRAME_S = 0.008
LATENCY_S = 0.2


def test_sources_share_an_overloaded_network_evenly(tmp_path):
    """12 sources give 600 frames/s, of which a network that takes 8 ms a frame serves 125."""
    registry = default_registry()
    with Collecting(registry):

        @stage("slow", scope="source")
        class Slow(BatchStage):
            """Takes its time for each frame, as a network does."""

            def process(self, batch):
                time.sleep(FRAME_S * len(batch.frames))
                return batch

    # the first gives twice as many as each other one
    rates = [2 * FPS] + [FPS] * (SOURCES - 1)
    sources = ", ".join(
        f"s{i}: {{uri: 'test://?width=32&height=32&fps={fps}&frames={FRAMES * fps // FPS}', pace: realtime}}"
        for i, fps in enumerate(rates)
    )
    text = (
        f"{{sources: {{{sources}}}, batch: {{size: 4, max_latency: {LATENCY_S * 1000:g}ms}}, "
        f"stages: {{slow: {{}}, jsonl: {{path: '{tmp_path}/{{source}}.jsonl'}}}}}}"
    )
    run = PipelineRun(build(read_text(text, registry=registry)), Device("cpu"), RunConfig(reserved_cores=1))
    assert run.run() == 0
    served = {id_: state.out for id_, state in run.states.items()}
    mean = sum(served.values()) / SOURCES
    assert all(0.7 * mean <= count <= 1.4 * mean for count in served.values()), served
    assert mean < 0.5 * FRAMES
    for state in run.states.values():
        assert state.out + state.drops[QUEUE_FULL] + state.drops[TOO_OLD] == state.frames
        assert state.latency is not None
        assert state.latency.quantile(0.95) < 1.5 * LATENCY_S, state.latency.summary()
