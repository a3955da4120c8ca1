"""Runs a benchmark module in a separate process, and yields the JSON objects that it prints, as they arrive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamkit.runtime.execution.future import start

_ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """The environment of this process, with the checkout on PYTHONPATH, which may not be installed."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}


def lines(module: str, *arguments: str, until_s: float | None = None) -> Generator[dict[str, Any], None, None]:
    """Run `python -m module arguments` and yield each JSON object that it prints on a separate line.

    Other lines, which libraries print, are skipped. A caller that stops early kills the process.

    Args:
        module: the module to run.
        arguments: its command-line arguments.
        until_s: when to kill the process, in monotonic seconds; None for no limit.

    Raises:
        TimeoutError: it was killed at `until_s`.
        RuntimeError: it exited with a code other than 0; has the end of its standard error.
    """
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", module, *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=environment(), text=True)
        assert process.stdout is not None
        killed: list[bool] = []

        def end() -> None:
            assert until_s is not None
            try:
                process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                killed.append(True)
                process.kill()

        if until_s is not None:
            start("deadline", end)
        try:
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            code = process.wait()
        finally:
            process.stdout.close()
            if process.poll() is None:
                process.kill()
                process.wait()
        if killed:
            raise TimeoutError(f"{module} was stopped at its time limit")
        if code:
            errors.seek(0)
            text = errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{module} ended with {code}:\n{text}")


def run_spec(module: str, spec: Any, folder: Path, until_s: float | None) -> Generator[dict[str, Any], None, None]:
    """Run `python -m module FILE`, where the file in `folder` has the fields of the dataclass `spec`; as `lines`."""
    path = folder / f"{module.rpartition('.')[2]}.json"
    path.write_text(json.dumps(asdict(spec)), encoding="utf-8")
    return lines(module, str(path), until_s=until_s)


def to_stderr(text: str) -> None:
    """Print a message that is not for the parent."""
    print(text, file=sys.stderr)


def json_output() -> Callable[[Any], None]:
    """Return a function that prints objects for the parent; redirect output of libraries to standard error."""
    sys.stdout.flush()
    mine = open(os.dup(1), "w", closefd=False)  # noqa: SIM115  it stays open like standard output
    os.dup2(2, 1)

    return lambda found: print(json.dumps(found), file=mine, flush=True)
