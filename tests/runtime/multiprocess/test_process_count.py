"""How many processes share a GPU, as a table: the loads that were measured, the bounds, and what needs one process."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.config.plan import Graph
from streamkit.core.data import Batch, Device, Frame
from streamkit.core.stage import BatchStage, Collecting, FrameStage, Sink, default_registry, stage
from streamkit.media.gpu_figures import FIRST_GUESSES, GpuFigure
from streamkit.models.network_rate import NetworkRate
from streamkit.runtime.ingest.push_source import PushSource
from streamkit.runtime.multiprocess import process_count
from streamkit.runtime.multiprocess.process_count import (
    SourceFacts,
    frame_lock_us,
    gpu_reasons,
    network_fps,
    plan_here,
    plan_processes,
    probe_sources,
)

GPU = [Device("cuda", 0)]
GIB = 2**30
CAMERA = "'rtsp://h/#'"
FILE = "'#.mp4'"
PACED = "{uri: '#.mp4', pace: 30}"
MEMORY = "21.0 GiB of free device memory"
CORES = "16 CPU cores, 3 per process"
SPARE = "a spare process replaces one that dies"
DETECT = "detect: {model: demo}, "
FULL = (
    DETECT + "track: {}, one: {stage: classify, model: models/color.yaml, of: detect}, "
    "two: {stage: classify, model: models/color.yaml, of: detect}, "
)


def graph(sources: int, source: str = CAMERA, stages: str = DETECT, device: str = "cuda", head: str = "") -> Graph:
    registry = default_registry()
    with Collecting(registry):

        @stage("whole", reads="tensor")
        class Whole(BatchStage):
            """Declares no scope."""

            def process(self, batch: Batch) -> Batch:
                return batch

        @stage("each", reads="tensor", scope="source")
        class Each(Whole):
            """Treats each source on its own."""

        @stage("across", scope="pipeline")
        class Across(FrameStage):
            """Compares sources."""

            def process(self, frame: Frame) -> None: ...

        @stage("unsaid")
        class Unsaid(BatchStage):
            """Declares no scope, and reads what reaches the parent."""

            def process(self, batch: Batch) -> Batch:
                return batch

        @stage("odd")
        class Odd(FrameStage):
            """Keeps state per source by contract."""

            def process(self, frame: Frame) -> None: ...

        @stage("film", reads="pixels")
        class Film(Sink):
            """Reads the pixels of all sources."""

            path: str

            def write(self, frame: Frame) -> None: ...

    listed = ", ".join(f"s{i}: {source.replace('#', str(i))}" for i in range(sources))
    text = f"device: {device}\n{head}sources: {{{listed}}}\nstages: {{{stages}jsonl: {{path: 'o/{{source}}.jsonl'}}}}"
    return build(read_text(text, registry=registry))


def planned(pipeline_graph: Graph, codec: str = "", fps: float | None = None, **options: Any) -> Any:
    options.setdefault("cores", 16)
    facts = {source.id: SourceFacts(codec, fps) for source in pipeline_graph.sources}
    return plan_processes(pipeline_graph, GPU, facts=facts, **options).devices[0]


@pytest.mark.parametrize(
    ("sources", "source", "codec", "stages", "count"),
    [
        (1, CAMERA, "", DETECT, 1),
        (55, CAMERA, "", DETECT, 1),
        (65, CAMERA, "h264", DETECT, 1),
        (100, CAMERA, "h264", DETECT, 2),
        (100, CAMERA, "", DETECT, 2),
        (100, PACED, "h264", DETECT, 2),
        (149, CAMERA, "h264", DETECT, 2),
        (151, CAMERA, "h264", DETECT, 3),  # 0.9 of the decoders
        (166, CAMERA, "h264", DETECT, 4),
        (170, CAMERA, "h264", DETECT, 3),  # too many for the decoders: another process would not help
        (200, CAMERA, "h264", DETECT, 3),
        (200, CAMERA, "hevc", DETECT, 4),
        (158, CAMERA, "h264", FULL, 4),
        (204, CAMERA, "hevc", FULL, 4),
        (230, CAMERA, "hevc", FULL, 4),
        (265, CAMERA, "hevc", FULL, 5),
        (14, FILE, "h264", DETECT, 2),
        (100, FILE, "h264", DETECT, 2),
        (14, FILE, "hevc", DETECT, 3),
        (7, FILE, "hevc", DETECT, 3),
        (4, FILE, "hevc", DETECT, 2),
        (1, FILE, "hevc", DETECT, 1),
        (2, "{uri: '#.mp4', decoders: 7}", "hevc", DETECT, 2),
        (14, FILE, "av1", DETECT, 2),
        (14, FILE, "", DETECT, 2),
        (14, FILE, "h264", DETECT + "mqtt: {url: 'mqtt://h', topic: a}, ", 2),
        (80, CAMERA, "h264", DETECT + "draw: {}, video: {path: 'o/{source}.mp4'}, ", 2),
    ],
)
def test_measured_loads_give_the_expected_number_of_processes(
    sources: int, source: str, codec: str, stages: str, count: int
) -> None:
    assert planned(graph(sources, source, stages), codec).processes == count


@pytest.mark.parametrize(
    ("source", "fps", "count"),
    [
        (PACED, 30.0, 4),
        ("{uri: '#.mp4', pace: 10}", 30.0, 2),
        ("{uri: '#.mp4', pace: realtime}", 15.0, 2),
        ("{uri: '#.mp4', pace: realtime, every: 3}", 30.0, 2),
        (CAMERA, 15.0, 2),
        ("{uri: 'rtsp://h/#', fps: 5}", None, 2),  # every frame of a camera is decoded
        ("{uri: 'rtsp://h/#', every: 6}", None, 2),
        ("{uri: 'rtsp://h/#', keyframes: true}", None, 1),
        ("{uri: 'test://?frames=#', pace: 30}", None, 4),
        ("{uri: 'test://?frames=#'}", None, 2),
    ],
)
def test_a_source_s_rate_is_that_of_its_options(source: str, fps: float | None, count: int) -> None:
    pipeline_graph = graph(200, source.replace("frames=#", "frames=9"))
    assert planned(pipeline_graph, "hevc", fps).processes == count


def test_busy_decoders_get_another_process_beside_the_spare_process() -> None:
    busy = "one more because these keep the decoders busy"
    assert planned(graph(158, CAMERA, FULL), "h264").reason.endswith(f"{busy}; {SPARE}")
    for cores, count in ((14, 3), (15, 4)):
        plan = planned(graph(158, CAMERA, FULL), "h264", cores=cores)
        assert (plan.processes, busy in plan.reason, SPARE in plan.reason) == (count, count == 4, True)


def test_the_reason_states_demand_and_capacity_of_a_process() -> None:
    served = "one process serves about"
    assert planned(graph(200)).reason == (
        f"4 processes on cuda:0: 200 cameras at 30 frames/s need about 6,000 frames/s, {served} 2,000; {SPARE}"
    )
    assert (
        planned(graph(1)).reason
        == f"1 process on cuda:0: 1 camera at 30 frames/s needs about 30 frames/s, {served} 2,000"
    )
    assert planned(graph(14, FILE), "hevc").reason == (
        f"3 processes on cuda:0: 14 files at full speed give about 9,000 frames/s, {served} 3,600"
    )
    mixed = graph(50, PACED)
    mixed.sources += graph(14, "'f#.mp4'").sources
    mixed.sources[0].options["pace"] = 10
    for source in mixed.sources[50:]:
        source.id += "f"
    assert planned(mixed, "h264").reason == (
        "2 processes on cuda:0: 50 paced sources and 14 files at full speed need about 5,000 frames/s, "
        f"{served} 3,600; {SPARE}"
    )
    assert planned(graph(1, FILE), "h264", realtime=True).reason.startswith(
        "1 process on cuda:0: 1 paced source at 30 frames/s needs"
    )


@pytest.mark.parametrize(
    ("sources", "options", "count", "limit", "by"),
    [
        (
            400,
            {},
            5,
            5,
            f"limited by {CORES}; no spare process: {CORES}",
        ),
        (400, {"cores": 32}, 7, 10, SPARE),
        (400, {"cores": 3}, 1, 1, "limited by 3 CPU cores, 3 per process"),
        (200, {"free_bytes": [140 * GIB]}, 4, 5, SPARE),
        (
            200,
            {"free_bytes": [21 * GIB]},
            2,
            2,
            "limited by 21.0 GiB of free device memory; no spare process: 21.0 GiB of free device memory",
        ),
        (200, {"free_bytes": [25 * GIB]}, 4, 4, "no spare process: 25.0 GiB of free device memory"),
        (200, {"cores": 14}, 4, 4, "no spare process: 14 CPU cores, 3 per process"),
        (200, {"free_bytes": [GIB]}, 1, 1, "limited by 1.0 GiB of free device memory"),
        (200, {"free_bytes": [None]}, 4, 5, SPARE),
        (3, {"cores": 64}, 1, 3, ""),
        (3, {"cores": 64, "keep_running": True}, 1, 21, ""),
    ],
)
def test_cores_memory_and_sources_limit_the_number_of_processes(
    sources: int, options: dict[str, Any], count: int, limit: int, by: str
) -> None:
    plan = planned(graph(sources), **options)
    assert (plan.processes, plan.limit) == (count, limit)
    assert plan.reason.endswith(f"2,000; {by}" if by else "2,000")


def test_a_single_file_gets_a_single_process() -> None:
    plan = planned(graph(1, "{uri: '#.mp4', decoders: auto}"), "hevc")
    assert (plan.processes, plan.reason.partition("; ")[2]) == (1, "limited by one process per source")


def test_devices_divide_the_sources_and_the_cores() -> None:
    pipeline_graph = graph(200, device="['cuda:0', 'cuda:1', cpu]")
    devices = [Device("cuda", 0), Device("cuda", 1), Device("cpu")]
    plan = plan_processes(pipeline_graph, devices, cores=32)
    assert plan.counts == [2, 2, 1]
    assert [device_plan.limit for device_plan in plan.devices] == [5, 5, 1]
    assert plan.reasons[1].startswith("2 processes on cuda:1: 67 cameras at 30 frames/s need about 2,000")
    assert plan.reasons[2] == "1 process on cpu: on the CPU, one process uses all cores"
    assert plan_processes(graph(400, device="['cuda:0', 'cuda:1']"), devices[:2], cores=32).counts == [4, 4]
    assert plan_processes(graph(400, device="['cuda:0', 'cuda:1']"), devices[:2], cores=16).counts == [2, 2]


def test_a_configured_number_of_processes_is_used() -> None:
    plan = planned(graph(2, device="{use: cuda, processes: 3}"), cores=1)
    head = "3 processes on cuda:0: set by device.processes"
    assert (plan.processes, plan.limit) == (3, 3)
    assert plan.reason == f"{head}; no spare process: 1 CPU cores, 3 per process"
    plan = planned(graph(2, device="{use: cuda, processes: 3}"))
    assert (plan.processes, plan.limit, plan.reason) == (3, 3, f"{head}; {SPARE}")
    pipeline_graph = graph(2, device="{use: cpu, processes: 2}")
    assert plan_processes(pipeline_graph, [Device("cpu")], cores=1).counts == [2]


@pytest.mark.parametrize(
    ("sources", "source", "device", "options", "count", "spare_limit"),
    [
        (200, CAMERA, "cuda", {}, 4, 5),
        (200, PACED, "cuda", {}, 4, 5),
        (200, CAMERA, "cuda", {"cores": 14}, 4, 4),
        (200, CAMERA, "cuda", {"free_bytes": [27 * GIB]}, 4, 5),
        (200, CAMERA, "cuda", {"free_bytes": [26 * GIB]}, 4, 4),
        (3, CAMERA, "{use: cuda, processes: 3}", {}, 3, 5),
        (14, FILE, "cuda", {}, 2, 0),
        (14, FILE, "{use: cuda, processes: 3}", {}, 3, 0),
        (14, FILE, "cuda", {"keep_running": True}, 2, 5),
        (2, CAMERA, "cuda", {"keep_running": True}, 1, 5),
    ],
)
def test_a_spare_process_is_kept_within_cores_and_memory(
    sources: int, source: str, device: str, options: dict[str, Any], count: int, spare_limit: int
) -> None:
    plan = planned(graph(sources, source, device=device), "h264" if source == FILE else "hevc", **options)
    assert (plan.processes, plan.spare_limit) == (count, spare_limit)
    explains_spare = source != FILE and count > 1
    assert plan.reason.endswith(f"; {SPARE}") == (explains_spare and count < spare_limit)
    assert ("no spare process: " in plan.reason) == (explains_spare and count == spare_limit)


def test_no_spare_process_on_the_cpu_or_for_stages_that_need_a_single_process() -> None:
    pipeline_graph = graph(200, device="{use: cpu, processes: 2}")
    assert plan_processes(pipeline_graph, [Device("cpu")], cores=16, keep_running=True).devices[0].spare_limit == 0
    many = planned(graph(200, stages=DETECT + "film: {path: a.mp4}, "), keep_running=True)
    few = planned(graph(2, stages=DETECT + "film: {path: a.mp4}, "), keep_running=True)
    assert (many.spare_limit, few.spare_limit) == (0, 0)


SINGLE_PROCESS = [
    (
        DETECT + "film: {path: a.mp4}, ",
        "",
        'film reads pixels of several sources; write "{source}" into its path, so that each source has its own',
    ),
    (
        DETECT + "sqlite: {path: r.db, send: objects, crops: true}, ",
        "",
        "sqlite reads pixels of several sources; leave out crops",
    ),
    (
        DETECT + "across: {}, draw: {}, ",
        "",
        "draw reads pixels below across, which looks across sources (scope: pipeline); set from: detect at draw",
    ),
    (
        "detect: {model: demo, insert: {after: preprocess, stage: whole}}, ",
        "",
        "detect.whole may keep state across sources: its class declares no scope; add scope='source' to its "
        "@stage(...) if it keeps none",
    ),
    (
        DETECT + "unsaid: {}, across: {}, ",
        "",
        "unsaid may keep state across sources: its class declares no scope; add scope='source' to its "
        "@stage(...) if it keeps none",
    ),
]


@pytest.mark.parametrize(("stages", "head", "reason"), SINGLE_PROCESS)
def test_stages_that_need_a_single_process_get_it_with_the_reason(stages: str, head: str, reason: str) -> None:
    plan = planned(graph(200, stages=stages, head=head))
    assert (plan.processes, plan.limit, plan.reason) == (1, 1, f"1 process on cuda:0: {reason}")
    few = planned(graph(2, stages=stages, head=head), keep_running=True)
    assert (few.processes, few.limit) == (1, 1), "also later"
    assert plan_processes(graph(2, stages=stages, head=head), GPU, cores=16).one_process == reason


@pytest.mark.parametrize(
    "stages",
    [
        DETECT + "film: {path: 'o/{source}.mp4'}, ",
        DETECT + "odd: {}, ",
        DETECT + "across: {}, ",
        DETECT + "across: {}, unsaid: {}, ",
        "detect: {model: demo, insert: {after: preprocess, stage: each}}, ",
        "snapshot",
    ],
)
def test_stages_with_state_per_source_or_in_the_parent_allow_several_processes(stages: str) -> None:
    if "snapshot" in stages:
        zone = "z: {stage: zone, polygon: [[0, 0], [9, 0], [9, 9]]}"
        stages = f"{DETECT}track: {{}}, {zone}, snapshot: {{when: z.entered}}, "
    plan = plan_processes(graph(200, stages=stages), GPU, cores=16)
    assert plan.one_process == ""
    assert plan.counts[0] >= 3


def test_of_the_built_in_stages_only_identify_looks_across_sources() -> None:
    kinds = [kind for kind in default_registry().values() if kind.spec.built_in]
    assert {kind.name for kind in kinds if process_count.scope_of(kind) != "source"} == {"identify"}
    assert {process_count.scope_of(kind) for kind in kinds} == {"source", "pipeline"}


def test_pushed_frames_need_a_single_process() -> None:
    pipeline_graph = graph(200)
    pipeline_graph.sources.append(PushSource().config("mine", GPU[0]))
    assert planned(pipeline_graph).reason == "1 process on cuda:0: a program pushes frames"


def test_a_pipeline_without_sources_has_a_single_process_that_may_grow() -> None:
    pipeline_graph = graph(1)
    pipeline_graph.sources = []
    plan = planned(pipeline_graph, keep_running=True)
    assert (plan.processes, plan.limit, plan.reason) == (1, 5, "1 process on cuda:0: there is no source yet")


def test_loads_add_up_to_the_number_of_processes() -> None:
    plan = plan_processes(graph(200), GPU, cores=16)
    assert set(plan.loads) == {f"s{i}" for i in range(200)}
    assert plan.loads["s0"] == pytest.approx(30 * 138e-6 / FIRST_GUESSES["live_lock"].amount)
    assert sum(plan.loads.values()) == pytest.approx(200 * 30 * 138e-6 / FIRST_GUESSES["live_lock"].amount)


def test_files_use_the_decoder_capacity_left_by_cameras() -> None:
    pipeline_graph = graph(150, PACED)
    pipeline_graph.sources += [
        source
        for source in graph(170, FILE).sources
        if source.id not in {present.id for present in pipeline_graph.sources}
    ]
    facts = {source.id: SourceFacts("h264", 30.0) for source in pipeline_graph.sources}
    plan = plan_processes(pipeline_graph, GPU, cores=64, facts=facts)
    files = [load for id_, load in plan.loads.items() if int(id_[1:]) >= 150]
    assert len(files) == 20
    assert sum(files) == pytest.approx((5000 - 4500) * 112e-6 / 0.50)


def test_files_are_probed_and_unreadable_ones_are_left_to_the_run(root: Path) -> None:
    street = str(root / "samples" / "street.mp4")
    pipeline_graph = graph(1, f"'{street}'")
    pipeline_graph.sources += graph(2, "'nowhere#.mp4'").sources[1:]
    pipeline_graph.sources += graph(3, "'rtsp://h/#'").sources[2:]
    assert probe_sources(pipeline_graph) == {"s0": SourceFacts("h264", pytest.approx(25, abs=10)), "s1": SourceFacts()}
    assert probe_sources(pipeline_graph, within_s=-1) == {}


def test_the_cpu_plan_is_a_single_process(root: Path) -> None:
    pipeline_graph = graph(300, device="cpu")
    assert plan_here(pipeline_graph).counts == [1]
    assert gpu_reasons(pipeline_graph) == []


@pytest.mark.gpu
def test_a_gpu_is_planned_with_its_memory() -> None:
    processes, *networks = gpu_reasons(graph(2))
    assert processes.startswith("1 process on cuda:0: 2 cameras at 30 frames/s need about 60 frames/s")
    assert [line.partition(":")[0] for line in networks] == ["detect"]


# ------------------------------------------------------------------------------------------------ networks that bind


def test_files_get_no_more_processes_than_the_networks_keep_busy():
    files = graph(14, FILE)
    facts = {source.id: SourceFacts("hevc", 30.0) for source in files.sources}
    unlimited = plan_processes(files, GPU, cores=16, facts=facts)
    limited = plan_processes(files, GPU, cores=16, facts=facts, network_fps=[1_400.0])
    assert unlimited.devices[0].processes > 1
    assert limited.devices[0].processes == 1
    assert "about 1,400 frames/s" in limited.reasons[0]


@pytest.mark.parametrize(("network_fps", "processes"), [(3_850.0, 2), (3_500.0, 2), (1_750.0, 1)])
def test_a_fast_network_that_is_the_bottleneck_gets_a_second_process(network_fps, processes):
    files = graph(14, FILE)
    facts = {source.id: SourceFacts("h264", 30.0) for source in files.sources}
    plan = plan_processes(files, GPU, cores=16, facts=facts, network_fps=[network_fps])
    assert plan.devices[0].processes == processes


@pytest.mark.parametrize(
    ("source", "network_fps", "queue_share", "cores", "processes"),
    [
        (FILE, 1_200.0, 0.35, 16, 2),
        (FILE, 1_200.0, 0.34, 16, 1),
        (FILE, 1_200.0, 0.9, 3, 1),  # too few cores
        (FILE, 20_000.0, 0.9, 16, 2),  # the decoders bind, which takes two anyway
        (CAMERA, 40.0, 0.9, 16, 2),
        (CAMERA, 4_000.0, 0.9, 16, 1),  # all cameras fit
    ],
)
def test_a_network_that_takes_long_to_queue_gets_a_second_process(source, network_fps, queue_share, cores, processes):
    sources = graph(14 if source == FILE else 2, source)
    facts = {config.id: SourceFacts("h264", 30.0) for config in sources.sources}
    plan = plan_processes(sources, GPU, cores=cores, facts=facts, network_fps=[network_fps], queue_shares=[queue_share])
    assert plan.devices[0].processes == processes
    assert ("queueing" in plan.reasons[0]) == (processes == 2 and network_fps < 10_000)


def test_networks_that_are_faster_than_the_decoders_change_nothing():
    files = graph(14, FILE)
    assert plan_processes(files, GPU, cores=16, network_fps=[50_000.0]) == plan_processes(files, GPU, cores=16)


def test_files_use_the_network_capacity_left_by_cameras():
    mixed = graph(14, FILE)
    cameras = graph(10, CAMERA)
    both = replace(mixed, sources=[*mixed.sources, *cameras.sources])
    plan = plan_processes(both, GPU, cores=16, network_fps=[1_300.0])
    assert sum(plan.loads[source.id] for source in mixed.sources) < sum(
        plan_processes(both, GPU, cores=16).loads[source.id] for source in mixed.sources
    )


@pytest.mark.parametrize(
    ("source", "codec", "measured", "processes"),
    [
        (CAMERA, "h264", {}, 2),
        (CAMERA, "h264", {"lock_us_h264": 336.0}, 4),  # limited by the cores
        (CAMERA, "h264", {"lock_us_h264": 56.0}, 1),
        (CAMERA, "h264", {"lock_us_hevc": 500.0}, 2),
        (FILE, "h264", {}, 2),
        (FILE, "h264", {"decoders_fps_h264": 2000.0}, 1),
        (FILE, "h264", {"decoders_fps_h264": 12000.0}, 3),
        (FILE, "h264", {"decoders_fps_h264": 12000.0, "lock_us_h264": 40.0}, 1),
    ],
)
def test_measured_rates_of_a_gpu_replace_the_first_estimate(source, codec, measured, processes):
    figures = {**FIRST_GUESSES, **{name: GpuFigure(amount, "2026-11-27") for name, amount in measured.items()}}
    sources = 100 if source == CAMERA else 14
    assert planned(graph(sources, source), codec, figures=[figures]).processes == processes


def test_figures_are_stored_per_gpu():
    slow = {**FIRST_GUESSES, "lock_us_hevc": GpuFigure(276.0, "2026-11-27")}
    gpus = [Device("cuda", 0), Device("cuda", 1)]
    cameras = graph(100, CAMERA, device="[cuda:0, cuda:1]")
    plan = plan_processes(cameras, gpus, cores=32, figures=[FIRST_GUESSES, slow])
    assert plan.loads["s1"] == pytest.approx(2 * plan.loads["s0"])


@pytest.mark.parametrize(
    ("stages", "source", "expected"),
    [
        (DETECT, CAMERA, {"h264": 112.0, "hevc": 138.0}),
        (DETECT + "track: {}, ", CAMERA, {"h264": 114.0, "hevc": 140.0}),
        (DETECT + "unsaid: {}, ", CAMERA, {}),  # a plugin
        (DETECT + "draw: {}, ", CAMERA, {}),  # an estimate
        (DETECT, "{uri: 'rtsp://h/#', every: 3}", {}),
        (DETECT, "{uri: 'rtsp://h/#', every: 1}", {"h264": 112.0, "hevc": 138.0}),
    ],
)
def test_the_lock_time_is_derived_from_stages_of_known_time(stages, source, expected):
    assert frame_lock_us(graph(2, source, stages)) == expected


OVERLOAD = (
    "the networks take 2.6 ms a frame: 12 of 40 live sources fit at 30 frames/s, and frames of all will be dropped; "
    "with every: 4 and a tracker all fit"
)


@pytest.mark.parametrize(
    ("cameras", "served_fps", "overload"),
    [
        (12, 400.0, ""),
        (40, 385.0, OVERLOAD),
        (40, None, ""),
    ],
)
def test_cameras_above_the_network_capacity_are_reported(cameras, served_fps, overload):
    plan = plan_processes(graph(cameras), GPU, cores=16, network_fps=[served_fps])
    assert plan.devices[0].overload == overload


@pytest.mark.parametrize(
    ("stages", "way_out"),
    [
        ("detect: {model: demo}, ", "with every: 2 and a tracker all fit"),
        ("detect: {model: demo}, track: {}, ", "with every: 2 all fit"),
        ("detect: {model: demo, every: 3}, track: {}, ", "with every: 5 all fit"),  # 3 is not enough
        ("detect: {model: demo, every: 3}, two: {stage: detect, model: demo}, ", "with every: 5 and a tracker all fit"),
    ],
)
def test_the_fix_for_an_overload_extends_the_pipelines_options(stages, way_out):
    plan = plan_processes(graph(40, stages=stages), GPU, cores=16, network_fps=[800.0])
    assert plan.devices[0].overload.endswith(way_out)


@pytest.mark.parametrize(
    ("stages", "fps"),
    [
        ("detect: {model: demo}, ", 1000.0),
        ("detect: {model: demo, every: 3}, ", 3000.0),
        ("detect: {model: demo, tiles: {size: [320, 320]}}, ", None),
        ("detect: {model: demo}, one: {stage: classify, model: models/color.yaml, of: detect}, ", 1000.0),
        ("detect: {model: demo}, two: {stage: detect, model: demo}, ", 500.0),
        ("detect: {model: demo}, action: {model: models/activity.yaml}, ", 1000.0),
    ],
)
def test_the_rates_of_all_networks_are_combined(stages, fps, monkeypatch):
    rate = NetworkRate(1000.0, 32)
    monkeypatch.setattr(process_count, "expected_rate", lambda card, engine, precision, device: rate)
    assert network_fps(graph(2, stages=stages), GPU[0]) == pytest.approx(fps)
    assert network_fps(graph(2, stages=stages), Device()) is None
