# SPDX-License-Identifier: Apache-2.0
"""Runs NVIDIA's MPS daemon for a parent process, and ends it when the parent is gone, however it ended.

Usage: `python mps_guard.py CONTROL FOLDER`; it needs Python's own modules alone. CONTROL is `nvidia-cuda-mps-control`;
FOLDER holds the daemon's `pipe` and `log` folders. One line on standard output says `ready PID`, with the daemon's
process id, or `failed REASON`. At the end of standard input, the daemon is ended and FOLDER is removed.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

_READY_S = 10.0
_ASK_S = 5.0
_SERVERS_S = 2
"""Time for MPS servers to end after `quit`; the workers have ended before."""
_QUIT_S = 5.0
_CHECK_S = 1.0


def variables(folder: Path) -> dict[str, str]:
    """The environment variables that lead CUDA programs to the daemon of `folder`."""
    return {"CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}


def ask(control: str, order: str, environment: Mapping[str, str], within_s: float = _ASK_S) -> str | None:
    """Send an order to a daemon; return its answer, or None if there is no daemon or it does not answer."""
    try:
        done = subprocess.run(
            [control],
            input=f"{order}\n",
            env=dict(environment),
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def main(control: str, folder: Path) -> int:
    """Run the daemon until standard input ends, or until the daemon has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the parent decides; the daemon inherits this
    environment = {**os.environ, **variables(folder)}
    try:
        daemon, reason = _start(control, folder, environment)
        if daemon is None:
            print(f"failed {reason}", flush=True)
            return 1
        try:
            print(f"ready {daemon.pid}", flush=True)  # fails if the parent has ended meanwhile
            while not select.select([sys.stdin], [], [], _CHECK_S)[0] and daemon.poll() is None:
                pass
        except BrokenPipeError:
            return 1
        finally:
            _end(daemon, control, environment)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _start(control: str, folder: Path, environment: Mapping[str, str]) -> tuple[subprocess.Popen[bytes] | None, str]:
    """Start the daemon and wait until it answers; else return why it does not."""
    output = folder / "log" / "output"
    try:
        for name in ("pipe", "log"):
            (folder / name).mkdir(mode=0o700)
        with output.open("wb") as file:
            daemon = subprocess.Popen(
                [control, "-f"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=dict(environment),
                start_new_session=True,
            )
    except OSError as error:
        return None, str(error)
    until_s = time.monotonic() + _READY_S
    while daemon.poll() is None and time.monotonic() < until_s:
        if ask(control, "get_server_list", environment) is not None:
            return daemon, ""
        time.sleep(0.05)
    reason = " ".join(output.read_text(errors="replace").split()) or (
        "it does not answer" if daemon.poll() is None else f"it ended with exit code {daemon.returncode}"
    )
    _kill(daemon)
    return None, reason


def _end(daemon: subprocess.Popen[bytes], control: str, environment: Mapping[str, str]) -> None:
    """End the daemon and its servers."""
    if daemon.poll() is None and ask(control, f"quit -t {_SERVERS_S}", environment) is not None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            daemon.wait(_QUIT_S)
    _kill(daemon)


def _kill(daemon: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the daemon's session, its servers included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(daemon.pid, signal.SIGKILL)
    daemon.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
