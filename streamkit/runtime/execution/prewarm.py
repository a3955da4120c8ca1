"""Runs blank frames through a lane's stages before the first real frame.

Stages do some work only once: import modules, compile kernels, allocate buffers. Next to a hundred decoders that share
the GIL the same work takes eight seconds instead of one, and live sources would drop frames.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from streamkit.core.counters import Counters
from streamkit.core.data import Batch, Detections, Device, Frame, FrameState
from streamkit.core.stage import BatchStage
from streamkit.core.surface import Color, Surface
from streamkit.runtime.execution.stage_runner import RAISED, Runner

_SIZE_WH = (640, 360)


def prewarm(runners: Sequence[Runner], device: Device) -> None:
    """Call the stages that declare `warms_up`, up to the first that does not, with blank frames in every batch size.

    Nothing is counted, and exceptions are suppressed: the first real frame reports them. Call this on the lane's thread
    with its CUDA stream current, after the stages are open.

    Args:
        runners: the runners of one lane, in order.
        device: the lane's device.
    """
    stages = [stage for runner in itertools.takewhile(_warms_up, runners) for stage in runner.instances()]
    for length in stages[0].context.batch_sizes if stages else ():
        batch = blank_batch(device, length)
        with contextlib.suppress(*RAISED):
            for stage in stages:
                assert isinstance(stage, BatchStage)
                with _uncounted(stage):
                    batch = stage.process(batch)
            for name in batch.tables:
                batch.table(name)


def blank_batch(device: Device, length: int) -> Batch:
    """Create a batch of black frames that share one surface, with one object each.

    Args:
        device: where the surface is allocated.
        length: number of frames.
    """
    width, height = _SIZE_WH
    data = device.xp.full((height * 3 // 2, width), 16, np.uint8)
    data[height:] = 128
    surface = Surface(data, Color())
    frames = [  # no source's first, at which stages report what is wrong with a source
        Frame("warm-up", index + 1, 0.0, width, height, surface=surface, _state=FrameState(ordinal=index + 1))
        for index in range(length)
    ]
    table = Detections(
        xyxy=np.tile(np.array([[8, 8, 72, 72]], np.float32), (length, 1)),
        score=np.ones(length, np.float32),
        class_id=np.zeros(length, np.int32),
        batch_row=np.arange(length, dtype=np.int32),
        labels=("object",),
    )
    return Batch(frames, xp=device.xp, tables={"warm-up": table})


def _warms_up(runner: Runner) -> bool:
    return runner.node.type.spec.warms_up


@contextlib.contextmanager
def _uncounted(stage: BatchStage) -> Iterator[None]:
    counters, stage.context.counters = stage.context.counters, Counters()
    try:
        yield
    finally:
        stage.context.counters = counters
