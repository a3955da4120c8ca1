"""A fleet whose processes are played by the test: every message, order and exit, and what the run makes of it."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.messages import collect
from support.worker_links import FakeWorkerLink

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.core.data import Device, Frame
from streamkit.core.errors import OutputError, SourceError, StageError, StreamkitError
from streamkit.core.stage import Collecting, Sink, default_registry, stage
from streamkit.runtime.execution.cores import process_cores
from streamkit.runtime.ingest.source_status import SourceState
from streamkit.runtime.multiprocess import fleet as module
from streamkit.runtime.multiprocess import messages, worker_processes
from streamkit.runtime.multiprocess.fleet import WorkerFleet
from streamkit.runtime.multiprocess.frame_ipc import pack as pack_batch
from streamkit.runtime.multiprocess.messages import SourceOrder
from streamkit.runtime.multiprocess.partition import assign_sources
from streamkit.runtime.multiprocess.process_count import SourceLoad
from streamkit.runtime.multiprocess.worker import WorkerConfig
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle
from streamkit.runtime.multiprocess.worker_processes import Machine
from streamkit.runtime.observe.health import HealthSnapshot
from streamkit.runtime.observe.report_merge import WorkerReport
from streamkit.runtime.run import RunConfig

SOURCES = "sources: {a: 'test://?frames=3', b: 'test://?frames=3', c: 'test://?frames=3'}\n"


def pack(frame: Frame) -> bytes:
    """One frame with tables of its own."""
    return pack_batch([], {}, [frame])


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Played:
    """A fleet of two processes, what it logged, and the two."""

    def __init__(self, stages: str = "note: {}", head: str = "", *, keep_running: bool = False, **options: Any) -> None:
        self.logged = collect()
        self.processes = []
        self.waits = []
        self.wrote: list[tuple[str, int]] = []
        self.contexts: list[Any] = []
        self.triggered: list[tuple[str, dict[str, Any]]] = []
        self.closed = 0
        self.then: dict[int, Callable[[], None]] = {}  # by number of the poll
        registry = default_registry()
        me = self
        with Collecting(registry):

            @stage("note", on_demand=True)
            class Note(Sink):
                """Write down; frame 13 fails, frame 99 cannot be written."""

                def open(self) -> None:
                    me.contexts.append(self.context)

                def write(self, frame: Frame) -> None:
                    if frame.index == 13:
                        raise ValueError("thirteen")
                    if frame.index == 99:
                        raise OutputError("the disk is full")
                    me.wrote.append((frame.source, frame.index))

                def trigger(self, source: str, **data: Any) -> None:
                    me.triggered.append((source, data))

                def close(self) -> None:
                    me.closed += 1

        text = f"{head}device: {{use: cpu, processes: 2}}\n{SOURCES}stages: {{{stages}}}"
        self.graph = build(read_text(text, registry=registry))
        self.clock = Clock()
        config = RunConfig(limit=7, keep_running=keep_running)
        self.fleet = WorkerFleet(
            self.graph,
            assign_sources(self.graph),
            Path("p.yaml"),
            {"x": "1"},
            config,
            machine=Machine(self.clock, self._launch, self._wait),
            **options,
        )

    def _launch(self, name: str, job: WorkerConfig, frames: Connection) -> FakeWorkerLink:
        link = FakeWorkerLink(name, job, frames)
        link.pid = 70_000 + len(self.processes)
        self.processes.append(link)
        self.begin(link)
        return link

    def begin(self, link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())

    def _wait(self, children: list[FakeWorkerLink], timeout_s: float) -> None:
        self.waits.append(timeout_s)
        assert len(self.waits) < 3000, "it does not end"
        for worker in self.fleet.processes.workers:
            if worker.child is not None and worker.child.ended:
                worker.receiver.join(5)
        if self.fleet.recovery.dead:
            self.clock.now_s += timeout_s
        self.then.pop(len(self.waits), lambda: None)()


@pytest.fixture
def played() -> Played:
    return Played()


# ------------------------------------------------------------------------------------------------------ whole runs


def test_a_run_starts_its_processes_and_merges_their_reports(played: Played) -> None:
    fleet = played.fleet
    assert (fleet.stopping, fleet.fatal, fleet.seconds, fleet.frames) == (False, None, 0.0, 0)
    assert fleet.pids == (os.getpid(),)
    played.then[3] = lambda: setattr(played.clock, "now_s", 115.5)
    assert fleet.run() == 0
    first, second = played.processes
    assert [(process.name, process.orders) for process in played.processes] == [
        ("worker/cpu/0", ["go", "finish"]),
        ("worker/cpu/1", ["go", "finish"]),
    ]
    text = played.graph.config.text
    assert first.job == WorkerConfig(
        Path("p.yaml"),
        text,
        {"x": "1"},
        "cpu",
        (SourceOrder("a", 1), SourceOrder("c", 2)),
        ("note",),
        {},
        (0, 2),
        process_cores(),
        RunConfig(limit=7, keep_running=True, live_may_come=False),
    )
    assert second.job == WorkerConfig(
        Path("p.yaml"),
        text,
        {"x": "1"},
        "cpu",
        (SourceOrder("b", 3),),
        ("note",),
        {},
        (1, 2),
        process_cores(),
        RunConfig(limit=7, keep_running=True, live_may_come=False),
    )
    assert set(played.waits) == {0.1}
    assert fleet.seconds == 15.5
    assert fleet.pids == (os.getpid(), 70_000, 70_001)
    assert all(worker.code == 0 and worker.failure is None and worker.over for worker in fleet.processes.workers)
    assert [worker.deadline_s for worker in fleet.processes.workers] == [125.5, 125.5]
    assert {id_: (state.frames, state.done, state.error) for id_, state in fleet.states.items()} == dict.fromkeys(
        "abc", (3, True, None)
    )
    assert fleet.frame_counts() == [(3, 12.5), (3, 12.5)]
    assert fleet.frames == 6
    assert played.logged == []
    assert played.closed == 1
    report = fleet.report(0)
    assert (report["device"], report["exit_code"], report["frames"], report["seconds"]) == ("cpu, cpu", 0, 6, 15.5)
    assert report["sources"] == {id_: {"frames": 3} for id_ in "abc"}
    figures = {"exit_code": 0, "frames": 3, "seconds": 1.5, "frames_per_s": 2.0}
    assert report["devices"] == [
        {"device": "cpu", "sources": ["a", "c"], **figures},
        {"device": "cpu", "sources": ["b"], **figures},
    ]
    assert list(report["stages"]) == ["note"]
    assert "alarms" not in report


def test_workers_start_once_all_are_ready_and_the_sinks_are_open(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(played.fleet.sources, "live", lambda worker: worker.part)
    played.begin = lambda link: link.tell(messages.Ready()) if link.job.part[0] == 0 else None

    def late() -> None:
        assert [process.orders for process in played.processes] == [[], []]
        assert played.contexts == []
        played.processes[1].tell(messages.Ready())
        for process in played.processes:
            process.obey = lambda order, process=process: (opened.append(len(played.contexts)), process.finish(order))

    opened: list[int] = []
    played.then[5] = late
    assert played.fleet.run() == 0
    assert opened == [1, 1]
    (context,) = played.contexts
    assert (str(context.device), context.batch_sizes, context.threads) == ("cpu", (1, 2, 3), 1)


@pytest.mark.parametrize("keep_running", [False, True])
def test_files_of_a_ready_process_do_not_wait_for_other_processes(
    keep_running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(keep_running=keep_running)
    played.begin = lambda link: link.tell(messages.Ready()) if link.job.part[0] == 1 else None

    def late() -> None:
        before.append(
            (played.fleet.ready, [list(process.orders) for process in played.processes], len(played.contexts))
        )
        played.processes[0].tell(messages.Ready())
        if keep_running:
            played.then[9] = played.fleet.stop

    before: list[Any] = []
    played.then[5] = late
    played.fleet.run()
    last = "stop" if keep_running else "finish"
    assert before == [(False, [[], []], 0) if keep_running else (True, [[], ["go"]], 1)]
    assert [process.orders for process in played.processes] == [["go", last], ["go", last]]


def test_frames_reach_shared_sinks_and_a_failure_there_exits_with_1(played: Played) -> None:
    def send(indices: list[int], process: int) -> None:
        sender = played.processes[process]
        source = sender.job.sources[0].id
        sender.frames.send([("note", pack(Frame(source, index, 0.1, 16, 16)), "") for index in indices])

    played.then[2] = lambda: [process.finish("go") for process in played.processes]

    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: send([0, 13, 2], link.job.part[0])

    played.begin = begin
    assert played.fleet.run() == 1
    assert sorted(played.wrote) == [("a", 0), ("a", 2), ("b", 0), ("b", 2)]
    assert not any(state.error for state in played.fleet.states.values())
    assert played.fleet.report(1)["stages"]["note"]["failed"] == 2


@pytest.mark.parametrize("bad", [0, 1])
def test_the_exit_code_is_the_worst_of_the_workers(played: Played, bad: int) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: link.end(int(link.job.part[0] == bad))

    played.begin = begin
    assert played.fleet.run() == 1


def test_a_failed_source_of_a_worker_exits_with_1(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: (link.report(2, c="no such camera"), link.end(0))

    played.begin = begin
    assert played.fleet.run() == 1
    assert {id_: state.error for id_, state in played.fleet.states.items()} == {
        "a": None,
        "b": None,
        "c": "no such camera",
    }
    assert played.fleet.report(1)["sources"]["c"] == {"frames": 2, "error": "no such camera"}


# --------------------------------------------------------------------------------------------------- what goes wrong


FAILURE = "its process on cpu was killed by SIGKILL"


def test_sources_of_a_worker_that_dies_before_ready_move_to_another(played: Played) -> None:
    played.begin = lambda link: link.tell(messages.Ready()) if link.job.part[0] else link.die()
    assert played.fleet.run() == 0
    assert played.logged == [f"{FAILURE}: its sources restart in another process (a, c); 0 frames are lost"]
    second = played.processes[1]
    assert second.orders == ["go", "add", "add", "finish"]
    assert [(source.id, source.number, source.after) for source in second.added] == [("a", 4, None), ("c", 5, None)]
    report = played.fleet.report(0)
    assert report["sources"] == {id_: {"frames": 3} for id_ in "abc"}
    assert (report["restarted"], report["events"], report["device"]) == (2, {"restarted": 2}, "cpu, cpu")
    assert [(device["sources"], device.get("error")) for device in report["devices"]] == [
        ([], FAILURE),
        (["a", "c", "b"], None),
    ]
    assert played.fleet.frame_counts()[0][0] == 0


def test_a_worker_without_reports_is_killed_unless_the_parent_slept(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: None if order == "go" else link.work(order)

    def pass_s(seconds: float) -> None:
        assert not played.processes[0].killed
        played.clock.now_s += seconds
        played.processes[1].report_states(1, {"b": SourceState(1)})

    played.begin = begin
    played.then[3] = lambda: pass_s(1000.0)  # counts as one second
    played.then |= dict.fromkeys(range(4, 18), lambda: pass_s(1.0))
    played.then[18] = lambda: pass_s(0.5)
    assert played.fleet.run() == 0
    first, second = played.processes
    assert (first.killed, second.killed, len(played.waits)) == (True, False, pytest.approx(28, abs=5))
    failure = "its process on cpu has not reported for 15 s and was killed"
    assert played.logged == [failure, f"{failure}: its sources restart in another process (a, c); 0 frames are lost"]


def test_a_worker_with_hanging_gpu_work_is_killed(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []

    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        if link.job.part[0] == 0:
            link.obey = lambda order: (
                link.tell(messages.Hangs("has not finished work")) or link.tell(messages.Hangs("again"))
            )

    def kill(process: FakeWorkerLink) -> None:
        done.append("killed")
        process.die()

    played.begin = begin
    played.fleet.processes.mps = SimpleNamespace(  # type: ignore[assignment]
        terminate_client=done.append, environment={}, close=lambda: None
    )
    monkeypatch.setattr(FakeWorkerLink, "kill", kill)
    assert played.fleet.run() == 0
    assert done == [70_000, "killed"]
    failure = "its process on cpu has not finished work"
    assert played.logged[:2] == [
        failure,
        f"{failure}: its sources restart in another process (a, c); 0 frames are lost",
    ]


def test_the_gpu_work_of_a_silent_worker_is_terminated_before_it_is_killed(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    monkeypatch.setattr(WorkerHandle, "overdue", lambda worker, now_s: "hangs" if worker.number == 0 else None)
    monkeypatch.setattr(FakeWorkerLink, "kill", lambda process: (done.append("killed"), process.die()))
    played.begin = lambda link: link.tell(messages.Ready())
    played.fleet.processes.mps = SimpleNamespace(  # type: ignore[assignment]
        terminate_client=done.append, environment={}, close=lambda: None
    )
    assert played.fleet.run() == 0
    assert done == [70_000, "killed"]


def test_workers_that_lose_the_gpu_shortly_after_another_restart_with_it(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        if link.pid < 70_002:
            link.obey = lambda order: None

    def lose(process: FakeWorkerLink) -> None:
        process.tell(messages.Lost("lost its GPU"))
        process.die()

    played.begin = begin
    played.then = {3: lambda: lose(played.processes[0]), 15: lambda: lose(played.processes[1])}
    assert played.fleet.run() == 0
    assert 1.0 < played.clock.now_s - 100.0 < 2.0
    assert played.fleet.restarted == 3  # each source once


def test_a_finished_source_of_a_dead_worker_is_not_read_again(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        if link.job.part[0] == 0:
            link.obey = lambda order: (link.frames.send([("", None, "a")]), link.die())

    played.begin = begin
    assert played.fleet.run() == 0
    assert played.logged == [f"{FAILURE}: its sources restart in another process (c); 0 frames are lost"]
    assert [source.id for source in played.processes[1].added] == ["c"]
    assert (played.fleet.states["a"].state, played.fleet.states["a"].complete) == ("ended", True)


def test_replacements_of_all_workers_start_with_the_changed_options(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        if link.pid < 70_002:
            link.obey = link.die

    played.begin = begin
    assert played.fleet.run() == 0
    assert [process.orders for process in played.processes] == [
        ["go"],
        ["go"],
        ["add", "add", "go", "finish"],
        ["add", "go", "finish"],
    ]
    assert [process.name for process in played.processes][2:] == ["worker/cpu/2", "worker/cpu/3"]
    assert [(process.job.sources, process.job.part) for process in played.processes][2:] == [((), (0, 2)), ((), (1, 2))]
    assert all(state.complete for state in played.fleet.states.values())
    assert played.fleet.restarted == 3
    assert [worker.child is None for worker in played.fleet.processes.workers] == [True, True, False, False]


def test_a_source_whose_process_dies_four_times_fails_and_the_others_end(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: link.die() if "a" in link.sources and order in ("go", "add") else link.work(order)

    played.begin = begin
    played.fleet.remove("c")
    assert played.fleet.run() == 1
    assert played.logged[-1] == f"source a failed: {FAILURE}; it was restarted 3 times within ten minutes"
    assert played.fleet.states["a"].error == f"{FAILURE}; it was restarted 3 times within ten minutes"
    report = played.fleet.report(1)["sources"]
    assert (list(report), report["b"]) == (["a", "b"], {"frames": 3})


class Spared(Played):
    """A fleet of two processes and a spare one, with sources that go on until they are told to end."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        live = SourceLoad(10.0, 0.1, live=True)
        monkeypatch.setattr(module, "source_loads", lambda graph, realtime, figures: lambda source: live)
        super().__init__(spare_limits={"cpu": 3}, **options)

    def begin(self, link: FakeWorkerLink) -> None:
        link.obey = lambda order: link.work(order) if order in ("finish", "stop", "now") else None
        link.tell(messages.Ready())

    def after_s(self, seconds: float) -> None:
        self.clock.now_s += seconds


def test_a_spare_process_starts_with_the_others_on_separate_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Spared(monkeypatch)
    played.then[5] = played.fleet.stop
    assert played.fleet.run() == 130
    first, second, spare = (process.job for process in played.processes)
    assert [(job.part, job.run.expected_live) for job in (first, second, spare)] == [
        ((0, 3), 0),
        ((1, 3), 0),
        ((2, 3), 2),
    ]
    assert spare.sources == ()
    assert [process.orders for process in played.processes] == [["go", "stop"]] * 3
    assert [process.get("spare") for process in played.fleet.report(130)["devices"]] == [None, None, True]


class LeftCores(list[set[int]]):
    """Stands for `ParentCores`: the parts that were left, each once, and what comes after them."""

    of = -1

    def __call__(self, of: int) -> "LeftCores":
        self.of = of
        return self

    def leave(self, parts: set[int]) -> None:
        if self[-1:] != [parts]:
            self.append(parts)

    def __enter__(self) -> "LeftCores":
        return self

    def __exit__(self, *_: object) -> None:
        self.append({-1})


@pytest.mark.parametrize(("kind", "of"), [("cuda", 3), ("cpu", 0)])
def test_the_parent_does_not_run_on_the_cores_of_busy_workers(
    monkeypatch: pytest.MonkeyPatch, kind: str, of: int
) -> None:
    left = LeftCores()
    monkeypatch.setattr(module, "ParentCores", left)
    monkeypatch.setattr(module, "choose", lambda name: Device(kind))
    played = Spared(monkeypatch)

    def kill_first() -> None:
        assert left == [{0, 1}]  # the spare one has the third part
        played.processes[0].die()

    played.then |= {5: kill_first, 40: played.fleet.stop}
    played.fleet.run()
    assert left.of == of
    assert left[:1] == [{0, 1}]
    assert {1, 2} in left  # it has taken the sources
    assert left[-1] == {-1}


@pytest.mark.parametrize(("quick", "waited"), [(1, True), (2, False)])
def test_the_run_waits_for_a_spare_process_only_if_networks_are_tuned_first(
    monkeypatch: pytest.MonkeyPatch, quick: int, waited: bool
) -> None:
    monkeypatch.setattr(worker_processes, "QUICK_SOURCES", quick)
    played = Spared(monkeypatch)
    begin = played.begin
    went = []
    played.begin = lambda link: begin(link) if len(played.processes) < 3 else None  # type: ignore[method-assign]
    played.then[5] = lambda: went.append("go" in played.processes[0].orders)
    played.then[6] = lambda: begin(played.processes[2])
    played.then[9] = played.fleet.stop
    assert played.fleet.run() == 130
    assert went == [not waited]
    assert [process.orders[-2:] for process in played.processes] == [["go", "stop"]] * 3


def test_the_next_spare_process_starts_once_the_sources_have_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Spared(monkeypatch)
    counts: list[int] = []
    played.then |= {
        3: played_death(played, 0),
        20: lambda: (counts.append(len(played.processes)), played.after_s(9.0)),
        22: lambda: (counts.append(len(played.processes)), played.after_s(1.1)),
        24: lambda: counts.append(len(played.processes)),
        25: played.fleet.stop,
    }
    assert played.fleet.run() == 130
    assert counts == [3, 3, 4]
    assert played.processes[2].orders == ["go", "add", "add", "stop"]
    assert [process.job.part for process in played.processes] == [(0, 3), (1, 3), (2, 3), (0, 3)]
    assert played.processes[1].orders == ["go", "stop"]


def test_a_starting_spare_process_ends_if_all_others_die(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Spared(monkeypatch)
    begin = played.begin
    played.begin = lambda link: begin(link) if len(played.processes) != 3 else None  # type: ignore[method-assign]
    played.then |= {3: played_death(played, 0, 1), 30: played.fleet.stop}
    assert played.fleet.run() == 130
    assert len(played.processes) == 5
    spare = played.processes[2]
    assert (spare.killed, "add" in spare.orders) == (True, False)
    assert [process.orders for process in played.processes[3:]] == [["add", "add", "go", "stop"], ["add", "go", "stop"]]
    assert played.fleet.spares.limits == {"cpu": 3}
    assert not any("spare" in text for text in played.logged)


def played_death(played: Played, *numbers: int) -> Callable[[], None]:
    return lambda: [played.processes[number].die() for number in numbers] and None


def test_dead_workers_of_a_serving_run_without_sources_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(keep_running=True)
    for id_ in "abc":
        played.fleet.remove(id_)
    played.begin = lambda link: (link.tell(messages.Ready()), setattr(link, "obey", link.die))
    played.then = {3: lambda: setattr(played, "begin", lambda link: link.tell(messages.Ready())), 20: played.fleet.stop}
    assert played.fleet.run() == 130
    assert [process.orders for process in played.processes] == [["go"], ["go"], ["go", "stop"], ["go", "stop"]]


def test_workers_that_cannot_start_are_replaced_a_limited_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(keep_running=True)
    for id_ in "abc":
        played.fleet.remove(id_)
    played.begin = lambda link: link.die()
    assert played.fleet.run() == 1
    assert len(played.processes) == 2


def test_a_source_refused_by_a_worker_fails_unless_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played()
    fleet = played.fleet
    d, e = read_text_sources("d", "e")
    f = read_text_sources("e")[0]
    played.begin = lambda link: (link.tell(messages.Ready()), setattr(link, "obey", lambda order: obey(link, order)))

    def obey(link: FakeWorkerLink, order: str) -> None:
        if order == "go":
            link.report_states(0, {})
        elif order == "add":
            fresh = link.added[-1]
            if fresh.number in (4, 5):  # not the one that replaces the source
                link.tell(messages.Refused(messages.Add(fresh), "it cannot be"))
                del link.sources[fresh.id]
        elif order in ("finish", "stop"):
            link.end(0)

    def later() -> None:
        fleet.add(d)
        fleet.add(e)
        fleet.change(f)
        played.then[8] = lambda: [link.report(3) for link in played.processes]

    played.then[5] = later
    assert fleet.run() == 1
    assert played.logged == ["source d failed: it cannot be"]
    assert {id_: state.error for id_, state in fleet.states.items()} == {
        "a": None,
        "b": None,
        "c": None,
        "d": "it cannot be",
        "e": None,
    }


def read_text_sources(*ids: str) -> list[Any]:
    listed = ", ".join(f"{id_}: 'test://?frames=3'" for id_ in ids)
    return read_text(f"sources: {{{listed}}}\nstages: {{}}").sources


def test_an_error_of_a_worker_before_the_start_aborts_the_others(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        if link.job.part[0] == 0:
            link.tell(messages.Fatal("OutputError", "it is a folder"))
            link.end(1)
        else:
            link.obey = lambda order: link.end(1)

    played.begin = begin
    with pytest.raises(OutputError, match="it is a folder"):
        played.fleet.run()
    assert played.contexts == []  # no sink was opened
    assert played.processes[1].orders[-1] == "abort"
    assert "go" not in played.processes[1].orders
    assert played.fleet.seconds == 0.0
    assert played.logged == []


@pytest.mark.parametrize(("error", "order"), [("OutputError", "stop"), ("StageError", "stop"), ("ModelError", "abort")])
def test_an_error_during_the_run_stops_or_aborts_the_others(played: Played, error: str, order: str) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        other = link.job.part[0]
        link.obey = lambda received: link.finish(received) if received != "go" else None if other else fail(link)

    def fail(link: FakeWorkerLink) -> None:
        link.tell(messages.Fatal(error, "it broke"))
        link.end(1)

    played.begin = begin
    with pytest.raises(StreamkitError, match="it broke") as caught:
        played.fleet.run()
    assert type(caught.value).__name__ == error
    assert played.processes[1].orders == ["go", order]


def test_an_output_error_of_a_shared_sink_stops_all_workers(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        full = [("note", pack(Frame("a", 99, 0.1, 16, 16)), "")]
        link.obey = lambda order: link.finish(order) if order != "go" else link.frames.send(full)

    def wait_for_it() -> None:
        for _ in range(500):
            if played.fleet.fatal is not None:
                return
            played.processes[0].frames.fileno()
            played.fleet.processes.workers[0].receiver.join(0.01)

    played.begin = begin
    played.then[3] = wait_for_it
    with pytest.raises(OutputError, match="the disk is full"):
        played.fleet.run()
    assert [process.orders for process in played.processes] == [["go", "stop"], ["go", "stop"]]


def test_an_output_error_during_the_start_drains_the_sources(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: link.finish(order) if order != "go" else played.fleet.fail(OutputError("it is full"))

    played.begin = begin
    with pytest.raises(OutputError, match="it is full"):
        played.fleet.run()
    assert [process.orders for process in played.processes] == [["go", "stop"], ["go", "stop"]]


def test_the_first_error_is_raised_and_an_unknown_type_is_described(played: Played) -> None:
    fleet = played.fleet
    fleet.fail(ValueError("odd"))
    fleet.fail(SourceError("late"))
    with pytest.raises(StreamkitError, match=r"^ValueError: odd$"):
        fleet.run()
    assert [process.orders for process in played.processes] == [["abort"], ["abort"]]


@pytest.mark.parametrize("kind", [OutputError, StageError])
@pytest.mark.parametrize(("worse", "order"), [(False, "stop"), (True, "abort")])
def test_an_output_or_stage_error_drains_frames_in_flight(played: Played, kind: type, worse: bool, order: str) -> None:
    error = kind.__new__(kind)

    def fail(link: FakeWorkerLink) -> None:
        played.fleet.fail(error)
        if worse:
            played.fleet.fail(SourceError("worse"))

    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda name: fail(link) if name == "go" else link.finish(name)

    played.begin = begin
    with pytest.raises(kind) as caught:
        played.fleet.run()
    assert caught.value is error
    assert [process.orders for process in played.processes] == [["go", order], ["go", order]]


def test_a_worker_that_does_not_end_is_killed_and_reported(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: link.tell(messages.End(0)) if order == "go" else None

    def later() -> None:
        played.clock.now_s = 110.0
        played.then[4] = lambda: setattr(played.clock, "now_s", 110.5)

    played.begin = begin
    played.then[3] = later
    assert played.fleet.run() == 0  # each has reported its end
    assert played.logged == ["its process on cpu does not end and was killed"] * 2
    assert all(process.killed for process in played.processes)
    assert len(played.waits) >= 4
    assert [worker.failure for worker in played.fleet.processes.workers] == [None, None]


def test_a_stop_drains_and_a_second_stop_ends_the_processes_at_once(played: Played, monkeypatch: Any) -> None:
    drained: list[int] = []
    emitter = SimpleNamespace(begin_drain=lambda: drained.append(1))
    monkeypatch.setattr(module, "emitters", lambda runners: [("x", emitter)])

    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: link.die() if order == "now" else None

    def first() -> None:
        played.fleet.stop()
        assert (played.fleet.stopping, drained) == (True, [1])
        assert [process.joined for process in played.processes] == [[], []]

    def second() -> None:
        assert [process.orders for process in played.processes] == [["go", "stop"]] * 2
        played.fleet.stop()
        assert [process.orders[-1] for process in played.processes] == ["now", "now"]
        assert all(0 <= within_s <= 0.5 for process in played.processes for within_s in process.joined)

    played.begin = begin
    played.then |= {3: first, 6: second}
    assert played.fleet.run() == 130
    assert [process.orders for process in played.processes] == [["go", "stop", "now"]] * 2
    assert drained == [1, 1]
    assert played.fleet.fatal is None


# ------------------------------------------------------------------------------------------------------ its parts


def test_messages_and_refusals_of_workers_are_logged(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        if link.job.part[0] == 0:
            link.tell(messages.Logged(("the decoder is slow", 20, "streamkit.x")))
            link.tell(messages.Refused(messages.Pause("a", paused=True), "it has ended"))

    played.begin = begin
    assert played.fleet.run() == 0
    assert played.logged == ["the decoder is slow", "the process of cpu did not carry out pause: it has ended"]


def test_a_trigger_of_a_parent_stage_runs_in_the_parent(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: link.finish(order) if order == "finish" else None

    def trigger() -> None:
        played.fleet.trigger("note", "a", why="asked")
        for process in played.processes:
            process.report(3)

    played.begin = begin
    played.then[5] = trigger
    assert played.fleet.run() == 0
    assert played.triggered == [("a", {"why": "asked"})]
    assert [process.orders for process in played.processes] == [["go", "finish"]] * 2


@pytest.mark.parametrize("why", ["", "lost its GPU: it is hot"])
def test_a_death_is_described_with_the_workers_last_message(played: Played, why: str) -> None:
    def die(link: FakeWorkerLink) -> None:
        if why:
            link.tell(messages.Lost(why))
        link.die()

    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        if link.job.part[0] == 0:
            link.obey = lambda order: die(link)

    played.begin = begin
    assert played.fleet.run() == 0
    assert played.logged[0].startswith(f"its process on cpu {why or 'was killed by SIGKILL'}: its sources restart")


def test_a_report_about_a_replaced_source_is_ignored(played: Played) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        if link.job.part[0] == 1:
            link.obey = lambda order: (stale(link), link.finish(order))

    def stale(link: FakeWorkerLink) -> None:
        states = {"b": SourceState(400, out=400), "a": SourceState(500, out=500)}
        link.tell(messages.Report(WorkerReport({}, states=states, numbers={"b": 99, "a": 1})))

    played.begin = begin
    assert played.fleet.run() == 0
    assert [state.frames for state in played.fleet.states.values()] == [3, 3, 3]


@pytest.mark.parametrize("failed", [False, True])
def test_an_ending_run_restarts_no_source(played: Played, failed: bool) -> None:
    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: None if order != "now" else link.die()

    def end() -> None:
        if failed:
            played.fleet.fail(OutputError("the disk is full"))
        else:
            played.fleet.stop()

    played.begin = begin
    played.then = {3: end, 5: played_death(played, 0), 9: lambda: played.processes[1].finish("stop")}
    if failed:
        with pytest.raises(OutputError, match="the disk is full"):
            played.fleet.run()
    else:
        assert played.fleet.run() == 130
    assert [(state.state, state.error) for state in played.fleet.states.values()] == [
        ("failed", FAILURE),
        ("connecting", None),
        ("failed", FAILURE),
    ]
    assert played.fleet.restarted == 0
    assert played.logged == ([] if failed else [f"source {id_} failed: {FAILURE}" for id_ in "ac"])


@pytest.mark.parametrize("ending", ["", "stopped", "failed", "all is read"])
def test_an_ending_run_starts_no_further_process(ending: str) -> None:
    played = Played(process_limits={"cpu": 3})
    more: list[bool] = []

    def begin(link: FakeWorkerLink) -> None:
        link.tell(messages.Ready())
        link.obey = lambda order: link.work(order) if order not in ("go", "add") else None

    def grow() -> None:
        if ending == "stopped":
            played.fleet.stop()
        elif ending == "failed":
            played.fleet.fail(OutputError("the disk is full"))
        elif ending == "all is read":
            for state in played.fleet.states.values():
                state.done = True
        more.append(played.fleet.growth.start_another() is not None)
        played.fleet.stop()

    played.begin = begin
    played.then[5] = grow
    with pytest.raises(OutputError) if ending == "failed" else nullcontext():
        assert played.fleet.run() == 130
    assert (more, len(played.processes)) == ([not ending], 2 if ending else 3)


def test_facts_of_workers_have_the_age_of_their_last_report(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[list[str], float, bool]] = []

    def aged(self: HealthSnapshot, age_s: float, gone: bool) -> HealthSnapshot:
        calls.append((list(self.sources), age_s, gone))
        return self

    monkeypatch.setattr(HealthSnapshot, "aged", aged)
    fleet = played.fleet
    assert fleet.health().sources == {}  # nothing is known yet
    first, second = fleet.processes.workers
    for worker in fleet.processes.workers:
        source_facts = {id_: {"state": "live"} for id_ in fleet.sources.of(worker)}
        worker.latest = WorkerReport(
            facts=HealthSnapshot(source_facts, {"sources": float(len(source_facts))}), at_s=30.0
        )
    second.failure = "died"
    health = fleet.health()
    assert (list(health.sources), health.pipeline["sources"]) == (["a", "c", "b"], 3.0)
    assert calls == [(["a", "c"], 70.0, False), (["b"], 70.0, True)]
    fleet.sources._owners["b"] = first  # it was restarted there, and is not known there yet
    health = fleet.health()
    assert (list(health.sources), health.pipeline["sources"]) == (["a", "c"], 2.0)
    fleet.sources._owners["b"] = second
    fleet.sources._owners["c"] = second
    assert (list(fleet.health().sources), fleet.health().pipeline["sources"]) == (["a", "b"], 2.0)
