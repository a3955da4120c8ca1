"""Which events a stream waits for. What the calls do on a GPU is in the tests of those who make them."""

from types import SimpleNamespace

import numpy as np
import pytest

from streamkit.core.data import Color, Surface
from streamkit.ops.cuda import driver


class Stream:
    ptr = 1

    def __init__(self):
        self.waited = []

    def wait_event(self, event):
        self.waited.append(event)


@pytest.fixture
def stream(monkeypatch):
    monkeypatch.setattr(driver, "_calls", lambda: None)
    return Stream()


def surface(ready, turn=None):
    written = Surface(np.zeros((6, 4), np.uint8), Color(), ready=ready)
    written.turn = turn
    return written


def test_only_the_last_event_of_each_writer_is_waited_for(stream):
    surfaces = [
        surface("a1", (7, 1)),
        surface("b5", (9, 5)),
        surface("a3", (7, 3)),
        surface("a2", (7, 2)),
        surface("b4", (9, 4)),
    ]
    driver.wait_for(stream, surfaces)
    assert sorted(stream.waited) == ["a3", "b5"]


def test_all_unknown_writers_are_waited_for_except_finished_ones(stream):
    driver.wait_for(stream, [surface("x"), surface(None), surface("y")])
    assert stream.waited == ["x", "y"]


def test_a_call_that_fails_is_an_error(monkeypatch):
    monkeypatch.setattr(driver, "_calls", lambda: SimpleNamespace(cuStreamWaitEvent=lambda *arguments: 400))
    with pytest.raises(RuntimeError, match="error 400"):
        driver.wait(Stream(), SimpleNamespace(ptr=3))
