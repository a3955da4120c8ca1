"""Children played by the test: what the parent makes of pipes, exits and clocks, and the child of orders and errors."""

import os
from collections.abc import Iterator
from multiprocessing.connection import Pipe
from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.core import errors
from streamkit.core.errors import ConfigError, ModelError, Problem, SourceError, StreamkitError
from streamkit.runtime.multiprocess import children as module
from streamkit.runtime.multiprocess.children import (
    Child,
    ParentConnection,
    SupervisedWorker,
    Supervisor,
    end_at_once,
    error_of,
    exit_text,
    wait,
)
from streamkit.runtime.multiprocess.messages import Exited, Fatal, Killed


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (None, "ended early, with exit code None"),
        (0, "ended early, with exit code 0"),
        (1, "ended early, with exit code 1"),
        (-1, "was killed by SIGHUP"),
        (-2, "was killed by SIGINT"),
        (-100, "was killed by signal 100"),
    ],
)
def test_exit_codes_around_zero(code: int | None, told: str) -> None:
    assert exit_text(code) == told


class Process:
    """A process that is alive until the test says otherwise."""

    def __init__(self) -> None:
        self.alive = True
        self.calls: list[Any] = []

    def poll(self, within_s: float | None = None) -> int | None:
        if within_s is not None:  # it is its own sentinel
            self.calls.append(within_s)
        return None if self.alive else 0

    def kill(self) -> None:
        self.calls.append("kill")
        self.alive = False

    def reap(self) -> None:
        self.calls.append("reap")


@pytest.fixture
def played() -> Iterator[tuple[Child, Process, Any]]:
    """A child without a process, and the other end of its pipe."""
    child, process = Child.__new__(Child), Process()
    child._control, theirs = Pipe()
    child._closed, child._process, child._sentinel = False, process, process  # type: ignore[assignment]
    yield child, process, theirs
    child._control.close()
    theirs.close()


def test_a_child_has_exited_once_its_process_is_gone_and_its_pipe_is_read(played: Any) -> None:
    child, process, theirs = played
    theirs.send(("note", 1))
    process.alive = False
    assert not child.exited  # there may be messages still
    assert list(child.receive()) == [("note", 1)]
    assert not child.exited
    theirs.close()
    assert list(child.receive()) == []
    assert child.exited
    process.alive = True
    assert not child.exited
    child._control = SimpleNamespace(close=lambda: None)  # nothing is asked of it any more
    assert list(child.receive()) == []


def test_nothing_is_awaited_where_nothing_has_come(played: Any) -> None:
    child, _, _theirs = played
    child._control.close()
    child._control = SimpleNamespace(poll=lambda: False, close=lambda: None)  # and no `recv`, which would wait
    assert list(child.receive()) == []
    assert not child.exited


def test_a_joined_child_has_exited_although_its_pipe_was_not_read(played: Any) -> None:
    child, process, theirs = played
    theirs.send(("note", 1))
    child.join(2.5)
    assert process.calls == [2.5, "kill", "reap"]
    assert child.exited
    assert list(child.receive()) == []
    child.send(("note", None))  # nobody hears it
    child.join(0.0)


def test_waiting_looks_at_the_pipe_and_then_at_the_process(played: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    child, process, _ = played
    awaited: list[Any] = []
    monkeypatch.setattr(module.connection, "wait", lambda what, timeout_s: awaited.append((what, timeout_s)))
    monkeypatch.setattr(module, "time", SimpleNamespace(sleep=awaited.append))
    wait([child], 1.5)
    child._closed = True
    wait([child], 2.5)
    wait([], 3.5)
    assert awaited == [([child._control], 1.5), ([process], 2.5), 3.5]


# ------------------------------------------------------------------------------------------------------- supervision


class Said:
    """A child for a supervisor."""

    def __init__(self, *messages: Any) -> None:
        self.messages, self.exited, self.exit_text = list(messages), False, "was lost"
        self.joined: list[float] = []
        self.kills = 0

    def receive(self) -> Iterator[Any]:
        while self.messages:
            yield self.messages.pop(0)

    def join(self, within_s: float) -> None:
        self.joined.append(within_s)

    def kill(self) -> None:
        self.kills += 1


def test_a_supervisor_tells_apart_what_is_overdue_and_what_has_exited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 40.0))
    late: dict[SupervisedWorker, str] = {}
    asked: list[float] = []
    waited: list[Any] = []

    def overdue(worker: SupervisedWorker, now_s: float) -> str | None:
        asked.append(now_s)
        return late.get(worker)

    supervisor = Supervisor(overdue, lambda children, timeout_s: waited.append((children, timeout_s)))
    one, two = (SupervisedWorker(child=Said(("ready", number))) for number in range(2))
    assert (one.ready, one.killed) == (False, None)
    supervisor.workers += [one, two]
    assert list(supervisor.poll(0.25)) == [(one, ("ready", 0)), (two, ("ready", 1))]
    assert waited == [([one.child, two.child], 0.25)]
    assert asked == [40.0, 40.0]
    late[two] = "it sleeps"
    assert list(supervisor.poll(0.0)) == [(two, Killed("it sleeps"))]
    assert list(supervisor.poll(0.0)) == []  # it is killed and told once
    assert (one.child.kills, two.child.kills, two.killed) == (0, 1, "it sleeps")
    two.child.exited = True
    two.child.messages = [("note", "last words")]
    assert list(supervisor.poll(0.0)) == [(two, ("note", "last words")), (two, Exited("was lost"))]
    assert (two.child.joined, one.child.joined, supervisor.workers) == ([0.0], [], [one])


def test_a_supervisor_removes_the_worker_itself_and_none_that_looks_like_it() -> None:
    supervisor = Supervisor[SupervisedWorker](lambda worker, now_s: None, lambda children, timeout_s: None)
    child = Said()
    one, two = SupervisedWorker(child=child), SupervisedWorker(child=child)
    assert one != two
    supervisor.workers += [one, two]
    child.exited = True
    assert [worker is expected for (worker, _), expected in zip(supervisor.poll(0.0), (one, two), strict=True)]
    assert supervisor.workers == []
    with pytest.raises(TypeError):
        SupervisedWorker(child)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        one.reddy = True  # type: ignore[attr-defined]


def test_a_supervisor_closes_all_within_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 11.0, 14.5, 17.0])
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(times)))
    supervisor = Supervisor[SupervisedWorker](lambda worker, now_s: None)
    supervisor.workers += [SupervisedWorker(child=Said()) for _ in range(3)]
    supervisor.close(5.0)
    assert [worker.child.joined for worker in supervisor.workers] == [[4.0], [0.5], [0.0]]


# -------------------------------------------------------------------------------------------------------- the child


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the process would have exited with."""
    found: list[Any] = []

    def exit_(code: int) -> None:
        found.append(code)
        raise SystemExit(code)

    monkeypatch.setattr(os, "_exit", exit_)
    monkeypatch.setattr(module, "discard_all", lambda: found.append("discarded"))
    return found


def gone(*_: Any) -> None:
    raise BrokenPipeError


def test_a_child_without_its_parent_exits_with_1(exits: list[Any]) -> None:
    link = ParentConnection(SimpleNamespace(send=gone, recv=gone))  # type: ignore[arg-type]
    with pytest.raises(SystemExit):
        link.send(("note", None))
    assert exits == [1]
    exits.clear()
    with pytest.raises(SystemExit):
        next(link.orders())
    assert exits == ["discarded", 1]
    exits.clear()
    with pytest.raises(SystemExit):
        end_at_once()
    assert exits == ["discarded", 1]


def test_orders_come_until_the_parent_is_gone(exits: list[Any]) -> None:
    here, there = Pipe()
    link = ParentConnection(there)
    here.send(("go", None))
    here.send(("stop", 2))
    here.close()
    orders = link.orders()
    assert [next(orders), next(orders)] == [("go", None), ("stop", 2)]
    with pytest.raises(SystemExit):
        next(orders)
    there.close()


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (ModelError("no model"), ("ModelError", "no model")),
        (type("Own", (SourceError,), {})("lost it"), ("SourceError", "lost it")),
        (StreamkitError("it broke"), ("StreamkitError", "it broke")),
        (ValueError("odd"), ("StreamkitError", "ValueError: odd")),
        (KeyboardInterrupt(), ("StreamkitError", "KeyboardInterrupt")),
    ],
)
def test_an_error_is_told_by_the_nearest_class_of_ours(error: BaseException, sent: tuple[str, str]) -> None:
    found: list[Any] = []
    ParentConnection(SimpleNamespace(send=found.append)).fatal(error)  # type: ignore[arg-type]
    assert found == [Fatal(*sent)]


@pytest.mark.parametrize("name", ["ConfigError", "ModelError", "OutputError", "StageError", "MissingPackage"])
def test_an_error_is_made_again_with_its_text_and_problems(name: str) -> None:
    made = error_of(name, "no such thing")
    assert type(made) is getattr(errors, name)
    assert str(made) == "no such thing"
    assert hasattr(made, "problems") == isinstance(made, ConfigError)
    if isinstance(made, ConfigError):
        assert made.problems == [Problem("", 0, 0, "no such thing")]
