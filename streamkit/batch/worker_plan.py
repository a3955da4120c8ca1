# SPDX-License-Identifier: Apache-2.0
"""The number of workers of a batch run on one machine: one per CPU core, or as many processes as a GPU needs."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamkit.batch.job import FrameSelection, VideoFile
from streamkit.batch.pipeline import source_options
from streamkit.batch.probe import probe
from streamkit.config.plan import Graph, SourceConfig
from streamkit.core.yaml_tree import YamlNode
from streamkit.media.uris import is_path
from streamkit.runtime.execution.cores import cores as all_cores
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.sizes import FILES_PER_GPU
from streamkit.runtime.multiprocess.process_count import SourceFacts, plan_here
from streamkit.stages.sources.source import VideoSource

FILE_US = 10_000.0
"""Lock time of a file beyond its frames, in microseconds, with Parquet: 8 to 12 ms of a core."""
_PROBE_S = 1.0


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """The plan for the workers of a machine.

    Attributes:
        devices: the device of each worker, as in a YAML.
        slots: number of files that a worker reads at once.
        cores: CPU cores per worker; None on a GPU.
        reasons: the choice and its reason, one line per GPU.
    """

    devices: list[str]
    slots: int
    cores: int | None
    reasons: tuple[str, ...] = ()


def plan_workers(
    graph: Graph, files: Sequence[VideoFile], workers: int | None, selection: FrameSelection
) -> WorkerPlan:
    """Plan the workers of this machine: one per CPU core; on a GPU, the processes that its files need at full speed.

    Args:
        graph: the pipeline with the data set's sinks; its `device` counts.
        files: the files, whose number limits the number of workers.
        workers: number of workers; None chooses.
        selection: which frames are processed.

    Raises:
        DeviceError: a requested device does not exist.
    """
    wanted = graph.config.device
    names = [str(choose(name)) for name in (wanted if isinstance(wanted, list) else [wanted])]
    max_workers = max(1, len(files))
    if names[0] == "cpu":
        count = min(workers or all_cores(), max_workers)
        return WorkerPlan([names[0]] * count, 1, max(1, all_cores() // count))
    if workers is None:
        count = min(len(files), FILES_PER_GPU * len(names))
        sample = [files[number * len(files) // count] for number in range(count)]
        facts, frames = _probed(sample, selection)
        # each file has its own results, so a stage that keeps state across sources does not need one process
        plan = plan_here(
            _with_sources(graph, sample, selection), facts=facts, independent=True, extra_us=FILE_US / frames
        )
        turns = range(max(plan.counts))
        devices = [
            str(device_plan.device) for turn in turns for device_plan in plan.devices if turn < device_plan.processes
        ]
        devices = devices[:max_workers]
        reasons = plan.reasons[:max_workers]
    else:
        devices = [names[number % len(names)] for number in range(min(workers, max_workers))]
        reasons = [
            f"{count} process{'' if count == 1 else 'es'} on {name}: set by --workers"
            for name, count in Counter(devices).items()
        ]
    slots = -(-FILES_PER_GPU * len(names) // len(devices))
    return WorkerPlan(devices, slots, None, tuple(reasons))


def _with_sources(graph: Graph, files: Sequence[VideoFile], selection: FrameSelection) -> Graph:
    """The pipeline with these files as its sources."""
    options, place = source_options(selection), YamlNode({}, graph.config.file, 0, 0)
    # a remote file is copied before it is read
    uris = [file.uri if is_path(file.uri) else file.name for file in files]
    return replace(
        graph,
        sources=[SourceConfig(str(n), VideoSource, {"uri": uri, **options}, place) for n, uri in enumerate(uris)],
    )


def _probed(files: Sequence[VideoFile], selection: FrameSelection) -> tuple[dict[str, SourceFacts], float]:
    """Codec and rate of each file by its number, where known within a second, and the mean frames that they give."""
    facts = {}
    frames = []
    until_s = time.monotonic() + _PROBE_S
    for number, file in enumerate(files):
        if time.monotonic() > until_s:
            break
        if not is_path(file.uri):
            continue
        header = probe(file.uri)
        facts[str(number)] = SourceFacts(header.codec, header.fps)
        if header.fps and (length_s := selection.length_s(header.duration_s)):
            frames.append(length_s * min(header.fps / selection.every, selection.fps or math.inf))
    return facts, sum(frames) / len(frames) if frames else math.inf
