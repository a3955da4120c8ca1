"""Children: they receive and send messages, leave signals to their parent, and none is left behind."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from multiprocessing import Pipe
from types import SimpleNamespace

import psutil
import pytest

from streamkit.core.errors import ConfigError, SourceError, StreamkitError
from streamkit.runtime.multiprocess.children import (
    Child,
    ParentConnection,
    SupervisedWorker,
    Supervisor,
    error_of,
    exit_text,
    wait,
)
from streamkit.runtime.multiprocess.messages import Exited, Fatal, Killed


def echo(link: ParentConnection, greeting: str) -> None:
    link.send(("ready", greeting))
    for kind, value in link.orders():
        if kind == "end":
            return
        if kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "sleep":
            time.sleep(1000)
        if kind == "close":  # as when the system ends a process and still frees its memory
            link.connection.close()
            time.sleep(value)
            os._exit(3)
        if kind == "signals":
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
        if kind == "raise":
            raise ConfigError("no such thing")
        link.send((kind, value))


@pytest.fixture
def child():
    echo_child = Child("echo", echo, "hello")
    yield echo_child
    echo_child.join(0.0)
    assert not psutil.pid_exists(echo_child.pid)


def heard(child: Child, count: int = 1) -> list[object]:
    messages: list[object] = []
    until = time.monotonic() + 60
    while len(messages) < count and not child.exited:
        assert time.monotonic() < until
        wait([child], 1.0)
        messages += child.receive()
    return messages


def test_a_worker_obeys_its_orders_and_ends(child):
    assert heard(child) == [("ready", "hello")]
    child.send(("note", [1, 2]))
    child.send(("signals", None))  # are not its business
    child.send(("note", "still here"))
    assert heard(child, 3) == [("note", [1, 2]), ("signals", None), ("note", "still here")]
    child.send(("end", None))
    heard(child, 99)
    assert child.exited
    assert child.exit_text == "ended early, with exit code 0"
    child.send(("note", "nobody there"))


def test_messages_sent_before_a_kill_are_received(child):
    child.send(("note", "last words"))
    child.send(("die", None))
    assert heard(child, 99) == [("ready", "hello"), ("note", "last words")]
    assert child.exited
    assert child.exit_text == "was killed by SIGKILL"


def test_an_error_keeps_its_type(child):
    child.send(("raise", None))
    fatal = heard(child, 2)[1]
    assert fatal == Fatal("ConfigError", "no such thing")
    error = error_of(fatal.kind, fatal.text)
    assert (type(error), str(error)) == (ConfigError, "no such thing")


@pytest.mark.parametrize(
    ("code", "text"),
    [(3, "ended early, with exit code 3"), (-11, "was killed by SIGSEGV"), (-99, "was killed by signal 99")],
)
def test_exit_codes_are_described(code, text):
    assert exit_text(code) == text


def test_any_error_of_the_package_can_be_sent():
    class CameraError(SourceError):
        pass

    sent = []

    class RecordingConnection(ParentConnection):
        def send(self, message):
            sent.append(message)

    RecordingConnection(None).fatal(CameraError("lost it"))
    RecordingConnection(None).fatal(ValueError("odd"))
    assert sent == [Fatal("SourceError", "lost it"), Fatal("StreamkitError", "ValueError: odd")]
    assert type(error_of(sent[1].kind, sent[1].text)) is StreamkitError


@pytest.fixture
def supervised():
    """Two workers; the second is overdue once it was told to sleep."""
    late: set[SupervisedWorker] = set()
    supervisor = Supervisor[SupervisedWorker](lambda worker, now_s: "it sleeps" if worker in late else None)
    for number in range(2):
        supervisor.workers.append(SupervisedWorker(child=Child(f"echo/{number}", echo, number)))
    workers = list(supervisor.workers)
    yield supervisor, workers, late
    supervisor.close(0.0)
    assert not any(psutil.pid_exists(worker.child.pid) for worker in workers)


def polled(supervisor: Supervisor, count: int) -> list[tuple[SupervisedWorker, object]]:
    events: list[tuple[SupervisedWorker, object]] = []
    until = time.monotonic() + 60
    while len(events) < count:
        assert time.monotonic() < until
        events += supervisor.poll(1.0)
    return events


def test_a_supervisor_reports_messages_and_the_exit_once_after_them(supervised):
    supervisor, (first, second), _ = supervised
    assert set(polled(supervisor, 2)) == {(first, ("ready", 0)), (second, ("ready", 1))}
    first.child.send(("note", "last words"))
    first.child.send(("die", None))
    assert polled(supervisor, 2) == [(first, ("note", "last words")), (first, Exited("was killed by SIGKILL"))]
    assert supervisor.workers == [second]
    assert not psutil.pid_exists(first.child.pid)
    assert list(supervisor.poll(0.1)) == []


def test_a_supervisor_kills_a_worker_that_is_overdue_and_lets_the_owner_replace_it(supervised):
    supervisor, (first, second), late = supervised
    polled(supervisor, 2)
    second.child.send(("note", "before"))
    second.child.send(("sleep", None))
    wait([second.child], 60.0)
    late.add(second)
    assert polled(supervisor, 3) == [
        (second, ("note", "before")),
        (second, Killed("it sleeps")),
        (second, Exited("was killed by SIGKILL")),
    ]
    assert (first.killed, second.killed) == (None, "it sleeps")
    supervisor.workers.append(SupervisedWorker(child=Child("echo/2", echo, "new")))
    assert [message for _, message in polled(supervisor, 1)] == [("ready", "new")]


def test_a_supervisor_waits_for_all_and_kills_those_that_do_not_end(supervised):
    supervisor, (first, second), _ = supervised
    polled(supervisor, 2)
    first.child.send(("end", None))
    second.child.send(("sleep", None))
    first.child._process.reap()
    supervisor.close(0.5)
    assert (first.child.exit_text, second.child.exit_text) == ("ended early, with exit code 0", "was killed by SIGKILL")


class Unexpected(SupervisedWorker):
    unexpected = True


def test_a_death_is_reported_before_the_system_has_freed_the_memory_if_it_is_unexpected() -> None:
    supervisor = Supervisor[SupervisedWorker](lambda worker, now_s: None)
    dead = Unexpected(child=Child("dead", echo, ""))
    ends = SupervisedWorker(child=Child("ends", echo, ""))
    supervisor.workers += [dead, ends]
    polled(supervisor, 2)
    dead.child.send(("close", 1000.0))  # it is killed, as it may only seem to die
    ends.child.send(("close", 2.0))
    assert polled(supervisor, 1) == [(dead, Exited("died, and the system is still freeing its memory"))]
    assert psutil.pid_exists(dead.child.pid)
    assert polled(supervisor, 1) == [(ends, Exited("ended early, with exit code 3"))]
    until_s = time.monotonic() + 20
    while psutil.pid_exists(dead.child.pid):
        assert time.monotonic() < until_s
        list(supervisor.poll(0.05))


def test_exiting_children_are_not_polled_without_a_pause():
    ours, theirs = Pipe(duplex=False)
    theirs.close()
    start_s = time.monotonic()
    wait([SimpleNamespace(_closed=True, _sentinel=ours)], 3600.0)
    assert time.monotonic() - start_s > 0.009
    ours.close()


def test_a_child_ends_when_its_parent_is_killed(tmp_path):
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
