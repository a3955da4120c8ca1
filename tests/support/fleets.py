"""The command on several devices, shown on the CPU twice; every process that it leaves behind is an error."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamkit.runtime.multiprocess.children import CHILD_MODULE

PATTERN = "test://?width=96&height=64&fps=10&frames={frames}"
ENDLESS = "{{uri: 'test://?width=96&height=64&fps=20', pace: realtime}}"

PLUGIN = '''
import os, time
from pathlib import Path
import numpy as np
from streamkit import BatchStage, FrameStage, Sink, stage
from streamkit.plugin_api import ConfigError, rgb

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
        rgb(frame)

@stage("slow")
class Slow(Sink):
    """Takes its time."""

    def write(self, frame):
        time.sleep(0.01)
'''


class Runs:
    """Runs the command on a YAML; every process that it leaves behind is an error."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = folder
        self.out = folder / "out"
        (folder / "odd.py").write_text(PLUGIN)
        self.running: list[subprocess.Popen[str]] = []

    def write(self, text: str) -> Path:
        """Write the YAML with the plugin of this file, and return its path."""
        path = self.folder / "p.yaml"
        path.write_text("plugins: [odd.py]\n" + text.replace("OUT", str(self.out)))
        return path

    def start(self, text: str, *args: object, device: str = "cpu", processes: int = 2) -> subprocess.Popen[str]:
        path = self.write(text)
        line = [
            sys.executable,
            "-W",
            "error",
            str(self.root / "run.py"),
            str(path),
            "--device",
            device,
            "--set",
            f"device.processes={processes}",
            "--report",
            str(self.folder / "r.json"),
            *map(str, args),
        ]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        process = subprocess.Popen(
            line,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.root,
            env=environment,
            start_new_session=True,
        )
        self.running.append(process)
        return process

    def run(
        self, text: str, *args: object, device: str = "cpu", processes: int = 2
    ) -> subprocess.CompletedProcess[str]:
        process = self.start(text, *args, device=device, processes=processes)
        out, errors = process.communicate(timeout=120)
        assert "Traceback" not in errors
        assert "ResourceWarning" not in errors
        until(lambda: not children_of(process.pid), 5)
        return subprocess.CompletedProcess(process.args, process.returncode, out, errors)

    @property
    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.folder / "r.json").read_text())
        return report

    def records(self, name: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / f"{name}.jsonl").read_text().splitlines()]


@pytest.fixture(name="runs")
def runs_fixture(root: Path, tmp_path: Path) -> Iterator[Runs]:
    runs = Runs(root, tmp_path)
    yield runs
    for leader in runs.running:
        left = [*shares_of(leader), *([leader] if leader.poll() is None else [])]
        for process in left:
            process.kill()
        leader.communicate()


def shares_of(running: subprocess.Popen[str]) -> list[psutil.Process]:
    """The processes of a fleet, in the order in which they were started."""
    processes = []
    for child in children_of(running.pid):
        with contextlib.suppress(psutil.Error):
            if CHILD_MODULE in child.cmdline():
                processes.append(child)
    return sorted(processes, key=lambda child: child.pid)


def children_of(session: int) -> list[psutil.Process]:
    """All processes of a session but its leader, so also those whose parent is gone."""
    descendants = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.Error):
            alive = process.status() != psutil.STATUS_ZOMBIE
            if alive and process.pid != session and os.getsid(process.pid) == session:
                descendants.append(process)
    return descendants


def until(what: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (outcome := what()):
        assert time.monotonic() < deadline, "it did not come to this"
        time.sleep(0.05)
    return outcome


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def source_of(line: bytes) -> str:
    source: str = json.loads(line)["source"]
    return source


BOTH = f"""
sources:
  a: {ENDLESS.format()}
  b: {ENDLESS.format()}
stages:
"""
OUTPUTS = '  jsonl: {path: "OUT/{source}.jsonl"}\n  all: {stage: jsonl, path: OUT/all.jsonl}\n'
