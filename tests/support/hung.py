"""A test that its time limit cannot end ends its process, with the traceback of every thread, and counts as failed.

The time limit of pytest-timeout is an exception in the main thread. A test that waits in C code does not see it, and
what hangs in the cleanup behind it has no limit at all. Without this, the run would wait forever and say nothing.
"""

import faulthandler
import os
import sys
from collections.abc import Iterator

import pytest

_LATER_S = 120.0
"""After the time limit, in which the test cleans up."""
_MAX_ENDED = "3"
"""Ended processes that are replaced; pytest-xdist would replace four for each."""


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # only there the run goes on, in another process
        assert sys.__stderr__ is not None
        config.stash[_STDERR] = os.dup(sys.__stderr__.fileno())
    elif hasattr(config.option, "maxworkerrestart"):
        config.option.maxworkerrestart = config.option.maxworkerrestart or _MAX_ENDED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _arm(item, _limit_s(item) + _LATER_S)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(trylast=True)  # pytest itself cancels the timer when a test has failed, before its cleanup
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    if isinstance(node, pytest.Item):
        _arm(node, _LATER_S)


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem: str, report: pytest.TestReport) -> None:
    """Say where the traceback is; pytest-xdist runs the test again in another process."""
    _ended.append(crashitem)
    report.longrepr = f"{report.longrepr}; if it did not end in time, a traceback is above"


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Count a test that has ended its process as failed for `--last-failed`, however it ended later."""
    last_failed = session.config.pluginmanager.get_plugin("lfplugin")
    if last_failed is not None:
        last_failed.lastfailed.update(dict.fromkeys(_ended, True))


def _arm(item: pytest.Item, after_s: float) -> None:
    file = item.config.stash.get(_STDERR, None)
    if file is not None:
        faulthandler.dump_traceback_later(after_s, exit=True, file=file)


def _limit_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0] if mark else item.config.getini("timeout"))


_STDERR = pytest.StashKey[int]()
_ended: list[str] = []
