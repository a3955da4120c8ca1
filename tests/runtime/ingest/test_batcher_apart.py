"""Batches of one source each: full however long that takes, and the same whatever the timing."""

import random
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest
from support.batches import drain, frame, in_thread, names

from streamkit.core.data import Batch
from streamkit.runtime.ingest.batcher import Batcher


def apart(size: int, *sources: str) -> Batcher:
    batcher = Batcher(size, 0.0, np, 4, per_source=True)
    batcher.expect(len(sources))
    for source in sources:
        batcher.begin(source)
    return batcher


def test_separate_batches_belong_to_a_source_and_wait_until_full():
    batcher = apart(3, "a", "b")
    for index in range(2):
        batcher.inlets["a"].put(frame("a", index))
        batcher.inlets["b"].put(frame("b", index))
    taken: list[Batch] = []
    waiting = in_thread(lambda: taken.append(batcher.next()))
    waiting.join(0.2)  # four frames wait, and have waited longer than any may elsewhere
    assert waiting.is_alive()
    batcher.inlets["b"].put(frame("b", 2))
    waiting.join(10)
    assert names(taken[0]) == ["b", "b", "b"]


def test_an_ended_source_releases_its_partial_separate_batch():
    batcher = apart(3, "a", "b")
    for index in range(4):
        batcher.inlets["a"].put(frame("a", index))
    batcher.inlets["b"].put(frame("b"))
    batcher.inlets["a"].end()
    batches = [batcher.next(), batcher.next()]
    assert [names(batch) for batch in batches] == [["a", "a", "a"], ["a"]]
    assert [batch.ended for batch in batches] == [(), ("a",)]
    batcher.inlets["b"].end()
    assert [names(batch) for batch in drain(batcher)] == [["b"]]


@pytest.mark.parametrize("seed", range(3))
def test_separate_batches_do_not_depend_on_timing(seed):
    lengths = {"a": 10, "b": 3, "c": 0, "d": 7}
    batcher = apart(4, *lengths)
    chance = random.Random(seed)

    def bring(source: str, inlet) -> None:
        for index in range(lengths[source]):
            time.sleep(chance.random() / 500)
            inlet.put(frame(source, index))
        inlet.end()

    threads = [in_thread(partial(bring, *item)) for item in list(batcher.inlets.items())]
    batches = drain(batcher)
    for thread in threads:
        thread.join()
    indices_by_source: dict[str, list[list[int]]] = {}
    for batch in batches:
        assert len(set(names(batch))) <= 1
        for source in set(names(batch)):
            indices_by_source.setdefault(source, []).append([batched.index for batched in batch.frames])
    assert indices_by_source == {
        "a": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]],
        "b": [[0, 1, 2]],
        "d": [[0, 1, 2, 3], [4, 5, 6]],
    }
    assert Counter(source for batch in batches for source in batch.ended) == Counter(list(lengths))
