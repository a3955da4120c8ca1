"""Shows what a run would do, and an estimate of its duration, from headers and from a few seconds of a few files."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamkit.batch.job import BatchSettings, FrameSelection, VideoFile
from streamkit.batch.probe import Probe, probe
from streamkit.batch.summary import duration, hours
from streamkit.config.graph import with_nodes
from streamkit.config.plan import Graph, Node
from streamkit.core.errors import StreamkitError
from streamkit.media.uris import is_path

_REMOTE = 100  # files elsewhere whose headers are read; the rest is judged by these
_SHOWN = 20
_SAMPLES = 3
_SAMPLE_S = 4.0  # of video
_LONG_ENOUGH_S = 15.0
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class ProbedFile:
    """A file and its header."""

    file: VideoFile
    probe: Probe


def dry_run(
    graph: Graph, settings: BatchSettings, files: Sequence[VideoFile], say: Callable[[str], None], *,
    workers: int | None = None, cluster: bool = False,
) -> int:  # fmt: skip
    """Show what a run over these files would do. Writes only to a temporary folder.

    Args:
        graph: the pipeline, without sources.
        settings: the run's settings.
        files: the files that were found.
        say: receives the lines.
        workers: number of workers; None lets the machine decide.
        cluster: the workers run on other machines, whose speed is unknown.

    Returns:
        0, or 1 if files cannot be read.

    Raises:
        ConfigError: the data set cannot be made from this pipeline, or in these formats.
    """
    from streamkit.batch.dataset import attach

    attach(graph, settings)
    chosen = list(_chosen(files))
    seen = [ProbedFile(file, probe(file.uri)) for file in chosen]
    scale = _scale(files, chosen)
    for line in table(seen, settings.look, scale, len(files)):
        say(line)
    good = [one for one in seen if one.probe.problem is None]
    if good and cluster:
        say("no estimate: the speed of a cluster is unknown here; without --ray the estimate is for this machine")
    elif good:
        say(_estimate(graph, settings, good, scale, len(files), workers, say))
    return int(len(good) < len(seen))


def table(
    seen: Sequence[ProbedFile], look: FrameSelection, scale: float = 1.0, files: int | None = None
) -> Iterator[str]:
    """Summarize the headers, one line per codec.

    Args:
        seen: the files whose headers were read.
        look: which frames would be processed.
        scale: size of all files relative to those of `seen`.
        files: number of all files.
    """
    if files is not None and files > len(seen):
        yield f"the headers of {len(seen):,} files were read, of {files:,}; what follows is about these"
    good = [one for one in seen if one.probe.problem is None]
    total_s = sum(looked_at_s(one.probe, look) for one in good)
    unknown = sum(one.probe.duration_s is None for one in good)
    unsized = sum(one.file.size is None for one in good)
    yield (
        f"would do {len(good):7,} files   {hours(total_s)} of video, {_bytes(_size(one.file for one in good))}"
        + (f"; {unknown:,} of them do not say how long they are" if unknown else "")
        + (f"; of {unsized:,} of them the size is not known" if unsized else "")
    )
    if missed := sum(look.misses(one.probe.duration_s, one.probe.fps) for one in good):
        yield f"  shorter than --start {look.start_s:g} s, so that none of their frames is processed: {missed:,}"
    by_codec: dict[str, list[ProbedFile]] = defaultdict(list)
    for one in good:
        by_codec[one.probe.codec].append(one)
    for codec, some in sorted(by_codec.items(), key=lambda item: -len(item[1])):
        if not codec:
            yield f"  {'not known':10} {len(some):5,} files   their server gives no part of them alone"
            continue
        sizes = Counter(f"{one.probe.width}x{one.probe.height}" for one in some).most_common()
        more = f" and {len(sizes) - 3} more sizes" if len(sizes) > 3 else ""
        yield (
            f"  {codec:10} {len(some):5,} files   {hours(sum(looked_at_s(one.probe, look) for one in some))}, "
            f"{', '.join(size for size, _ in sizes[:3])}{more}"
        )
    bad = [one for one in seen if one.probe.problem is not None]
    kinds = Counter(one.probe.kind for one in bad)
    causes = ", ".join(f"{kind} {count:,}" for kind, count in kinds.most_common())
    yield f"cannot   {len(bad):7,} files   {causes or 'by their headers; what is damaged within shows later'}"
    for one in bad[:_SHOWN]:
        yield f"  {one.file.name}: {one.probe.kind}: {one.probe.problem}"
    if len(bad) > _SHOWN:
        yield f"  and {len(bad) - _SHOWN:,} more"
    if files is not None and files > len(seen):
        yield f"all files together: about {hours(total_s * scale)} of video, as these are"


def looked_at_s(one: Probe, look: FrameSelection) -> float:
    """Seconds of a video that would be processed; 0 if its duration is unknown."""
    if one.duration_s is None:
        return 0.0
    end_s = one.duration_s if look.end_s is None else min(look.end_s, one.duration_s)
    return max(0.0, end_s - look.start_s)


def _chosen(files: Sequence[VideoFile]) -> Iterator[VideoFile]:
    """All local files, and an even sample of the remote ones."""
    remote = [file for file in files if not is_path(file.uri)]
    step = max(1.0, len(remote) / _REMOTE)
    taken = {remote[int(n * step)].uri for n in range(min(len(remote), _REMOTE))}
    return (file for file in files if is_path(file.uri) or file.uri in taken)


def _estimate(
    graph: Graph, settings: BatchSettings, good: Sequence[ProbedFile], scale: float, files: int, workers: int | None,
    say: Callable[[str], None],
) -> str:  # fmt: skip
    """Estimate the duration of a run by running the pipeline on parts of a few files."""
    from streamkit.batch.worker_plan import plan_workers
    from streamkit.runtime.execution.sizes import cores

    total_s = sum(looked_at_s(one.probe, settings.look) for one in good) * scale
    shares = plan_workers(graph.config.device, workers, files, say)
    if not _samples(good, settings.look):
        if any(one.probe.duration_s for one in good):
            return "no estimate: no file has anything to look at"
        return "no estimate: the videos do not say how long they are"
    try:
        speed = _speed(graph, settings, good, shares.devices[0], shares.cores, say)
        start_s = _start_s(settings, shares.devices[0], shares.cores, say)
    except StreamkitError as error:
        return f"no estimate: {error}"
    if not speed:
        return "no estimate: the few files that were tried gave no picture"
    count, went = len(shares.devices), f"{speed:,.1f} times real time"
    if shares.cores is None:  # many files at once are faster than one
        about = duration(start_s + total_s / speed / count)
        return f"at most {about}: one file at a time went at {went}, and a worker started in {start_s:.1f} s"
    about = duration((start_s * count + total_s / speed) / min(count, cores()))
    each = f"{count} workers, each at" if count > 1 else "one worker at"
    return f"about {about}: {each} {went}, as a few seconds of a few files went, and {start_s:.1f} s to start"


def _start_s(settings: BatchSettings, device: str, cores: int | None, say: Callable[[str], None]) -> float:
    """Measure how long a worker takes from the start of its process to its open pipeline, in seconds."""
    from streamkit.batch.local_worker_pool import LocalWorkerPool

    begun_s = time.perf_counter()
    crew = LocalWorkerPool(settings, [device], cores=cores, say=say)
    try:
        crew.start()
        while not crew.workers()[0].ready:
            crew.wait(_LOOK_S)
        return time.perf_counter() - begun_s
    finally:
        crew.close()


def _speed(
    graph: Graph,
    settings: BatchSettings,
    good: Sequence[ProbedFile],
    device: str,
    cores: int | None,
    say: Callable[[str], None],
) -> float:
    """Seconds of video that one worker processes per second; 0 if no file could be tried."""
    from streamkit.batch.fetch import local
    from streamkit.config.plan import SourceConfig
    from streamkit.runtime.execution.device import choose
    from streamkit.runtime.warm_pipeline import WarmPipeline

    kind = graph.config.registry.get("source")
    assert kind is not None
    look, looked_s, took_s = settings.look, 0.0, 0.0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="streamkit-")))
        graph = _moved(graph, settings, folder)
        place = next(iter(graph.nodes.values())).place
        warm = WarmPipeline(graph, choose(device, say), slots=1, own_cores=cores, say=say)
        warm.begin()
        stack.callback(warm.end)
        for number, one in enumerate(_samples(good, look)):
            length_s = looked_at_s(one.probe, look)
            # where a part of it is keyframes or a few pictures, more of it is needed to tell
            part_s = min(length_s, 0.5 if not number else _SAMPLE_S * (10 if look.keyframes else 1))
            options: dict[str, Any] = {"start": look.start_s, "end": look.start_s + part_s, "every": look.every}
            path = stack.enter_context(local(one.file, folder))
            begun_s = time.perf_counter()
            options |= {"uri": str(path), "fps": look.fps, "keyframes": look.keyframes}
            state = warm.send(SourceConfig(f"sample{number}", kind, options, place))
            if number and state.raised is None:  # the first one warms up
                looked_s, took_s = looked_s + part_s, took_s + time.perf_counter() - begun_s
            if took_s > _LONG_ENOUGH_S:
                break
    return looked_s / took_s if took_s else 0.0


def _moved(graph: Graph, settings: BatchSettings, folder: Path) -> Graph:
    """The worker's graph with every output in a folder; options with {source} in them are output paths."""
    from streamkit.batch.dataset import attach
    from streamkit.batch.dataset_sinks import PREFIX

    def options(node: Node) -> dict[str, Any]:
        paths = {
            name: str(folder / node.id / Path(value).relative_to(Path(value).anchor).as_posix().replace("..", "_"))
            for name, value in node.options.items()
            if isinstance(value, str) and "{source}" in value and not node.id.startswith(f"{PREFIX}.")
        }
        return {**node.options, **paths}

    made = attach(graph, replace(settings, out=folder / "out"))
    return with_nodes(made, [replace(node, options=options(node)) for node in made.nodes.values()])


def _samples(good: Sequence[ProbedFile], look: FrameSelection) -> list[ProbedFile]:
    """A few files of medium length with frames to process; the first one twice, to warm up."""
    lengths = {one.file.uri: looked_at_s(one.probe, look) for one in good}
    known = [one for one in good if lengths[one.file.uri] and not look.misses(one.probe.duration_s, one.probe.fps)]
    known.sort(key=lambda one: lengths[one.file.uri])
    places = {round(len(known) * (n + 1) / (_SAMPLES + 1)) for n in range(_SAMPLES)}
    some = [known[min(place, len(known) - 1)] for place in sorted(places)] if known else []
    return some[:1] + some


def _scale(files: Sequence[VideoFile], chosen: Sequence[VideoFile]) -> float:
    """Size of all files relative to some: by bytes, or by their number if a size is unknown."""
    if any(file.size is None for file in files):
        return len(files) / max(1, len(chosen))
    return _size(files) / max(1, _size(chosen))


def _size(files: Iterable[VideoFile]) -> int:
    return sum(file.size or 0 for file in files if not file.gone)


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
