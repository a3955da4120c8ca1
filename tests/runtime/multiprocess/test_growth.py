"""Where a source goes that is added while a pipeline runs over processes, and when it gets a process of its own."""

import os
import signal
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from support.live_fleets import PICKY
from support.messages import collecting

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read, read_source
from streamkit.core.data import Device
from streamkit.core.errors import ConfigError, StreamkitError
from streamkit.media.gpu_figures import FIRST_GUESSES
from streamkit.runtime import prepare as prepare_module
from streamkit.runtime.ingest.source_status import RemovedSources, SourceState
from streamkit.runtime.multiprocess import fleet as fleet_module
from streamkit.runtime.multiprocess import messages, worker_processes
from streamkit.runtime.multiprocess.fleet import WorkerFleet
from streamkit.runtime.multiprocess.placement_policy import PlacementPolicy
from streamkit.runtime.multiprocess.process_count import (
    DevicePlan,
    ProcessPlan,
    SourceLoad,
    plan_processes,
    source_loads,
)
from streamkit.runtime.multiprocess.source_scheduler import SourceScheduler
from streamkit.runtime.observe.report_merge import WorkerReport
from streamkit.runtime.pipeline import PipelineRun
from streamkit.runtime.prepare import prepare
from streamkit.runtime.reload import watching
from streamkit.runtime.run import RunConfig

TEST = "{uri: 'test://?width=64&height=48&fps=10', pace: realtime}"


# -------------------------------------------------------------------------------------------------------- the choice


@dataclass(eq=False)
class Process:
    """A process that only notes its orders."""

    name: str
    takes_sources: bool = True
    orders: list[messages.Order] = field(default_factory=list)

    def send(self, order: messages.Order) -> None:
        self.orders.append(order)


def source(id_: str, load: float = 0.4) -> Any:
    return SimpleNamespace(id=id_, options={"uri": "rtsp://h/x", "load": load}, type=None, name=id_)


class Placed:
    """The sources of two processes, of which each may have further ones up to a number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int = 1, limit: int = 3) -> None:
        monkeypatch.setattr("streamkit.runtime.multiprocess.source_scheduler.source_entry", lambda config: {})
        self.processes = [Process(f"p{number}") for number in range(count)]
        self.limit = limit
        self.sources = SourceScheduler(
            [],
            [],
            RemovedSources,
            True,
            policy=PlacementPolicy(lambda config: SourceLoad(30.0, config.options["load"]), start_another=self.start),
        )
        for process in self.processes:
            self.sources.add_process(process)

    def start(self, beyond: int = 0) -> Process | None:
        if len(self.processes) == self.limit + beyond:
            return None
        self.processes.append(Process(f"p{len(self.processes)}"))
        self.sources.add_process(self.processes[-1])
        return self.processes[-1]

    def add(self, id_: str, load: float = 0.4) -> str:
        self.sources.add(source(id_, load))
        (process,) = [candidate for candidate in self.processes if id_ in self.sources.of(candidate)]
        order = process.orders[-1]
        assert isinstance(order, messages.Add)
        assert order.source.id == id_
        return process.name

    def reported(self, id_: str, state: SourceState) -> str:
        """Let the process of a source report its state; return the state that is shown."""
        (process,) = [candidate for candidate in self.processes if id_ in self.sources.of(candidate)]
        numbers = {id_: self.sources._numbers[id_]}
        self.sources.update(process, WorkerReport(states={id_: state}, numbers=numbers))
        return self.sources.states[id_].state

    def rate(self, id_: str, fps: float) -> None:
        """Let a source have a rate of its own."""
        state = self.sources.states[id_]
        state.frames = 0
        state.sample(0.0)
        state.frames = int(fps * 10)
        state.sample(10.0)


def test_an_overload_starts_processes_up_to_the_limit(monkeypatch):
    placed = Placed(monkeypatch)
    assert [placed.add(id_) for id_ in "abcdefghi"] == ["p0", "p0", "p1", "p1", "p2", "p2", "p0", "p1", "p2"]


def test_a_load_of_1_is_accepted_and_an_idle_process_gets_the_heaviest(monkeypatch):
    placed = Placed(monkeypatch)
    assert [placed.add("a", 0.5), placed.add("b", 0.5), placed.add("c", 0.1)] == ["p0", "p0", "p1"]
    placed = Placed(monkeypatch)
    assert placed.add("a", 7.0) == "p0"
    assert placed.add("b", 0.01) == "p1"


def test_the_measured_rate_replaces_the_estimate(monkeypatch):
    placed = Placed(monkeypatch)
    placed.add("a", 0.8)
    placed.rate("a", 3.0)  # a tenth of what was expected
    assert placed.add("b", 0.8) == "p0"
    placed.rate("b", 0.0)  # it is not connected: its expected rate counts
    assert placed.add("c", 0.3) == "p1"
    placed.rate("a", 300.0)
    assert placed.add("d", 0.3) == "p1"


def test_sources_go_to_the_process_of_the_lowest_load(monkeypatch):
    placed = Placed(monkeypatch, count=2, limit=2)
    assert placed.add("a", 0.6) == "p0"
    assert [placed.add(f"b{number}", 0.1) for number in range(5)] == ["p1"] * 5
    assert placed.add("last", 0.9) == "p1"
    placed.sources.states["a"].done = True
    assert placed.add("next", 0.1) == "p0"


def test_a_readded_source_goes_to_the_process_that_writes_its_files(monkeypatch):
    placed = Placed(monkeypatch, count=2, limit=2)
    assert [placed.add("a", 0.2), placed.add("b", 0.3), placed.add("c", 0.2)] == ["p0", "p1", "p0"]
    placed.rate("a", 60.0)
    placed.sources.remove("c")
    assert placed.add("c", 0.2) == "p0"
    placed.sources.remove("c")
    assert placed.add("d", 0.2) == "p1"
    placed.processes[0].takes_sources = False
    assert placed.add("c", 0.2) == "p1"


def test_processes_of_removed_sources_are_forgotten_eventually(monkeypatch):
    placed = Placed(monkeypatch, count=2, limit=2)
    for number in range(1100):
        placed.add(f"s{number}")
        placed.sources.remove(f"s{number}")
    assert len(placed.sources._former) == 1000
    assert next(iter(placed.sources._former)) == "s100"


def test_a_pause_is_shown_at_once_and_an_older_report_does_not_undo_it(monkeypatch):
    placed = Placed(monkeypatch)
    placed.add("a")
    (process,) = placed.processes
    states = placed.sources.states["a"]
    states.set_state("running")
    placed.sources.pause("a")
    assert placed.sources.states["a"].state == "paused"
    assert placed.reported("a", SourceState(state="running")) == "paused"
    placed.sources.pause("a", False)
    assert placed.sources.states["a"].state == "connecting"
    assert placed.reported("a", SourceState(state="paused")) == "connecting"
    assert placed.reported("a", SourceState(state="running")) == "running"
    placed.sources.pause("a")
    assert placed.reported("a", SourceState(state="ended", done=True)) == "ended"
    assert process.orders[1:] == [messages.Pause("a", paused) for paused in (True, False, True)]


def test_the_load_of_an_added_source_is_planned(tmp_path):
    (tmp_path / "p.yaml").write_text(
        "device: cuda\nsources: {a: 'rtsp://h/a', b: {uri: 'rtsp://h/b', fps: 5}}\n"
        "stages: {detect: {model: demo}, jsonl: {path: 'o/{source}.jsonl'}}\n"
    )
    graph = build(read(tmp_path / "p.yaml"))
    plan = plan_processes(graph, [Device("cuda", 0)], cores=16, keep_running=True)
    loads = source_loads(graph, realtime=True)
    a, b = graph.sources
    expected = SourceLoad(30.0, pytest.approx(30 * 138e-6 / FIRST_GUESSES["live_lock"].amount), live=True)
    assert loads(a) == SourceLoad(30.0, plan.loads["a"], live=True) == expected
    assert loads(b) == SourceLoad(5.0, plan.loads["b"], live=True)
    assert loads(a).at(15.0) == pytest.approx(plan.loads["a"] / 2)


# ------------------------------------------------------------------------------------------------- with real processes


def planned(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """One process now, and up to `limit` of them; each serves two sources."""

    def plan(graph: Any, **options: Any) -> ProcessPlan:
        return ProcessPlan((DevicePlan(Device("cpu"), 1, limit, "1 process"),), {})

    monkeypatch.setattr(prepare_module, "plan_here", plan)
    monkeypatch.setattr(
        fleet_module, "source_loads", lambda graph, realtime, figures: lambda source: SourceLoad(10.0, 0.45)
    )


def yaml(folder: Any, *sources: str) -> Any:
    (folder / "picky.py").write_text(PICKY)
    listed = "".join(f"  {id_}: {TEST}\n" for id_ in sources)
    path = folder / "p.yaml"
    path.write_text(
        f"device: cpu\nplugins: [picky.py]\nsources:\n{listed}"
        f"stages:\n  picky: {{file: '{folder}/no'}}\n  jsonl: {{path: '{folder}/{{source}}.jsonl'}}\n"
        f"  all: {{stage: jsonl, path: '{folder}/all.jsonl'}}\n"
    )
    return path


@contextmanager
def going(running: Any) -> Any:
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(running.run()))
    with collecting() as logged:
        thread.start()
        try:
            until(lambda: running.ready if hasattr(running, "ready") else running.current.ready)
            yield logged
        finally:
            running.stop()
            thread.join(30)
            assert not thread.is_alive()
    assert codes == [130]


def until(true: Any, seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (outcome := true()):
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(0.05)
    return outcome


def added(running: WorkerFleet, *ids: str) -> None:
    for id_ in ids:
        (config,) = read_source(running.graph.config, id_, {"uri": "test://?width=64&height=48", "pace": 10})
        running.add(config)


def flows(running: Any, *ids: str) -> bool:
    return all(running.states[id_].out > 3 for id_ in ids)


def test_a_live_addition_starts_a_process_up_to_the_limit(tmp_path, monkeypatch):
    planned(monkeypatch, limit=2)
    path = yaml(tmp_path, "a")
    with collecting() as before:
        running = prepare(build(read(path)), path, {}, RunConfig(keep_running=True))
    assert before == ["1 process; up to 2 as sources are added"]
    assert isinstance(running, WorkerFleet)
    with going(running) as logged:
        until(lambda: flows(running, "a"))
        assert len(running.pids) == 2
        added(running, "b")
        assert len(running.pids) == 2
        added(running, "c")
        assert len(running.pids) == 3
        assert any("process 2 starts on cpu" in text for text in logged)
        added(running, "d", "e")
        assert len(running.pids) == 3
        until(lambda: flows(running, *"abcde"))
        first, second = running.processes.workers
        assert running.sources.of(first)[:2] == ["a", "b"]
        assert running.sources.of(second)[:2] == ["c", "d"]
        running.remove("c")
        added(running, "c")
        until(lambda: flows(running, "c"))
        assert "c" in running.sources.of(second)
    report = running.report(130)
    assert [device["device"] for device in report["devices"]] == ["cpu", "cpu"]
    for id_ in "abcde":
        assert (tmp_path / f"{id_}.jsonl").read_text().count("\n") > 3
    assert not list(tmp_path.glob(".*"))


def test_sources_of_a_process_that_cannot_start_go_to_the_others(tmp_path, monkeypatch):
    planned(monkeypatch, limit=4)
    path = yaml(tmp_path, "a")
    running = prepare(build(read(path)), path, {}, RunConfig(keep_running=True))
    with going(running) as logged:
        until(lambda: flows(running, "a"))
        (tmp_path / "no").touch()
        added(running, "b", "c")
        assert len(running.processes.workers) == 2
        until(lambda: flows(running, "a", "b", "c"))
        assert running.fatal is None
        assert running.sources.of(running.processes.workers[0]) == ["a", "b", "c"]
        assert any("could not start: the device has no memory left" in text for text in logged), logged
        added(running, "d")  # nor is it tried again
        assert len(running.processes.workers) == 2
        until(lambda: flows(running, "d"))


def test_a_dead_process_is_replaced_if_the_others_are_full(tmp_path, monkeypatch):
    planned(monkeypatch, limit=3)
    path = yaml(tmp_path, "a")
    running = prepare(build(read(path)), path, {}, RunConfig(keep_running=True))
    with going(running) as logged:
        added(running, "b", "c", "d", "e")
        until(lambda: flows(running, *"abcde"))
        first, second, third = running.processes.workers
        assert [running.sources.of(worker) for worker in (first, second, third)] == [["a", "b"], ["c", "d"], ["e"]]
        os.kill(first.child.pid, signal.SIGKILL)
        until(lambda: running.restarted == 2)
        fourth = running.processes.workers[3]
        assert [running.sources.of(worker) for worker in (second, third, fourth)] == [["c", "d"], ["a", "e"], ["b"]]
        for id_ in "ab":
            before = running.states[id_].out
            until(lambda id_=id_, before=before: running.states[id_].out > before)
        assert len(running.pids) == 4
    assert any("would overload the processes: process 3 starts on cpu" in text for text in logged)
    assert {worker.part for worker in running.processes.workers} == {0}


def test_an_edit_of_the_yaml_may_start_a_process(tmp_path, monkeypatch):
    planned(monkeypatch, limit=2)
    path = yaml(tmp_path, "a")
    running = watching(path, lambda: build(read(path, may_be_empty=True)), None)
    with going(running):
        until(lambda: flows(running.current, "a"))
        fleet = running.current
        yaml(tmp_path, "a", "b", "c")
        until(lambda: len(fleet.states) == 3 and flows(fleet, "b", "c"))
        assert running.current is fleet
        assert len(fleet.pids) == 3
        assert os.getpid() == fleet.pids[0]


@pytest.mark.parametrize(("keep_running", "limit", "kind"), [(True, 1, PipelineRun), (False, 3, PipelineRun)])
def test_a_pipeline_that_cannot_grow_runs_in_the_parent(tmp_path, monkeypatch, keep_running, limit, kind):
    planned(monkeypatch, limit)
    path = yaml(tmp_path, "a")
    assert type(prepare(build(read(path)), path, {}, RunConfig(keep_running=keep_running))) is kind


def test_the_cpu_default_is_a_single_process(tmp_path):
    path = yaml(tmp_path, "a")
    assert type(prepare(build(read(path)), path, {}, RunConfig(keep_running=True))) is PipelineRun
    path.write_text(path.read_text().replace("device: cpu", "device: {use: cpu, processes: 2}"))
    fleet = prepare(build(read(path)), path, {}, RunConfig(keep_running=True))
    assert isinstance(fleet, WorkerFleet)
    assert dict(fleet.growth.limits) == {"cpu": 2}


def test_no_process_starts_before_or_at_the_end_of_a_run(tmp_path, monkeypatch):
    planned(monkeypatch, limit=3)
    path = yaml(tmp_path, "a")
    running = prepare(build(read(path)), path, {}, RunConfig(keep_running=True))
    assert running.growth.start_another() is None
    running.ready = True
    running.stop()
    assert running.growth.start_another() is None
    with pytest.raises(ConfigError, match="the run has ended"):
        added(running, "b")


def test_a_process_refused_by_the_system_leaves_its_source_to_the_others(tmp_path, monkeypatch):
    planned(monkeypatch, limit=3)
    path = yaml(tmp_path, "a")
    running = prepare(build(read(path)), path, {}, RunConfig(keep_running=True))
    with going(running) as logged:
        until(lambda: flows(running, "a"))

        def refuse(*args: Any, **_: Any) -> Any:
            raise OSError(11, "no more processes")

        monkeypatch.setattr(worker_processes, "Child", refuse)
        added(running, "b", "c")
        until(lambda: flows(running, "a", "b", "c"))
        assert len(running.processes.workers) == 1
        assert sum("another process on cpu cannot be started" in text for text in logged) == 1


def test_a_first_process_refused_by_the_system_is_an_error(tmp_path, monkeypatch):
    planned(monkeypatch, limit=3)
    path = yaml(tmp_path, "a")
    running = prepare(build(read(path)), path, {}, RunConfig(keep_running=True))
    monkeypatch.setattr(worker_processes, "Child", lambda *args, **_: (tmp_path / "nothing").read_bytes())
    with pytest.raises(StreamkitError, match=r"a process of the run cannot be started: .*check memory and `ulimit"):
        running.run()
