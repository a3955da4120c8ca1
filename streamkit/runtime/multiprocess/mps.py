# SPDX-License-Identifier: Apache-2.0
"""A private daemon of NVIDIA's MPS (Multi-Process Service), so that processes use a GPU at the same time.

Without MPS, a GPU runs the work of several processes in turn. The daemon belongs to the run: a guard process
(`mps_guard`) starts it and ends it with the run, also if the run is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streamkit.runtime.multiprocess import mps_guard

CONTROL = "nvidia-cuda-mps-control"
_PLACES = ("/usr/local/nvidia/bin", "/usr/bin")
_DEFAULT_PIPES = "/tmp/nvidia-mps"
_LONGEST_FOLDER = 60
"""A socket's path has at most 107 bytes."""
_GUARD_S = 15.0
_TERMINATE_S = 3.0
_CLIENT_S = 20.0
_QUICK = "-I", "-S"
"""Options of an interpreter that needs Python's own modules alone: it starts sooner."""
_CLIENT = """
import ctypes
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
print(cuda.cuInit(0) or cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
"""


def find_control() -> str | None:
    """The path of `nvidia-cuda-mps-control`; None if it is not installed."""
    return shutil.which(CONTROL) or shutil.which(CONTROL, path=os.pathsep.join(_PLACES))


def client_trouble(environment: Mapping[str, str]) -> str | None:
    """Why a process with these variables cannot use the GPU; None if it can. Starts a process."""
    try:
        done = subprocess.run(
            [sys.executable, *_QUICK, "-c", _CLIENT],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=_CLIENT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"a process that uses it does not start ({error})"
    code = done.stdout.strip() if done.returncode == 0 else f"exit code {done.returncode}"
    return None if code == "0" else f"CUDA fails with it (error {code})"


def become_client(environment: Mapping[str, str], device: int) -> None:
    """Create the CUDA context of a device in this process, as a client of the daemon with these variables."""
    os.environ.update(environment)
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    if not cuda.cuInit(0):
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


class MpsDaemon:
    """MPS for the worker processes of a run; a context manager.

    Uses a daemon that is already there: that of `CUDA_MPS_PIPE_DIRECTORY`, or of /tmp/nvidia-mps. Otherwise starts one
    with its own folders. Where that is not possible, workers run without MPS, and `reason` says why.

    Args:
        check: returns why a process with the daemon's variables cannot use the GPU, or None; None skips the check.

    Attributes:
        environment: the variables for workers; empty without MPS.
        active: whether workers use MPS.
        reason: what was done and why, in one line for the log.
    """

    def __init__(self, check: Callable[[Mapping[str, str]], str | None] | None = client_trouble) -> None:
        self.environment: dict[str, str] = {}
        self.active = False
        self.reason = "MPS was not started"
        self._check = check
        self._guard: subprocess.Popen[str] | None = None
        self._folder: Path | None = None
        self._pid: int | None = None

    def __enter__(self) -> MpsDaemon:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def own(self) -> bool:
        """Whether the daemon was started here."""
        return self._guard is not None

    @property
    def running(self) -> bool:
        """Whether workers can use MPS now; false once a daemon that was started here has died."""
        return self.active and (self._guard is None or self._guard.poll() is None)

    def start(self) -> None:
        """Find or start the daemon. Never raises: see `reason`."""
        control = find_control()
        if (pipes := _existing(control)) is not None:
            self._use({"CUDA_MPS_PIPE_DIRECTORY": pipes}, f"uses the MPS daemon of {pipes}")
        elif control is None:
            self.reason = f"runs without MPS, processes take turns on the GPU: {CONTROL} is not installed"
        elif (reason := self._launch(control)) is not None:
            self._without(reason)
        else:
            assert self._folder is not None
            variables = mps_guard.variables(self._folder)
            if self._check is not None and (reason := self._check(variables)) is not None:
                self._without(reason)
            else:
                self._use(variables, "started an MPS daemon for this run")

    def restart(self) -> bool:
        """Replace the daemon after a GPU fault, which ends all its clients; new workers need the new `environment`.

        Returns:
            Whether MPS is active afterwards. A daemon that was not started here recovers by itself and is kept.
        """
        if self.own:
            self.close()
            self.start()
        return self.active

    def terminate_client(self, pid: int) -> None:
        """Terminate the GPU work of a process that is about to be killed.

        Killing a client with work in flight may leave the server, and with it the other clients, unusable; work that
        never ends is always in flight. See "terminate_client" in NVIDIA's documentation of MPS.
        """
        control = find_control()
        environment = {**os.environ, **self.environment}
        if not self.active or control is None:
            return
        for server in (mps_guard.ask(control, "get_server_list", environment, _TERMINATE_S) or "").split():
            mps_guard.ask(control, f"terminate_client {server} {pid}", environment, _TERMINATE_S)

    def close(self) -> None:
        """End a daemon that was started here, with its folders. Workers must have ended before."""
        guard = self._guard
        self._guard = None
        self.environment = {}
        self.active = False
        if guard is None:
            return
        assert guard.stdin is not None
        assert guard.stdout is not None
        with contextlib.suppress(OSError):
            guard.stdin.close()
        try:
            guard.wait(_GUARD_S)
        except subprocess.TimeoutExpired:  # it hangs in the driver: remove what it would have removed
            guard.kill()
            guard.wait()
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._pid, signal.SIGKILL)
        guard.stdout.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = self._pid = None

    def _use(self, environment: dict[str, str], reason: str) -> None:
        self.environment = environment
        self.active = True
        self.reason = reason

    def _without(self, why: str) -> None:
        self.close()
        self.reason = f"runs without MPS, processes take turns on the GPU: {why}"

    def _launch(self, control: str) -> str | None:
        """Start the guard and its daemon; return why the daemon did not start."""
        base = tempfile.gettempdir()
        try:
            # mode 700, as mkdtemp makes it: MPS serves the user of the daemon only
            folder = tempfile.mkdtemp(prefix="streamkit-mps-", dir=base if len(base) < _LONGEST_FOLDER else "/tmp")
        except OSError as error:
            return f"no folder for its daemon ({error})"
        self._folder = Path(folder)
        try:
            self._guard = guard = subprocess.Popen(
                [sys.executable, *_QUICK, mps_guard.__file__, control, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            return f"its guard does not start ({error})"
        answer, _, rest = _line(guard.stdout, _GUARD_S).strip().partition(" ")
        if answer == "ready":
            self._pid = int(rest)
            return None
        return f"its daemon does not start ({rest or 'no answer'})"


def _existing(control: str | None) -> str | None:
    """The pipe folder of a daemon that is there and answers."""
    for pipes in filter(None, (os.environ.get("CUDA_MPS_PIPE_DIRECTORY"), _DEFAULT_PIPES)):
        if not (Path(pipes) / "control").exists():
            continue
        # a container may have the folder of its host's daemon, but not the program that could ask it
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": pipes}
        if control is None or mps_guard.ask(control, "get_server_list", environment) is not None:
            return pipes
    return None


def _line(file: Any, within_s: float) -> str:
    """The next line of a pipe; empty if it ends or none comes in time."""
    ready = select.poll()  # not `select`, which takes no file descriptor above 1,023
    ready.register(file, select.POLLIN)
    return str(file.readline()) if ready.poll(within_s * 1e3) else ""
