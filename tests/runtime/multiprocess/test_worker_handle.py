"""A worker process as its parent sees it."""

import math
from types import SimpleNamespace

import pytest

from streamkit.runtime.multiprocess import messages
from streamkit.runtime.multiprocess.children import SupervisedWorker
from streamkit.runtime.multiprocess.worker_handle import WorkerHandle


def test_a_handle_has_a_deadline_once_aborted() -> None:
    sent: list[messages.Order] = []
    handle = WorkerHandle(device="cuda:3", child=SimpleNamespace(send=sent.append), clock=lambda: 100.0)
    assert (handle.over, handle.order, handle.overdue(1e12)) == (False, None, None)
    for order in (messages.Finish(), messages.Stop(), messages.Now()):
        handle.end(order)
        handle.end(order)  # is sent once
        assert (handle.order, handle.deadline_s) == (order, math.inf)
    handle.end(None)
    assert handle.order == messages.Now()
    handle.end(messages.Abort())
    assert (handle.order, handle.deadline_s) == (messages.Abort(), 110.0)
    assert sent == [messages.Finish(), messages.Stop(), messages.Now(), messages.Abort()]
    assert (handle.overdue(109.0), handle.overdue(110.0)) == (None, None)
    assert handle.overdue(110.1) == handle.overdue(120.0) == "its process on cuda:3 does not end and was killed"


def test_handles_compare_by_identity_and_reject_unknown_attributes() -> None:
    for make in (lambda: WorkerHandle(device="cpu"), SupervisedWorker):
        first = make()
        other = make()
        assert first != other
        assert len({first, other}) == 2
        with pytest.raises(AttributeError):
            first.reddy = True
