"""Batchers with started sources, and helpers to read their batches."""

import threading

import numpy as np
import pytest

from streamkit.core.data import Batch, Frame
from streamkit.runtime.ingest import batcher as batcher_module
from streamkit.runtime.ingest.batcher import Batcher
from support.clock import FakeClock

LONG_S = 30.0  # no test waits so long: it is there where only something else may send a batch off


def frame(source: str, index: int = 0, error: str | None = None) -> Frame:
    return Frame(source, index, index / 25, 64, 48, error=error)


def make_batcher(size: int, max_wait_s: float, *sources: str, ahead: int = 2, first_size: int | None = None) -> Batcher:
    batcher = Batcher(size, max_wait_s, np, ahead, first_size=first_size)
    batcher.expect(len(sources))
    for source in sources:
        batcher.begin(source)
    return batcher


def drain(batcher: Batcher) -> list[Batch]:
    batches = []
    while (batch := batcher.next()) is not None:
        batches.append(batch)
    return batches


def names(batch: Batch) -> list[str]:
    return [frame.source for frame in batch.frames]


def in_thread(target) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def live_due(source: str, index: int, due_s: float) -> Frame:
    """A frame of a live source that was due at this time of the monotonic clock."""
    live_frame = frame(source, index)
    live_frame.due_s = due_s
    return live_frame


def begin_inlets(batcher: Batcher, *sources: str, expected: int = 0) -> list:
    """Begin these sources, and expect further ones."""
    batcher.expect(len(sources) + expected)
    return [batcher.begin(source) for source in sources]


class BatcherClock(FakeClock):
    """The clock of batchers; the waits of a batcher move it on instead of taking time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        monkeypatch.setattr(batcher_module, "time", self)

    def waits(self, batcher: Batcher) -> list[float]:
        """Note the waits of `next`; one without an end fails."""
        waited_s: list[float] = []

        def wait(timeout: float | None = None) -> None:
            assert timeout is not None, "it waits without a limit"
            assert len(waited_s) < 100
            waited_s.append(timeout)
            self.now_s += timeout

        batcher._changed.wait = wait
        return waited_s
