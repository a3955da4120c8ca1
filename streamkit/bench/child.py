# SPDX-License-Identifier: Apache-2.0
"""Runs a module of the benchmarks in a separate process: a specification goes there, results come back as they arrive.

A specification is a dataclass of the module. `results` is the parent's side; the module calls `main`, the child's side.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict
from typing import Any

from streamkit.core.child_environment import child_environment
from streamkit.core.errors import StreamkitError, describe
from streamkit.runtime.execution.future import start


def results(spec: Any, until_s: float | None = None) -> Generator[dict[str, Any], None, None]:
    """Run the module of a specification in a separate process, and yield each of its results.

    Other output, which libraries print, is skipped. A caller that stops early kills the process.

    Args:
        spec: the specification; its values are also values of JSON.
        until_s: when to kill the process, in monotonic seconds; None for no limit.

    Raises:
        TimeoutError: it was killed at `until_s`.
        RuntimeError: it exited with a code other than 0; has the end of its standard error.
    """
    module = type(spec).__module__
    with tempfile.TemporaryFile() as errors:
        command = [sys.executable, "-m", module, json.dumps(asdict(spec))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env=child_environment(), text=True)
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
            process.kill()  # does nothing if it has ended
            process.wait()
        if killed:
            raise TimeoutError(f"{module} was stopped at its time limit")
        if code:
            errors.seek(0)
            text = errors.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{module} ended with {code}:\n{text}")


def main(spec_type: Callable[..., Any], work: Callable[[Any], Iterable[dict[str, Any]]]) -> None:
    """Print the results of `work` for the command line's specification; an error becomes the result `{"error": text}`.

    Output of libraries goes to standard error. Does not return: a thread that is still in a library's call must not
    make the process fail.
    """
    sys.stdout.flush()
    stdout = open(os.dup(1), "w", closefd=False)  # noqa: SIM115  it stays open like standard output
    os.dup2(2, 1)
    try:
        for figures in work(spec_type(**json.loads(sys.argv[1]))):
            print(json.dumps(figures), file=stdout, flush=True)
    except Exception as error:  # any error is reported to the parent
        text = str(error) if isinstance(error, StreamkitError) else describe(error)
        print(json.dumps({"error": text}), file=stdout, flush=True)
    os._exit(0)
