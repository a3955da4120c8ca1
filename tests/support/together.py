"""How tests share the machine: the suite runs in several processes, and tests that measure time run alone.

`python -m pytest` without further words shares the files of tests out over processes, a file to each in turn, where
pytest-xdist is there and no GPU is, since tests look at what is left in a GPU's memory. Tests that are named on the
command line run in this one process, as ever; `-n 0` has the whole suite do so. Tests marked `alone` run one after the
other in the first process while no other runs, so that the processes wait for each other once. Then come those marked
`slow`, so that none ends the run.
"""

import contextlib
import fcntl
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
        config.stash[_DOOR] = Door(config.workerinput["testrunuid"])  # type: ignore[attr-defined]


def pytest_unconfigure(config: pytest.Config) -> None:
    if config.pluginmanager.hasplugin("dsession"):  # it was here that the tests were shared out
        for path in _files(config.option.testrunuid):
            path.unlink(missing_ok=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests, and group those that run alone."""
    items.sort(key=lambda item: 0 if "alone" in item.keywords else 1 if "slow" in item.keywords else 2)
    if getattr(config, "workerinput", {}).get("workerid") == "gw0":  # who shares the tests out knows their ids only
        alone = [item.nodeid for item in items if "alone" in item.keywords]
        _alone_file(config.workerinput["testrunuid"]).write_text("\n".join(alone))  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute files, and the tests that run alone as a single file."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Sharing(LoadFileScheduling):
        alone: set[str] | None = None

        def _split_scope(self, nodeid: str) -> str:
            if self.alone is None:  # every process has found its tests
                self.alone = set(_alone_file(config.option.testrunuid).read_text().splitlines())
            return "alone" if nodeid in self.alone else str(super()._split_scope(nodeid))

    return Sharing(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the time limit of a test: waiting is not its own
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    door = item.config.stash.get(_DOOR, None)
    if door is None:
        return (yield)
    door.enter(alone="alone" in item.keywords)
    try:
        return (yield)
    finally:
        if nextitem is None or not ("alone" in item.keywords and "alone" in nextitem.keywords):
            door.leave()


class Door:
    """A lock over processes, shared or exclusive; a waiting exclusive holder is not overtaken.

    Args:
        name: of the run.
    """

    def __init__(self, name: str) -> None:
        self._queue, self._room = (path.open("w") for path in _files(name)[:2])
        self._inside = False

    def enter(self, *, alone: bool) -> None:
        """Acquire the lock; do nothing if it is held."""
        if not self._inside:
            with _locked(self._queue):
                fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            self._inside = True

    def leave(self) -> None:
        """Release the lock."""
        fcntl.flock(self._room, fcntl.LOCK_UN)
        self._inside = False


@contextlib.contextmanager
def _locked(file: IO[Any]) -> Iterator[None]:
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


_DOOR = pytest.StashKey[Door]()


def _files(name: str) -> list[Path]:
    """The files of a run: two locks, and the ids of the tests that run alone."""
    return [Path(tempfile.gettempdir()) / f"streamkit-tests-{name}.{what}" for what in ("queue", "room", "alone")]


def _alone_file(name: str) -> Path:
    return _files(name)[-1]


def _in_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")
