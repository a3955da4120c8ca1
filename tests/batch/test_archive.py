"""The promise of archives: killed at any moment and gone on with, by however many workers, the data set is the same."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.corpus import Corpus, make

from streamkit.batch.tables import RUN_COLUMNS

ROOT = Path(__file__).resolve().parents[2]
YAML = """
device: cpu
stages:
  detect: {model: demo}
  track: {}
  dwell: {stage: zone, polygon: [[0, 0], [320, 0], [320, 192], [0, 192]]}
"""


def data_set(folder: Path) -> Any:
    from pyarrow.dataset import dataset  # imports pandas, in each process that collects the tests

    return dataset(folder)


@dataclass
class Archive:
    """Files, a pipeline, and runs of `run.py batch` over them: in this process where there is a way `here`."""

    corpus: Corpus
    pipeline: Path
    options: tuple[str, ...] = ()
    here: Callable[..., subprocess.CompletedProcess[str]] | None = None

    def words(self, out: Path, *options: str) -> list[str]:
        return [
            "batch",
            str(self.pipeline),
            str(self.corpus.folder),
            "--out",
            str(out),
            "--strict",
            *self.options,
            *options,
        ]

    def command(self, out: Path, *options: str) -> list[str]:
        return [sys.executable, str(ROOT / "run.py"), *self.words(out, *options)]

    def run(self, out: Path, *options: str) -> tuple[int, dict[str, Any]]:
        """Run it to its end; the exit code and the report."""
        report = out.with_suffix(".json")
        options = *options, "--report", str(report)
        if self.here is not None:
            completed = self.here(*self.words(out, *options), cwd=ROOT)
        else:
            completed = subprocess.run(self.command(out, *options), cwd=ROOT, capture_output=True, text=True)
        assert completed.returncode in (0, 1), completed.stderr
        return completed.returncode, json.loads(report.read_text())

    def kill(self, out: Path, after_s: float, *options: str) -> bool:
        """Run it and kill it after so long; whether it was still running."""
        mark = {**os.environ, "STREAMKIT_TEST": str(out)}
        running = subprocess.Popen(self.command(out, *options), cwd=ROOT, stderr=subprocess.DEVNULL, env=mark)
        try:
            running.wait(after_s)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()
            return True
        return False


def content(out: Path) -> dict[str, Any]:
    """The data set: its parts byte for byte, and its table of files but for the columns that tell of the run."""
    parts_and_files: dict[str, Any] = {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.parent.name != "files" and path.name != ".streamkit.lock"
    }
    files = data_set(out / "files").to_table().drop_columns(list(RUN_COLUMNS))
    parts_and_files["files"] = files.sort_by("source").to_pylist()
    return parts_and_files


def statuses(out: Path) -> tuple[set[str], dict[str, str]]:
    """Names of the files that are done, and of the others each with its cause_kind."""
    rows = data_set(out / "files").to_table().to_pylist()
    failed = {row["source"]: row["cause_kind"] for row in rows if row["status"] == "failed"}
    return {row["source"] for row in rows if row["status"] == "done"}, failed


def left_behind(out: Path) -> list[psutil.Process]:
    """Processes of runs into a folder that were killed, a moment later."""
    processes = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("STREAMKIT_TEST") == str(out):
                processes.append(process)
    return psutil.wait_procs(processes, timeout=10)[1]


def prove(archive: Archive, folder: Path, kills: int, seed: int) -> None:
    """An undisturbed run does all that can be done; one that is killed so often comes to the same."""
    start_s = time.monotonic()
    code, report = archive.run(folder / "whole")
    took_s = time.monotonic() - start_s
    good = archive.corpus.good
    broken = archive.corpus.broken
    assert statuses(folder / "whole") == (set(good), broken)
    assert (code, report["done"], report["failed"]) == (1, len(good), len(broken))
    assert report["objects"] == data_set(folder / "whole" / "objects").count_rows() > 0

    chance = random.Random(seed)
    killed = 0
    for _ in range(3 * kills):
        if killed < kills and not archive.kill(folder / "killed", chance.uniform(0.2, 0.8 * took_s)):
            shutil.rmtree(folder / "killed")  # it was done already: from the beginning again
            continue
        killed += 1
        if killed >= kills:
            break
    assert killed == kills
    code, report = archive.run(folder / "killed")
    assert code == 1
    assert report["done"] + report["skipped"] == len(good)
    assert content(folder / "killed") == content(folder / "whole")
    assert not left_behind(folder / "killed")

    code, report = archive.run(folder / "killed")  # nothing is left to do
    assert (code, report["done"], report["skipped"], report["failed_before"]) == (1, 0, len(good), len(broken))


@pytest.fixture
def archive(tmp_path, test_data):
    def make_archive(files: int, broken: int, *options: str) -> Archive:
        pipeline = tmp_path / "p.yaml"
        pipeline.write_text(YAML)
        return Archive(make(tmp_path / "videos", test_data / "videos", files, broken), pipeline, options)

    return make_archive


@pytest.mark.timeout(600)
@pytest.mark.long
def test_a_killed_and_resumed_run_gives_the_same_data_set(archive, tmp_path, here):
    video_archive = archive(8, 2, "--keyframes", "--workers", "2")
    video_archive.here = here
    prove(video_archive, tmp_path, kills=2, seed=1)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_data_set_does_not_depend_on_workers_and_order(archive, tmp_path, here):
    video_archive = archive(4, 0, "--fps", "2")
    video_archive.here = here
    video_archive.run(tmp_path / "one", "--workers", "1")
    hidden = video_archive.corpus.folder.rename(tmp_path / "hidden")  # in two runs, the smallest file first
    smallest = min(video_archive.corpus.good, key=lambda name: (hidden / name).stat().st_size)
    (video_archive.corpus.folder / smallest).parent.mkdir(parents=True)
    (hidden / smallest).rename(video_archive.corpus.folder / smallest)
    video_archive.run(tmp_path / "two", "--workers", "1", "--set", "batch.size=1")
    (video_archive.corpus.folder / smallest).rename(hidden / smallest)
    shutil.rmtree(video_archive.corpus.folder)
    hidden.rename(video_archive.corpus.folder)
    assert video_archive.run(tmp_path / "two", "--workers", "2", "--set", "batch.size=1")[1]["skipped"] == 1
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_a_run_of_500_files_killed_20_times_is_complete(archive, tmp_path):
    prove(archive(500, 20, "--fps", "1", "--workers", "2"), tmp_path, kills=20, seed=2)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_batch_is_five_times_as_fast_as_a_run_per_file(archive, tmp_path):
    """All files at once, against what the loop takes for every twelfth of them."""
    video_archive = archive(500, 0, "--keyframes", "--workers", str(len(os.sched_getaffinity(0))))
    start_s = time.monotonic()
    video_archive.run(tmp_path / "out")
    batch_s = time.monotonic() - start_s
    names = sorted(video_archive.corpus.good)
    some = names[::12]
    start_s = time.monotonic()
    for name in some:
        source = {"video": {"uri": str(video_archive.corpus.folder / name), "keyframes": True}}
        text = f"sources: {json.dumps(source)}\n{YAML.strip()}\n"
        (tmp_path / "one.yaml").write_text(f"{text}  jsonl: {{path: '{tmp_path}/loop/{{source}}.jsonl'}}\n")
        subprocess.run(
            [sys.executable, "run.py", str(tmp_path / "one.yaml")], cwd=ROOT, check=True, capture_output=True
        )
    loop_s = (time.monotonic() - start_s) / len(some) * len(names)
    print(f"{len(names)} files: {batch_s:.1f} s, a loop of run.py {loop_s:.1f} s, {loop_s / batch_s:.1f} times")
    assert loop_s >= 5 * batch_s


WARM_WORKER = """
import sys, time
from pathlib import Path
from streamkit.batch.inputs import find
from streamkit.batch.job import BatchJob, BatchSettings, FrameSelection
from streamkit.batch.worker import BatchWorker

if __name__ == "__main__":
    pipeline, videos, out, part, of = sys.argv[1:]
    files = sorted(find([videos]), key=lambda file: file.size)[int(part)::int(of)]
    worker = BatchWorker(BatchSettings(Path(pipeline), (), Path(out), ("parquet",), FrameSelection()), "cpu", 1, 1)
    jobs = [BatchJob(file, f"video-{number:016x}") for number, file in enumerate(files)]
    worker.process(jobs[0])  # warms up
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.perf_counter()
    for job in jobs:
        worker.process(job)
    print(time.perf_counter() - begun)
    worker.close()
"""


@pytest.mark.soak
@pytest.mark.timeout(3 * 3600)
def test_whole_files_take_the_time_of_a_warm_process(archive, tmp_path):
    """What the files take one after the other in a warm process, each core busy with one; and shared out to all cores.

    Cores slow each other down, whoever works on them: one process alone would be 11 to 12 % quicker (two cores).
    """
    cores = sorted(os.sched_getaffinity(0))
    video_archive = archive(240, 0, "--workers", str(len(cores)))
    (tmp_path / "own.py").write_text(WARM_WORKER)
    running = [
        subprocess.Popen(
            [
                sys.executable,
                str(tmp_path / "own.py"),
                video_archive.pipeline,
                video_archive.corpus.folder,
                tmp_path / f"own{part}",
                str(part),
                str(len(cores)),
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            preexec_fn=lambda core=core: os.sched_setaffinity(0, {core}),
        )
        for part, core in enumerate(cores)
    ]
    for process in running:
        while "ready" not in process.stdout.readline():
            assert process.poll() is None
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    work_s = sum(float(process.communicate()[0].splitlines()[-1]) for process in running)
    start_s = time.monotonic()
    video_archive.run(tmp_path / "out")
    batch_s = time.monotonic() - start_s
    more = batch_s * len(cores) / work_s - 1
    print(
        f"{len(video_archive.corpus.good)} files: {work_s:.1f} s of work, "
        f"{batch_s:.1f} s on {len(cores)} cores, {more:+.1%}"
    )
    assert more <= 0.03
