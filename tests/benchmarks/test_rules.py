import numpy as np
import pytest

from benchmarks.rules import KINDS, batches, engine, measure
from streamkit.rules.kernel import advance, kernels


@pytest.mark.parametrize("kind", KINDS)
def test_it_measures_each_kind(kind):
    found, told = measure(kind, 40, 3, 4, 20)
    assert len(found) == 18
    assert all(one >= 0 for one in found)
    assert told >= 0


def test_its_rules_are_raised_and_cleared():
    assert measure("counting", 40, 3, 12, 60)[1] > 0
    assert measure("objects", 60, 4, 40, 60)[1] > 0


def test_its_batches_have_one_frame_of_each_source():
    given = list(batches(3, 2, 4))
    assert [[frame.source for frame in batch.frames] for batch in given] == [["s0", "s1", "s2"]] * 4
    assert [len(batch.table("detect")) for batch in given] == [6] * 4
    assert len(engine("counting", 7)._on_frames.rules) == 7


@pytest.mark.alone
def test_a_thousand_rules_on_64_sources_in_5_ms():
    """64,000 evaluations a batch, with 1,280 tracked objects, on one core; docs/rule-timing.md has the figures."""
    assert kernels()[1] is not advance
    found, told = measure("counting", 1000, 64, 20, 60)
    assert told > 1000
    assert np.median(found) < 10e-3  # 5 ms on a quiet machine; neighbours that use the core's cache take as much again
