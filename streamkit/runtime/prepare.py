# SPDX-License-Identifier: Apache-2.0
"""Picks how a graph runs on this machine: in this process, or in several."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from streamkit.config.plan import Graph
from streamkit.core.data import Device
from streamkit.media.nv_sessions import open_count
from streamkit.runtime.control.state_store import StateStore
from streamkit.runtime.multiprocess.fleet import WorkerFleet
from streamkit.runtime.multiprocess.lessons import gpu_lesson
from streamkit.runtime.multiprocess.partition import assign_sources
from streamkit.runtime.multiprocess.prestart import end_prestarted
from streamkit.runtime.multiprocess.process_count import lock_lesson, plan_here
from streamkit.runtime.multiprocess.session_limit import session_limits, sources_beyond
from streamkit.runtime.observe.trace import Trace
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.preview.gallery import Gallery
from streamkit.runtime.preview.stage import preview_graph
from streamkit.runtime.run import DEFAULT, RunConfig

logger = logging.getLogger(__name__)


def prepare(
    graph: Graph,
    path: Path,
    set_: Mapping[str, str],
    config: RunConfig = DEFAULT,
    *,
    trace: Trace | None = None,
    gallery: Gallery | None = None,
) -> PipelineRun | WorkerFleet:
    """Create the run of a graph: in this process, or in several worker processes; see `process_count`.

    Args:
        graph: the graph to run.
        path: the YAML it was read from; each worker process reads its text again.
        set_: values that override the YAML.
        config: how to run it.
        trace: records the timeline of the run, of all its processes.
        gallery: receives images of watched sources, and events.

    Raises:
        DeviceError: a device does not exist.
        ConfigError: a sink cannot be shared by several processes.
    """
    stored = graph  # with the sources that the run will have
    if graph.config.state is not None:
        stored = replace(graph, sources=StateStore(graph.config.state).sources(graph))
    keep_running = config.keep_running
    plan = plan_here(stored, keep_running=keep_running, realtime=config.realtime)
    shares = assign_sources(stored, plan.counts, keep_running=keep_running)
    used = {name for name, _ in shares}
    for name in graph.config.device if isinstance(graph.config.device, list) else ():
        if name not in used:
            logger.warning(f"{name} is not used: there are more devices than sources")
    limits = [device_plan.limit if keep_running else device_plan.processes for device_plan in plan.devices]
    for device_plan, process_limit in zip(plan.devices, limits, strict=True):
        if process_limit > device_plan.processes:
            logger.info(f"{device_plan.reason}; up to {process_limit} as sources are added")
        elif device_plan.device.kind == "cuda":
            logger.info(device_plan.reason)
        if device_plan.overload:
            logger.warning(device_plan.overload)
    by_device = {
        str(device_plan.device): process_limit for device_plan, process_limit in zip(plan.devices, limits, strict=True)
    }
    names = graph.config.device if isinstance(graph.config.device, list) else [graph.config.device]
    chosen = dict(zip(names, by_device, strict=False))  # `auto` is chosen here, for all processes
    shares = [(chosen[name], ids) for name, ids in shares]
    limits_of_gpus = session_limits(device_plan.device for device_plan in plan.devices)
    refused = sources_beyond(stored.sources, shares, limits_of_gpus, realtime=config.realtime)
    config = replace(config, refused=refused)
    if len(shares) == 1 and limits == [1]:
        end_prestarted(wait=True)
        if gallery is not None:
            graph = preview_graph(graph.config, gallery)
        device = plan.devices[0].device
        run = PipelineRun(graph, device, config, trace=trace, live=None if gallery is None else gallery.live)
        run.lessons = _process_lessons(run, graph, device, watched=gallery is not None)
        return run
    return WorkerFleet(
        graph,
        shares,
        path,
        dict(set_),
        config,
        gallery=gallery,
        trace=trace,
        process_limits=by_device,
        spare_limits={str(planned.device): planned.spare_limit for planned in plan.devices if planned.spare_limit},
    )


def _process_lessons(run: PipelineRun, graph: Graph, device: Device, watched: bool) -> list[Callable[[float], None]]:
    if device.kind != "cuda":
        return []
    lessons = [gpu_lesson(run, device, lambda: open_count(device.index))]
    return lessons if watched else [*lessons, lock_lesson(run, graph, device)]  # images hold the lock, too
