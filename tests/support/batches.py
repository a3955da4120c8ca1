"""Batchers with started sources, and helpers to read their batches."""

import threading

import numpy as np

from streamkit.core.data import Batch, Frame
from streamkit.runtime.ingest.batcher import Batcher

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
