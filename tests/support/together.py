"""Distributes tests over processes: the suite runs in several, and tests that measure time run alone.

`python -m pytest` without arguments distributes the test files over processes if pytest-xdist is installed and the
machine has no GPU, as some tests measure the free memory of a GPU. Tests that are named on the command line run in
one process; `-n 0` does the same for the whole suite. Three groups of tests run first, one after the other in a
single process, so that the processes wait for each other only once and start a single Ray cluster: tests marked
`alone`, while no other test runs; tests marked `quiet`, while as many other processes run tests as the machine has
cores; and the rest of those with the fixture `ray_nodes`. Meanwhile and then, the other processes run the tests marked
`slow`, so that no process is left with a slow test at the end of the run, and then all others.
"""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import pytest

_LEVELS = ("alone", "quiet")
"""The marks that limit what runs beside a test."""
_SLOW = 4
"""The rank of slow tests; lower ones are of tests that run first in one process."""

_MAX_PROCESSES = 8
_PER_CORE = 3
"""Tests wait for servers and cameras: with three processes per core, a quarter of the cores' time is unused."""


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Choose the number of processes before pytest-xdist reads it."""
    if _in_worker(config) or not config.pluginmanager.hasplugin("xdist"):
        return
    config.option.testrunuid = config.option.testrunuid or uuid4().hex
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    processes = 0 if Path("/dev/nvidiactl").exists() else min(_PER_CORE * len(os.sched_getaffinity(0)), _MAX_PROCESSES)
    if whole and config.option.numprocesses is None and processes > 1 and not config.option.usepdb:
        config.option.numprocesses = processes
        config.option.dist = "loadfile"
        config.option.loadscopereorder = False


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if _in_worker(config):
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        config.stash[_LOCK] = SuiteLock(config.workerinput["testrunuid"], companions=cores)  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("dsession"):  # the process that distributes the tests
        for path in _folder().glob(f"{_prefix(config.option.testrunuid)}*"):
            path.unlink(missing_ok=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests, and store the names of those that the first process runs."""
    first = {item.nodeid: rank for item in items if (rank := _rank_in_first_process(item)) is not None}
    items.sort(key=lambda item: first.get(item.nodeid, _SLOW if "slow" in item.keywords else _SLOW + 1))
    if getattr(config, "workerinput", {}).get("workerid") == "gw0":  # the distributing process has no markers
        _first_file(config.workerinput["testrunuid"]).write_text(json.dumps(list(first)))  # type: ignore[attr-defined]


def _rank_in_first_process(item: pytest.Item) -> int | None:
    """Return the position of a test's group among those that run first in one process; None for other tests."""
    uses_ray = "ray_nodes" in getattr(item, "fixturenames", ())
    match _level(item):
        case "alone":
            return 0
        case "quiet":
            return 2 if uses_ray else 1  # those of the cluster in a row, as it takes a share of a core
    return 3 if uses_ray else None


def _level(item: pytest.Item) -> str | None:
    """Return the mark that limits what runs beside a test."""
    return next((level for level in _LEVELS if level in item.keywords), None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute files, and each group of tests as a single file."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class GroupScheduling(LoadFileScheduling):
        first: frozenset[str] | None = None

        def _split_scope(self, nodeid: str) -> str:
            if self.first is None:  # every process has collected its tests
                self.first = frozenset(json.loads(_first_file(config.option.testrunuid).read_text()))
            return "first" if nodeid in self.first else str(super()._split_scope(nodeid))

    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost: the time limit of a test excludes this wait
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    lock = item.config.stash.get(_LOCK, None)
    if lock is None:
        return (yield)
    lock.acquire(_level(item))
    try:
        return (yield)
    finally:
        lock.release(None if nextitem is None else _level(nextitem))


class SuiteLock:
    """The right to run a test while those of other processes run.

    A few processes are companions: only their tests run beside a `quiet` one. A process becomes one, for all of the
    run, with its first test that has neither mark.

    Args:
        run_id: id of the test run.
        companions: number of processes that may run tests beside a `quiet` one.
    """

    def __init__(self, run_id: str, companions: int) -> None:
        self._most = _FairLock(run_id, "most")
        self._companions = _FairLock(run_id, "companions")
        self._seats = [_file(run_id, f"companion-{number}").open("w") for number in range(companions)]
        self._ordinary: _FairLock | None = None

    def acquire(self, level: str | None) -> None:
        """Acquire the right for a test with the mark `level`; do nothing if this process holds it."""
        if level is None:
            self._ordinary = self._ordinary or self._choose()
            self._ordinary.acquire(exclusive=False)
            return
        self._most.acquire(exclusive=True)
        if level == "alone":
            self._companions.acquire(exclusive=True)

    def release(self, next_level: str | None) -> None:
        """Release the right but for what a next test with the mark `next_level` needs as well."""
        if next_level is None or not self._most.exclusive:
            self._companions.release()
            self._most.release()
        elif next_level == "quiet":
            self._companions.release()

    def _choose(self) -> "_FairLock":
        for seat in self._seats:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(seat, fcntl.LOCK_EX | fcntl.LOCK_NB)  # until the process ends
                return self._companions
        return self._most


class _FairLock:
    """A lock between processes, shared or exclusive; shared holders do not overtake a waiting exclusive holder.

    Attributes:
        exclusive: whether this process holds it, exclusively.
    """

    def __init__(self, run_id: str, name: str) -> None:
        self._queue_file = _file(run_id, f"{name}-queue").open("w")
        self._lock_file = _file(run_id, f"{name}-lock").open("w")
        self.exclusive = False
        self._held = False

    def acquire(self, *, exclusive: bool) -> None:
        """Acquire the lock; do nothing if this process holds it in the same way."""
        if self._held and self.exclusive == exclusive:
            return
        self.release()
        with _locked(self._queue_file):
            fcntl.flock(self._lock_file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        self._held = True
        self.exclusive = exclusive

    def release(self) -> None:
        """Release the lock."""
        fcntl.flock(self._lock_file, fcntl.LOCK_UN)
        self._held = False
        self.exclusive = False


@contextlib.contextmanager
def _locked(file: IO[Any]) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


_LOCK = pytest.StashKey[SuiteLock]()


def _folder() -> Path:
    return Path(tempfile.gettempdir())


def _prefix(run_id: str) -> str:
    return f"streamkit-tests-{run_id}."


def _file(run_id: str, name: str) -> Path:
    return _folder() / (_prefix(run_id) + name)


def _first_file(run_id: str) -> Path:
    return _file(run_id, "first")


def _in_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")
