"""Several devices, shown on the CPU twice: the same results and report as one, and which of them are taken."""

import csv
import json
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path

import av
import pytest
from support.commands import Here
from support.fleets import BOTH, OUTPUTS, PATTERN, Runs, runs_fixture, shares_of, source_of, until  # noqa: F401  a fixture
from support.messages import collect
from support.worker_links import FakeWorkerLink

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.fleet import WorkerFleet
from streamkit.runtime.multiprocess.partition import assign_sources
from streamkit.runtime.multiprocess.worker import WorkerConfig
from streamkit.runtime.multiprocess.worker_processes import Machine

# ------------------------------------------------------------------------------------------------------ the results

WHOLE = """
sources:
  a: samples/street.mp4
  b: {uri: samples/street.mp4, start: 3s}
  c/d: "test://?width=320&height=240&fps=10&frames=25"
  gone: nowhere.mp4
stages:
  detect: {model: demo, min_score: 0.4}
  all: {stage: jsonl, path: OUT/all.jsonl}
  odd: {}
  track: {}
  moving: {stage: rule, rules: {wide: {when: "car and width > 60"}, many: {when: "count(car) > 1 for 200ms"}}}
  late: {stage: jsonl, path: OUT/late.jsonl}
  rows: {stage: csv, path: OUT/rows.csv}
  one: {stage: jsonl, path: "OUT/{source}.jsonl"}
  draw: {}
  video: {path: "OUT/{source}.mp4"}
"""


def test_two_processes_give_the_results_of_a_single_process(runs: Runs, tmp_path: Path) -> None:
    done = {}
    for processes in (1, 2):
        runs.out = tmp_path / str(processes)
        done[processes] = runs.run(WHOLE, "--limit", 30, processes=processes)
        done[processes].report = runs.report  # type: ignore[attr-defined]
    single = tmp_path / "1"
    several = tmp_path / "2"
    names = sorted(path.relative_to(single) for path in single.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(several) for path in several.rglob("*") if path.is_file())
    assert len(names) == 9
    for source in ("a", "b", "c/d"):
        assert (single / f"{source}.jsonl").read_bytes() == (several / f"{source}.jsonl").read_bytes()
    for shared in ("all", "late"):
        whole = [(folder / f"{shared}.jsonl").read_bytes().splitlines() for folder in (single, several)]
        assert sorted(whole[0]) == sorted(whole[1])
        for source in ("a", "b", "c/d"):
            first, second = ([line for line in lines if source_of(line) == source] for lines in whole)
            assert first == second
    assert b'"own":"my own"' in (several / "late.jsonl").read_bytes()
    assert b'"events":[{' not in (several / "all.jsonl").read_bytes()  # what a later stage adds is not seen above it
    assert b"no such luck" in (several / "late.jsonl").read_bytes()
    for rule in (b"wide", b"many"):
        raised = [line for line in (several / "late.jsonl").read_bytes().splitlines() if b'"rule":"%b"' % rule in line]
        assert {source_of(line) for line in raised} == {"a", "b"}
    rows = [list(csv.reader((folder / "rows.csv").read_text().splitlines())) for folder in (single, several)]
    assert rows[0][0] == rows[1][0]
    assert sorted(rows[0]) == sorted(rows[1])
    with av.open(str(several / "b.mp4")) as container:
        assert sum(1 for _ in container.decode(video=0)) == 26  # four frames failed
    assert [d.returncode for d in done.values()] == [1, 1]
    reports = [d.report for d in done.values()]  # type: ignore[attr-defined]
    for key in ("exit_code", "frames", "detections", "events", "counts", "sources"):
        assert reports[0][key] == reports[1][key]
    assert list(reports[0]["stages"]) == list(reports[1]["stages"])
    for id_, stage in reports[0]["stages"].items():
        for key in ("frames", "failed"):
            assert stage.get(key) == reports[1]["stages"][id_].get(key)
    devices = reports[1]["devices"]
    assert [(d["device"], d["sources"]) for d in devices] == [("cpu", ["a", "c/d"]), ("cpu", ["b", "gone"])]
    assert sum(d["frames"] for d in devices) == reports[1]["frames"] == 85
    for log in (d.stderr for d in done.values()):
        assert log.count("source gone failed:") == 1
        assert log.count("odd failed on a frame 3 ") == 1
        assert "1 of 4 sources failed: gone" in log


def test_new_messages_of_workers_are_logged_after_thousands_of_others(tmp_path: Path) -> None:
    """Messages of cameras that come and go carry the time, so that each is a new one."""
    graph = build(
        read_text(
            "device: {use: cpu, processes: 2}\nsources: {a: 'test://', b: 'test://'}\n"
            f"stages: {{jsonl: {{path: {tmp_path}/all.jsonl}}}}"
        )
    )
    logged = collect()
    texts = [*(f"source a is lost at {second}: trying again" for second in range(12_000)), *["the disk is full"] * 2]

    def launch(name: str, job: WorkerConfig, frames: Connection) -> FakeWorkerLink:
        link = FakeWorkerLink(name, job, frames)
        link.tell(messages.Ready())
        for text in texts if job.part[0] == 0 else ():
            link.tell(messages.Logged((text, 20, "streamkit")))
        return link

    machine = Machine(launch=launch, wait=lambda links, timeout_s: None)
    assert WorkerFleet(graph, assign_sources(graph), tmp_path / "p.yaml", {}, machine=machine).run() == 0
    assert len(logged) == 12_001
    assert logged[-1] == "the disk is full"


def test_standard_output_has_only_records(runs: Runs) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=40)}'\n" for i in range(3))
    completed = runs.run(f"sources:\n{sources}stages:\n  jsonl: {{path: '-'}}\n")
    assert completed.returncode == 0, completed.stderr
    records = [json.loads(line) for line in completed.stdout.splitlines()]
    for i in range(3):
        assert [r["frame"] for r in records if r["source"] == f"s{i}"] == list(range(40))


def test_latency_and_progress_cover_all_processes(runs: Runs) -> None:
    paced = "{uri: 'test://?width=96&height=64&fps=20&frames=120', pace: realtime}"
    completed = runs.run(f"sources:\n  a: {paced}\n  b: {paced}\nstages:\n  jsonl: {{path: OUT/all.jsonl}}\n")
    assert completed.returncode == 0, completed.stderr
    assert 0 < runs.report["latency"]["jsonl"]["p50_ms"] < 2000
    assert "0 of 2 sources ended" in completed.stderr
    dropped = sum(
        n for what, n in runs.report["counts"].items() if what.startswith("frames dropped")
    )  # on a busy machine
    assert f"{240 - dropped} frames in" in completed.stderr


def test_a_slow_shared_sink_makes_the_sources_wait(runs: Runs) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=3000)}'\n" for i in range(2))
    running = runs.start(f"sources:\n{sources}stages:\n  slow: {{}}\n")
    until(lambda: len(shares_of(running)) == 2)
    time.sleep(4)
    running.send_signal(signal.SIGINT)
    _, log = running.communicate(timeout=60)
    assert running.returncode == 130, log
    report = runs.report
    read = sum(source["frames"] for source in report["sources"].values())
    assert read == report["frames"] == report["stages"]["slow"]["frames"] < 1500  # of 6000


# ------------------------------------------------------------------------------------------------ choice of devices


def test_devices_without_a_source_are_reported_and_unused(runs: Runs) -> None:
    text = f"sources: {{a: '{PATTERN.format(frames=5)}'}}\nstages:\n  jsonl: {{path: OUT/all.jsonl}}\n"
    completed = runs.run(text, device="cpu,cuda:9")
    assert completed.returncode == 0, completed.stderr
    assert "cuda:9 is not used: there are more devices than sources" in completed.stderr
    assert runs.report["device"] == "cpu"


def test_a_missing_device_exits_with_code_2(runs: Runs) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=5)}'\n" for i in range(2))
    completed = runs.run(
        f"device: [cpu, cuda:7]\nsources:\n{sources}stages:\n  jsonl: {{path: OUT/a.jsonl}}\n",
        device="cpu,cuda:7",
        processes=1,
    )
    assert completed.returncode == 2
    assert "device cuda:7 cannot be used" in completed.stderr
    assert not runs.out.exists()


def test_a_shared_sink_that_needs_pixels_is_refused(runs: Runs, root: Path, here: Here) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=5)}'\n" for i in range(2))
    path = runs.write(f"sources:\n{sources}stages:\n  shots: {{}}\n")
    for command in ("run", "check", "graph"):
        completed = here(command, path, "--set", "device.processes=2", cwd=root)
        assert completed.returncode == 2
        assert "p.yaml:6:10: shots reads pixels of sources in several processes" in completed.stderr


def test_the_graph_shows_the_process_of_each_source(runs: Runs, root: Path, here: Here) -> None:
    path = runs.folder / "g.yaml"
    path.write_text(WHOLE.replace("OUT", "out").replace("  odd: {}\n", ""))
    completed = here("graph", path, "--device", "cpu", "--set", "device.processes=2", cwd=root)
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.splitlines()[-2:] == ["process on cpu: a, c/d", "process on cpu: b, gone"]
    assert "crossing" not in completed.stdout


# --------------------------------------------------------------------------------------------------------------- GPU


@pytest.mark.gpu
@pytest.mark.parametrize(("device", "processes"), [("cuda:0", 2), ("cuda:0,cuda:1", 1)])
def test_gpus_share_the_sources(root: Path, tmp_path: Path, device: str, processes: int) -> None:
    import cupy

    if "," in device and cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one GPU only")
    outputs = {}
    for name, count in (("cuda:0", 1), (device, processes)):
        out = tmp_path / f"{name}-{count}"
        path = tmp_path / "p.yaml"
        path.write_text(WHOLE.replace("OUT", str(out)).replace("  odd: {}\n", "").replace("  gone: nowhere.mp4\n", ""))
        line = [
            sys.executable,
            root / "run.py",
            path,
            "--device",
            name,
            "--set",
            f"device.processes={count}",
            "--limit",
            "100",
            "--report",
            out / "r.json",
        ]
        completed = subprocess.run(line, capture_output=True, text=True, cwd=root, timeout=170)
        assert completed.returncode == 0, completed.stderr
        lines = (out / "all.jsonl").read_text().splitlines()
        records: dict[str, list[tuple[int, int]]] = {}
        for record in map(json.loads, lines):
            records.setdefault(record["source"], []).append((record["frame"], len(record["objects"])))
        outputs[name, count] = records, json.loads((out / "r.json").read_text())
    (single_records, single_report), (many_records, many_report) = outputs.values()
    assert {id_: [frame for frame, _ in rows] for id_, rows in single_records.items()} == {
        id_: [frame for frame, _ in rows] for id_, rows in many_records.items()
    }
    counts = [sum(n for rows in records.values() for _, n in rows) for records in (single_records, many_records)]
    assert counts[0] == pytest.approx(counts[1], rel=0.02)
    assert single_report["frames"] == many_report["frames"]
    assert [d["device"] for d in many_report["devices"]] == device.split(",") * processes
