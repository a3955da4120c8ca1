"""The number of workers of a batch run on one machine: one per CPU core, or as many processes as a GPU needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamkit.batch.job import FrameSelection, VideoFile
from streamkit.batch.pipeline import source_options
from streamkit.config.plan import Graph, SourceConfig
from streamkit.core.yaml_tree import YamlNode
from streamkit.media.uris import is_path
from streamkit.runtime.execution.device import choose
from streamkit.runtime.execution.sizes import FILES_PER_GPU
from streamkit.runtime.execution.sizes import cores as all_cores
from streamkit.runtime.multiprocess.process_count import plan_here
from streamkit.stages.sources.source import VideoSource


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
    graph: Graph, files: Sequence[VideoFile], workers: int | None = None, selection: FrameSelection | None = None
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
    most = max(1, len(files))
    if names[0] == "cpu":
        count = min(workers or all_cores(), most)
        return WorkerPlan([names[0]] * count, 1, max(1, all_cores() // count))
    if workers is None:
        # each file has its own results, so a stage that keeps state across sources does not need one process
        plan = plan_here(_with_sources(graph, files, selection, len(names)), independent=True)
        turns = range(max(plan.counts))
        devices = [name for turn in turns for name, count in zip(names, plan.counts, strict=True) if turn < count]
        devices, reasons = devices[:most], plan.reasons[:most]
    else:
        devices = [names[number % len(names)] for number in range(min(workers, most))]
        reasons = [
            f"{count} process{'' if count == 1 else 'es'} on {name}: set by --workers"
            for name, count in Counter(devices).items()
        ]
    slots = -(-FILES_PER_GPU * len(names) // len(devices))
    return WorkerPlan(devices, slots, None, tuple(reasons))


def _with_sources(graph: Graph, files: Sequence[VideoFile], selection: FrameSelection | None, gpus: int) -> Graph:
    """The pipeline with as many of the files as sources as are read at once, an even sample of them."""
    count = min(len(files), FILES_PER_GPU * gpus)
    options, place = source_options(selection or FrameSelection()), YamlNode({}, graph.config.file, 0, 0)
    sources = []
    for number in range(count):
        file = files[number * len(files) // count]
        uri = file.uri if is_path(file.uri) else file.name  # a remote file is copied before it is read
        sources.append(SourceConfig(str(number), VideoSource, {"uri": uri, **options}, place))
    return replace(graph, sources=sources)
