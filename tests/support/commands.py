"""Runs the command in a separate process, with a pipeline for it, and reads its output."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import psutil
import pytest

from streamkit.cli import common, main

Here = Callable[..., subprocess.CompletedProcess[str]]

PIPELINE = """
sources:
{sources}
stages:
  detect: {{model: demo, min_score: 0.4}}
  draw: {{}}
  video: {{path: "{out}/{{source}}.mp4"}}
  jsonl: {{path: "{out}/{{source}}.jsonl"}}
"""


def command(root: Path, *args: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-W", "error", str(root / "run.py"), *map(str, args)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", **kwargs.pop("env", {})}
    return subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=root, env=environment, **kwargs)


def run_here(monkeypatch: pytest.MonkeyPatch, *words: object, cwd: Path) -> int:
    """Run the command in this process, without its handlers of signals, and return its exit code."""
    for name in ("keep_stdout", "handle_signals"):
        monkeypatch.setattr(common, name, lambda *_: None)
    monkeypatch.chdir(cwd)
    monkeypatch.setattr(sys, "argv", ["run.py", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    assert isinstance(code, int)
    return code


def write(folder: Path, text: str) -> Path:
    path = folder / "p.yaml"
    path.write_text(text)
    return path


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def decoded(path: Path) -> int:
    with av.open(str(path)) as container:
        return sum(1 for _ in container.decode(video=0))


def child_running(module: str) -> psutil.Process:
    """Return the process that this one has started last with `python -m` and a module."""
    running = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    return max((child for child in running if module in child.cmdline()), key=psutil.Process.create_time)
