"""Children: they hear and say, leave signals to their parent, and none is left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from streamkit.core.errors import ConfigError, SourceError, StreamkitError
from streamkit.runtime.multiprocess.children import Child, ParentConnection, error_of, how_it_died, wait


def echo(link: ParentConnection, greeting: str) -> None:
    link.send("ready", greeting)
    for kind, value in link.orders():
        if kind == "end":
            return
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "signals":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
        if kind == "raise":
            raise ConfigError("no such thing")
        link.send(kind, value)


@pytest.fixture
def child():
    made = Child("echo", echo, "hello")
    yield made
    made.join(0.0)
    assert not psutil.pid_exists(made.pid)


def heard(child: Child, count: int = 1) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    until = time.monotonic() + 60
    while len(found) < count and not child.over:
        assert time.monotonic() < until
        wait([child], 1.0)
        found += child.hear()
    return found


def test_it_does_what_it_is_told_and_ends(child):
    assert heard(child) == [("ready", "hello")]
    child.tell("say", [1, 2])
    child.tell("signals")  # are not its business
    child.tell("say", "still here")
    assert heard(child, 3) == [("say", [1, 2]), ("signals", None), ("say", "still here")]
    child.tell("end")
    heard(child, 99)
    assert child.over
    assert child.how_it_died == "ended early, with exit code 0"
    child.tell("say", "nobody there")


def test_what_it_said_before_it_was_killed_is_heard(child):
    child.tell("say", "last words")
    child.tell("die")
    assert heard(child, 99) == [("ready", "hello"), ("say", "last words")]
    assert child.over
    assert child.how_it_died == "was killed by SIGKILL"


def test_an_error_comes_over_as_what_it_was(child):
    child.tell("raise")
    kind, told = heard(child, 2)[1]
    error = error_of(*told)
    assert (kind, type(error), str(error)) == ("fatal", ConfigError, "no such thing")


@pytest.mark.parametrize(
    ("code", "told"),
    [(3, "ended early, with exit code 3"), (-11, "was killed by SIGSEGV"), (-99, "was killed by signal 99")],
)
def test_how_it_died(code, told):
    assert how_it_died(code) == told


def test_any_error_of_ours_can_be_told():
    class Own(SourceError):
        pass

    said = []

    class Said(ParentConnection):
        def send(self, kind, value=None):
            said.append((kind, value))

    Said(None).fatal(Own("lost it"))
    Said(None).fatal(ValueError("odd"))
    assert said == [("fatal", ("SourceError", "lost it")), ("fatal", ("StreamkitError", "ValueError: odd"))]
    assert type(error_of(*said[1][1])) is StreamkitError


def test_it_ends_when_its_parent_is_killed(tmp_path):
    (tmp_path / "parent.py").write_text(
        textwrap.dedent("""
            import sys, time
            sys.path.insert(0, sys.argv[1])
            from test_children import echo
            from streamkit.runtime.multiprocess.children import Child

            if __name__ == "__main__":
                child = Child("echo", echo, "hello")
                print(child.pid, flush=True)
                time.sleep(60)
        """)
    )
    parent = subprocess.Popen(
        [sys.executable, tmp_path / "parent.py", os.path.dirname(__file__)], stdout=subprocess.PIPE, text=True
    )
    with parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.02)
