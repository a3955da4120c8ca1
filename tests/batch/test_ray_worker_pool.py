"""Archives on a Ray cluster: two nodes on this machine, of which some are killed."""

import dataclasses
import filecmp
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.messages import collect

import streamkit
from streamkit.batch import ray_cluster, ray_worker_pool
from streamkit.batch.fixed_arithmetic import arithmetic_overrides
from streamkit.batch.inputs import find
from streamkit.batch.job import BatchJob, BatchSettings, FrameSelection
from streamkit.batch.manager import BatchCounts, Manager
from streamkit.batch.pipeline import config_for
from streamkit.batch.ray_cluster import capacity, join
from streamkit.batch.ray_worker_pool import RayWorkerPool
from streamkit.batch.tables import comparable
from streamkit.batch.work import opened
from streamkit.batch.worker_pool import LocalWorkerPool, WorkerDied
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, DeviceError, MissingPackage
from streamkit.runtime.multiprocess.children import ParentConnection

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the cluster's nodes are kept on cores as Linux does it"),
    pytest.mark.quiet,  # a node that gets no core for seconds counts as lost
]

PIPELINE = """
device: cpu
plugins: [parts]
stages:
  detect: {model: demo}
  jsonl: {path: "out/{source}.jsonl"}
"""


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A folder with a pipeline whose files no node finds by itself, and an archive of six short files, one broken."""
    folder = tmp_path_factory.mktemp("archive")
    (folder / "pipeline.yaml").write_text(PIPELINE)
    (folder / "parts").mkdir()
    (folder / "parts" / "own.py").write_text("")
    (folder / "models").mkdir()
    for name in ("demo.yaml", "demo.onnx"):
        shutil.copy(root / "models" / name, folder / "models" / name)
    (folder / "videos").mkdir()
    street = (root / "samples" / "street.mp4").read_bytes()
    for number in range(6):
        (folder / "videos" / f"{number}.mp4").write_bytes(street)
    (folder / "videos" / "broken.mp4").write_bytes(street[:1000])
    return folder


def settings_of(place: Path, out: Path, look: FrameSelection | None = None) -> BatchSettings:
    """Settings as the command makes them, with the arithmetic of the networks."""
    settings = BatchSettings(place / "pipeline.yaml", (), out, ("parquet",), look or FrameSelection(end_s=2.0))
    arithmetic = arithmetic_overrides(config_for(settings), out, Device())
    return dataclasses.replace(settings, overrides=tuple(arithmetic))


def run(
    settings: BatchSettings, videos: Path, pool: Any, look: Callable[[Manager], None] = lambda manager: None
) -> BatchCounts:
    """A whole run, as the command does it."""
    with opened(config_for(settings), settings, find([str(videos)])) as work:
        return Manager(pool, work.jobs, work.commit, on_progress=look).run()


def same(first_out: Path, other: Path) -> bool:
    """Whether two data sets are the same: objects and events to the bit, files row for row."""
    import pyarrow.parquet as parquet

    def parts(out: Path) -> list[str]:
        return sorted(str(path.relative_to(out)) for name in ("objects", "events") for path in (out / name).glob("*"))

    names = parts(first_out)
    rows, others = (comparable(parquet.read_table(out / "files")) for out in (first_out, other))
    return bool(
        names
        and names == parts(other)
        and filecmp.cmpfiles(first_out, other, names, shallow=False)[0] == names
        and rows.equals(others)
    )


@pytest.fixture(scope="session")
def at_home(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set of one worker on this machine."""
    out = tmp_path_factory.mktemp("home") / "out"
    settings = settings_of(place, out)
    counts = run(settings, place / "videos", LocalWorkerPool(settings, ["cpu"], cores=1))
    assert (counts.done, counts.failed) == (6, 1)
    return out


@pytest.fixture
def batch(root: Path, place: Path, here) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the command, in a process of its own or in this one."""

    def run_it(out: Path, *more: str, new_process: bool = False) -> subprocess.CompletedProcess[str]:
        words = ["batch", "pipeline.yaml", "videos", "--end", "2", "--out", out, *more]
        if not new_process:
            return here(*words, cwd=place)
        line = [sys.executable, root / "run.py", *words]
        return subprocess.run(line, cwd=place, capture_output=True, text=True, timeout=120)

    return run_it


def test_a_cluster_gives_the_same_data_set_as_a_local_run(ray_nodes, batch, at_home, tmp_path):
    completed = batch(tmp_path / "out", "--ray", ray_nodes.address, new_process=True)
    assert completed.returncode == 1, completed.stderr  # one is broken
    assert re.search(r"done +6 files", completed.stderr)
    assert re.search(r"failed +1 files? +no_video 1", completed.stderr)
    assert "raylet" not in completed.stdout + completed.stderr
    assert same(at_home, tmp_path / "out")
    assert not list((tmp_path / "out").glob(".ray-*"))
    again = batch(tmp_path / "out", "--ray", "auto")
    assert again.returncode == 1
    assert re.search(r"skipped +6 files", again.stderr)


@pytest.mark.long
def test_a_run_survives_lost_workers_and_nodes_and_uses_a_new_node(ray_nodes, place, at_home, tmp_path):
    settings = settings_of(place, tmp_path / "out")
    lost = []

    def harm(manager: Manager) -> None:
        if not lost and manager.counts.done >= 1 and (workers := ray_nodes.workers("a")):
            lost.append(workers[0].pid)
            workers[0].kill()
        ready = [worker for worker in pool.pooled if worker.ready]
        busy = ready and all(worker.jobs for worker in ready)  # or nobody would notice
        if len(lost) == 1 and busy and ray_nodes.workers("b"):
            lost.append("b")
            ray_nodes.lose("b")
            ray_nodes.add("b")

    pool = RayWorkerPool(settings, ray_nodes.address)
    logged = collect()
    counts = run(settings, place / "videos", pool, harm)
    assert len(lost) == 2
    assert (counts.done, counts.failed) == (6, 1)
    died = " and ".join(sorted(counts.workers_lost))
    assert re.fullmatch(
        r"the worker on \S+ (cannot be reached|is lost) .* and the worker on \S+ was killed or crashed", died
    )
    assert sorted(logged) == [f"{how}; a new worker replaces it" for how in sorted(counts.workers_lost)]
    assert same(at_home, tmp_path / "out")


def test_an_unreachable_cluster_is_reported(batch, tmp_path):
    completed = batch(tmp_path / "out", "--ray", "127.0.0.1:9")
    assert completed.returncode == 2
    assert re.search(
        r"^--ray 127.0.0.1:9: no server answers \S.*: Connection refused\n\Z", completed.stderr, re.MULTILINE
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nowhere.invalid:6379", "no server answers .*: Name or service not known"),
        ("ray://127.0.0.1:10001", "give the cluster's head as host:port"),
        ("head", "Invalid address format: head"),
        ("127.0.0.1:99999", "no server answers "),
    ],
)
def test_invalid_addresses_are_refused(tmp_path, address, message):
    start_s = time.monotonic()
    with pytest.raises(ConfigError, match=f"--ray {address}: .*{message}"):
        join(address, tmp_path)
    assert time.monotonic() - start_s < 8


def test_missing_ray_is_reported(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackage, match=r"--ray needs the package ray; .*\[ray\]"):
        join("auto", tmp_path)


def test_the_number_of_workers_fits_the_nodes():
    nodes = {"head": {"memory": 1e9}, "a": {"CPU": 16.0, "GPU": 2.0}, "b": {"CPU": 4.0}}
    assert capacity(nodes, 1, 0) == 20
    assert capacity(nodes, 3, 0) == 6
    assert capacity(nodes, 1, 1 / 3) == 6  # three for each GPU
    assert capacity({"a": {"CPU": 2.0, "GPU": 8.0}}, 1, 1 / 3) == 2


def test_a_server_that_is_not_ray_is_reported(tmp_path, monkeypatch):
    """A server of another kind, that takes the connection and says nothing."""
    monkeypatch.setattr(ray_cluster, "_ANSWER_S", 1.0)
    with socket.create_server(("", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"--ray {address}: the server at .* does not answer as a Ray cluster"):
            join(address, tmp_path)


@pytest.mark.long
def test_a_missing_gpu_is_reported(ray_nodes, place, tmp_path):
    with pytest.raises(DeviceError, match="no node of the Ray cluster has a GPU"):
        RayWorkerPool(settings_of(place, tmp_path / "out"), ray_nodes.address, device="cuda")


@pytest.mark.long
def test_workers_are_requested_up_to_the_number_of_files(ray_nodes, place, tmp_path):
    settings = settings_of(place, tmp_path / "out")
    pool = RayWorkerPool(settings, ray_nodes.address)
    try:
        names = []
        counts = run(
            settings,
            place / "videos" / "broken.mp4",
            pool,
            lambda manager: names.append([worker.name.split()[-1] for worker in pool.workers()]),
        )
        assert counts.failed == 1
        assert max(map(len, names)) == 1
        assert {name for row in names for name in row} == {"1"}
        assert pool._wanted == 2
    finally:
        pool.close()


def test_a_node_with_another_version_or_folder_is_reported(place, tmp_path, monkeypatch):
    settings = settings_of(place, tmp_path)
    link = ParentConnection.__new__(ParentConnection)  # nothing is logged on it
    with pytest.raises(ConfigError, match=r"streamkit is .* there, and 0\.0 where"):
        ray_worker_pool._run(link, tmp_path / "mark", "0.0", settings, "cpu", 1, 1, (0, 1))
    monkeypatch.setattr(ray_worker_pool, "_VISIBLE_WITHIN_S", 0.1)
    with pytest.raises(ConfigError, match="on a file system that all nodes share"):
        ray_worker_pool._run(link, tmp_path / "mark", streamkit.__version__, settings, "cpu", 1, 1, (0, 1))


@pytest.fixture
def pool(ray_nodes, place, tmp_path) -> Iterator[RayWorkerPool]:
    """A pool of one worker at most, that has started, and whose messages are kept in `logged`."""
    (tmp_path / "out").mkdir()
    pool = RayWorkerPool(settings_of(place, tmp_path / "out"), ray_nodes.address, workers=1)
    pool.logged = collect()
    pool.start()
    yield pool
    pool.close()


def await_(pool: RayWorkerPool, what: Callable[[], bool]) -> list[Any]:
    """Go on until something is so; what came to an end meanwhile."""
    outcomes = []
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        outcomes += pool.wait(0.5)
    return outcomes


def jobs(place: Path) -> list[BatchJob]:
    return [BatchJob(file, file.name) for file in find([str(place / "videos")])]


def unfit(pool: RayWorkerPool) -> None:
    """From now on nodes have another version, as it seems; another folder comes to the same, a little later."""
    mark, _, *rest = pool._args
    pool._args = mark, "0.0", *rest


@pytest.mark.long
def test_a_run_without_a_usable_node_ends(pool, place):
    unfit(pool)
    pool.submit(jobs(place)[0])
    with pytest.raises(ConfigError, match=r"on \S+: streamkit is \S+ there, and 0\.0 where the run was started"):
        await_(pool, lambda: False)


@pytest.mark.long
def test_an_unusable_node_is_skipped(pool, place):
    first, *more = jobs(place)
    pool.submit(first)
    await_(pool, lambda: any(worker.ready for worker in pool.workers()))
    unfit(pool)
    pool._requested_workers = pool._wanted = 2
    for job in more:
        pool.submit(job)
    assert len(pool.workers()) == 2
    await_(pool, lambda: len(pool.workers()) == 1)
    assert [text for text in pool.logged if text.endswith("where the run was started; the run continues without it")]
    assert pool.workers()[0].ready


@pytest.mark.long
def test_a_frozen_worker_is_killed(pool, ray_nodes, place):
    pool._timeout_s = 3.0
    pool.submit(jobs(place)[0])
    await_(pool, lambda: any(worker.ready for worker in pool.workers()))
    (process,) = ray_nodes.workers("a") + ray_nodes.workers("b")
    process.suspend()
    pool.submit(jobs(place)[1])
    outcomes = await_(pool, lambda: len(pool.logged) > 0)
    assert any(isinstance(outcome, WorkerDied) and outcome.kind == "timeout" for outcome in outcomes)
    await_(pool, lambda: any(worker.ready for worker in pool.workers()))  # another took its place
    process.wait(20)  # Ray has seen to it


# ------------------------------------------------------------------------------------------------------- figures


def cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


@pytest.fixture
def only_a(ray_nodes) -> Iterator[None]:
    """The node `a` alone, and kept on one core; afterwards both nodes run on any."""
    for name in "ab":
        ray_nodes.lose(name)
    ray_nodes.add("a", core=0)
    yield
    for name in "ab":
        if name in ray_nodes.nodes:
            ray_nodes.lose(name)
        ray_nodes.add(name)


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.timeout(1500)
def test_two_nodes_are_faster_than_one(ray_nodes, only_a, place, tmp_path):
    """72 files of four seconds, from the moment on when the first worker is ready.

    It wants a machine that does nothing else. The second worker is ready about a second after the first, and the test
    itself takes CPU time from both: with many files neither counts much. The CPU time of the workers is printed
    beside it. Their sums tell whether the work itself became more; the halves follow the cores, since whoever is free
    takes the next file.
    """
    (videos := tmp_path / "videos").mkdir()
    for number in range(72):
        os.link(place / "videos" / "0.mp4", videos / f"{number:02}.mp4")

    def measured(out: Path, names: str) -> tuple[float, list[float]]:
        start_s: list[float] = []
        used_s = dict.fromkeys(names, 0.0)

        def look(manager: Manager) -> None:
            if not start_s and any(worker.ready for worker in manager.workers()):
                start_s.append(time.monotonic())
            for name in names:
                used_s[name] = max(used_s[name], cpu_s(ray_nodes.workers(name)))

        settings = settings_of(place, out, FrameSelection(end_s=4.0))
        assert run(settings, videos, RayWorkerPool(settings, ray_nodes.address), look).done == 72
        return time.monotonic() - start_s[0], list(used_s.values())

    single_s, single_cpu = measured(tmp_path / "one", "a")
    ray_nodes.add("b", core=1)
    two_s, two_cpu = measured(tmp_path / "two", "ab")
    assert same(tmp_path / "one", tmp_path / "two")
    print(f"\none node {single_s:.1f} s, two nodes {two_s:.1f} s: {single_s / two_s:.2f} times")
    print(f"CPU s of the workers: one node {single_cpu}, two nodes {two_cpu}")
    assert single_s / two_s >= 1.8
