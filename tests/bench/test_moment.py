"""Rates between two moments of a run."""

import numpy as np
import pytest

from streamkit.bench.moment import Moment
from streamkit.runtime.execution.meters import Histogram


def moment(frames, counted_s, latency=None):
    return Moment(0.0, 0.0, frames, counted_s, 0, None, (0, 0), {}, latency or {})


def test_each_process_is_counted_by_its_own_time():
    before, after = moment([10, 100], [1.0, 1.4]), moment([40, 150], [2.0, 1.9])
    assert after.rate_since(before) == pytest.approx(30 + 100)


def test_a_process_that_has_not_counted_since_adds_nothing():
    assert moment([10, 7], [1.0, 3.0]).rate_since(moment([0, 7], [0.0, 3.0])) == 10


def test_latency_is_that_of_the_end_that_is_last():
    early, fast, slow = Histogram(), Histogram(), Histogram()
    for _ in range(100):
        early.add(3.0)
    slow.counts = early.counts.copy()
    for _ in range(50):
        fast.add(0.010)
        slow.add(0.040)
    after = moment([0], [0.0], {"fast": fast.counts, "slow": slow.counts})
    found = after.latency_since(moment([0], [0.0], {"slow": np.array(early.counts)}))
    assert found["p50_ms"] == pytest.approx(40, rel=0.1), "what came before does not count"
