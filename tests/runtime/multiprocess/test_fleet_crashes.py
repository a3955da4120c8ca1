"""Real worker processes that are killed: their sources go on in others, and nothing is lost without being counted."""

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest
from support.fleets import (  # noqa: F401  a fixture
    OUTPUTS,
    PATTERN,
    Runs,
    children_of,
    runs_fixture,
    shares_of,
    until,
)
from support.live_fleets import CAMERA, FILE, LOOP, SLOW, STAGES, Live, deadly, restarts_in

from streamkit.runtime.multiprocess import worker_handle
from streamkit.runtime.multiprocess.worker_handle import SILENT_S, WorkerHandle

FAILURE = "its process on cpu was killed by SIGKILL"


@pytest.mark.alone
def test_sources_of_a_killed_process_resume_within_5_s_without_affecting_others(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": LOOP, "b": LOOP})
    with live.running():
        for source in "ab":
            live.more(source)
        time.sleep(2.5)  # the rates are known
        survivor = live.worker_of("b")
        seen = len(live.indices("a"))
        others = len(live.indices("b"))
        killed_s = time.monotonic()
        live.kill("a")
        until(lambda: len(live.indices("a")) > seen + 20)
        assert time.monotonic() - killed_s < 5
        took_s = time.monotonic() - killed_s
        assert live.worker_of("a") is survivor
        assert len(live.indices("b")) - others > took_s * 25 * 0.5
        state = live.run.states["a"]
        until(lambda: live.run.states["a"].state == "running")
        assert live.run.states["a"].frames > state.frames - 1  # the earlier ones are among its counts
    a = live.indices("a")
    b = live.indices("b")
    for indices in (a, b):
        assert indices == sorted(set(indices))  # no index is repeated
    times = [record["pts_s"] for record in live.records("all", "a")]
    assert times == sorted(times)
    gap = max(second - first for first, second in itertools.pairwise(a))
    assert 10 < gap < 150  # what the camera sent meanwhile, and a margin
    report = live.run.report(130)
    source = report["sources"]["a"]
    assert source["frames"] == source["out"] + sum(source["dropped"].values())
    assert source["dropped"].get("process_died", 0) == report["counts"].get("frames dropped: process died", 0)
    assert (report["restarted"], report["events"]["restarted"]) == (1, 1)
    ((who, data),) = restarts_in(live.out / "events.db")
    assert who == "a"
    assert FAILURE in data
    assert '"frames_lost":' in data
    assert any(text.startswith(f"{FAILURE}: its sources restart in another process (a);") for text in live.logged)


@pytest.mark.long
def test_indices_never_repeat_over_several_restarts_with_a_fast_loop(tmp_path: Path) -> None:
    loop = LOOP.replace(", pace: realtime", "")
    live = Live(tmp_path, {"a": loop, "b": CAMERA})
    with live.running():
        for number in range(3):
            live.more("a")
            time.sleep(0.3 + number)
            restarted = live.run.restarted  # of b, too, while both have one process
            live.kill("a")
            until(lambda restarted=restarted: live.run.restarted > restarted)  # type: ignore[misc]
            seen = len(live.indices("a"))
            until(lambda seen=seen: len(live.indices("a")) > seen + 50)  # type: ignore[misc]
    a = live.indices("a")
    assert a == sorted(set(a))
    times = [record["pts_s"] for record in live.records("all", "a")]
    assert times == sorted(times)
    assert live.run.report(130)["sources"]["a"].get("error") is None


def test_a_restarted_file_is_complete_in_its_output_and_once_in_a_shared_one(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": FILE.format(frames=120), "b": FILE.format(frames=120)}, SLOW)
    with live.running(keep_running=False, code=0):
        until(lambda: len(live.indices("a")) > 30)
        live.kill("a")
        until(lambda: live.run.restarted == 1)
        until(lambda: live.run.states["a"].frames > 10)  # and once more, before it has come to where it was
        live.kill("a")
    report = live.run.report(0)
    assert report["restarted"] >= 2
    for source in "ab":
        assert report["sources"][source] == {"frames": 120}
        assert live.indices(source, source) == live.indices(source) == list(range(120))
    causes = restarts_in(live.out / "events.db")
    assert len(causes) == report["restarted"]


@pytest.mark.long
def test_killing_all_processes_at_once_restarts_all_sources(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": LOOP, "b": FILE.format(frames=100)}, SLOW)
    with live.running():
        live.more("a")
        live.more("b")
        pids = set(live.fleet.pids)
        live.kill("a", "b")
        until(lambda: live.run.restarted == 2, 10)
        live.more("a")
        until(lambda: live.run.states["b"].complete)
        assert len(live.fleet.pids) == 3
        assert len(set(live.fleet.pids) & pids) == 1  # the parent
        live.run.add(live.source("c", CAMERA))
        live.more("c")
    for source in "abc":
        assert live.indices(source) == sorted(set(live.indices(source)))
    assert live.indices("b", "b") == live.indices("b")
    assert live.run.report(130)["device"] == "cpu, cpu"


@pytest.mark.long
def test_a_source_that_kills_four_processes_fails_and_others_continue(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": LOOP, "b": LOOP})
    with live.running():
        for number in range(4):
            until(lambda number=number: live.run.states["a"].state == "running" and live.run.restarted >= number)  # type: ignore[misc]
            live.more("a")
            if live.worker_of("b") is live.worker_of("a"):
                live.run.change(live.source("b", LOOP))  # another source, which has not been restarted
            live.kill("a")
            until(lambda number=number: live.run.restarted > number or live.run.states["a"].error)  # type: ignore[misc]
        until(lambda: live.run.states["a"].error)
        assert live.run.states["a"].error == f"{FAILURE}; it was restarted 3 times within ten minutes"
        assert live.run.states["a"].state == "failed"
        live.more("b")
        live.run.change(live.source("a", LOOP))  # by hand
        live.more("a")
        assert live.run.states["a"].error is None
    assert f"source a failed: {FAILURE}; it was restarted 3 times within ten minutes" in live.logged
    removed = live.run.report(130)["removed"]
    assert removed["failed"] == 1
    assert removed["frames"] == removed["out"] + sum(removed["dropped"].values())


def test_a_source_may_be_removed_while_its_process_is_recovered(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": LOOP, "b": LOOP, "c": LOOP})
    with live.running():
        for source in "abc":
            live.more(source)
        assert live.worker_of("a") is live.worker_of("c")
        live.kill("a")
        until(lambda: live.fleet.recovery.dead)
        live.run.remove("a")
        live.run.pause("c")
        live.run.resume("c")
        until(lambda: live.run.restarted == 1)
        live.more("c")
        assert set(live.run.states) == {"b", "c"}
        assert live.run.sources.removed.sources == 1
    report = live.run.report(130)
    removed = report["removed"]
    assert removed["frames"] > 0
    assert removed["frames"] == removed["out"] + sum(removed["dropped"].values())


def test_a_stop_during_the_recovery_ends_the_run(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": LOOP, "b": LOOP})
    with live.running():
        for source in "ab":
            live.more(source)
        live.kill("a")
        until(lambda: live.fleet.recovery.dead)
        live.run.stop()
        until(lambda: live.codes)
    assert live.run.states["a"].error == FAILURE


def test_ctrl_c_during_the_start_of_processes_leaves_no_process(runs: Runs) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=3000)}'\n" for i in range(2))
    running = runs.start(f"sources:\n{sources}stages:\n{OUTPUTS}  slow: {{}}\n")
    until(lambda: (runs.out / ".all.jsonl.part").exists() and (runs.out / ".all.jsonl.part").stat().st_size)
    before = shares_of(running)
    for process in before:
        process.kill()
    until(lambda: [process for process in shares_of(running) if process not in before])
    running.send_signal(signal.SIGINT)
    time.sleep(0.3)
    running.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        running.wait(timeout=15)
    assert running.returncode == 130
    until(lambda: not children_of(running.pid), 5)


def test_a_worker_killed_at_its_start_is_replaced(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": FILE.format(frames=40), "b": FILE.format(frames=40)}, SLOW)
    killed: list[int] = []

    def kill_first() -> None:
        fleet = live.fleet
        until(lambda: fleet.processes.workers[0].child is not None)
        killed.append(fleet.processes.workers[0].child.pid)
        os.kill(killed[0], signal.SIGKILL)

    with live.running(keep_running=False, code=0, meanwhile=kill_first):
        pass
    assert killed
    for source in "ab":
        assert live.indices(source) == live.indices(source, source) == list(range(40))
    assert [who for who, _ in restarts_in(live.out / "events.db")] == ["a"]


def test_a_hanging_process_is_killed_and_its_sources_resume_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_handle, "SILENT_S", 3.0)
    live = Live(tmp_path, {"a": LOOP, "b": LOOP})
    with live.running():
        for source in "ab":
            live.more(source)
        pid = live.worker_of("a").child.pid
        live.kill("a", number=signal.SIGSTOP)
        start_s = time.monotonic()
        until(lambda: live.run.restarted == 1)
        assert time.monotonic() - start_s > 2
        live.more("a")
        live.more("b")
        assert not psutil.pid_exists(pid)
    failure = "its process on cpu has not reported for 3 s and was killed"
    assert failure in live.logged
    assert any(text.startswith(f"{failure}: its sources restart in another process (a);") for text in live.logged)


def test_only_a_ready_but_silent_process_is_killed() -> None:
    handle = WorkerHandle(device="cpu")
    handle.silent_s = 1e6
    assert handle.overdue(0.0) is None  # it may tune networks
    handle.ready = True
    handle.silent_s = SILENT_S
    assert handle.overdue(0.0) is None
    handle.silent_s = SILENT_S + 0.1
    assert handle.overdue(0.0) == "its process on cpu has not reported for 15 s and was killed"


class Deadly(Live):
    """A run with a source whose tenth frame in a process kills it."""

    PLUGIN = Live.PLUGIN + deadly("bad", 10)


def test_a_source_that_kills_its_processes_is_isolated_and_fails_alone(tmp_path: Path) -> None:
    names = ["bad", "a", "b", "c", "d", "e"]
    live = Deadly(tmp_path, dict.fromkeys(names, LOOP), STAGES.replace("tag: {}", "deadly: {}"))
    with live.running():
        first, second = (live.fleet.sources.of(worker) for worker in live.fleet.processes.workers)
        assert (first, second) == (["bad", "b", "d"], ["a", "c", "e"])
        until(lambda: live.run.states["bad"].error)
        for source in names[1:]:
            live.more(source)
            assert live.run.states[source].error is None
        deaths = sum(worker.failure is not None for worker in live.fleet.processes.workers)
    assert deaths == 4
    assert live.run.states["bad"].error == f"{FAILURE}; it was restarted 3 times within ten minutes"
    restarts = Counter(source for source, _ in restarts_in(live.out / "events.db"))
    assert [restarts[source] for source in second] == [1, 1, 1]  # when it was new among them
    assert [restarts[source] for source in first] == [3, 2, 3]  # b left it before d did


@pytest.mark.slow
@pytest.mark.long
def test_memory_and_handles_stay_flat_over_20_deaths(tmp_path: Path) -> None:
    live = Live(tmp_path, {"a": CAMERA}, "\n  all: {stage: jsonl, path: OUT/all.jsonl}\n")
    parent = psutil.Process()
    handles = []
    memory = []
    threads = []
    with live.running():
        for number in range(20):
            live.more("a")
            live.kill("a")
            live.run.remove("a")
            until(lambda number=number: sum(w.failure is not None for w in live.fleet.processes.workers) > number)  # type: ignore[misc]
            live.run.add(live.source("a", CAMERA.replace("64", str(64 + 2 * number))))
            live.more("a")
            handles.append(parent.num_fds())
            threads.append(parent.num_threads())
            memory.append(parent.memory_info().rss)
    assert max(handles[5:]) <= handles[2] + 2, handles
    assert max(threads[5:]) <= threads[2] + 2, threads
    assert memory[-1] - memory[4] < 8_000_000, memory
