"""Distributes tests over processes: the suite runs in several, and tests that measure time run alone.

`python -m pytest` without arguments distributes the test files over processes if pytest-xdist is installed and the
machine has no GPU, as some tests measure the free memory of a GPU. Tests that are named on the command line run in
one process; `-n 0` does the same for the whole suite. Tests marked `alone` run first, one after the other in the
first process, while no other test runs, so that the processes wait for each other only once. Tests marked `slow`
follow, so that no process is left with a slow test at the end of the run; so do those with the fixture `ray_nodes`,
which all run in one process: each further one would start a Ray cluster.
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

_MAX_PROCESSES = 6
_PER_CORE = 3
"""With five processes on two cores, an eighth of the cores' time is unused: tests wait for servers and cameras."""


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
        config.stash[_LOCK] = SuiteLock(config.workerinput["testrunuid"])  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("dsession"):  # the process that distributes the tests
        for path in _files(config.option.testrunuid):
            path.unlink(missing_ok=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests, and store the groups of those that are not distributed by file."""
    groups = {item.nodeid: group for item in items if (group := _group(item))}
    ranks = {"alone": 0, "ray": 1}
    items.sort(key=lambda item: ranks.get(groups.get(item.nodeid, ""), 1 if "slow" in item.keywords else 2))
    if getattr(config, "workerinput", {}).get("workerid") == "gw0":  # the distributing process has no markers
        _groups_file(config.workerinput["testrunuid"]).write_text(json.dumps(groups))  # type: ignore[attr-defined]


def _group(item: pytest.Item) -> str:
    """Return the name of a test's group, which runs in one process; empty for tests that are distributed by file."""
    if "alone" in item.keywords:
        return "alone"
    return "ray" if "ray_nodes" in getattr(item, "fixturenames", ()) else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute files, and each group of tests as a single file."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class GroupScheduling(LoadFileScheduling):
        groups: dict[str, str] | None = None

        def _split_scope(self, nodeid: str) -> str:
            if self.groups is None:  # every process has collected its tests
                self.groups = json.loads(_groups_file(config.option.testrunuid).read_text())
            return self.groups.get(nodeid) or str(super()._split_scope(nodeid))

    return GroupScheduling(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost: the time limit of a test excludes this wait
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    lock = item.config.stash.get(_LOCK, None)
    if lock is None:
        return (yield)
    lock.acquire(exclusive="alone" in item.keywords)
    try:
        return (yield)
    finally:
        if nextitem is None or not ("alone" in item.keywords and "alone" in nextitem.keywords):
            lock.release()


class SuiteLock:
    """A lock between processes, shared or exclusive; shared holders do not overtake a waiting exclusive holder.

    Args:
        run_id: id of the test run.
    """

    def __init__(self, run_id: str) -> None:
        queue_path, lock_path, _ = _files(run_id)
        self._queue_file = queue_path.open("w")
        self._lock_file = lock_path.open("w")
        self._held = False

    def acquire(self, *, exclusive: bool) -> None:
        """Acquire the lock; do nothing if this process holds it."""
        if not self._held:
            with _locked(self._queue_file):
                fcntl.flock(self._lock_file, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
            self._held = True

    def release(self) -> None:
        """Release the lock."""
        fcntl.flock(self._lock_file, fcntl.LOCK_UN)
        self._held = False


@contextlib.contextmanager
def _locked(file: IO[Any]) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


_LOCK = pytest.StashKey[SuiteLock]()


def _files(run_id: str) -> list[Path]:
    """Return the files of a run: the lock of the queue, the lock, and the groups of tests."""
    names = (f"streamkit-tests-{run_id}.{suffix}" for suffix in ("queue", "lock", "groups"))
    return [Path(tempfile.gettempdir()) / name for name in names]


def _groups_file(run_id: str) -> Path:
    return _files(run_id)[-1]


def _in_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")
