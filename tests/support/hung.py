"""Ends the process of a test that its time limit cannot end, prints the traceback of every thread, and fails the test.

The time limit of pytest-timeout is an exception in the main thread. A test that waits in C code does not receive it,
and cleanup that hangs after it has no limit at all. Without this plugin, the run would wait forever without a message.
"""

import faulthandler
import os
import sys
from collections.abc import Iterator

import pytest

_CLEANUP_S = 120.0
"""Time for the cleanup of a test after its time limit."""
_MAX_WORKER_RESTARTS = "3"
"""Ended processes that are replaced in a run; the default of pytest-xdist is four per process."""


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # pytest-xdist replaces a worker process only
        assert sys.__stderr__ is not None
        config.stash[_STDERR] = os.dup(sys.__stderr__.fileno())
    elif hasattr(config.option, "maxworkerrestart"):
        config.option.maxworkerrestart = config.option.maxworkerrestart or _MAX_WORKER_RESTARTS


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _arm(item, _limit_s(item) + _CLEANUP_S)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)  # pytest itself cancels the timer when a test has failed, before its cleanup
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    if isinstance(node, pytest.Item):
        _arm(node, _CLEANUP_S)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """Add where the traceback is; pytest-xdist runs the test again in another process."""
    _crashed_tests.append(crashitem)
    report.longrepr = f"{report.longrepr}; if the test exceeded its time limit, a traceback is above"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Count a test that ended its process as failed for `--last-failed`, even if a later run of it passed."""
    last_failed = session.config.pluginmanager.get_plugin("lfplugin")
    if last_failed is not None:
        last_failed.lastfailed.update(dict.fromkeys(_crashed_tests, True))


def _arm(item: pytest.Item, after_s: float) -> None:
    file = item.config.stash.get(_STDERR, None)
    if file is not None:
        faulthandler.dump_traceback_later(after_s, exit=True, file=file)


def _limit_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0] if mark else item.config.getini("timeout"))


_STDERR = pytest.StashKey[int]()
_crashed_tests: list[str] = []
