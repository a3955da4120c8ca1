"""A worker whose parent is played by the test: what it tells, what it obeys, and what it passes on."""

import dataclasses
import queue
import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest

from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, OutputError, SourceError, StageError, StreamkitError
from streamkit.runtime.multiprocess import worker as module
from streamkit.runtime.multiprocess.children import ParentConnection
from streamkit.runtime.multiprocess.frame_ipc import RelaySink, Uplink
from streamkit.runtime.multiprocess.worker import WorkerConfig, WorkerPipeline, _graph, work

TEXT = """device: cpu
sources:
  a: "test://?width=32&height=32&fps=10&frames=4"
  b: "test://?width=32&height=32&fps=10&frames=4"
stages:
  all: {stage: jsonl, path: OUT/all.jsonl}
  one: {stage: jsonl, path: "OUT/{source}.jsonl", from: decode}
"""


class Link(ParentConnection):
    """A parent that says what the test says."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.obeyed: queue.SimpleQueue[str] = queue.SimpleQueue()

    def send(self, kind: str, value: Any = None) -> None:
        self.sent.append((kind, value))

    def orders(self) -> Iterator[tuple[str, Any]]:
        while (order := self.waiting.get()) is not None:
            yield order, None
            self.obeyed.put(order)

    def order(self, text: str) -> None:
        """Give an order, and wait until it was obeyed."""
        self.waiting.put("".join(list(text)))  # a string of its own, as from a pipe
        assert self.obeyed.get(timeout=20) == text

    def kinds(self, *left_out: str) -> list[str]:
        return [kind for kind, _ in self.sent if kind not in left_out]


@pytest.fixture
def link() -> Iterator[Link]:
    made = Link()
    yield made
    made.waiting.put(None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(TEXT.replace("OUT", str(tmp_path)))
    return tmp_path / "p.yaml"


def job_of(path: Path, **changes: Any) -> WorkerConfig:
    job = WorkerConfig(path, {}, "cpu", ("a",), ("all",), None)
    return dataclasses.replace(job, **changes)


@pytest.fixture
def made(path: Path, link: Link) -> Iterator[tuple[WorkerPipeline, Link]]:
    here, there = Pipe(duplex=False)
    uplink = Uplink(there)
    job = job_of(path)
    yield WorkerPipeline(_graph(job, uplink), Device("cpu"), 3, link, uplink), link
    uplink.close()
    here.close()


def test_a_configuration_cannot_be_changed() -> None:
    job = job_of(Path("p.yaml"))
    assert job.part == (0, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.limit = 3  # type: ignore[misc]
    assert not hasattr(job, "__dict__")


def test_a_job_is_told_from_ready_to_its_end(path: Path, link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    every: list[float] = []
    timer = module.PeriodicTimer
    monkeypatch.setattr(module, "PeriodicTimer", lambda every_s, tick: every.append(every_s) or timer(every_s, tick))
    pinned: list[Any] = []
    monkeypatch.setattr(module, "pin_process", lambda device, *part: pinned.append((str(device), *part)))
    here, there = Pipe(duplex=False)
    link.waiting.put("go")
    work(link, job_of(path, limit=3, part=(1, 2)), there)
    assert (every, pinned) == ([0.5], [("cpu", 1, 2)])
    assert link.kinds("report") == ["ready", "end"]
    assert link.sent[-1] == ("end", 0)
    (kind, report) = link.sent[-2]
    assert (kind, report.report["exit_code"], report.done, report.finished) == ("report", 0, ("a",), {"one": 3})
    assert (list(report.report["stages"]), report.report["sources"]["a"]["frames"]) == (["one"], 3)
    assert (list(report.latency), report.facts) == ([], None)
    items = []
    while True:
        try:
            items += here.recv()
        except EOFError:
            break
    assert [(sink, packed is None, source) for sink, packed, source in items] == [
        *[("all", False, "")] * 3, ("all", True, "a"), ("", True, "a"),
    ]  # fmt: skip
    assert len((path.parent / "a.jsonl").read_text().splitlines()) == 3
    assert not (path.parent / "all.jsonl").exists()


def test_a_job_that_cannot_begin_ends_with_1(path: Path, link: Link) -> None:
    here, there = Pipe(duplex=False)
    work(link, job_of(path, device="cuda:99"), there)
    assert link.kinds() == ["fatal", "end"]
    assert link.sent[0][1][0] == "DeviceError"
    assert link.sent[1] == ("end", 1)
    with pytest.raises(EOFError):
        here.recv()


def test_a_job_that_is_aborted_tells_its_counts(path: Path, link: Link) -> None:
    here, there = Pipe(duplex=False)
    link.waiting.put("abort")
    work(link, job_of(path), there)
    assert link.sent[-1] == ("end", 1)
    assert link.kinds("report")[-2:] == ["fatal", "end"]
    (kind, report) = link.sent[-2]
    assert (kind, report.report["exit_code"], report.report["frames"]) == ("report", 1, 0)
    assert not (path.parent / "a.jsonl").exists()
    here.close()


@pytest.mark.parametrize(
    ("changes", "gone"),
    [
        ({"sources": ("a", "z", "y")}, "y, z is missing"),
        ({"shared": ("all", "none")}, "none is missing"),
        ({"sources": ("b", "z"), "shared": ("none",)}, "none, z is missing"),
    ],
)
def test_a_file_that_changed_meanwhile_is_refused(path: Path, changes: dict[str, Any], gone: str) -> None:
    with pytest.raises(ConfigError, match=f"changed during startup: {gone}; start the run again"):
        _graph(job_of(path, **changes), None)  # type: ignore[arg-type]


def test_a_graph_has_the_sources_of_the_job_and_relays_for_the_shared_sinks(path: Path) -> None:
    uplink: Any = object()
    graph = _graph(job_of(path, sources=("b",)), uplink)
    assert [source.id for source in graph.sources] == ["b"]
    assert (graph.nodes["all"].type, graph.nodes["all"].options) == (RelaySink, {"uplink": uplink, "sink": "all"})
    assert graph.nodes["one"].type is not RelaySink
    assert _graph(job_of(path, shared=()), uplink).nodes["all"].type is not RelaySink


@pytest.mark.parametrize("error", [OutputError, StageError, SourceError])
def test_an_error_is_told_and_aborts_what_is_on_its_way_unless_that_may_be_written(made: Any, error: type) -> None:
    (running, link), aborted = made, []
    running._uplink.abort = lambda: aborted.append(1)
    raised = error.__new__(error)
    Exception.__init__(raised, "it broke")
    running.fail(raised)
    assert link.sent == [("fatal", (error.__name__, "it broke"))]
    assert running.fatal is raised
    assert aborted == ([1] if error is SourceError else [])


def test_the_counts_are_those_of_its_own_stages(made: Any) -> None:
    running, link = made
    assert running._relayed == {"all"}
    assert running.limit == 3
    running.finished |= {"all": 5, "one": 6}
    assert [running.worker_report(code).report["exit_code"] for code in (None, 0, 1, 3)] == [0, 0, 1, 3]
    assert running.worker_report().finished == {"one": 6}
    assert running.worker_report().done == ()
    running.states["a"].done = True
    assert running.worker_report().done == ("a",)
    running.send_report()
    assert link.sent[0][0] == "report"
    running.report = raising
    running.send_report()
    assert link.kinds() == ["report"]


def raising(code: int) -> None:
    raise RuntimeError("dictionary changed size during iteration")


def test_facts_are_told_where_there_are_alarms(path: Path, link: Link) -> None:
    path.write_text(path.read_text() + "alarms: {away: down_s > 3}\n")
    here, there = Pipe(duplex=False)
    uplink = Uplink(there)
    running = WorkerPipeline(_graph(job_of(path), uplink), Device("cpu"), None, link, uplink)
    facts = running.worker_report().facts
    assert facts is not None
    assert list(facts.sources) == ["a"]
    uplink.close()
    here.close()


def test_each_order_does_what_it_says_alone(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    running, link = made
    done: list[str] = []
    ended = threading.Event()
    monkeypatch.setattr(module, "end_at_once", lambda: (done.append("now"), ended.set()))
    running.stop = lambda: done.append("stop")
    running.fail = lambda error: done.append(f"{type(error).__name__}: {error}")
    for order in ("", "aaa", "abort!", "gone", "m", "nothing", "o", "slow", "stopped", "zzz"):
        link.order(order)
    assert (done, running._go.is_set()) == ([], False)
    link.order("stop")
    assert (done, running._go.is_set()) == (["stop"], False)
    link.order("now")
    assert (done[1:], running._go.is_set()) == (["now"], False)
    link.order("go")
    assert (done[2:], running._go.is_set()) == ([], True)
    running._go.clear()
    link.order("abort")
    assert done[2:] == [f"{StreamkitError.__name__}: another process of the run failed"]
    assert running._go.is_set()
