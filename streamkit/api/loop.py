# SPDX-License-Identifier: Apache-2.0
"""`streamkit.run`: a pipeline whose frames a Python loop reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkit.api.arguments import Address, CheckedPipeline, Sources, plan
from streamkit.core.errors import ConfigError
from streamkit.runtime.frame_queue import FrameQueue
from streamkit.runtime.frame_stream import FrameStream
from streamkit.runtime.run import RunConfig
from streamkit.runtime.run_thread import LoopRun, RunThread


def run(
    sources: Sources,
    *,
    model: Address | None = None,
    stages: Mapping[str, Any] | None = None,
    device: str | None = None,
    limit: int | None = None,
    set: Mapping[str, Any] | None = None,  # noqa: A002  as the command's --set
) -> FrameStream:
    """Run a pipeline and return an iterator over its frames.

    Args:
        sources: a file, a folder or an address; several as a list, or as a mapping from ids; or a whole pipeline: the
            path of its YAML, or a mapping with the key `sources`. The ids of a list are `source_1`, `source_2` and so
            on; a single source has the id `source`. Texts may contain environment variables, as in `${CAMERA}`.
        model: the model card of the detector; for sources only.
        stages: stages after the detector, in the shape of the YAML; for sources only.
        device: `auto`, `cpu`, `cuda` or `cuda:N`; replaces the pipeline's.
        limit: maximum number of frames per source that reach the stages; those dropped before do not count.
        set: values that replace those of the pipeline, such as `{"stages.detect.min_score": 0.5}`.

    Raises:
        ConfigError: with every problem of the pipeline.
        DeviceError: the device is not available.
    """
    checked = plan(sources, model=model, stages=stages, device=device, limit=limit, set_=set)
    if checked.queues:
        raise ConfigError("a PushSource needs streamkit.Pipeline, which has push(); run() has no way to push")
    return frames_of(checked, limit=limit)


def frames_of(checked: CheckedPipeline, *, limit: int | None, keep_running: bool = False) -> FrameStream:
    """The frames of a pipeline that has not started."""
    queue = FrameQueue()
    run = LoopRun(checked.graph, checked.device, queue, RunConfig(limit=limit, keep_running=keep_running))
    return FrameStream(RunThread(run), queue)
