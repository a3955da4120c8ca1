# SPDX-License-Identifier: Apache-2.0
"""Shows what a run would do, and estimates its duration from headers and from a few seconds of a few files."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamkit.batch.job import BatchJob, BatchSettings, FrameSelection, VideoFile
from streamkit.batch.pipeline import PREFIX, attach
from streamkit.batch.probe import Probe, probe
from streamkit.batch.summary import duration, hours
from streamkit.batch.worker import BatchWorker
from streamkit.batch.worker_plan import WorkerPlan, plan_workers
from streamkit.batch.worker_pool import LocalWorkerPool
from streamkit.config.graph import with_nodes
from streamkit.config.plan import Graph, Node
from streamkit.core.errors import StreamkitError
from streamkit.media.uris import is_path
from streamkit.runtime.execution.cores import cores

_REMOTE = 100  # remote files whose headers are read; the others are extrapolated
_SHOWN = 20
_SAMPLES = 3
# of video
_SAMPLE_S = 4.0
_WARM_UP_S = 0.5
_LONG_ENOUGH_S = 15.0
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class ProbedFile:
    """A file and its header."""

    file: VideoFile
    probe: Probe


def dry_run(
    graph: Graph,
    settings: BatchSettings,
    files: Sequence[VideoFile],
    echo: Callable[[str], None],
    *,
    workers: int | None = None,
    cluster: bool = False,
) -> int:
    """Show what a run over these files would do. Writes only to a temporary folder.

    Args:
        graph: the pipeline, without sources.
        settings: the run's settings.
        files: the files that were found.
        echo: receives the lines.
        workers: number of workers; None lets the machine decide.
        cluster: the workers run on other machines, whose speed is unknown.

    Returns:
        0, or 1 if files cannot be read.

    Raises:
        ConfigError: the data set cannot be made from this pipeline, or in these formats.
    """
    whole = attach(graph, settings)
    chosen = list(_chosen(files))
    probed = [ProbedFile(file, probe(file.uri)) for file in chosen]
    scale = _scale(files, chosen)
    for line in table(probed, settings.selection, scale, len(files)):
        echo(line)
    good = [video for video in probed if video.probe.problem is None]
    if good and cluster:
        echo("no estimate: the speed of the cluster is unknown; without --ray the estimate is for this machine")
    elif good:
        plan = plan_workers(whole, files, workers, settings.selection)
        for line in plan.reasons:
            echo(line)
        echo(_Estimate(graph, settings, good, plan).text(scale))
    return int(len(good) < len(probed))


def table(
    probed: Sequence[ProbedFile], selection: FrameSelection, scale: float = 1.0, files: int | None = None
) -> Iterator[str]:
    """Summarize the headers, one line per codec.

    Args:
        probed: the files whose headers were read.
        selection: which frames would be processed.
        scale: size of all files relative to those of `probed`.
        files: number of all files.
    """
    from rich.filesize import decimal

    sampled = files is not None and files > len(probed)
    if sampled:
        yield f"the headers of {len(probed):,} of {files:,} files were read; the following lines are about these"
    good = [video for video in probed if video.probe.problem is None]
    total_s = _total_s(good, selection)
    unknown = sum(video.probe.duration_s is None for video in good)
    unsized = sum(video.file.size is None for video in good)
    yield (
        f"to do  {len(good):9,} files   {hours(total_s)} of video, {decimal(_size(video.file for video in good))}"
        + (f"; {unknown:,} of them have no known duration" if unknown else "")
        + (f"; {unsized:,} of them have no known size" if unsized else "")
    )
    if missed := sum(selection.misses(video.probe.duration_s, video.probe.fps) for video in good):
        yield f"  shorter than --start {selection.start_s:g} s, so that none of their frames is processed: {missed:,}"
    by_codec: dict[str, list[ProbedFile]] = defaultdict(list)
    for video in good:
        by_codec[video.probe.codec].append(video)
    for codec, some in sorted(by_codec.items(), key=lambda item: -len(item[1])):
        if not codec:
            yield f"  {'unknown':10} {len(some):5,} files   their server cannot send a part of a file"
            continue
        sizes = Counter(f"{video.probe.width}x{video.probe.height}" for video in some).most_common()
        more = f" and {len(sizes) - 3} more sizes" if len(sizes) > 3 else ""
        shown = ", ".join(size for size, _ in sizes[:3])
        yield f"  {codec:10} {len(some):5,} files   {hours(_total_s(some, selection))}, {shown}{more}"
    bad = [video for video in probed if video.probe.problem is not None]
    kinds = Counter(video.probe.kind for video in bad)
    causes = ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common())
    yield f"cannot   {len(bad):7,} files   {causes or 'by their headers; damage after the header is found by the run'}"
    for video in bad[:_SHOWN]:
        yield f"  {video.file.name}: {video.probe.kind}: {video.probe.problem}"
    if len(bad) > _SHOWN:
        yield f"  and {len(bad) - _SHOWN:,} more"
    if sampled:
        yield f"all files together: about {hours(total_s * scale)} of video, extrapolated from these"


@dataclass(slots=True)
class _Estimate:
    """Estimates the duration of a run by running the pipeline on parts of a few files."""

    graph: Graph
    settings: BatchSettings
    good: Sequence[ProbedFile]
    plan: WorkerPlan

    def text(self, scale: float) -> str:
        """The estimate for files that are `scale` times those of `good`, or why there is none."""
        if not self.samples():
            has_durations = any(video.probe.duration_s for video in self.good)
            reason = "no file has frames to process" if has_durations else "the duration of the videos is unknown"
            return f"no estimate: {reason}"
        try:
            speed = self.speed()
            start_s = self.start_s()
        except StreamkitError as error:
            return f"no estimate: {error}"
        if not speed:
            return "no estimate: the sampled files delivered no frame"
        count = len(self.plan.devices)
        rate = f"{speed:,.1f} times real time"
        work_s = _total_s(self.good, self.settings.selection) * scale / speed
        if self.plan.cores is None:  # many files at once are faster than one
            about = duration(start_s + work_s / count)
            return f"at most {about}: one file at a time runs at {rate}, and a worker starts in {start_s:.1f} s"
        about = duration((start_s * count + work_s) / min(count, cores()))
        each = f"{count} workers, each at" if count > 1 else "one worker at"
        return f"about {about}: {each} {rate}, measured on a few seconds of a few files, and {start_s:.1f} s to start"

    def start_s(self) -> float:
        """Measure how long a worker takes from the start of its process to its open pipeline, in seconds."""
        started_s = time.perf_counter()
        pool = LocalWorkerPool(self.settings, self.plan.devices[:1], cores=self.plan.cores)
        try:
            pool.start()
            while not pool.workers()[0].ready:
                pool.wait(_POLL_S)
            return time.perf_counter() - started_s
        finally:
            pool.close()

    def speed(self) -> float:
        """Seconds of video that one worker processes per second; 0 if no file could be tried."""
        selection = self.settings.selection
        video_s = 0.0
        took_s = 0.0
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="streamkit-")))
            settings = replace(self.settings, out=folder)
            graph = _moved(self.graph, self.settings, folder)
            worker = BatchWorker(settings, self.plan.devices[0], cores=self.plan.cores, graph=graph)
            stack.callback(worker.close)
            for number, video in enumerate(self.samples()):
                # of keyframes or few frames a second, a longer part is needed
                wanted_s = _SAMPLE_S * (10 if selection.keyframes else 1) if number else _WARM_UP_S
                part_s = min(selection.length_s(video.probe.duration_s), wanted_s)
                worker.settings = replace(settings, selection=replace(selection, end_s=selection.start_s + part_s))
                outcome = worker.process(BatchJob(video.file, f"sample{number}"))
                if worker.over:
                    raise StreamkitError(outcome.cause)
                if number and outcome.status == "done":
                    video_s += part_s
                    took_s += outcome.seconds
                if took_s > _LONG_ENOUGH_S:
                    break
        return video_s / took_s if took_s else 0.0

    def samples(self) -> list[ProbedFile]:
        """A few files of medium length with frames to process; the first one twice, to warm up."""
        selection = self.settings.selection
        lengths = {video.file.uri: selection.length_s(video.probe.duration_s) for video in self.good}
        usable = [
            video
            for video in self.good
            if lengths[video.file.uri] and not selection.misses(video.probe.duration_s, video.probe.fps)
        ]
        usable.sort(key=lambda video: lengths[video.file.uri])
        places = {round(len(usable) * (n + 1) / (_SAMPLES + 1)) for n in range(_SAMPLES)}
        places = {min(place, len(usable) - 1) for place in places}  # of one or two files, each once
        some = [usable[place] for place in sorted(places)] if usable else []
        return some[:1] + some


def _total_s(files: Iterable[ProbedFile], selection: FrameSelection) -> float:
    return sum(selection.length_s(video.probe.duration_s) for video in files)


def _chosen(files: Sequence[VideoFile]) -> Iterator[VideoFile]:
    """All local files, and an even sample of the remote ones."""
    remote = [file for file in files if not is_path(file.uri)]
    step = max(1.0, len(remote) / _REMOTE)
    taken = {remote[int(n * step)].uri for n in range(min(len(remote), _REMOTE))}
    return (file for file in files if is_path(file.uri) or file.uri in taken)


def _moved(graph: Graph, settings: BatchSettings, folder: Path) -> Graph:
    """The worker's graph with every output in a folder; options with {source} in them are output paths."""

    def options(node: Node) -> dict[str, Any]:
        paths = {
            name: str(folder / node.id / Path(value).relative_to(Path(value).anchor).as_posix().replace("..", "_"))
            for name, value in node.options.items()
            if isinstance(value, str) and "{source}" in value and not node.id.startswith(f"{PREFIX}.")
        }
        return {**node.options, **paths}

    attached = attach(graph, replace(settings, out=folder / "out"))
    return with_nodes(attached, [replace(node, options=options(node)) for node in attached.nodes.values()])


def _scale(files: Sequence[VideoFile], chosen: Sequence[VideoFile]) -> float:
    """Size of all files relative to some: by bytes, or by their number if a size is unknown."""
    if any(file.size is None for file in files):
        return len(files) / max(1, len(chosen))
    return _size(files) / max(1, _size(chosen))


def _size(files: Iterable[VideoFile]) -> int:
    return sum(file.size or 0 for file in files if not file.missing)
