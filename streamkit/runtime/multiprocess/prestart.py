# SPDX-License-Identifier: Apache-2.0
"""Starts worker processes and MPS before a pipeline is read, so that they import packages and open the GPU meanwhile.

Reading and checking a pipeline takes 2 s on a machine with a GPU, and importing the packages of a worker as long again.
The number of processes is not known yet, so this module guesses it from the YAML's text. A worker takes a process that
waits; the others end when the plan is known. Processes that were not guessed start later, as usual.
"""

from __future__ import annotations

import atexit
import importlib.util
import math
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from streamkit.media.uris import may_be_live
from streamkit.models.onnxruntime_package import has_driver
from streamkit.runtime.execution.cores import cores
from streamkit.runtime.execution.future import ThreadFuture, start
from streamkit.runtime.multiprocess.children import IdleChild
from streamkit.runtime.multiprocess.mps import MpsDaemon, become_client

CORES_PER_PROCESS = 3
"""CPU cores for each process on a GPU. Four processes with 275 cameras used 4.2 of 16 cores: the lock lets each use
little more than one. The others decode headers, tune networks and write records."""
_FILE_PROCESSES = 3  # what many files at full speed need; one process serves two
_CAMERAS_PER_PROCESS = 50
_WORKER = "streamkit.runtime.multiprocess.worker"
_idle: list[IdleChild] = []
_daemon: list[ThreadFuture[MpsDaemon]] = []
_taking = threading.Lock()


def prestart_workers(
    pipeline: Path, set_: Mapping[str, str], device: str | None = None, *, realtime: bool = False
) -> None:
    """Start the worker processes that a pipeline will probably need; none without a GPU, or if it needs only one.

    Call it at the beginning of a command: what the processes print to standard output goes to standard error.

    Args:
        pipeline: the YAML.
        set_: values that override the YAML.
        device: replaces the YAML's device.
        realtime: files without a `pace` are played at their own rate.
    """
    end_prestarted()  # what an earlier command of this process left
    if not _may_use_gpu() or any(name.partition(".")[0] in ("device", "sources") for name in set_):
        return
    with suppress(OSError, UnicodeDecodeError):
        if not pipeline.is_file():  # a pipe can be read once
            return
        number = likely_processes(pipeline.read_text(encoding="utf-8"), device, cores(), realtime)
        if number > 1:
            atexit.register(end_idle)  # an error may end the command before it has workers; then MPS ends by itself
            for _ in range(number):
                _idle.append(child := IdleChild("worker"))
                child.do_ahead(_WORKER, "preload")
            _daemon.append(ThreadFuture(_start_daemon, "mps"))


def _may_use_gpu() -> bool:
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and importlib.util.find_spec("cupy") is not None and has_driver()


def take_prestarted() -> IdleChild | None:
    """A process that waits for a job; None if there is none."""
    with _taking:
        while _idle:
            child = _idle.pop()
            if child.waits:
                return child
    return None


def take_prestarted_daemon() -> MpsDaemon | None:
    """The MPS daemon that was started ahead, or an attempt that says why there is none; None without an attempt."""
    return _daemon.pop().result() if _daemon else None


def end_prestarted(*, wait: bool = False) -> None:
    """End what still waits: no worker needs it. The daemon ends in the background, unless this is to `wait` for it."""
    end_idle()
    while _daemon:
        ending = start("mps", partial(_close, _daemon.pop()))
        if wait:
            ending.join()


def end_idle() -> None:
    """End the processes that still wait."""
    with _taking:
        idle = _idle[:]
        _idle.clear()
    for child in idle:
        child.kill()
    for child in idle:
        child.end()


def _start_daemon(dropped: Callable[[], bool]) -> MpsDaemon:
    """Start MPS; let the processes that still wait use the GPU with it, half a second that they need not wait for."""
    daemon = MpsDaemon()
    daemon.start()
    with _taking:
        for child in _idle:
            child.do_ahead(become_client.__module__, become_client.__name__, daemon.environment, 0)
    return daemon


def _close(daemon: ThreadFuture[MpsDaemon]) -> None:
    daemon.result().close()


def likely_processes(text: str, device: str | None, cores: int, realtime: bool = False) -> int:
    """Guess the number of processes of a pipeline, the spare one included, on one GPU; 0 on the CPU.

    Args:
        text: the YAML; one that cannot be read needs none.
        device: replaces the YAML's device.
        cores: number of CPU cores that the processes may use.
        realtime: files without a `pace` are played at their own rate.
    """
    import yaml

    try:
        read = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except Exception:  # of any kind, such as nesting that is too deep: the run reads it again, and reports the mistake
        return 0
    top: dict[str, Any] = read if isinstance(read, dict) else {}
    sources = top.get("sources")
    configured = top.get("device", "auto")
    options = configured if isinstance(configured, dict) else {"use": configured}
    wanted = device or options.get("use", "auto")
    if not isinstance(sources, dict) or not isinstance(wanted, str) or wanted not in ("auto", "cuda", "cuda:0"):
        return 0
    max_processes = cores // CORES_PER_PROCESS
    processes = options.get("processes", "auto")
    if isinstance(processes, int):
        return min(processes, max_processes)
    every = sum(map(_files, sources.values()))
    live = every if realtime else sum(map(_is_live, sources.values()))
    number = min((every - live + 1) // 2, _FILE_PROCESSES) + math.ceil(live / _CAMERAS_PER_PROCESS)
    return min(number + (live > _CAMERAS_PER_PROCESS), max_processes)


def _uri(source: Any) -> str:
    uri = source.get("uri") if isinstance(source, dict) else source
    return uri if isinstance(uri, str) else ""


def _is_live(source: Any) -> bool:
    paced = isinstance(source, dict) and source.get("pace") not in (None, "unpaced")
    return paced or may_be_live(_uri(source))


def _files(source: Any) -> int:
    """Number of sources that an entry may stand for: a folder or a pattern has several files."""
    uri = _uri(source)
    return 2 * _FILE_PROCESSES if any(mark in uri for mark in "*?[") or os.path.isdir(uri) else 1
