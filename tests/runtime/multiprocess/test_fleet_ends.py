"""How several processes end: one that fails or is killed, an output that cannot be written, and signals."""

import os
import signal
import subprocess
import time

import av
import pytest
from support.fleets import BOTH, OUTPUTS, PATTERN, Runs, children_of, runs_fixture, shares_of, size, until  # noqa: F401  a fixture

# ---------------------------------------------------------------------------------------------------------- failures


def test_a_process_that_cannot_start_stops_the_others(runs: Runs) -> None:
    completed = runs.run(f"{BOTH}  once: {{file: {runs.folder}/once, what: refuse}}\n{OUTPUTS}")
    assert completed.returncode == 2, completed.stderr
    assert completed.stderr.count("this process is not to be") == 1
    assert not runs.out.exists()
    assert runs.report["frames"] == 0


def test_a_file_of_a_killed_process_is_read_again_without_duplicate_shared_records(runs: Runs) -> None:
    short, long = (f"{{uri: 'test://?width=96&height=64&fps=20&frames={n}', pace: realtime}}" for n in (20, 120))
    sources = f"sources:\n  a: {long}\n  b: {long}\n  early: {short}\n"
    running = runs.start(f"{sources}stages:\n{OUTPUTS}  video: {{path: 'OUT/{{source}}.mp4'}}\n")
    until(lambda: (runs.out / "early.mp4").exists())  # whole, in the process that is killed
    until(lambda: (runs.out / ".all.jsonl.part").read_bytes().count(b'"source":"a"') > 21)
    time.sleep(0.6)  # the end of `early` is reported
    shares_of(running)[0].kill()
    _, log = running.communicate(timeout=60)
    assert running.returncode == 0, log
    assert "Traceback" not in log
    failure = "its process on cpu was killed by SIGKILL"
    assert f"{failure}: its sources restart in another process (a); 0 frames are lost" in log
    report = runs.report
    assert (report["devices"][0]["error"], report["restarted"]) == (failure, 1)
    shared = runs.records("all")
    for source, count in (("a", 120), ("b", 120), ("early", 20)):
        dropped = sum(report["sources"][source].get("dropped", {}).values())  # on a busy machine
        file_indices = [r["frame"] for r in runs.records(source)]
        assert file_indices == sorted(set(file_indices))
        assert len(file_indices) == count - dropped == report["sources"][source]["frames"] - dropped
        shared_indices = [r["frame"] for r in shared if r["source"] == source]
        assert shared_indices == sorted(set(shared_indices))
        assert set(file_indices) <= set(shared_indices)
        with av.open(str(runs.out / f"{source}.mp4")) as container:
            assert sum(1 for _ in container.decode(video=0)) == len(file_indices)
    assert len(list(runs.out.glob("[!.]*"))) == 7


@pytest.mark.parametrize("where", ["b.jsonl", "all.jsonl"])
def test_an_output_that_cannot_be_written_ends_the_run(runs: Runs, where: str) -> None:
    (runs.out / where).mkdir(parents=True)
    completed = runs.run(BOTH + OUTPUTS)
    assert completed.returncode == 1, completed.stderr
    assert f"cannot write {runs.out}/{where}: it is a folder" in completed.stderr
    if where == "b.jsonl":  # the other source's file is whole
        has_file = (runs.out / "a.jsonl").exists()  # it may have been stopped before its first frame
        frames = [r["frame"] for r in runs.records("a")] if has_file else []
        assert frames == list(range(runs.report["sources"]["a"]["frames"]))


def test_on_error_stop_ends_all_processes(runs: Runs) -> None:
    text = f"{BOTH}  raising: {{source: b, run: {{on_error: stop}}}}\n{OUTPUTS}"
    completed = runs.run(text)
    assert completed.returncode == 1, completed.stderr
    assert completed.stderr.count("raising failed on b frame 3 (0.15 s): ValueError: no such luck") == 1
    for source in ("a", "b"):
        assert [r["frame"] for r in runs.records(source)][:4] == list(range(len(runs.records(source))))[:4]
    everything = [r["frame"] for r in runs.records("all") if r["source"] == "b"]
    assert everything[:4] == [0, 1, 2, 3]


# ----------------------------------------------------------------------------------------------------------- signals


def wait_for_outputs(runs: Runs, running: subprocess.Popen[str]) -> None:
    until(lambda: all(size(runs.out / f".{name}.jsonl.part") for name in ("a", "b", "all")) or running.poll())
    assert running.poll() is None, running.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_drains_and_closes_all_processes(runs: Runs, number: int) -> None:
    running = runs.start(BOTH + OUTPUTS)
    wait_for_outputs(runs, running)
    os.killpg(running.pid, number)  # as a terminal does: every process gets it
    _, log = running.communicate(timeout=30)
    assert running.returncode == 130, log
    assert "Traceback" not in log
    assert log.count("stopping: decoded frames are processed") == 1
    report = runs.report
    shared = runs.records("all")
    for source in ("a", "b"):
        frames = list(range(report["sources"][source]["frames"]))
        assert [r["frame"] for r in runs.records(source)] == frames
        assert [r["frame"] for r in shared if r["source"] == source] == frames
    assert report["frames"] == len(shared) > 0
    until(lambda: not children_of(running.pid), 5)


def test_a_second_signal_leaves_no_process_and_no_partial_file(runs: Runs) -> None:
    sources = "".join(f"  {name}: '{PATTERN.format(frames=3000)}'\n" for name in "ab")
    running = runs.start(f"sources:\n{sources}stages:\n{OUTPUTS}  slow: {{}}\n")
    wait_for_outputs(runs, running)
    running.send_signal(signal.SIGINT)
    assert running.stderr is not None
    while not (line := running.stderr.readline()).startswith("stopping: "):
        assert line, "it ended"
    running.send_signal(signal.SIGINT)
    signal_s = time.monotonic()
    running.wait(timeout=10)
    assert running.returncode == 130
    assert time.monotonic() - signal_s < 6  # the rest of the queue takes half a minute
    until(lambda: not children_of(running.pid), 5)
    assert not list(runs.out.glob(".*"))  # what is there is whole


def test_processes_end_when_their_parent_is_killed(runs: Runs) -> None:
    running = runs.start(BOTH + OUTPUTS)
    wait_for_outputs(runs, running)
    assert len(shares_of(running)) == 2
    running.kill()
    until(lambda: not children_of(running.pid), 10)
    assert [path.name for path in runs.out.iterdir()] == [".all.jsonl.part"]  # that of the one that was killed
