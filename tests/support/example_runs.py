"""Runs examples with the command, and compares their output with the street video."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from support.commands import run_here

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 20
SCHEMA = Draft202012Validator(json.loads((ROOT / "docs" / "schema" / "streamkit-1.schema.json").read_text()))


@pytest.fixture(name="folder")
def folder_fixture(tmp_path, monkeypatch):
    """A working folder in which `samples/` is where it is in the checkout, and outputs are the test's own."""
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command_in_subprocess(*args):
    """Run the command in a process, as a user does."""
    line = [sys.executable, ROOT / "run.py", *map(str, args)]
    completed = subprocess.run(line, capture_output=True, text=True, timeout=150, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed


def run_example(name, folder, *more):
    """Run an example on the CPU, in this process and in a folder that has the samples; for a fixture of a module."""
    (folder / "samples").symlink_to(ROOT / "samples")
    with pytest.MonkeyPatch.context() as monkeypatch:
        assert run_here(monkeypatch, ROOT / "examples" / name, "--device", "cpu", *more, cwd=folder) == 0


@pytest.fixture(name="command")
def command_fixture(here):
    """Run the command in the current folder and in this process; one of its own takes a second to start."""

    def call(*args, expect=0):
        completed = here(*args, cwd=Path.cwd())
        assert completed.returncode == expect, completed.stderr
        return completed

    return call


@pytest.fixture(name="run")
def run_fixture(command):
    """Run an example on the CPU, for LIMIT frames."""

    def call(name, folder, *more):
        return command(*run_words(name, folder), *more)

    return call


def run_words(name, folder):
    """The words of the command that runs an example."""
    return "run", ROOT / name, "--device", "cpu", "--limit", LIMIT, "--report", folder / "report.json"


def records(path):
    """Read the records of a file; check the first ones and every tenth of the others against the schema."""
    parsed = [json.loads(text) for text in path.read_text().splitlines()]
    for record in [*parsed[:LIMIT], *parsed[LIMIT::10]]:
        assert "schema" not in record or [error.message for error in SCHEMA.iter_errors(record)] == []
    return parsed


def pictures(path):
    """Return the luma of every frame, (n, 360, 640) float32, and their times in seconds."""
    import av

    with av.open(str(path)) as file:
        lumas_and_times = [(frame.to_ndarray(format="gray"), frame.time) for frame in file.decode(video=0)]
    return np.array([luma for luma, _ in lumas_and_times], np.float32), [time for _, time in lumas_and_times]


def street(n=LIMIT):
    luma = []
    times = []
    import av

    with av.open(str(ROOT / "samples" / "street.mp4")) as file:
        for frame in file.decode(video=0):
            luma.append(frame.to_ndarray(format="gray"))
            times.append(frame.time)
            if len(luma) == n:
                break
    return np.array(luma, np.float32), times


def hits(predictions, n=LIMIT):
    """Return the share of large, fully visible cars of the ground truth that were detected."""
    truth = records(ROOT / "samples" / "street.truth.jsonl")[:n]
    expected = matched = 0
    for true, record in zip(truth, predictions, strict=True):
        for car in true["objects"]:
            x1, _, x2, _ = car["box"]
            if car["label"] == "car" and car["visible"] > 0.9 and x2 - x1 > 30:
                expected += 1
                matched += any(o["label"] == "car" and iou(o["box"], car["box"]) > 0.5 for o in record["objects"])
    assert expected > 10
    return matched / expected


def iou(a, b):
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    both = max(0, width) * max(0, height)
    return both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both)
