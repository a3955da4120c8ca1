"""Blank frames go through a lane's inference stages before the first real one."""

import numpy as np
import pytest
from support.messages import collect

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Device
from streamkit.core.stage import BatchStage, Collecting, Context, default_registry, stage
from streamkit.runtime.execution.lane import blank_batch, partition, prewarm
from streamkit.runtime.execution.runners import runner

YAML = """
sources: {street: samples/street.mp4}
stages:
  detect: {model: demo}
  draw: {}
  video: {path: "out/{source}.mp4"}
"""


def opened(text: str, root, registry=None, sizes=(1, 3), lane=0):
    graph = build(read_text(text, folder=root, registry=registry or default_registry()))
    counters = Counters()

    def context(id_: str) -> Context:
        return Context(id_, Device(), sizes, counters=counters)

    def fail(error: BaseException) -> None:
        raise error

    runners = [runner(node, context, fail, ["street"]) for node in partition(graph)[lane].nodes]
    for stage_runner in runners:
        stage_runner.start()
    return runners


def test_prewarming_runs_every_batch_size_without_counting(root):
    runners = opened(YAML, root)
    seen = []
    for stage_runner in runners:
        (instance,) = stage_runner.instances()
        inner = instance.process

        def process(batch: Batch, inner=inner, id_=stage_runner.node.id) -> Batch:
            seen.append((id_, len(batch)))
            return inner(batch)

        instance.process = process
    prewarm(runners, Device())
    assert seen == [(f"detect.{part}", n) for n in (1, 3) for part in ("preprocess", "infer", "postprocess")]
    assert all(not stage_runner.counters.values for stage_runner in runners)
    assert all(stage_runner.meter.frames == 0 for stage_runner in runners)
    for stage_runner in runners:
        stage_runner.finish()


def test_prewarming_draw_loads_its_glyphs(root):
    logged = collect()
    text = YAML.replace("draw: {}", "draw: {blur: {zone: [[9000, 0], [9999, 0], [9999, 9]]}}")
    (draw,) = opened(text, root, lane=1)
    prewarm([draw], Device())
    (instance,) = draw.instances()
    assert instance._atlas.used > 0
    assert logged == []
    assert not draw.counters.values


def test_plugin_stages_get_no_blank_frame(root):
    registry = default_registry()
    seen = []
    with Collecting(registry):

        @stage("peek", reads="pixels")
        class Peek(BatchStage):
            """Look at frames."""

            def process(self, batch: Batch) -> Batch:
                seen.append(len(batch))
                return batch

    runners = opened("sources: {street: samples/street.mp4}\nstages: {peek: {}, detect: {model: demo}}", root, registry)
    prewarm(runners, Device())
    assert seen == []


def test_prewarming_stops_at_the_first_stage_that_does_not_support_it(root):
    registry = default_registry()
    seen = []
    with Collecting(registry):

        class Counting(BatchStage, warms_up=True):
            def process(self, batch: Batch) -> Batch:
                self.context.counters.add("batches")
                seen.append((self.context.id, len(batch)))
                return batch

        @stage("first")
        class First(Counting):
            """Count batches."""

        @stage("cold", warms_up=False)
        class Cold(Counting):
            """Count batches, and those of real frames alone."""

        @stage("behind")
        class Behind(Counting):
            """Count batches."""

    text = "sources: {street: samples/street.mp4}\nstages: {first: {}, cold: {}, behind: {}}"
    runners = opened(text, root, registry)
    assert [stage_runner.node.id for stage_runner in runners] == ["first", "cold", "behind"]
    runners[0].counters.add("batches", 5)
    prewarm(runners, Device())
    assert seen == [("first", 1), ("first", 3)]
    assert [dict(stage_runner.counters.values) for stage_runner in runners] == [{"batches": 5}, {}, {}]
    (instance,) = runners[0].instances()
    instance.process(blank_batch(Device(), 1))
    assert runners[0].counters["batches"] == 6


def test_an_error_on_a_blank_frame_does_not_end_the_run(root):
    runners = opened(YAML, root)

    def process(batch: Batch) -> Batch:
        raise ValueError("blank")

    for stage_runner in runners:
        (instance,) = stage_runner.instances()
        instance.process = process
    prewarm(runners, Device())


@pytest.mark.gpu
def test_the_second_batch_on_a_gpu_imports_and_compiles_nothing(root):
    import cupy

    from streamkit.ops.cuda import load

    device = Device("cuda")
    with cupy.cuda.Device(0), cupy.cuda.Stream(non_blocking=True):
        graph = build(read_text(YAML, folder=root, registry=default_registry()))
        lane = partition(graph)[0]
        runners = [runner(n, lambda id_: Context(id_, device, (4,)), print, ["street"]) for n in lane.nodes]
        for stage_runner in runners:
            stage_runner.start()
        prewarm(runners, device)
        before = load._module.cache_info().misses if hasattr(load._module, "cache_info") else None
        batch = blank_batch(device, 4)
        for stage_runner in runners:
            (instance,) = stage_runner.instances()
            batch = instance.process(batch)
        batch.table("detect")
        if before is not None:
            assert load._module.cache_info().misses == before


def test_blank_frames_are_black():
    batch = blank_batch(Device(), 2)
    surface = batch.frames[1].surface
    assert np.all(surface.data[: surface.height] == 16)
    assert np.all(surface.data[surface.height :] == 128)
    assert len(batch.table("warm-up")) == 2
