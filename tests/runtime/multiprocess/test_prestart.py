"""Worker processes that are started before the plan is known: how many, what they become, and that none is left."""

import os
import subprocess
import sys
import textwrap
import time
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.runtime import prepare
from streamkit.runtime.multiprocess import prestart
from streamkit.runtime.multiprocess.children import CHILD_MODULE, Child, IdleChild, wait
from streamkit.runtime.multiprocess.messages import Fatal
from streamkit.runtime.multiprocess.prestart import (
    end_prestarted,
    likely_processes,
    take_prestarted,
    take_prestarted_daemon,
)

CAMERAS = "".join(f"  c{n}: rtsp://10.0.0.{n}/live\n" for n in range(200))
PACED = "".join(f"  c{n}: {{uri: a.mp4, pace: 30}}\n" for n in range(60))
FILES = "".join(f"  f{n}: {n}.mp4\n" for n in range(14))


@pytest.mark.parametrize(
    ("text", "device", "cores", "number"),
    [
        (f"sources:\n{FILES}", None, 16, 3),
        (f"sources:\n{FILES}", "cuda", 8, 2),
        (f"sources:\n{FILES}", "cpu", 16, 0),
        (f"sources:\n{FILES}", "cuda:0,cuda:1", 16, 0),
        (f"device: cpu\nsources:\n{FILES}", None, 16, 0),
        (f"device: cpu\nsources:\n{FILES}", "cuda", 16, 3),
        (f"device: cuda:0\nsources:\n{FILES}", None, 16, 3),
        (f"device: cuda:1\nsources:\n{FILES}", None, 16, 0),
        (f"device: {{processes: 2}}\nsources:\n{FILES}", None, 16, 2),
        (f"device: {{use: cpu, processes: 2}}\nsources:\n{FILES}", None, 16, 0),
        (f"device: {{use: cuda, processes: auto}}\nsources:\n{FILES}", None, 16, 3),
        (f"sources:\n{CAMERAS}", None, 32, 5),
        (f"sources:\n{CAMERAS}{FILES}", None, 64, 8),
        (f"sources:\n{PACED}", None, 32, 3),
        ("sources:\n  a: rtsp://10.0.0.1/live\n  b: rtsp://10.0.0.2/live\n", None, 16, 1),
        ("sources:\n  a: {uri: b.mp4}\n", None, 16, 1),
        ("sources:\n" + "".join(f"  d{n}: /dev/video{n}\n" for n in range(60)), None, 32, 3),
        ("sources:\n  a: 'clips/*.mp4'\n", None, 16, 3),
        ("sources:\n  a: {uri: .}\n", None, 16, 3),
        ("sources:\n  - a.mp4\n  - b.mp4\n", None, 16, 0),
        ("stages: {}", None, 16, 0),
        ("just text", None, 16, 0),
        ("sources: [", None, 16, 0),
        ("sources: {a: 1.mp4, b: 2.mp4}", None, 16, 1),
        ("sources: {a: 1.mp4, b: 2.mp4, c: 3.mp4}", None, 16, 2),
        ("sources: {a: !!bool x}", None, 16, 0),
        ("x: &x [1, 2]\nsources: {a: {uri: *x}, b: [*x, *x]}", None, 16, 1),
        ("sources: {a: b.mp4, when: 2026-13-45}", None, 16, 0),
        ("[" * 5000, None, 16, 0),
    ],
)
def test_the_number_of_processes_is_estimated_from_the_yaml(text, device, cores, number):
    assert likely_processes(text, device, cores) == number


@pytest.mark.parametrize(("files", "number"), [(14, 1), (60, 3)])
def test_served_files_count_as_cameras(files, number):
    text = "sources:\n" + "".join(f"  f{n}: {n}.mp4\n" for n in range(files))
    assert likely_processes(text, None, 32, realtime=True) == number


@pytest.mark.parametrize(
    ("visible", "package", "driver", "used"),
    [
        (None, True, True, True),
        ("1", True, True, True),
        ("", True, True, False),
        ("-1", True, True, False),
        (None, False, True, False),
        (None, True, False, False),
    ],
)
def test_nothing_is_prestarted_without_a_gpu(visible, package, driver, used, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(prestart.importlib.util, "find_spec", lambda name: object() if package else None)
    monkeypatch.setattr(prestart, "has_driver", lambda: driver)
    assert prestart._may_use_gpu() is used


class Daemon:
    """Stands for MPS."""

    def __init__(self) -> None:
        self.environment = {"CUDA_MPS_PIPE_DIRECTORY": "/p"}
        self.started = 0
        self.closed = 0

    def start(self) -> None:
        self.started += 1

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def early(tmp_path, monkeypatch):
    """A module that notes when it was preloaded, and tells it as the job of a child."""
    (tmp_path / "early.py").write_text(
        textwrap.dedent("""
            import multiprocessing, os, sys, time

            def preload():
                time.sleep(0.3)
                sys.loaded = sys.argv[-1], "LATER" in os.environ
                print("said while it loads", flush=True)

            def tell(link, other=None):
                if other is not None:
                    other.send("here")
                name = multiprocessing.current_process().name
                later, deleted = map(os.environ.get, ("LATER", "DELETED"))
                link.send(("told", (sys.loaded, name, later, deleted, os.getcwd(), sys.argv, sys.path)))
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    import early

    yield early
    sys.modules.pop("early")


def heard(child: Child) -> list[tuple[str, object]]:
    messages = []
    until = time.monotonic() + 60
    while not child.exited:
        assert time.monotonic() < until
        wait([child], 1.0)
        messages += child.receive()
    return messages


def test_a_prestarted_process_becomes_a_child_with_its_parents_state(early, monkeypatch, capfd):
    monkeypatch.setenv("DELETED", "soon")
    idle = IdleChild("worker")
    idle.do_ahead("early", "preload")
    assert psutil.Process(idle.interpreter.process.pid).cmdline()[-1] == "worker"
    monkeypatch.setenv("LATER", "now")
    monkeypatch.chdir("/tmp")
    monkeypatch.delenv("DELETED")
    monkeypatch.setattr(sys, "argv", ["another"])
    monkeypatch.syspath_prepend("/not/there/before")
    ours, theirs = Pipe()
    child = Child("worker/cuda:0/1", early.tell, theirs, idle=idle)
    theirs.close()
    assert child.pid == idle.interpreter.process.pid
    assert ours.recv() == "here"
    ((_, facts),) = heard(child)
    assert facts == (("worker", False), "worker/cuda:0/1", "now", None, "/tmp", ["another"], sys.path)
    child.join(0.0)
    ours.close()
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "said while it loads\n")


def test_a_failed_preload_leaves_the_error_to_the_job(early, capfd):
    idle = IdleChild("worker")
    idle.do_ahead("no_such_module", "preload")
    idle.do_ahead("early", "no_such_function")
    child = Child("worker/0", early.tell, idle=idle)
    (fatal,) = heard(child)
    assert isinstance(fatal, Fatal)
    assert "loaded" in fatal.text
    child.join(0.0)
    assert capfd.readouterr().err == ""


def test_a_dead_prestarted_process_is_not_used_and_the_rest_ends(early, monkeypatch):
    monkeypatch.setattr(prestart, "_idle", [IdleChild("worker") for _ in range(3)])
    first, second, third = (idle.interpreter.process for idle in prestart._idle)
    third.kill()
    third.reap()
    taken = take_prestarted()
    assert taken.interpreter.process is second
    end_prestarted()
    assert first.poll() is not None
    assert take_prestarted() is None
    taken.end()


@pytest.mark.parametrize("busy", [False, True])
def test_prestarted_processes_exit_with_a_killed_parent(busy, early):
    hangs = "one.do_ahead('time', 'sleep', 100)\nfrom streamkit.runtime.multiprocess.children import Child\n"
    hangs += "Child('worker/0', print, idle=one)\n"
    script = "import sys, time\nfrom streamkit.runtime.multiprocess.children import IdleChild\n"
    script += f"one = IdleChild('worker')\n{hangs if busy else ''}"
    script += "print(one.interpreter.process.pid, flush=True)\ntime.sleep(100)"
    paths = os.pathsep.join(sys.path)
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    with parent:
        idle = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([idle], 30)
    assert not idle.is_running()


def child_processes():
    """Return the worker processes of this one."""
    running = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in running if CHILD_MODULE in child.cmdline()]


PIPELINE = """
device: {use: cpu, processes: 2}
sources:
  a: {stage: test_pattern, uri: "test://?width=80&height=48&frames=5"}
  b: {stage: test_pattern, uri: "test://?width=80&height=48&frames=5"}
stages:
  jsonl: {path: "OUT/{source}.jsonl"}
"""


def test_a_run_uses_the_prestarted_processes_it_needs_and_ends_the_others(tmp_path, monkeypatch):
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.replace("OUT", str(tmp_path)))
    monkeypatch.setattr(prestart, "_may_use_gpu", lambda: True)
    monkeypatch.setattr(prestart, "likely_processes", lambda *_: 3)
    monkeypatch.setattr(prestart, "MpsDaemon", Daemon)
    prestart.prestart_workers(path, {})
    pids = [process.pid for process in child_processes()]
    running = prepare.prepare(build(read(path)), path, {})
    assert running.run() == 0
    assert len(pids) == 3
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert take_prestarted() is None
    assert not child_processes()
    assert {len((tmp_path / f"{id_}.jsonl").read_text().splitlines()) for id_ in "ab"} == {5}


def test_a_run_in_a_single_process_ends_prestarted_processes(tmp_path, monkeypatch):
    path = tmp_path / "pipeline.yaml"
    path.write_text(PIPELINE.replace("OUT", str(tmp_path)).replace("processes: 2", "processes: 1"))
    monkeypatch.setattr(prestart, "_may_use_gpu", lambda: True)
    monkeypatch.setattr(prestart, "likely_processes", lambda *_: 2)
    daemons: list[Daemon] = []
    monkeypatch.setattr(prestart, "MpsDaemon", lambda: daemons.append(Daemon()) or daemons[-1])
    prestart.prestart_workers(path, {})
    assert len(child_processes()) == 2
    prepare.prepare(build(read(path)), path, {})
    assert not child_processes()
    until = time.monotonic() + 10
    while not (daemons and daemons[0].closed) and time.monotonic() < until:
        time.sleep(0.01)
    assert [(daemon.started, daemon.closed) for daemon in daemons] == [(1, 1)]


@pytest.mark.parametrize(
    ("sources_yaml", "driver", "set_", "started"),
    [
        (FILES, True, {}, 3),
        (FILES, False, {}, 0),
        (FILES, True, {"device": "cpu"}, 0),
        (FILES, True, {"sources.f0": "b.mp4"}, 0),
        (FILES, True, {"detect.score": "0.5"}, 3),
        ("  a: b.mp4\n", True, {}, 0),
        (None, True, {}, 0),
    ],
)
def test_nothing_is_prestarted_for_a_single_process_or_the_cpu(
    sources_yaml, driver, set_, started, tmp_path, monkeypatch
):
    ahead_calls: list[tuple[str, str]] = []
    path = tmp_path / "pipeline.yaml"
    if sources_yaml is not None:
        path.write_text(f"sources:\n{sources_yaml}")
    monkeypatch.setattr(prestart, "_may_use_gpu", lambda: driver)
    monkeypatch.setattr(prestart, "cores", lambda: 16)
    child = SimpleNamespace(do_ahead=lambda *args: ahead_calls.append(args))
    monkeypatch.setattr(prestart, "IdleChild", lambda name: child)
    monkeypatch.setattr(prestart, "_idle", [])
    monkeypatch.setattr(prestart, "_daemon", [])
    monkeypatch.setattr(prestart, "MpsDaemon", Daemon)
    prestart.prestart_workers(Path(path), set_)
    daemon = take_prestarted_daemon()
    assert (daemon is not None) == bool(started)
    ahead = [("streamkit.runtime.multiprocess.worker", "preload")] * started
    clients = [("streamkit.runtime.multiprocess.mps", "become_client", {"CUDA_MPS_PIPE_DIRECTORY": "/p"}, 0)] * started
    assert ahead_calls == [*ahead, *clients]


def test_a_pipe_is_not_read_before_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(prestart, "_may_use_gpu", lambda: True)
    monkeypatch.setattr(prestart, "likely_processes", lambda *_: 1 / 0)
    os.mkfifo(tmp_path / "pipe")
    prestart.prestart_workers(tmp_path / "pipe", {})
    prestart.prestart_workers(tmp_path, {})
    assert take_prestarted() is None


def test_a_worker_on_a_gpu_preloads_what_only_it_needs():
    code = "from streamkit.runtime.multiprocess.worker import default_registry, preload\nimport sys\n"
    code += "default_registry()\nprint('streamkit.models.fused' in sys.modules)\npreload()\n"
    code += "print(*(name in sys.modules for name in ('cv2', 'streamkit.models.fused')))"
    paths = os.pathsep.join(sys.path)
    completed = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert completed.stdout == "False\nTrue True\n", completed.stderr
