"""The MPS daemon of a run: started in its own folders, reused where there is one, and never left behind.

A stand-in for NVIDIA's program shows this without a GPU; see `support/mps_control.py`.
"""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from support import mps_control

from streamkit.runtime.multiprocess import mps, mps_guard
from streamkit.runtime.multiprocess.mps import MpsDaemon, client_trouble, find_control

PARENT = """
import sys, time
from streamkit.runtime.multiprocess.mps import MpsDaemon
daemon = MpsDaemon(check=None)
daemon.start()
print(daemon.environment["CUDA_MPS_PIPE_DIRECTORY"], flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The stand-in on PATH; folders of daemons in `tmp_path`; nothing is left running."""
    folder = tmp_path / "bin"
    folder.mkdir()
    path = folder / "nvidia-cuda-mps-control"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {mps_control.__file__} "$@"\n')
    path.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_MPS_PIPE_DIRECTORY", raising=False)
    monkeypatch.setattr(mps, "_DEFAULT_PIPES", str(tmp_path / "default"))
    yield path
    left = [process for process in psutil.process_iter() if _runs(process, mps_control.__file__)]
    for process in left:
        process.kill()
    assert not left


def _runs(process: psutil.Process, what: str) -> bool:
    try:
        return any(what in word for word in process.cmdline())
    except psutil.Error:
        return False


def _alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _until_ended(*pids: int, within_s: float = 20) -> bool:
    until_s = time.monotonic() + within_s
    while any(map(_alive, pids)) and time.monotonic() < until_s:
        time.sleep(0.05)
    return not any(map(_alive, pids))


def _folder(daemon: MpsDaemon) -> Path:
    return Path(daemon.environment["CUDA_MPS_PIPE_DIRECTORY"]).parent


def _processes(parent: int | None = None) -> tuple[int, int]:
    """Return the guard that `parent`, by default this process, has started last, and its daemon."""
    children = psutil.Process(parent).children()
    guard = max((child for child in children if _runs(child, "mps_guard")), key=psutil.Process.create_time)
    daemon = min(guard.children(), key=psutil.Process.create_time)
    return guard.pid, daemon.pid


def _server(environment: Mapping[str, str]) -> int:
    return int((Path(environment["CUDA_MPS_LOG_DIRECTORY"]) / "control.log").read_text().split()[1])


def test_a_started_daemon_ends_with_the_run(control: Path) -> None:
    with MpsDaemon(check=None) as daemon:
        assert (daemon.active, daemon.own, daemon.running) == (True, True, True)
        assert daemon.reason == "started an MPS daemon for this run"
        assert sorted(daemon.environment) == ["CUDA_MPS_LOG_DIRECTORY", "CUDA_MPS_PIPE_DIRECTORY"]
        folder = _folder(daemon)
        for path in (folder, folder / "pipe", folder / "log"):
            assert stat.S_IMODE(path.stat().st_mode) == 0o700
        _, pid = _processes()
        server = _server(daemon.environment)
        assert mps_guard.ask(str(control), "get_server_list", {**os.environ, **daemon.environment}) == f"{server}\n"
        assert os.getsid(pid) == pid, "Ctrl-C of a terminal does not reach it"
    assert (daemon.active, daemon.own, daemon.running, daemon.environment) == (False, False, False, {})
    assert not folder.exists()
    assert not _alive(pid)
    assert not _alive(server)
    daemon.close()  # again does nothing


def test_no_daemon_is_left_when_the_run_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    folder = Path(parent.stdout.readline().strip()).parent
    guard, daemon = _processes(parent.pid)
    server = _server(mps_guard.variables(folder))
    assert all(map(_alive, (daemon, guard, server)))
    for number in (signal.SIGINT, signal.SIGTERM):  # as a service manager sends it to every process of a service
        os.kill(guard, number)
        os.kill(daemon, number)
    time.sleep(0.3)
    assert all(map(_alive, (daemon, guard))), "the parent decides when they end"
    parent.kill()
    parent.communicate()
    assert _until_ended(daemon, guard, server)
    assert not folder.exists()


def test_no_daemon_is_left_when_the_run_ends_before_its_answer(control: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    guard = subprocess.Popen(
        [sys.executable, mps_guard.__file__, str(control), str(tmp_path / "folder")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert guard.stdin is not None
    assert guard.stdout is not None
    until_s = time.monotonic() + 20
    daemons = list[psutil.Process]()
    while not daemons and time.monotonic() < until_s:
        daemons = psutil.Process(guard.pid).children()
    guard.stdin.close()
    guard.stdout.close()
    guard.wait(20)
    assert guard.stderr is not None
    assert guard.stderr.read() == b""
    guard.stderr.close()
    assert daemons
    assert _until_ended(*(daemon.pid for daemon in daemons))
    assert not (tmp_path / "folder").exists()


def test_a_guard_whose_folder_is_removed_ends_without_an_error(control: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    guard = subprocess.Popen(
        [sys.executable, mps_guard.__file__, str(control), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert guard.stdout is not None
    word, pid = guard.stdout.readline().split()
    assert word == "ready"
    shutil.rmtree(folder)  # as a cleaner of /tmp does
    _, error = guard.communicate(timeout=20)
    assert (guard.returncode, error) == (0, "")
    assert _until_ended(int(pid))


def test_a_daemon_that_ignores_quit_is_killed_with_its_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPS_STAND_IN", "deaf")
    with MpsDaemon(check=None) as daemon:
        folder = _folder(daemon)
        _, pid = _processes()
        server = _server(daemon.environment)
    assert not folder.exists()
    assert _until_ended(pid, server, within_s=0)


def test_a_guard_that_hangs_is_killed_with_its_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = MpsDaemon(check=None)
    daemon.start()
    monkeypatch.setattr(mps, "_GUARD_S", 0.5)
    guard, pid = _processes()
    folder = _folder(daemon)
    os.kill(guard, signal.SIGSTOP)
    daemon.close()
    assert _until_ended(guard, pid)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("fails", "its daemon does not start (Failed to start control daemon: operation not permitted)"),
        ("silent", "its daemon does not start (it does not answer)"),
    ],
)
def test_the_run_continues_without_a_daemon_that_cannot_start(
    how: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPS_STAND_IN", how)
    folder = tempfile.mkdtemp()  # `tmp_path` is too long for MPS
    monkeypatch.setattr("tempfile.tempdir", folder)
    daemon = MpsDaemon(check=None)
    with daemon:
        assert daemon.reason == f"runs without MPS, processes take turns on the GPU: {reason}"
        assert (daemon.active, daemon.own, daemon.environment) == (False, False, {})
    Path(folder).rmdir()  # it is empty


def test_the_run_continues_without_the_mps_program(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "_PLACES", ())
    control.unlink()
    with MpsDaemon(check=None) as daemon:
        assert daemon.reason.endswith("processes take turns on the GPU: nvidia-cuda-mps-control is not installed")
        assert not daemon.active


def test_a_daemon_without_usable_clients_is_ended() -> None:
    seen: list[Mapping[str, str]] = []

    def check(environment: Mapping[str, str]) -> str:
        seen.append(environment)
        assert _alive(_server(environment))
        return "CUDA fails with it (error 805)"

    with MpsDaemon(check) as daemon:
        assert daemon.reason == "runs without MPS, processes take turns on the GPU: CUDA fails with it (error 805)"
        assert (daemon.active, daemon.environment, len(seen)) == (False, {}, 1)
        assert not Path(seen[0]["CUDA_MPS_PIPE_DIRECTORY"]).exists()


@pytest.mark.parametrize("default", [False, True])
def test_an_existing_daemon_is_reused_and_not_ended(
    default: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with MpsDaemon(check=None) as other:
        pipes = other.environment["CUDA_MPS_PIPE_DIRECTORY"]
        if default:
            monkeypatch.setattr(mps, "_DEFAULT_PIPES", pipes)
            monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))  # no daemon listens here
        else:
            monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", pipes)
        with MpsDaemon(check=None) as daemon:
            assert (daemon.active, daemon.own, daemon.running) == (True, False, True)
            assert daemon.environment == {"CUDA_MPS_PIPE_DIRECTORY": pipes}
            assert daemon.reason == f"uses the MPS daemon of {pipes}"
            assert daemon.restart()
        assert other.running


def test_an_abandoned_folder_of_a_daemon_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "control").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    with MpsDaemon(check=None) as daemon:
        assert (daemon.active, daemon.own) == (True, True)


def test_a_daemon_of_the_host_is_used_without_the_control_program(
    control: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mps, "_PLACES", ())
    control.unlink()
    (tmp_path / "control").touch()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    with MpsDaemon(check=None) as daemon:
        assert (daemon.active, daemon.own) == (True, False)


def test_a_restart_starts_a_new_daemon() -> None:
    with MpsDaemon(check=None) as daemon:
        before = dict(daemon.environment)
        _, pid = _processes()
        os.kill(pid, signal.SIGKILL)
        until_s = time.monotonic() + 20
        while daemon.running and time.monotonic() < until_s:
            time.sleep(0.05)
        assert not daemon.running, "a daemon that has died is noticed"
        assert daemon.restart()
        assert daemon.running
        assert daemon.environment != before
        assert _processes()[1] != pid


def test_the_work_of_a_client_is_terminated_on_its_server() -> None:
    daemon = MpsDaemon(check=None)
    daemon.terminate_client(123)  # without a daemon
    with daemon:
        daemon.terminate_client(123)
        log = Path(daemon.environment["CUDA_MPS_LOG_DIRECTORY"]) / "control.log"
        assert log.read_text().splitlines()[-2:] == [
            "get_server_list",
            f"terminate_client {_server(daemon.environment)} 123",
        ]


def test_a_long_temporary_folder_is_avoided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr(mps.tempfile, "gettempdir", lambda: str(long))
    with MpsDaemon(check=None) as daemon:
        assert daemon.active, daemon.reason


def test_a_client_reports_whether_cuda_works(monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := client_trouble({})) is not None:
        assert reason.startswith("CUDA fails with it (error ")
    monkeypatch.setattr(mps, "_CLIENT", "print(805)")
    assert client_trouble({}) == "CUDA fails with it (error 805)"
    monkeypatch.setattr(mps, "_CLIENT", "import os; print(int(os.environ['ONE'] != '1'))")
    assert client_trouble({"ONE": "1"}) is None


@pytest.mark.gpu
def test_a_real_daemon_serves_a_client(monkeypatch: pytest.MonkeyPatch, control: Path) -> None:
    control.unlink()
    if find_control() is None:
        pytest.skip("nvidia-cuda-mps-control is not installed")
    with MpsDaemon() as daemon:
        if not daemon.active:
            pytest.skip(daemon.reason)
        environment = {**os.environ, **daemon.environment}
        servers = mps_guard.ask(str(find_control()), "get_server_list", environment)
        _, pid = _processes()
        folder = _folder(daemon)
        assert daemon.own
        assert servers
        assert servers.split(), "the check has started a server"
        assert daemon.restart()
    assert _until_ended(pid, *map(int, servers.split()))
    assert not folder.exists()
