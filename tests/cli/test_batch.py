"""`run.py batch` as a user meets it: what it says, its exit codes, and the mistakes people make."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.small_clips import clip

ROOT = Path(__file__).resolve().parents[2]
YAML = """
device: cpu
stages:
  detect: {model: demo}
  jsonl: {path: "unused/{source}.jsonl"}
"""


@pytest.fixture
def run(tmp_path, here):
    """Run the command in a folder with `p.yaml` and `v/a.mp4`, in this process or in `its_own`."""
    (tmp_path / "p.yaml").write_text(YAML)
    clip(tmp_path / "v" / "a.mp4")

    def call(*args: str, in_subprocess: bool = False) -> subprocess.CompletedProcess:
        words = ["batch", "p.yaml", *args]
        if not in_subprocess:
            return here(*words, cwd=tmp_path)
        return subprocess.run(
            [sys.executable, str(ROOT / "run.py"), *words], cwd=tmp_path, capture_output=True, text=True
        )

    return call


def test_files_become_a_data_set_summarized_in_a_table(run, tmp_path):
    clip(tmp_path / "v" / "deep" / "b.mp4")
    (tmp_path / "v" / "text.mp4").write_text("no video\n" * 50)
    words = "v/**/*.mp4", "--out", "out", "--format", "parquet,jsonl"
    completed = run(*words, "--workers", "2", "--report", "report.json", in_subprocess=True)
    assert completed.returncode == 1
    assert completed.stdout == ""
    assert "batch writes the data set in place of the sink jsonl" in completed.stderr
    assert "done          2 files" in completed.stderr
    assert "failed        1 files   no_video 1" in completed.stderr
    assert "text.mp4: no_video: this is a text file, not a video" in completed.stderr
    assert "Traceback" not in completed.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["files"], report["done"], report["failed"], report["frames"]) == (3, 2, 1, 16)
    assert len(list((tmp_path / "out" / "jsonl").glob("*.jsonl"))) == 2

    again = run(*words)
    assert again.returncode == 1
    assert "skipped       2 files   already done" in again.stderr
    assert "1 files   before; --retry-failed retries them" in again.stderr
    (tmp_path / "v" / "text.mp4").unlink()
    clip(tmp_path / "v" / "text.mp4")  # it is another file now, whatever it was
    mended = run(*words, "--retry-failed")
    assert mended.returncode == 0
    assert "done          1 files" in mended.stderr
    assert len(list((tmp_path / "out" / "files").glob("text*.parquet"))) == 1  # of what it was nothing is left


def test_a_detector_without_any_object_has_a_hint(run):
    completed = run("v", "--out", "out", "--workers", "1")
    assert completed.returncode == 0
    assert ("8 frames, 0 objects" in completed.stderr, "detect found no object in 8 frames" in completed.stderr) == (
        True,
        True,
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing/*.mp4", "--out", "out"], "nothing/*.mp4: there is no folder nothing"),
        (["v", "--out", "p.yaml"], "--out"),
        (["v", "--out", "v"], "v is not empty and no data set"),
        (["v", "--out", "out", "--format", "parket"], "--format: there is no 'parket'; there are parquet, jsonl"),
        (["v", "--out", "out", "--start", "5s", "--end", "2s"], "--start"),
        (["v", "--out", "out", "--fps", "nan"], "'--fps': must be a number above 0 such as 2 or 0.5, got nan"),
        (["v", "--out", "out", "--fps", "inf"], "'--fps': must be a number above 0 such as 2 or 0.5, got inf"),
        (["v", "--out", "out", "--timeout", "0"], "'--timeout': must be longer than 0s, got 0"),
        (["v", "--out", "{source}"], "--out: the folder's name must be without { and }, got {source}"),
        (["v", "--out", "out", "--every", "2", "--keyframes"], "--every must be 1 with --keyframes"),
        (["v", "--out", "out", "--set", "stages.detect.min_scor=1"], "did you mean 'min_score'?"),
        (["v", "--out", "out", "--device", "cuda:7"], "device cuda:7 cannot be used"),
        (["v"], "Missing option '--out'"),
    ],
)
def test_an_invalid_option_is_reported_and_nothing_is_written(run, tmp_path, args, message):
    before = sorted(tmp_path.rglob("*"))
    completed = run(*args)
    assert completed.returncode == 2
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr
    assert sorted(tmp_path.rglob("*")) == before


def test_a_non_video_or_a_name_that_is_not_utf_8_fails_alone(run, tmp_path):
    os.mkfifo(tmp_path / "v" / "pipe.mp4")
    clip(tmp_path / "b.mp4").rename(tmp_path / "v" / os.fsdecode(b"caf\xe9.mp4"))
    words = "v", "--out", "out", "--format", "parquet,jsonl,csv,coco"
    completed = run(*words)
    assert completed.returncode == 1
    assert "pipe.mp4: no_video: this is a named pipe, not a video file" in completed.stderr
    assert "done          2 files" in completed.stderr
    (records,) = (tmp_path / "out" / "jsonl").glob("caf*")
    assert json.loads(records.read_text().splitlines()[0])["source"] == "caf\\xe9.mp4"
    whole = json.loads((tmp_path / "out" / "coco.json").read_text())
    assert {image["video"] for image in whole["images"]} == {"a.mp4", "caf\\xe9.mp4"}
    assert "skipped       2 files   already done" in run(*words).stderr
    looked = run(*words, "--dry-run")
    assert looked.returncode == 1
    assert "pipe.mp4: no_video: this is a named pipe, not a video file" in looked.stderr


def test_videos_written_by_a_run_are_not_its_input(run):
    words = "v", "--out", "v/out", "--format", "video"
    assert "done          1 files" in run(*words).stderr
    again = run(*words)
    assert again.returncode == 0
    assert "1 file in v/out skipped: it is the output folder of this run" in again.stderr
    assert "done          0 files" in again.stderr
    assert "skipped       1 files" in again.stderr
    assert "to do          1 files" in run(*words, "--dry-run").stderr


def test_a_dry_run_writes_nothing(run, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    completed = run("v", "--out", "out", "--dry-run")
    assert completed.returncode == 0, completed.stderr
    assert "h264" in completed.stderr
    assert sorted(tmp_path.rglob("*")) == before


WAITING = '''
import time
from pathlib import Path
from streamkit import FrameStage, stage

@stage("waiting")
class Waiting(FrameStage):
    """Holds the file `slow` up until there is a file `go`, and makes a file `waits` meanwhile."""

    def process(self, frame):
        if frame.source.startswith("slow"):
            Path("waits").touch()
            while not Path("go").exists():
                time.sleep(0.01)
'''


def test_a_stop_finishes_files_in_progress_and_a_second_run_continues(run, tmp_path):
    (tmp_path / "waiting.py").write_text(WAITING)
    (tmp_path / "p.yaml").write_text("device: cpu\nplugins: [waiting.py]\nstages: {waiting: {}}\n")
    clip(tmp_path / "v" / "slow.mp4", frames=60)  # the largest, so it is the first
    for n in range(4):
        clip(tmp_path / "v" / f"n{n}.mp4")
    command = [sys.executable, str(ROOT / "run.py"), "batch", "p.yaml", "v", "--out", "out", "--workers", "1"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 100
        while not (tmp_path / "waits").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        second = run("v", "--out", "out", in_subprocess=True)
        os.kill(running.pid, signal.SIGINT)
        log = ""
        while "stopping: " not in log:
            log += (line := running.stderr.readline())
            assert line, log
        (tmp_path / "go").touch()
        log += running.communicate(timeout=100)[1]
    assert second.returncode == 2
    assert f"another run writes into out (process {running.pid} on " in second.stderr
    assert running.returncode == 130
    assert "stopping: files in progress are finished and no new ones are started" in log
    done = len(list((tmp_path / "out" / "files").glob("*-*.parquet")))
    assert done in (1, 2)  # the next one may have started
    assert f"left          {6 - done} files   run the same command again to process them" in log
    assert not list((tmp_path / "out").rglob("*.part"))
    rest = run("v", "--out", "out", "--workers", "1")
    assert rest.returncode == 0
    assert f"skipped       {done} files" in rest.stderr
    assert f"done          {6 - done} files" in rest.stderr


OPENING = """
import multiprocessing, time
from pathlib import Path

name = multiprocessing.current_process().name
if name in NAMES:
    Path(name.replace("/", "-")).touch()
    time.sleep(100)
"""


@pytest.mark.parametrize(
    ("opening", "signals"),
    [pytest.param(["worker/1"], 2, marks=pytest.mark.long), (["worker/0", "worker/1"], 1)],
    ids=["one of two", "both"],
)
def test_a_stop_does_not_wait_for_starting_workers(run, tmp_path, opening, signals):
    (tmp_path / "waiting.py").write_text(WAITING + OPENING.replace("NAMES", repr(opening)))
    (tmp_path / "p.yaml").write_text("device: cpu\nplugins: [waiting.py]\nstages: {waiting: {}}\n")
    clip(tmp_path / "v" / "slow.mp4", frames=60)
    command = [sys.executable, str(ROOT / "run.py"), "batch", "p.yaml", "v", "--out", "out", "--workers", "2"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 100
        marks = {name.replace("/", "-") for name in opening} | ({"waits"} if signals > 1 else set())
        while not all((tmp_path / mark).exists() for mark in marks):
            assert time.monotonic() < until
            time.sleep(0.02)
        os.kill(running.pid, signal.SIGINT)
        while "stopping: " not in (line := running.stderr.readline()):
            assert line, "it ended"
        if signals > 1:
            os.kill(running.pid, signal.SIGINT)
        running.communicate(timeout=8)  # it ends, and nobody has its standard error any more
    assert running.returncode == 130


@pytest.mark.long
def test_a_full_disk_ends_the_run_which_can_be_continued(run, tmp_path):
    """A folder that cannot be written any more stands for the disk: the objects' place is taken by a file."""
    assert run("v", "--out", "out").returncode == 0
    clip(tmp_path / "v" / "b.mp4", frames=12)
    objects = tmp_path / "out" / "objects"
    objects.rename(tmp_path / "away")
    objects.write_text("in the way")
    broken = run("v", "--out", "out")
    assert broken.returncode == 2
    assert "cannot write" in broken.stderr
    assert "Traceback" not in broken.stderr
    objects.unlink()
    (tmp_path / "away").rename(objects)
    assert run("v", "--out", "out").returncode == 0
