"""A child's interpreter: it has what its parent has, and does not run the user's script again."""

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamkit.runtime.multiprocess import children
from streamkit.runtime.multiprocess.children import CHILD_MODULE, STOP_SIGNALS, Child, ParentConnection, wait
from streamkit.runtime.multiprocess.messages import Fatal


def tell(link: ParentConnection, *names: str) -> None:
    import __main__

    facts = {
        "main": __main__.__spec__.name,
        "name": multiprocessing.current_process().name,
        "path": sys.path,
        "argv": sys.argv,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "signals": {signal.getsignal(number) for number in STOP_SIGNALS},
        "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        "stdin": os.readlink("/proc/self/fd/0"),
    }
    link.send(("told", [facts[name] for name in names]))
    next(link.orders())


def pass_on(link: ParentConnection, pairs: dict[str, list[Connection]]) -> None:
    for connection in pairs["in"]:
        pairs["out"][0].send((connection.recv(), connection.writable))


def leave_a_process(link: ParentConnection, out: Connection) -> None:
    left = subprocess.Popen(["sleep", "100"], close_fds=False, stdout=subprocess.DEVNULL)
    link.send(("left", left.pid))
    os._exit(3)


def crash(link: ParentConnection) -> None:
    faulthandler._sigsegv()  # type: ignore[attr-defined]


def leave_at_once(link: ParentConnection) -> None:
    os._exit(3)


class Vanishing:
    """Its class is gone when the child looks for it."""


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    started: list[Child] = []

    def start(*args: Any, **options: Any) -> Child:
        started.append(Child(*args, **options))
        return started[-1]

    yield start
    for child in started:
        child.join(0.0)


def heard(child: Child, within_s: float = 60.0) -> list[tuple[str, Any]]:
    """Its messages until it has exited, or has sent one."""
    messages: list[tuple[str, Any]] = []
    until = time.monotonic() + within_s
    while not messages and not child.exited:
        assert time.monotonic() < until
        wait([child], 1.0)
        messages += child.receive()
    return messages


def test_a_child_has_its_parents_state_and_a_separate_main_module(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "plugins")
    (tmp_path / "random.py").write_text("raise SystemExit('the working folder is not a place for modules')")
    child = start("worker/cuda:0/1", tell, "main", "name", "path", "argv", "folder", "stdin")
    expected = [CHILD_MODULE, "worker/cuda:0/1", sys.path, sys.argv, str(tmp_path), "/dev/null"]
    assert heard(child) == [("told", expected)]
    command = psutil.Process(child.pid).cmdline()
    assert (command[0], command[-1]) == (sys.executable, "worker/cuda:0/1")


def test_a_child_gets_its_parents_environment_plus_additions(start, monkeypatch):
    monkeypatch.setenv("OVERRIDDEN", "before")
    monkeypatch.delenv("ADDED", raising=False)
    monkeypatch.setenv("PYTHONPATH", "/some/where")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    child = start("teller", tell, "environment", env={"OVERRIDDEN": "now", "ADDED": "é"})
    ((_, (environment,)),) = heard(child)
    assert environment == {**os.environ, "OVERRIDDEN": "now", "ADDED": "é"}
    assert os.environ["OVERRIDDEN"] == "before"


def test_connections_in_its_arguments_are_inherited(start):
    first, first_theirs = Pipe()
    second, second_theirs = Pipe()
    answers, out = Pipe(duplex=False)
    receiving, sending = Pipe(duplex=False)
    child = start("passer", pass_on, {"in": [first_theirs, second_theirs, receiving], "out": [out]})
    for connection in (first_theirs, second_theirs, out, receiving):
        connection.close()
    for n, connection in enumerate((first, second, sending)):
        connection.send(n)
    assert [answers.recv() for _ in range(3)] == [(0, True), (1, True), (2, False)]
    with pytest.raises(EOFError):  # no other process holds the other end
        answers.recv()
    assert heard(child) == []
    for connection in (first, second, sending, answers):
        connection.close()


def test_signals_before_the_start_of_the_job_are_ignored(start):
    child = start("teller", tell, "signals", "blocked")
    for number in STOP_SIGNALS:
        os.kill(child.pid, number)
    assert heard(child) == [("told", [{signal.SIG_IGN}, set()])]


def test_a_native_crash_logs_the_stacks(start, capfd):
    child = start("crash", crash)
    assert heard(child) == []
    assert child.exit_text == "was killed by SIGSEGV"
    stacks = capfd.readouterr().err
    assert "Fatal Python error: Segmentation fault" in stacks
    assert "test_child.py" in stacks
    assert " in crash" in stacks


def test_a_child_that_dies_before_reading_its_job_does_not_block_the_parent(start, monkeypatch, capfd):
    monkeypatch.setattr(children, "CHILD_MODULE", "streamkit.no_such_module")
    child = start("teller", tell, "x" * 10_000_000)
    assert heard(child) == []
    assert child.exit_text == "ended early, with exit code 1"
    assert "No module named streamkit.no_such_module" in capfd.readouterr().err


def test_an_unreadable_job_is_an_error_of_the_run(start, monkeypatch, capfd):
    monkeypatch.setattr(sys.modules[__name__], "tell", Vanishing, raising=True)
    monkeypatch.setattr(Vanishing, "__module__", "no_such_module")
    monkeypatch.setitem(sys.modules, "no_such_module", sys.modules[__name__])
    child = start("teller", Vanishing)
    assert heard(child) == [Fatal("StreamkitError", "ModuleNotFoundError: No module named 'no_such_module'")]
    assert capfd.readouterr().err == ""


def test_arguments_that_cannot_be_sent_start_no_process(start):
    before = psutil.Process().children()
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        start("teller", tell, lambda: None)
    assert psutil.Process().children() == before


def test_a_surviving_grandchild_does_not_hide_the_end_of_a_child(start):
    frames, out = Pipe(duplex=False)
    child = start("leaver", leave_a_process, out)
    out.close()
    ((_, left),) = heard(child)
    try:
        heard(child, 20.0)
        assert child.exit_text == "ended early, with exit code 3"
        with frames, pytest.raises(EOFError):
            frames.recv()
        child.join(3600.0)
    finally:
        os.kill(left, signal.SIGKILL)


def test_a_signal_handler_may_join_a_child_while_its_exit_code_is_read(start, monkeypatch):
    child = start("leaver", leave_at_once)
    interrupted = []
    waitpid = os.waitpid

    def interrupted_waitpid(pid: int, options: int) -> tuple[int, int]:
        status = waitpid(pid, options)
        if status[0] and not interrupted:
            interrupted.append(True)
            child.join(0.0)
            child.kill()
        return status

    monkeypatch.setattr(os, "waitpid", interrupted_waitpid)
    heard(child)
    assert interrupted
    assert child.exited
    assert child.exit_text == "ended early, with exit code 3"


def test_children_are_killed_together(start):
    started = [start("teller", tell, "name") for _ in range(2)]
    children.kill_all()
    for child in started:
        heard(child, 20.0)
        assert child.exit_text == "was killed by SIGKILL"


def test_a_child_without_a_parent_exits_silently():
    closed_end, control = Pipe()
    closed_end.close()
    with control:
        completed = subprocess.run(
            [sys.executable, "-m", CHILD_MODULE, str(control.fileno()), str(control.fileno()), "orphan"],
            pass_fds=[control.fileno()],
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert (completed.returncode, completed.stdout, completed.stderr) == (1, "", "")


SCRIPT = """
import sys
sys.path.insert(0, ROOT)
with open("side-effects", "a") as file:
    file.write("once\\n")

from pathlib import Path
from streamkit.config.graph import build
from streamkit.config.pipeline_config import read
from streamkit.runtime.prepare import prepare

running = prepare(build(read(Path("p.yaml"))), Path("p.yaml"), {})
code = running.run()
from multiprocessing import resource_tracker
print(code, len(running.pids), resource_tracker._resource_tracker._fd)
"""
YAML = """
device: {use: cpu, processes: 2}
sources:
  a: test://?width=96&height=64&fps=10&frames=5
  b: test://?width=96&height=64&fps=10&frames=5
stages:
  jsonl: {path: "out/{source}.jsonl"}
"""


@pytest.mark.parametrize("flags", [[], ["-E"], ["-X", "dev", "-O"]])
def test_a_script_without_a_main_guard_runs_once(root: Path, tmp_path, flags):
    """It runs a checkout that is not installed, from another folder."""
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT).replace("ROOT", repr(str(root))))
    (tmp_path / "p.yaml").write_text(YAML)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    completed = subprocess.run(
        [sys.executable, "-W", "error", *flags, "script.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "Warning" not in completed.stderr
    assert "Traceback" not in completed.stderr
    assert (completed.returncode, completed.stdout.split()) == (0, ["0", "3", "None"])
    assert (tmp_path / "side-effects").read_text() == "once\n"
    for source in "ab":
        assert (tmp_path / "out" / f"{source}.jsonl").read_text().count("\n") == 5
