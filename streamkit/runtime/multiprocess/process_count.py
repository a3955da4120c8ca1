# SPDX-License-Identifier: Apache-2.0
"""Chooses how many processes share each GPU.

Python's global interpreter lock (GIL) limits one process: every frame costs some time with the lock held. The number
of processes is the load, in seconds of lock time per second, over the share of the time that one process may hold it,
within what the cores, the device memory and the sources allow.
"""

from __future__ import annotations

import dataclasses
import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from streamkit.config.plan import Graph, Node, SourceConfig
from streamkit.core.data import Device
from streamkit.core.errors import StreamkitError
from streamkit.core.stage import FrameStage, Sink, scope_of
from streamkit.emit.emitter import Emitter
from streamkit.media.gpu_figures import CODECS, FIRST_GUESSES, GpuFigure, read_figures
from streamkit.media.uris import is_path
from streamkit.models.arithmetic_choice import describe_arithmetic
from streamkit.models.network_rate import NetworkRate, expected_rate
from streamkit.models.versions import decoding_versions
from streamkit.runtime.execution.cores import cores
from streamkit.runtime.execution.device import choose, gpu_trouble
from streamkit.runtime.execution.sizes import FILES_PER_GPU
from streamkit.runtime.multiprocess.partition import (
    OF_MAIN,
    fix,
    pixel_sinks,
    problems_across_sources,
    stages_across_sources,
    stages_of_main,
)
from streamkit.runtime.multiprocess.prestart import CORES_PER_PROCESS
from streamkit.runtime.observe.nvml import Nvml
from streamkit.stages.sources.source import PacedSource, VideoSource

if TYPE_CHECKING:
    from streamkit.runtime.pipeline import PipelineRun

# Lock time of stages and memory: measured on an H200 with 16 cores, like the first guesses of `gpu_figures`; see
# docs/figures/gpu.md. Where a frame costs more or less than the first guess, so does a stage.

READ_US = 64.0
"""The part of the lock time of a frame for reading and decoding: four calls per frame that release the lock, 16 us
each."""
DECODERS = 7
"""Decoders of a GPU that `decoders: auto` uses."""

EMITTER_US = 45.0
"""More lock time per frame with an emitter: MQTT took the lock's free share from 44 to 22 % at 4,745 H.264 frames/s.
Measured before emitters took a batch's lines at once, and kept: on a CPU the cost has halved since, but not for
`batch: 1` and for records of objects; see docs/figures/emitters.md."""
MODEL_US = 3.0
"""The same for each model after the first. With 230 HEVC cameras, a tracker and two classifiers of tracks, three
processes dropped 8 % of the frames, four none in two runs, and five 0.1 % in three: each process more costs GPU time,
which is what these cameras need most."""
TRACKING_US = 2.0
"""The same for a stage that processes a whole batch in one call: `track` and `zone` together cost 1.6 us."""
DRAWING_US = 30.0
"""The same for a stage that draws or encodes frames, and for a stage that is called for each frame. An estimate: some
ten calls."""

PROCESS_BYTES = 2 << 30
"""Device memory of a process: CUDA context, weights, buffers. Four sources took 1,891 to 2,065 MiB without surfaces in
flight; see docs/figures/gpu.md."""
SOURCE_BYTES = 84 << 20
"""Device memory of each 1080p source."""

CAMERA_FPS = 30.0
"""The rate of a camera, which is unknown before it is connected."""
HOST_FPS = 200.0
"""The rate of a source that no decoder limits, such as images without a pace. An estimate."""
KEYFRAME_EVERY = 30
"""Frames from one keyframe to the next, where only keyframes are taken. An estimate."""

_PROBE_S = 1.0
_SAMPLING = ("every", "fps", "keyframes")
"""Options of sources that leave out frames."""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """What is known of a source's video before it is opened.

    Attributes:
        codec: FFmpeg's name, such as `h264`; empty if unknown.
        fps: its frames per second; None if unknown.
    """

    codec: str = ""
    fps: float | None = None


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """The processes of one device.

    Attributes:
        device: the device.
        processes: how many processes to start.
        limit: how many there may be when sources are added.
        reason: the choice and its reason, in one line.
        spare_limit: how many there may be with a spare one among them; 0 if none is kept. There is a spare one beside
            two or more with live sources.
        overload: by how much live sources need more than the networks serve, a text; empty if they do not.
    """

    device: Device
    processes: int
    limit: int
    reason: str
    spare_limit: int = 0
    overload: str = ""


@dataclass(frozen=True, slots=True)
class ProcessPlan:
    """The processes of all devices.

    Attributes:
        devices: one entry per device, in the order of the YAML.
        loads: the load of each source by its id; 1 is what one process can serve.
        one_process: why the pipeline must run in one process per device; empty if it need not.
    """

    devices: tuple[DevicePlan, ...]
    loads: Mapping[str, float]
    one_process: str = ""

    @property
    def counts(self) -> list[int]:
        """Processes of each device, for `assign_sources`."""
        return [device_plan.processes for device_plan in self.devices]

    @property
    def reasons(self) -> list[str]:
        """One line per device."""
        return [device_plan.reason for device_plan in self.devices]


def plan_processes(
    graph: Graph,
    devices: Sequence[Device],
    *,
    cores: int,
    keep_running: bool = False,
    realtime: bool = False,
    facts: Mapping[str, SourceFacts] | None = None,
    free_bytes: Sequence[int | None] = (),
    independent: bool = False,
    extra_us: float = 0.0,
    network_fps: Sequence[float | None] = (),
    queue_shares: Sequence[float] = (),
    figures: Sequence[Mapping[str, GpuFigure]] = (),
) -> ProcessPlan:
    """Choose the number of processes on each device. Reads no file and no device.

    Args:
        graph: the pipeline.
        devices: its devices.
        cores: CPU cores that the pipeline may use.
        keep_running: sources may be added; the limit then does not depend on the number of sources.
        realtime: files without a `pace` are played at their own rate, as `serve` does.
        facts: what is known of the sources, by id; see `probe_sources`.
        free_bytes: free memory of each device; None if unknown.
        independent: whether the results of each source stand alone, so that no stage forces one process.
        extra_us: more lock time per frame, in microseconds.
        network_fps: frames per second that the networks serve on each device, see `network_fps`; None if unknown.
        queue_shares: time to queue the networks' work on each device, in shares of the GPU's time for it.
        figures: speeds and limits of each device, see `read_figures`; by default, first guesses.
    """
    facts_of = facts or {}
    stages_us = extra_us + sum(map(_stage_us, _after_base(list(graph.nodes.values()))))
    codec_counts = Counter(source_facts.codec for source_facts in facts_of.values() if source_facts.codec)
    file_codec = codec_counts.most_common(1)[0][0] if codec_counts else "h264"
    forced = "" if independent else _single_process(graph)
    gpus = max(1, sum(device.kind == "cuda" for device in devices))
    plans: list[DevicePlan] = []
    loads: dict[str, float] = {}
    for i, device in enumerate(devices):
        of_device = figures[i] if i < len(figures) else FIRST_GUESSES
        share = _within_decoders(
            [
                _demand(source, facts_of.get(source.id, SourceFacts()), stages_us, realtime, file_codec, of_device)
                for source in graph.sources[i :: len(devices)]
            ]
        )
        served_fps = network_fps[i] if i < len(network_fps) else None
        live_fps = [demand.fps for demand in share if demand.live]
        overload = overload_text(graph, len(live_fps), sum(live_fps), served_fps)
        networks_bind = _limit_to_networks(share, served_fps, of_device) or bool(overload)
        queues_slowly = i < len(queue_shares) and queue_shares[i] >= of_device["queue_share"].amount
        min_processes = 2 if networks_bind and queues_slowly else 1
        loads |= {demand.source: demand.load for demand in share}
        free = free_bytes[i] if i < len(free_bytes) else None
        limits = _limits(len(share), cores // gpus, free)
        plan = _device_plan(
            device, share, limits, keep_running, graph.config.processes, forced, of_device, min_processes
        )
        plans.append(dataclasses.replace(plan, overload=overload))
    return ProcessPlan(tuple(plans), loads, forced)


@dataclass(frozen=True, slots=True)
class SourceLoad:
    """The load of one source, as if it had the decoders alone.

    Attributes:
        fps: frames per second that it is expected to produce.
        load: its load at that rate; 1 is what one process can serve.
        live: whether it is a camera, or a recording with a pace.
    """

    fps: float
    load: float
    live: bool = False

    def at(self, fps: float) -> float:
        """The load at a measured rate."""
        return self.load * fps / self.fps


def source_loads(
    graph: Graph, *, realtime: bool = False, figures: Mapping[str, GpuFigure] = FIRST_GUESSES
) -> Callable[[SourceConfig], SourceLoad]:
    """A function that returns the load of a source that is added to a pipeline, before it is opened.

    Args:
        graph: the pipeline.
        realtime: files without a `pace` are played at their own rate.
        figures: speeds and limits of the device, see `read_figures`.
    """
    stages_us = sum(map(_stage_us, _after_base(list(graph.nodes.values()))))

    def load(source: SourceConfig) -> SourceLoad:
        demand = _demand(source, SourceFacts(), stages_us, realtime, "h264", figures)
        return SourceLoad(demand.fps, demand.load, demand.live)

    return load


def plan_here(
    graph: Graph,
    *,
    keep_running: bool = False,
    realtime: bool = False,
    facts: Mapping[str, SourceFacts] | None = None,
    independent: bool = False,
    extra_us: float = 0.0,
) -> ProcessPlan:
    """Choose the number of processes on this machine: probes files, cores and free device memory; see
    `plan_processes`. Creates no CUDA context.

    Raises:
        DeviceError: a device does not exist.
    """
    wanted = graph.config.device
    names = wanted if isinstance(wanted, list) else [wanted]
    if not keep_running:  # each process needs a source
        names = names[: max(1, len(graph.sources))]
    devices = [choose(name) for name in names]
    on_gpu = any(device.kind == "cuda" for device in devices)
    free = [_free_bytes(device) for device in devices]
    return plan_processes(
        graph,
        devices,
        cores=cores(),
        keep_running=keep_running,
        realtime=realtime,
        facts=probe_sources(graph) if on_gpu and facts is None else facts,
        free_bytes=free,
        independent=independent,
        extra_us=extra_us,
        network_fps=[network_fps(graph, device) for device in devices],
        queue_shares=[queue_share(graph, device) for device in devices],
        figures=[figures_of(device) for device in devices],
    )


def figures_of(device: Device) -> dict[str, GpuFigure]:
    """Return the speeds and limits of a device; those of a CPU are first guesses."""
    return read_figures(decoding_versions(device.index) if device.kind == "cuda" else "")


def frame_lock_us(graph: Graph) -> dict[str, float]:
    """Return the first guess of a pipeline's lock time per frame in microseconds, by codec, to compare one measured.

    Empty if nothing is to be learned from it: it has a stage whose time is unknown, such as a plugin's, or only an
    estimate, or its sources leave out frames.
    """
    further = _after_base(list(graph.nodes.values()))
    stages_us = sum(map(_stage_us, further))
    built_in = all(node.type.__module__.startswith("streamkit.") for node in graph.nodes.values())
    estimated = any(_stage_us(node) >= DRAWING_US for node in further)
    if not built_in or estimated or leaves_out_frames(graph):
        return {}
    return {codec: FIRST_GUESSES[f"lock_us_{codec}"].amount + stages_us for codec in CODECS}


def leaves_out_frames(graph: Graph) -> bool:
    """Whether a source does not give all frames that are decoded for it."""
    return any(source.options.get(name) not in (None, 1, False) for source in graph.sources for name in _SAMPLING)


def lock_lesson(run: PipelineRun, graph: Graph, device: Device) -> Callable[[float], None]:
    """Return what measures the lock time of a frame while a run of a graph goes on in this process."""
    from streamkit.runtime.observe.gpu_lessons import LockLesson

    nvml = Nvml(device.index)
    lesson = LockLesson(
        decoding_versions(device.index), frame_lock_us(graph), lambda: run.states, run.counts, lambda: nvml.use().gpu
    )
    weakref.finalize(lesson, nvml.close)
    return lesson


def network_fps(graph: Graph, device: Device) -> float | None:
    """Return how many frames per second the networks of a pipeline serve on a GPU; None if none was measured there.

    A network that sees crops of objects, or tiles, is left out: how many is not known before.
    """
    seconds = 0.0
    for node, rate in _network_rates(graph, device):
        every = _frames_between_runs(graph, node)
        if every is not None:
            seconds += 1 / (rate.images_per_s * every)
    return 1 / seconds if seconds else None


def queue_share(graph: Graph, device: Device) -> float:
    """Return the largest share of a network's time on a GPU that queueing its work takes; 0 if none was measured."""
    return max((rate.queue_share for _, rate in _network_rates(graph, device)), default=0.0)


def _network_rates(graph: Graph, device: Device) -> Iterator[tuple[Node, NetworkRate]]:
    """Yield the networks of a pipeline whose rate was measured on a GPU."""
    for node in graph.nodes.values():
        if device.kind != "cuda" or "outputs" not in node.type.spec.writes:
            continue
        engine = node.options.get("engine", "auto")
        precision = node.options.get("precision", "auto")
        rate = expected_rate(node.options["model"], engine, precision, device)
        if rate is not None:
            yield node, rate


def _frames_between_runs(graph: Graph, node: Node) -> int | None:
    """Return on how many frames a network runs once; None if it runs on parts of frames."""
    above = graph.nodes.get(node.inputs[0])
    while above is not None and above.id.partition(".")[0] == node.id.partition(".")[0]:
        if "crops" in above.type.spec.writes:
            if "stride" in above.options:  # of clips, whose interval is a time
                return None
            every = above.options.get("every", 1)
            whole = (
                above.options.get("tiles") is None and above.options.get("roi") is None and "of" not in above.options
            )
            return max(1, every) if whole and isinstance(every, int) else None
        above = graph.nodes.get(above.inputs[0]) if above.inputs else None
    return 1


def gpu_reasons(graph: Graph) -> list[str]:
    """The choice, its reason, and an overload for each GPU, one line each; empty where there is no GPU."""
    wanted = graph.config.device
    names = [name for name in (wanted if isinstance(wanted, list) else [wanted]) if name != "cpu"]
    if not names or any(gpu_trouble(int(name.partition(":")[2] or 0)) for name in names):
        return []
    plans = [plan for plan in plan_here(graph).devices if plan.device.kind == "cuda"]
    lines = [line for plan in plans for line in (plan.reason, plan.overload) if line]
    return [*lines, *_arithmetics(graph, plans[0].device)]


def _arithmetics(graph: Graph, device: Device) -> Iterator[str]:
    """Yield how each network of a pipeline will be computed."""
    for node in graph.nodes.values():
        if "outputs" in node.type.spec.writes:
            options = node.options
            engine = options.get("engine", "auto")
            precision = options.get("precision", "auto")
            yield f"{node.table}: {describe_arithmetic(options['model'], engine, precision, device)}"


def probe_sources(graph: Graph, within_s: float = _PROBE_S) -> dict[str, SourceFacts]:
    """Read the headers of the video files among the sources, for at most `within_s` seconds.

    Addresses are not opened, nor are files that cannot be read reported: the run reports them.
    """
    from streamkit.media.demux import Demuxer

    facts_by_source: dict[str, SourceFacts] = {}
    of_file: dict[str, SourceFacts] = {}
    until_s = time.monotonic() + within_s
    for source in graph.sources:
        uri = str(source.options.get("uri", ""))
        if not issubclass(source.type, VideoSource) or not is_path(uri):
            continue
        if uri not in of_file:
            if time.monotonic() > until_s:
                continue
            try:
                with closing(Demuxer(uri)) as demuxer:
                    of_file[uri] = SourceFacts(demuxer.info.codec, demuxer.info.average_rate)
            except (StreamkitError, OSError):
                of_file[uri] = SourceFacts()
        facts_by_source[source.id] = of_file[uri]
    return facts_by_source


# ------------------------------------------------------------------------------------------------------------ the load


@dataclass(slots=True)
class _Demand:
    """What a source needs: frames per second, seconds of the lock per second, and its share of the decoders.

    `lock_limit`: the share of the time that its process may hold the lock.
    """

    source: str
    kind: Literal["camera", "paced source", "file"]
    fps: float
    lock: float
    decoders: float
    lock_limit: float

    @property
    def live(self) -> bool:
        return self.kind != "file"

    @property
    def load(self) -> float:
        return self.lock / self.lock_limit

    def scale(self, by: float) -> None:
        self.fps = self.fps * by
        self.lock = self.lock * by
        self.decoders = self.decoders * by


def _demand(
    source: SourceConfig,
    facts: SourceFacts,
    stages_us: float,
    realtime: bool,
    file_codec: str,
    figures: Mapping[str, GpuFigure],
) -> _Demand:
    """The demand of one source, as if it had the decoders alone."""
    options = source.options
    video = issubclass(source.type, VideoSource)
    uri = str(options.get("uri", ""))
    pace = options.get("pace")
    recorded = issubclass(source.type, PacedSource) and (not video or is_path(uri))
    if pace is None and realtime:
        pace = "realtime"
    live = not recorded or pace not in (None, "unpaced")
    # the costlier codec for cameras: theirs is unknown before they are connected
    codec = facts.codec or (file_codec if recorded else "hevc")
    codec = codec if codec in CODECS else "h264"
    source_fps = facts.fps or CAMERA_FPS
    decoders_fps = figures[f"decoders_fps_{codec}"].amount
    if live:
        read_fps = float(pace) if recorded and isinstance(pace, int | float) else source_fps
    elif video:
        decoders = options.get("decoders", 1)
        count = DECODERS if decoders == "auto" else min(int(decoders), DECODERS)
        read_fps = min(_decoder_fps(codec, figures) * count, decoders_fps)
    else:
        read_fps = HOST_FPS
    fps = read_fps / int(options.get("every", 1)) if live else read_fps
    if options.get("fps") and live:
        fps = min(fps, float(options["fps"]))
    if options.get("keyframes") and live:
        fps /= KEYFRAME_EVERY
    # every frame of a camera is read and decoded; what a file leaves out is not
    read = read_fps if live and not recorded and not options.get("keyframes") else fps
    guess_us = FIRST_GUESSES[f"lock_us_{codec}"].amount
    slowness = figures[f"lock_us_{codec}"].amount / guess_us
    lock = slowness * (read * READ_US + fps * (guess_us - READ_US + stages_us)) / 1e6
    kind: Literal["camera", "paced source", "file"] = "file" if not live else "paced source" if recorded else "camera"
    lock_limit = figures["live_lock" if live else "files_lock"].amount
    return _Demand(source.id, kind, fps, lock, read / decoders_fps if video else 0.0, lock_limit)


def _decoder_fps(codec: str, figures: Mapping[str, GpuFigure]) -> float:
    """What one decoder reaches: where all of them are faster than the first guess, so is each."""
    speed = figures[f"decoders_fps_{codec}"].amount / FIRST_GUESSES[f"decoders_fps_{codec}"].amount
    return figures[f"decoder_fps_{codec}"].amount * speed


def _within_decoders(demands: Sequence[_Demand]) -> list[_Demand]:
    """The demands on one GPU: files share what its decoders have left beside cameras; not all are read at once."""
    live = [demand for demand in demands if demand.live]
    files = [demand for demand in demands if not demand.live]
    at_once = min(1.0, FILES_PER_GPU / max(1, len(files)))
    free_decoders = max(0.0, 1 - sum(demand.decoders for demand in live))
    wanted_decoders = sum(demand.decoders for demand in files) * at_once
    file_share = min(1.0, free_decoders / wanted_decoders) if wanted_decoders else 1.0
    for demand in files:
        demand.scale(at_once * (file_share if demand.decoders else 1.0))
    return [*demands]


def _limit_to_networks(demands: Sequence[_Demand], served_fps: float | None, figures: Mapping[str, GpuFigure]) -> bool:
    """Scale the demands of files to what the networks have left beside live sources; return whether that is less."""
    files = [demand for demand in demands if not demand.live]
    wanted_fps = sum(demand.fps for demand in files)
    if served_fps is None or not wanted_fps:
        return False
    left_fps = max(1.0, served_fps - sum(demand.fps for demand in demands if demand.live))
    for demand in files:
        demand.scale(min(1.0, left_fps / wanted_fps))
        if left_fps < wanted_fps:
            demand.lock_limit = figures["network_lock"].amount
    return left_fps < wanted_fps


def overload_text(graph: Graph, sources: int, needed_fps: float, served_fps: float | None) -> str:
    """Return by how much live sources need more than the networks serve, and the way out; empty if they do not.

    Args:
        graph: the pipeline.
        sources: number of live sources.
        needed_fps: frames per second of all of them.
        served_fps: frames per second that the networks serve, see `network_fps`; None if unknown.
    """
    if served_fps is None or needed_fps <= served_fps:
        return ""
    fitting = int(served_fps * sources / needed_fps)
    every = math.ceil(_longest_interval(graph) * needed_fps / served_fps)
    tracks = any(node.type.name == "track" for node in graph.nodes.values())
    way_out = f"every: {every}" if tracks else f"every: {every} and a tracker"
    frame_time = _milliseconds(1 / served_fps)
    return (
        f"the networks take {frame_time} a frame: {fitting} of {_pluralized(sources, 'live source')} fit "
        f"at {needed_fps / sources:g} frames/s, and frames of all will be dropped; with {way_out} all fit"
    )


def _longest_interval(graph: Graph) -> int:
    """Return the highest `every` of the networks that run on whole frames."""
    networks = [node for node in graph.nodes.values() if "outputs" in node.type.spec.writes]
    return max((_frames_between_runs(graph, node) or 1 for node in networks), default=1)


def _after_base(nodes: Sequence[Node]) -> list[Node]:
    """The nodes that the lock time of a frame does not contain: all but one model and one sink without pixels."""
    left = []
    seen = set()
    for node in nodes:
        kind = "model" if "outputs" in node.type.spec.writes else "sink" if _is_plain_sink(node) else ""
        if not kind or kind in seen:
            left.append(node)
        seen.add(kind)
    return left


def _is_plain_sink(node: Node) -> bool:
    return issubclass(node.type, Sink) and not issubclass(node.type, Emitter) and "pixels" not in node.reads


def _stage_us(node: Node) -> float:
    """Lock time of a stage per frame, in microseconds."""
    kind = node.type
    spec = node.type.spec
    if issubclass(kind, Emitter):
        return EMITTER_US
    if "outputs" in spec.writes:
        return MODEL_US
    if spec.draws_in_place or issubclass(kind, FrameStage) or (issubclass(kind, Sink) and "pixels" in node.reads):
        return DRAWING_US
    return TRACKING_US if not node.on_device else 0.0


# ---------------------------------------------------------------------------------------------------------- the bounds


def _single_process(graph: Graph) -> str:
    """Why the graph must run in one process; empty if it need not."""
    from streamkit.runtime.ingest.push_source import PushedFrames

    for node in pixel_sinks(graph):
        return f"{node.id} reads pixels of several sources; {fix(node)}"
    for id_, _ in stages_of_main(graph):
        return f"{id_} {OF_MAIN}"
    if any(issubclass(source.type, PushedFrames) for source in graph.sources):
        return "a program pushes frames"
    if problems := problems_across_sources(graph):
        return problems[0][1]
    across = stages_across_sources(graph)
    for node in graph.nodes.values():
        if node.id not in across and scope_of(node.type) is None:
            return (
                f"{node.id} may keep state across sources: its class declares no scope; add scope='source' to its "
                "@stage(...) if it keeps none"
            )
    return ""


def _limits(sources: int, cores: int, free_bytes: int | None) -> list[tuple[int, str]]:
    """The upper bounds of the number of processes that the machine sets, each with its reason."""
    bounds = [(max(1, cores // CORES_PER_PROCESS), f"{cores} CPU cores, {CORES_PER_PROCESS} per process")]
    if free_bytes is not None:
        room = (free_bytes - sources * SOURCE_BYTES) // PROCESS_BYTES
        bounds.append((max(1, room), f"{free_bytes / 2**30:.1f} GiB of free device memory"))
    return bounds


def _device_plan(
    device: Device,
    share: Sequence[_Demand],
    bounds: Sequence[tuple[int, str]],
    keep_running: bool,
    configured: int | None,
    forced: str,
    figures: Mapping[str, GpuFigure],
    min_processes: int = 1,
) -> DevicePlan:
    """The plan of one device with the sources of `share`, at least `min_processes`, within the machine's bounds."""
    room = min(bounds, key=itemgetter(0))
    per_source = (max(1, len(share)), "one process per source")
    max_processes, bound = room if keep_running else min(room, per_source, key=itemgetter(0))
    wanted = max(1, math.ceil(sum(demand.load for demand in share) - 1e-9))
    # not in the place of the spare process, and not where the decoders are too slow anyway
    decoders = sum(demand.decoders for demand in share if demand.live)
    busy = 1 < wanted < room[0] - 1 and figures["decoders_busy"].amount < decoders <= 1
    wanted += busy
    is_raised = wanted < min_processes <= max_processes
    wanted = max(wanted, min_processes)
    live = any(demand.live for demand in share)
    spare = room if device.kind == "cuda" and (live or keep_running) else None
    if configured is not None:
        return _counted_plan(device, configured, configured, "set by device.processes", live, spare)
    if device.kind == "cpu":
        return _counted_plan(device, 1, 1, "on the CPU, one process uses all cores")
    if forced and (wanted > 1 or not share):
        return _counted_plan(device, 1, 1, forced)
    text = _describe_demand(share) + "; one more because these keep the decoders busy" * busy
    text += "; one more because one is busy with queueing the networks' work" * is_raised
    if wanted > max_processes:
        text += f"; limited by {bound}"
    return _counted_plan(
        device, min(wanted, max_processes), 1 if forced else max_processes, text, live, None if forced else spare
    )


def _counted_plan(
    device: Device, count: int, limit: int, reason: str, live: bool = False, spare: tuple[int, str] | None = None
) -> DevicePlan:
    """The plan with `count` processes; `spare` is the bound with a spare one, None if none is kept."""
    spare_limit, bound = spare or (0, "")
    if spare and live and count > 1:
        reason += "; a spare process replaces one that dies" if count < spare_limit else f"; no spare process: {bound}"
    return DevicePlan(device, count, limit, f"{_pluralized(count, 'process')} on {device}: {reason}", spare_limit)


def _describe_demand(share: Sequence[_Demand]) -> str:
    """The sources' demand, and what one process serves."""
    if not share:
        return "there is no source yet"
    parts = []
    for kind in dict.fromkeys(demand.kind for demand in share):
        demands = [demand for demand in share if demand.kind == kind]
        rates = {round(demand.fps, 1) for demand in demands}
        pace = f" at {demands[0].fps:g} frames/s" if len(rates) == 1 else ""
        if kind == "file":
            pace = " at full speed"
        parts.append(f"{_pluralized(len(demands), kind)}{pace}")
    fps = sum(demand.fps for demand in share)
    load = sum(demand.load for demand in share)
    verb = "need" if any(demand.live for demand in share) else "give"
    demand_text = f"{' and '.join(parts)} {verb}{'s' * (len(share) == 1)} about {_two_digits(fps)} frames/s"
    return f"{demand_text}, one process serves about {_two_digits(fps / load)}"


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.2g} ms" if seconds < 0.1 else f"{1000 * seconds:,.0f} ms"


def _pluralized(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 'es' if word.endswith('s') else 's'}"


def _two_digits(number: float) -> str:
    """A number with two significant digits."""
    digits = 1 - math.floor(math.log10(number)) if number > 0 else 0
    return f"{round(number, min(digits, 0)):,.0f}"


def _free_bytes(device: Device) -> int | None:
    if device.kind == "cpu":
        return None
    with closing(Nvml(device.index)) as nvml:
        return nvml.free_bytes()
