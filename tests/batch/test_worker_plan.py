"""How many workers a batch run gets: a core each, or as many as a GPU needs; and MPS where they share one."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from support import mps_control
from support.messages import collect

from streamkit.batch import worker_plan, worker_pool
from streamkit.batch.job import BatchSettings, FrameSelection, VideoFile
from streamkit.batch.pipeline import attach, config_for
from streamkit.batch.probe import Probe
from streamkit.batch.worker_plan import WorkerPlan, plan_workers
from streamkit.batch.worker_pool import LocalWorkerPool
from streamkit.core.data import Device
from streamkit.runtime.multiprocess import mps, process_count

PLUGIN = """
from streamkit import BatchStage, stage

@stage("whole", reads="detections")
class Whole(BatchStage):
    'Declares no scope.'

    def process(self, batch):
        return batch
"""


def video_files(count: int, uri: str = "/v/{}.mp4") -> list[VideoFile]:
    return [VideoFile(uri.format(n), f"{n}.mp4", 1, "1") for n in range(count)]


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., WorkerPlan]:
    """Plans for a pipeline with a detector, on the CPU or on GPUs that are not there, whose files have these codecs."""
    (tmp_path / "whole.py").write_text(PLUGIN)
    (tmp_path / "p.yaml").write_text("plugins: [whole.py]\nstages: {detect: {model: demo}, track: {}, whole: {}}")

    def choose(name: str) -> Device:
        return Device("cpu") if name == "cpu" else Device("cuda", int(name[5:] or 0))

    monkeypatch.setattr(worker_plan, "choose", choose)
    monkeypatch.setattr(process_count, "choose", choose)

    def plan(
        device: str | list[str],
        files: list[VideoFile],
        workers: int | None = None,
        codecs: str = "h264",
        cores: int = 16,
        free_gib: float = 100.0,
        formats: tuple[str, ...] = ("jsonl",),
        frames: int = 100_000,
        **selection: Any,
    ) -> WorkerPlan:
        settings = BatchSettings(tmp_path / "p.yaml", (), tmp_path / "out", formats, FrameSelection(**selection))
        graph = attach(config_for(settings), settings)
        graph.config.device = device
        of = codecs.split()

        def probe(uri: str) -> Probe:
            read.append(uri)
            return Probe(frames / 30.0, of[(len(read) - 1) % len(of)], fps=30.0)

        read = plan.uris = []  # type: ignore[attr-defined]
        monkeypatch.setattr(worker_plan, "probe", probe)
        monkeypatch.setattr(process_count, "cores", lambda: cores)
        monkeypatch.setattr(worker_plan, "all_cores", lambda: cores)
        monkeypatch.setattr(process_count, "_free_bytes", lambda device: int(free_gib * 2**30))
        return plan_workers(graph, files, workers, settings.selection)

    return plan


@pytest.mark.parametrize(
    ("cores", "workers", "files", "count", "each"),
    [(4, None, 100, 4, 1), (4, None, 2, 2, 2), (4, 3, 100, 3, 1), (4, 8, 100, 8, 1), (1, None, 5, 1, 1)],
)
def test_the_cpu_gets_a_worker_per_core(planned, cores, workers, files, count, each):
    shares = planned("cpu", video_files(files), workers, cores=cores)
    assert shares == WorkerPlan(["cpu"] * count, 1, each, ())


@pytest.mark.parametrize(
    ("codecs", "files", "options", "count", "slots", "reason"),
    [
        ("h264", 1000, {}, 2, 16, "32 files at full speed give about 5,000 frames/s"),
        ("hevc", 1000, {}, 3, 11, "32 files at full speed give about 9,000 frames/s, one process serves about 3,"),
        ("hevc", 14, {}, 3, 11, "14 files at full speed give"),
        ("hevc", 2, {}, 1, 32, "2 files at full speed give about 2,700 frames/s"),
        ("hevc", 1, {}, 1, 32, "1 file at full speed gives"),
        ("h264 hevc", 100, {}, 2, 16, "32 files"),
        ("hevc", 100, {"cores": 8}, 2, 16, "limited by 8 CPU cores, 3 per process"),
        ("hevc", 100, {"cores": 2}, 1, 32, "limited by 2 CPU cores, 3 per process"),
        ("hevc", 100, {"free_gib": 7.0}, 2, 16, "limited by 7.0 GiB of free device memory"),
        ("h264", 1000, {"frames": 252}, 2, 16, "one process serves about 3,300"),
        ("h264", 1000, {"frames": 2520, "end_s": 8.4}, 2, 16, "one process serves about 3,300"),
        ("h264", 1000, {"frames": 2520, "every": 10}, 2, 16, "one process serves about 3,300"),
        ("h264", 1000, {"frames": 2520, "fps": 3.0}, 2, 16, "one process serves about 3,300"),
        ("h264", 1000, {"frames": 2520}, 2, 16, "5,000 frames/s"),
        ("h264", 100, {"formats": ("jsonl", "video")}, 2, 16, "one process serves about 2,"),
        ("hevc", 100, {"workers": 5}, 5, 7, "5 processes on cuda:0: set by --workers"),
        ("h264", 3, {"workers": 5}, 3, 11, "3 processes on cuda:0: set by --workers"),
        ("hevc", 100, {"workers": 1}, 1, 32, "1 process on cuda:0: set by --workers"),
    ],
)
def test_a_gpu_gets_as_many_workers_as_its_files_need(planned, codecs, files, options, count, slots, reason):
    plan = planned("cuda:0", video_files(files), codecs=codecs, **options)
    assert (plan.devices, plan.slots, plan.cores) == (["cuda:0"] * count, slots, None)
    (line,) = plan.reasons
    assert line.startswith(f"{count} process{'es' * (count > 1)} on cuda:0: ")
    assert reason in line


def test_several_gpus_share_the_files(planned):
    two = planned(["cuda:0", "cuda:1"], video_files(1000), codecs="hevc")
    assert (two.devices, two.slots) == (["cuda:0", "cuda:1"] * 2, 16), "eight cores for each"
    assert [line[:22] for line in two.reasons] == ["2 processes on cuda:0:", "2 processes on cuda:1:"]
    assert planned(["cuda:0", "cuda:1"], video_files(1)).devices == ["cuda:0"]
    assert planned(["cuda:0", "cuda:1"], video_files(9), 3).devices == ["cuda:0", "cuda:1", "cuda:0"]


def test_the_plan_is_based_on_an_even_sample_of_files(planned):
    planned("cuda:0", video_files(320))
    assert planned.uris == [f"/v/{n}.mp4" for n in range(0, 320, 10)]
    remote = planned("cuda:0", video_files(14, "s3://bucket/{}.mp4"), codecs="hevc")
    assert "14 files at full speed" in remote.reasons[0], "not cameras: they are copied first"
    assert planned.uris == [], "headers of remote files are not read"


# ------------------------------------------------------------------------------------------------------------- MPS


class Idle:
    """A worker that does nothing and ends when it is asked."""

    def __init__(self, name: str, target: Any, *args: Any, env: dict[str, str] | None = None) -> None:
        self.name = name
        self.env = env
        self.exited = False

    def send(self, order: Any) -> None: ...

    def kill(self) -> None: ...

    def join(self, within_s: float) -> None:
        self.exited = True


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], LocalWorkerPool]:
    """Pools of such workers, where a stand-in of NVIDIA's program starts; see `support/mps_control.py`."""
    control = tmp_path / "bin" / "nvidia-cuda-mps-control"
    control.parent.mkdir()
    control.write_text(f'#!/bin/sh\nexec {sys.executable} {mps_control.__file__} "$@"\n')
    control.chmod(0o700)
    monkeypatch.setenv("PATH", f"{control.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(mps, "_DEFAULT_PIPES", str(tmp_path / "default"))
    monkeypatch.setattr(mps.MpsDaemon.__init__, "__defaults__", (None,))
    monkeypatch.setattr(worker_pool, "Child", Idle)
    settings = BatchSettings(tmp_path / "p.yaml", (), tmp_path / "out", ("jsonl",), FrameSelection())
    return lambda devices: LocalWorkerPool(settings, devices)


def daemons() -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if mps_control.__file__ in (process.info["cmdline"] or [])
    ]


def test_workers_that_share_a_gpu_use_mps(pool):
    logged = collect()
    gpu_workers = pool(["cuda:0", "cuda:1", "cuda:0"])
    gpu_workers.start()
    try:
        environments = [worker.child.env for worker in gpu_workers.pooled]
        pipes = Path(environments[0]["CUDA_MPS_PIPE_DIRECTORY"])
        assert pipes.is_dir()
        assert environments == [environments[0]] * 3
        assert logged == ["the pipeline started an MPS daemon for this run"]
        (daemon,) = daemons()
        daemon.kill()
        gpu_workers._mps._guard.wait(20)
        again = gpu_workers.start_worker(1)
        assert again.env["CUDA_MPS_PIPE_DIRECTORY"] != str(pipes), "a new daemon, as the other one has died"
        assert len(daemons()) == 1
    finally:
        gpu_workers.close()
    assert not daemons()
    assert not pipes.exists()


@pytest.mark.parametrize("devices", [["cpu", "cpu"], ["cuda:0"], ["cuda:0", "cuda:1"]])
def test_mps_is_not_used_without_a_shared_gpu(pool, devices):
    gpu_workers = pool(devices)
    gpu_workers.start()
    assert [worker.child.env for worker in gpu_workers.pooled] == [{}] * len(devices)
    assert not daemons()
    gpu_workers.close()
