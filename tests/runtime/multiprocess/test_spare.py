"""A process that is kept ready: it takes the sources of a process that dies, or of one that further sources need."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.fleets import until
from support.live_fleets import PICKY, STAGES, Live, deadly, restarts_in

from streamkit.core.data import Device
from streamkit.runtime import prepare as prepare_module
from streamkit.runtime.multiprocess import fleet as fleet_module
from streamkit.runtime.multiprocess import spare_workers, worker_handle
from streamkit.runtime.multiprocess.process_count import DevicePlan, ProcessPlan, SourceLoad
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle

AFTER_S = 2.0
CAMERA = "{uri: 'test://?width=96&height=64&fps=20&frames=100000', pace: realtime}"


class Spared(Live):
    """A run on the CPU with a spare process, in processes that serve two sources each."""

    DEVICE = "cpu"

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        sources: str,
        processes: int,
        limit: int,
        spare_limit: int,
        stages: str = STAGES,
    ) -> None:
        plan = ProcessPlan((DevicePlan(Device("cpu"), processes, limit, "", spare_limit),), {})
        monkeypatch.setattr(prepare_module, "plan_here", lambda graph, **options: plan)
        monkeypatch.setattr(
            fleet_module, "source_loads", lambda graph, realtime, figures: lambda source: SourceLoad(20.0, 0.45, True)
        )
        monkeypatch.setattr(spare_workers, "_SPARE_AFTER_S", AFTER_S)
        super().__init__(folder, dict.fromkeys(sources, CAMERA), stages)

    @property
    def spares(self) -> list[WorkerHandle]:
        return [worker for worker in self.fleet.processes.workers if worker.spare and worker.runs]

    def spare(self) -> WorkerHandle:
        """The spare process, once it is ready."""
        until(lambda: self.spares and self.spares[0].ready)
        (spare,) = self.spares
        return spare

    def owners(self, sources: str) -> dict[str, str]:
        """The sources of each process that has some of these, by its name."""
        named = {self.worker_of(id_).name for id_ in sources}
        return {name: "".join(id_ for id_ in sources if self.worker_of(id_).name == name) for name in sorted(named)}


def kill(worker: WorkerHandle, number: int = signal.SIGKILL) -> int:
    """Kill a process; return its id."""
    pid: int = worker.child.pid
    os.kill(pid, number)
    return pid


def test_sources_of_a_killed_process_move_to_the_spare_process_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Spared(tmp_path, monkeypatch, "abcdef", 3, 3, 4)
    with live.running():
        for source in "abcdef":
            live.more(source)
        spare = live.spare()
        assert live.owners("abcdef") == {"worker 0": "ad", "worker 1": "be", "worker 2": "cf"}
        assert live.fleet.pids == (os.getpid(), *(worker.child.pid for worker in live.fleet.processes.workers))
        assert [device.get("spare") for device in live.run.report(0)["devices"]] == [None, None, None, True]
        pid = spare.child.pid
        kill(live.worker_of("a"))
        until(lambda: live.run.restarted == 2)
        seen = {source: len(live.indices(source)) for source in "ad"}
        until(lambda: all(len(live.indices(source)) > seen[source] for source in "ad"))
        assert live.owners("abcdef") == {"worker 1": "be", "worker 2": "cf", "worker 3": "ad"}
        assert live.worker_of("a") is spare
        assert (spare.child.pid, spare.spare) == (pid, False)
        following = live.spare()
        assert following.number == 4
        for source in "abcdef":
            live.more(source)
        assert live.owners("abcdef") == {"worker 1": "be", "worker 2": "cf", "worker 3": "ad"}
        pids = live.fleet.pids[1:]
        assert len(pids) == 4
    report = live.run.report(130)
    assert not any(psutil.pid_exists(pid) for pid in pids)
    assert (report["restarted"], report["events"]["restarted"]) == (2, 2)
    assert [who for who, _ in restarts_in(live.out / "events.db")] == ["a", "d"]
    for source in "abcdef":
        assert live.indices(source) == sorted(set(live.indices(source)))
        counted = report["sources"][source]
        assert counted["frames"] == counted.get("out", counted["frames"]) + sum(counted.get("dropped", {}).values())
    assert [(device["sources"], device.get("spare")) for device in report["devices"]] == [
        ([], None),
        (["b", "e"], None),
        (["c", "f"], None),
        (["a", "d"], None),
        ([], True),
    ]
    assert report["devices"][4]["frames"] == 0


@pytest.mark.parametrize(("limit", "spare_limit", "follows"), [(3, 4, True), (3, 3, False)])
def test_a_live_addition_that_needs_a_process_uses_the_spare_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, spare_limit: int, follows: bool
) -> None:
    live = Spared(tmp_path, monkeypatch, "abcd", 2, limit, spare_limit)
    with live.running():
        spare = live.spare()
        live.run.add(live.source("e", CAMERA))
        assert live.worker_of("e") is spare
        assert len(live.fleet.processes.workers) == 3
        assert any("would overload the processes: process 3 was kept ready on cpu" in text for text in live.logged)
        live.more("e")
        if follows:
            assert live.spare().number == 3
        else:
            time.sleep(AFTER_S + 1)
            assert not live.spares
        assert live.owners("abcde") == {"worker 0": "ac", "worker 1": "bd", "worker 2": "e"}


def test_without_a_spare_process_a_new_process_and_then_a_spare_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Spared(tmp_path, monkeypatch, "ab", 1, 3, 3)
    with live.running():
        live.more("a")
        assert len(live.fleet.processes.workers) == 1, "one process has none"
        live.run.add(live.source("c", CAMERA))
        assert live.owners("abc") == {"worker 0": "ab", "worker 1": "c"}
        assert live.spare().number == 2
        assert live.owners("abc") == {"worker 0": "ab", "worker 1": "c"}


@pytest.mark.quiet
@pytest.mark.long
def test_a_spare_process_that_dies_is_replaced_twice_and_no_source_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_handle, "SILENT_S", 5.0)
    live = Spared(tmp_path, monkeypatch, "ab", 2, 2, 3)
    with live.running():
        before = live.owners("ab")
        kill(live.spare())
        until(lambda: len(live.fleet.processes.workers) == 4)
        kill(live.spare(), signal.SIGSTOP)
        until(lambda: len(live.fleet.processes.workers) == 5)
        kill(live.spare())
        message = "no spare process is kept on cpu: 3 have died within ten minutes"
        until(lambda: message in live.logged)
        time.sleep(AFTER_S + 1)
        assert not live.spares
        assert len(live.fleet.processes.workers) == 5
        assert live.owners("ab") == before
        assert live.run.restarted == 0
        for source in "ab":
            live.more(source)
        kill(live.worker_of("a"))  # the rules without one
        until(lambda: live.run.restarted == 1)
        live.more("a")
        assert live.owners("ab") == {"worker 1": "ab"}
    assert live.logged.count("the spare process on cpu was killed by SIGKILL") == 2
    assert "the spare process on cpu has not reported for 5 s and was killed" in live.logged
    assert live.logged.count(message) == 1


class Picky(Spared):
    """A run with a stage that cannot be opened while a file is there."""

    PLUGIN = Live.PLUGIN + PICKY


def test_a_spare_process_that_cannot_start_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = STAGES.replace("tag: {}", f"picky: {{file: {tmp_path}/no}}")
    live = Picky(tmp_path, monkeypatch, "ab", 2, 2, 3, stages)
    with live.running():
        spare = live.spare()
        (tmp_path / "no").touch()
        kill(spare)
        until(lambda: len(live.fleet.processes.workers) == 4 and live.fleet.processes.workers[3].over)
        time.sleep(AFTER_S + 1)
        assert len(live.fleet.processes.workers) == 4
        for source in "ab":
            live.more(source)
        assert live.run.restarted == 0
    assert "no spare process is kept on cpu: a process could not start" in live.logged
    assert "a spare process on cpu could not start: the device has no memory left" in live.logged


def test_the_spare_process_reads_all_sources_if_all_others_die(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Spared(tmp_path, monkeypatch, "ab", 2, 2, 3)
    with live.running():
        spare = live.spare()
        live.kill("a", "b")
        until(lambda: live.run.restarted == 2)
        for source in "ab":
            live.more(source)
        assert live.owners("ab") == {spare.name: "ab"}
        live.run.add(live.source("c", CAMERA))
        live.more("c")


@pytest.mark.long
def test_all_processes_are_replaced_if_the_spare_process_dies_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Spared(tmp_path, monkeypatch, "ab", 2, 2, 3)
    with live.running():
        kill(live.spare())
        live.kill("a", "b")
        until(lambda: live.run.restarted == 2)
        for source in "ab":
            live.more(source)
        assert live.owners("ab").keys() == {"worker 3", "worker 4"}
        assert live.spare().number == 5
        assert live.fleet.spares.limits == {"cpu": 3}


def test_a_stop_ends_a_starting_spare_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Spared(tmp_path, monkeypatch, "ab", 2, 2, 3)
    with live.running():
        kill(live.spare())
        until(lambda: len(live.fleet.processes.workers) == 4)
        pid = live.fleet.processes.workers[3].child.pid
    assert not psutil.pid_exists(pid)
    assert live.run.report(130)["restarted" if live.run.restarted else "frames"] > 0


def test_a_run_of_files_ends_with_its_spare_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Spared(tmp_path, monkeypatch, "ab", 2, 2, 3)
    live.write(dict.fromkeys("ab", "'test://?width=96&height=64&fps=40&frames=30'"))
    with live.running(keep_running=False, code=0):
        until(lambda: live.codes)
    assert live.run.report(0)["frames"] == 60
    assert [worker.code for worker in live.fleet.processes.workers] == [0, 0, 0]


def test_changed_options_reach_the_spare_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Spared(tmp_path, monkeypatch, "ab", 2, 2, 3)
    with live.running():
        spare = live.spare()
        live.run.set("tag", {"text": "second"})
        kill(live.worker_of("a"))
        until(lambda: live.run.restarted == 1)
        live.more("a")
        assert live.worker_of("a") is spare
        assert live.texts("a") == {"second"}


class Deadly(Spared):
    """A run in which the fifth frame of source `a` in a process kills it."""

    PLUGIN = Live.PLUGIN + deadly("a", 5)


@pytest.mark.long
def test_a_source_that_kills_its_process_kills_at_most_a_single_spare_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = Deadly(tmp_path, monkeypatch, "abcd", 2, 2, 3, STAGES.replace("tag: {}", "deadly: {}"))
    taken: list[str] = []
    take = spare_workers.SpareWorkers.take

    def note(self: Any, *devices: str, **options: Any) -> Any:
        worker = take(self, *devices, **options)
        taken.extend([] if worker is None else [worker.name])
        return worker

    monkeypatch.setattr(spare_workers.SpareWorkers, "take", note)
    with live.running():
        until(lambda: live.run.states["a"].error, 90)
        live.more("c")
        spare = live.spare()
        assert (taken, spare.runs) == (["worker 2"], True)
        assert live.owners("bd") == {"worker 1": "bd"}
        for source in "bcd":
            live.more(source)
