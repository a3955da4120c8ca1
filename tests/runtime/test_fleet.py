"""Several devices, shown on the CPU twice: the same results, report and exit codes as one, and nothing left behind."""

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import av
import psutil
import pytest

PATTERN = "test://?width=96&height=64&fps=10&frames={frames}"
ENDLESS = "{{uri: 'test://?width=96&height=64&fps=20', pace: realtime}}"

PLUGIN = '''
import os, time
from pathlib import Path
import numpy as np
from streamkit import BatchStage, FrameStage, Sink, stage
from streamkit.errors import ConfigError

class Own:
    def __str__(self):
        return "my own"

@stage("odd", writes="events")
class Odd(FrameStage):
    """Fails now and then, and emits what JSON does not have."""

    def process(self, frame):
        if frame.index % 7 == 3:
            raise ValueError("no such luck")
        frame.emit("seen", score=np.float32(0.5), own=Own(), points=[(1, 2)], at=np.arange(3), text="é")

@stage("raising")
class Raising(FrameStage):
    """Fails on one source."""

    source: str

    def process(self, frame):
        if frame.source == self.source and frame.index == 3:
            raise ValueError("no such luck")

@stage("once")
class Once(BatchStage):
    """Does to one process only, the first that comes, what `what` says."""

    file: str
    what: str

    def open(self):
        try:
            os.close(os.open(self.file, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        if self.what == "die":
            os.abort()
        raise ConfigError("this process is not to be")

    def process(self, batch):
        return batch

@stage("shots", reads="pixels")
class Shots(Sink):
    """Needs pixels."""

    def write(self, frame):
        frame.rgb()

@stage("slow")
class Slow(Sink):
    """Takes its time."""

    def write(self, frame):
        time.sleep(0.01)
'''


class Runs:
    """Runs the command on a YAML; every process that it leaves behind is an error."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.out = root, folder, folder / "out"
        (folder / "odd.py").write_text(PLUGIN)
        self.running: list[subprocess.Popen[str]] = []

    def start(self, text: str, *args: object, device: str = "cpu,cpu") -> subprocess.Popen[str]:
        path = self.folder / "p.yaml"
        path.write_text("plugins: [odd.py]\n" + text.replace("OUT", str(self.out)))
        line = [sys.executable, "-W", "error", str(self.root / "run.py"), str(path), "--device", device,
                "--report", str(self.folder / "r.json"), *map(str, args)]  # fmt: skip
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        made = subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.root, env=environment,
            start_new_session=True,
        )  # fmt: skip
        self.running.append(made)
        return made

    def run(self, text: str, *args: object, device: str = "cpu,cpu") -> subprocess.CompletedProcess[str]:
        made = self.start(text, *args, device=device)
        out, told = made.communicate(timeout=120)
        assert "Traceback" not in told
        until(lambda: not children_of(made.pid), 5)
        return subprocess.CompletedProcess(made.args, made.returncode, out, told)

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "r.json").read_text())
        return found

    def records(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture
def runs(root: Path, tmp_path: Path) -> Iterator[Runs]:
    made = Runs(root, tmp_path)
    yield made
    for one in made.running:
        left = [*shares_of(one), *([one] if one.poll() is None else [])]
        for process in left:
            process.kill()
        one.communicate()


def shares_of(running: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of a fleet, in the order in which they were started."""
    found = []
    for child in children_of(running.pid):
        with contextlib.suppress(psutil.Error):
            if "spawn_main" in " ".join(child.cmdline()):
                found.append(child)
    return sorted(found, key=lambda child: child.pid)


def children_of(session: int) -> list[psutil.Process]:
    """All processes of a session but its leader, so also those whose parent is gone."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.pid != session and os.getsid(process.pid) == session:
                found.append(process)
    return found


def until(what: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "it did not come to this"
        time.sleep(0.05)
    return found


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def source_of(line: bytes) -> str:
    found: str = json.loads(line)["source"]
    return found


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


def test_two_processes_give_what_one_gives(runs: Runs, tmp_path: Path) -> None:
    done = {}
    for device in ("cpu", "cpu,cpu"):
        runs.out = tmp_path / device.replace(",", "-")
        done[device] = runs.run(WHOLE, "--limit", 30, device=device)
        done[device].report = runs.report  # type: ignore[attr-defined]
    one, two = tmp_path / "cpu", tmp_path / "cpu-cpu"
    names = sorted(path.relative_to(one) for path in one.rglob("*") if path.is_file())
    assert names == sorted(path.relative_to(two) for path in two.rglob("*") if path.is_file())
    assert len(names) == 9
    for source in ("a", "b", "c/d"):
        assert (one / f"{source}.jsonl").read_bytes() == (two / f"{source}.jsonl").read_bytes()
    for shared in ("all", "late"):
        whole = [(folder / f"{shared}.jsonl").read_bytes().splitlines() for folder in (one, two)]
        assert sorted(whole[0]) == sorted(whole[1])
        for source in ("a", "b", "c/d"):
            first, second = ([line for line in lines if source_of(line) == source] for lines in whole)
            assert first == second
    assert b'"own":"my own"' in (two / "late.jsonl").read_bytes()
    assert b'"events":[{' not in (two / "all.jsonl").read_bytes()  # what a later stage adds is not seen above it
    assert b"no such luck" in (two / "late.jsonl").read_bytes()
    for rule in (b"wide", b"many"):
        raised = [line for line in (two / "late.jsonl").read_bytes().splitlines() if b'"rule":"%b"' % rule in line]
        assert {source_of(line) for line in raised} == {"a", "b"}
    rows = [list(csv.reader((folder / "rows.csv").read_text().splitlines())) for folder in (one, two)]
    assert rows[0][0] == rows[1][0]
    assert sorted(rows[0]) == sorted(rows[1])
    with av.open(str(two / "b.mp4")) as container:
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
    for told in (d.stderr for d in done.values()):
        assert told.count("source gone failed:") == 1
        assert told.count("odd failed on a frame 3 ") == 1
        assert "1 of 4 sources failed: gone" in told


def test_standard_output_has_the_records_alone(runs: Runs) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=40)}'\n" for i in range(3))
    done = runs.run(f"sources:\n{sources}stages:\n  jsonl: {{path: '-'}}\n")
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    for i in range(3):
        assert [r["frame"] for r in records if r["source"] == f"s{i}"] == list(range(40))


def test_latency_and_progress_are_of_all_processes(runs: Runs) -> None:
    paced = "{uri: 'test://?width=96&height=64&fps=20&frames=120', pace: realtime}"
    done = runs.run(f"sources:\n  a: {paced}\n  b: {paced}\nstages:\n  jsonl: {{path: OUT/all.jsonl}}\n")
    assert done.returncode == 0, done.stderr
    assert 0 < runs.report["latency"]["jsonl"]["p50_ms"] < 2000
    assert "0 of 2 sources ended" in done.stderr
    assert "240 frames in" in done.stderr


def test_a_slow_shared_sink_makes_the_sources_wait(runs: Runs) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=3000)}'\n" for i in range(2))
    running = runs.start(f"sources:\n{sources}stages:\n  slow: {{}}\n")
    until(lambda: len(shares_of(running)) == 2)
    time.sleep(4)
    running.send_signal(signal.SIGINT)
    _, told = running.communicate(timeout=60)
    assert running.returncode == 130, told
    report = runs.report
    read = sum(source["frames"] for source in report["sources"].values())
    assert read == report["frames"] == report["stages"]["slow"]["frames"] < 1500  # of 6000


# ------------------------------------------------------------------------------------------------ choice of devices


def test_devices_without_a_source_are_said_and_not_used(runs: Runs) -> None:
    text = f"sources: {{a: '{PATTERN.format(frames=5)}'}}\nstages:\n  jsonl: {{path: OUT/all.jsonl}}\n"
    done = runs.run(text, device="cpu,cuda:9")
    assert done.returncode == 0, done.stderr
    assert "cuda:9 is not used: there are more devices than sources" in done.stderr
    assert runs.report["device"] == "cpu"


def test_a_device_that_is_not_there_is_exit_2(runs: Runs) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=5)}'\n" for i in range(2))
    done = runs.run(f"device: [cpu, cuda:7]\nsources:\n{sources}stages:\n  jsonl: {{path: OUT/a.jsonl}}\n",
                    device="cpu,cuda:7")  # fmt: skip
    assert done.returncode == 2
    assert "device cuda:7 cannot be used" in done.stderr
    assert not runs.out.exists()


def test_a_shared_sink_that_needs_pixels_is_refused(runs: Runs, root: Path) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=5)}'\n" for i in range(2))
    done = runs.run(f"sources:\n{sources}stages:\n  shots: {{}}\n")
    assert done.returncode == 2
    assert "p.yaml:6:10: shots reads pixels of sources on several devices" in done.stderr
    for command in ("check", "graph"):
        line = [sys.executable, root / "run.py", command, runs.folder / "p.yaml", "--device", "cpu,cpu"]
        told = subprocess.run(line, capture_output=True, text=True, cwd=root)
        assert (told.returncode, "shots reads pixels" in told.stderr) == (2, True)


def test_state_is_of_one_device(runs: Runs, root: Path) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=5)}'\n" for i in range(2))
    done = runs.run(f"state: {runs.folder}/state.db\nsources:\n{sources}stages:\n{OUTPUTS}")
    line = [sys.executable, root / "run.py", "check", runs.folder / "p.yaml", "--device", "cpu,cpu"]
    checked = subprocess.run(line, capture_output=True, text=True, cwd=root)
    for code, told in ((done.returncode, done.stderr), (checked.returncode, checked.stderr)):
        assert (code, "state keeps the changes of one process" in told) == (2, True), told


def test_a_timeline_is_of_one_device(runs: Runs) -> None:
    done = runs.run(BOTH + OUTPUTS, "--profile", runs.folder / "profile.json")
    assert done.returncode == 2
    assert "--profile shows one process, and each device has its own; name one" in done.stderr


def test_the_graph_says_which_process_has_which_sources(runs: Runs, root: Path) -> None:
    (runs.folder / "g.yaml").write_text(WHOLE.replace("OUT", "out").replace("  odd: {}\n", ""))
    line = [sys.executable, root / "run.py", "graph", runs.folder / "g.yaml", "--device", "cpu,cpu"]
    told = subprocess.run(line, capture_output=True, text=True, cwd=root)
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines()[-2:] == ["process on cpu: a, c/d", "process on cpu: b, gone"]
    assert "crossing" not in told.stdout


# ---------------------------------------------------------------------------------------------------------- failures

BOTH = f"""
sources:
  a: {ENDLESS.format()}
  b: {ENDLESS.format()}
stages:
"""
OUTPUTS = '  jsonl: {path: "OUT/{source}.jsonl"}\n  all: {stage: jsonl, path: OUT/all.jsonl}\n'


def test_a_process_that_cannot_begin_stops_the_others(runs: Runs) -> None:
    done = runs.run(f"{BOTH}  once: {{file: {runs.folder}/once, what: refuse}}\n{OUTPUTS}")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("this process is not to be") == 1
    assert not runs.out.exists()
    assert runs.report["frames"] == 0


def test_a_process_that_dies_before_the_start_fails_its_sources(runs: Runs) -> None:
    sources = "".join(f"  s{i}: '{PATTERN.format(frames=20)}'\n" for i in range(2))
    text = f"sources:\n{sources}stages:\n  once: {{file: {runs.folder}/once, what: die}}\n{OUTPUTS}"
    done = runs.run(text)
    assert done.returncode == 1, done.stderr
    assert "failed: its process on cpu was killed by SIGABRT" in done.stderr
    (well,) = (id_ for id_, source in runs.report["sources"].items() if "error" not in source)
    assert [r["frame"] for r in runs.records(well)] == list(range(20))
    assert [(r["source"], r["frame"]) for r in runs.records("all")] == [(well, i) for i in range(20)]


def test_a_process_that_is_killed_fails_its_sources_alone(runs: Runs) -> None:
    short, long = (f"{{uri: 'test://?width=96&height=64&fps=20&frames={n}', pace: realtime}}" for n in (20, 120))
    sources = f"sources:\n  a: {long}\n  b: {long}\n  early: {short}\n"
    running = runs.start(f"{sources}stages:\n{OUTPUTS}  video: {{path: 'OUT/{{source}}.mp4'}}\n")
    until(lambda: (runs.out / "early.mp4").exists())  # whole, in the process that is killed
    until(lambda: (runs.out / ".all.jsonl.part").read_bytes().count(b'"source":"a"') > 21)
    shares_of(running)[0].kill()
    _, told = running.communicate(timeout=60)
    assert running.returncode == 1, told
    assert "Traceback" not in told
    assert "source a failed: its process on cpu was killed by SIGKILL" in told
    sources_ = runs.report["sources"]
    assert [id_ for id_, source in sources_.items() if "error" in source] == ["a"]
    assert runs.report["devices"][0]["error"] == "its process on cpu was killed by SIGKILL"
    assert [r["frame"] for r in runs.records("b")] == list(range(120))
    shared = runs.records("all")
    assert [r["frame"] for r in shared if r["source"] == "b"] == list(range(120))
    a = [r["frame"] for r in shared if r["source"] == "a"]
    assert a == list(range(len(a)))
    assert 20 < len(a) < 120
    assert sorted(path.name for path in runs.out.glob("[!.]*")) == [
        "all.jsonl", "b.jsonl", "b.mp4", "early.jsonl", "early.mp4",
    ]  # fmt: skip


@pytest.mark.parametrize("where", ["b.jsonl", "all.jsonl"])
def test_an_output_that_cannot_be_written_ends_the_run(runs: Runs, where: str) -> None:
    (runs.out / where).mkdir(parents=True)
    done = runs.run(BOTH + OUTPUTS)
    assert done.returncode == 1, done.stderr
    assert f"cannot write {runs.out}/{where}: it is a folder" in done.stderr
    if where == "b.jsonl":  # the other source's file is whole
        begun = (runs.out / "a.jsonl").exists()  # it may have been stopped before its first frame
        frames = [r["frame"] for r in runs.records("a")] if begun else []
        assert frames == list(range(runs.report["sources"]["a"]["frames"]))


def test_on_error_stop_ends_all_processes(runs: Runs) -> None:
    text = f"{BOTH}  raising: {{source: b, run: {{on_error: stop}}}}\n{OUTPUTS}"
    done = runs.run(text)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("raising failed on b frame 3 (0.15 s): ValueError: no such luck") == 1
    for source in ("a", "b"):
        assert [r["frame"] for r in runs.records(source)][:4] == list(range(len(runs.records(source))))[:4]
    everything = [r["frame"] for r in runs.records("all") if r["source"] == "b"]
    assert everything[:4] == [0, 1, 2, 3]


# ----------------------------------------------------------------------------------------------------------- signals


def begun(runs: Runs, running: subprocess.Popen[str]) -> None:
    until(lambda: all(size(runs.out / f".{name}.jsonl.part") for name in ("a", "b", "all")) or running.poll())
    assert running.poll() is None, running.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_closes_in_all_processes(runs: Runs, number: int) -> None:
    running = runs.start(BOTH + OUTPUTS)
    begun(runs, running)
    os.killpg(running.pid, number)  # as a terminal does: every process gets it
    _, told = running.communicate(timeout=30)
    assert running.returncode == 130, told
    assert "Traceback" not in told
    assert told.count("stopping: what is decoded is finished") == 1
    report = runs.report
    shared = runs.records("all")
    for source in ("a", "b"):
        frames = list(range(report["sources"][source]["frames"]))
        assert [r["frame"] for r in runs.records(source)] == frames
        assert [r["frame"] for r in shared if r["source"] == source] == frames
    assert report["frames"] == len(shared) > 0
    until(lambda: not children_of(running.pid), 5)


@pytest.mark.alone
def test_a_second_signal_leaves_no_process_and_no_half_file(runs: Runs) -> None:
    sources = "".join(f"  {name}: '{PATTERN.format(frames=3000)}'\n" for name in "ab")
    running = runs.start(f"sources:\n{sources}stages:\n{OUTPUTS}  slow: {{}}\n")
    begun(runs, running)
    running.send_signal(signal.SIGINT)
    assert running.stderr is not None
    while not (line := running.stderr.readline()).startswith("stopping: "):
        assert line, "it ended"
    running.send_signal(signal.SIGINT)
    asked = time.monotonic()
    running.wait(timeout=10)
    assert running.returncode == 130
    assert time.monotonic() - asked < 6  # the rest of the queue takes half a minute
    until(lambda: not children_of(running.pid), 5)
    assert not list(runs.out.glob(".*"))  # what is there is whole


def test_processes_end_when_their_parent_is_killed(runs: Runs) -> None:
    running = runs.start(BOTH + OUTPUTS)
    begun(runs, running)
    assert len(shares_of(running)) == 2
    running.kill()
    until(lambda: not children_of(running.pid), 10)
    assert [path.name for path in runs.out.iterdir()] == [".all.jsonl.part"]  # that of the one that was killed


# --------------------------------------------------------------------------------------------------------------- GPU


@pytest.mark.gpu
@pytest.mark.parametrize("device", ["cuda:0,cuda:0", "cuda:0,cuda:1"])
def test_gpus_share_the_sources(root: Path, tmp_path: Path, device: str) -> None:
    import cupy

    if "1" in device and cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("there is one GPU only")
    found = {}
    for name in ("cuda:0", device):
        out = tmp_path / name.replace(",", "-")
        path = tmp_path / "p.yaml"
        path.write_text(WHOLE.replace("OUT", str(out)).replace("  odd: {}\n", "").replace("  gone: nowhere.mp4\n", ""))
        line = [sys.executable, root / "run.py", path, "--device", name, "--limit", "100", "--report", out / "r.json"]
        done = subprocess.run(line, capture_output=True, text=True, cwd=root, timeout=170)
        assert done.returncode == 0, done.stderr
        lines = (out / "all.jsonl").read_text().splitlines()
        records: dict[str, list[tuple[int, int]]] = {}
        for one in map(json.loads, lines):
            records.setdefault(one["source"], []).append((one["frame"], len(one["objects"])))
        found[name] = records, json.loads((out / "r.json").read_text())
    (one_records, one), (many_records, many) = found.values()
    assert {id_: [frame for frame, _ in rows] for id_, rows in one_records.items()} == {
        id_: [frame for frame, _ in rows] for id_, rows in many_records.items()
    }
    counts = [sum(n for rows in records.values() for _, n in rows) for records in (one_records, many_records)]
    assert counts[0] == pytest.approx(counts[1], rel=0.02)
    assert one["frames"] == many["frames"]
    assert [d["device"] for d in many["devices"]] == device.split(",")
