# SPDX-License-Identifier: Apache-2.0
"""Latency of a pipeline at the speed of a camera: a recording that is read faster only fills the queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streamkit.config.plan import Graph, Node, RunOptions, SourceConfig
from streamkit.evaluate.observe import EVALUATE_ID, Watching
from streamkit.evaluate.stages import CollectEvents
from streamkit.runtime.execution.device import choose
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.record_graph import record_inputs, with_sinks
from streamkit.runtime.run import RunConfig
from streamkit.stages.sources.images import ImageSource

LATENCY_S = 4.0
"""For how long the first source is played."""
_STILLS = 10.0  # images per second


def measure_latency(graph: Graph, watching: Watching, *, limit: int | None = None) -> dict[str, Any] | None:
    """Play the first source as a camera for `LATENCY_S`, without the outputs and the stages of the evaluation.

    Args:
        graph: the checked pipeline.
        watching: shows the progress.
        limit: maximum number of frames.

    Returns:
        The source, its frames, those that the pipeline dropped because it was late, and p50, p95 and p99 of the time
        from when a frame is due until the pipeline's end, in milliseconds; None if the source cannot be played.

    Raises:
        StreamkitError: the run failed.
        KeyboardInterrupt: the run was stopped.
    """
    source = graph.sources[0]
    count = limit
    if not source.type.spec.has_pace:
        return None
    if issubclass(source.type, ImageSource):
        count = min(int(LATENCY_S * _STILLS), limit or int(LATENCY_S * _STILLS))
    id_ = f"{EVALUATE_ID}latency"
    place = next(iter(graph.nodes.values())).place
    inputs = record_inputs(graph)
    sink = Node(id_, CollectEvents, {"into": []}, inputs, RunOptions(), place)
    config = replace(graph.config, alarms=[], state=None, sources=[_as_camera(source)])
    device = config.device if isinstance(config.device, str) else config.device[0]
    measured = with_sinks(replace(graph, config=config), inputs, [sink])
    running = PipelineRun(measured, choose(device), RunConfig(limit=count))
    with watching(running):
        code = running.run()
    if code == 130:
        raise KeyboardInterrupt
    report = running.report(code)
    state = report["sources"][source.id]
    if id_ not in report["latency"]:
        return None  # every frame failed
    dropped = sum(state.get("dropped", {}).values())
    return {
        "source": source.id,
        "frames": state.get("out", state["frames"]),
        "dropped": dropped,
        **report["latency"][id_],
    }


def _as_camera(source: SourceConfig) -> SourceConfig:
    options = source.options
    if issubclass(source.type, ImageSource):
        return replace(source, options={**options, "pace": _STILLS})
    end = options.get("start", 0.0) + LATENCY_S
    return replace(source, options={**options, "pace": "realtime", "end": min(end, options.get("end") or end)})
