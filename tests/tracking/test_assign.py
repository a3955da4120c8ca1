"""The assignment against all permutations."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamkit.tracking.assign import assign


def best(gain):
    """The most that any assignment gains."""
    if gain.shape[0] > gain.shape[1]:
        gain = gain.T
    useful = np.maximum(gain, 0)
    ways = itertools.permutations(range(gain.shape[1]), gain.shape[0])
    return max((sum(useful[i, j] for i, j in enumerate(way)) for way in ways), default=0.0)


shapes = st.tuples(st.integers(0, 5), st.integers(0, 5))
gains = st.one_of(st.just(0.0), st.floats(-1, 1), st.sampled_from([0.25, 0.5]))


@settings(deadline=None)  # the first call compiles
@given(shapes.flatmap(lambda shape: arrays(np.float64, shape, elements=gains)))
def test_the_assignment_is_optimal(gain):
    column_of = assign(gain)
    taken = column_of[column_of >= 0]
    assert len(set(taken.tolist())) == len(taken)
    pairs = [(i, j) for i, j in enumerate(column_of.tolist()) if j >= 0]
    assert all(gain[pair] > 0 for pair in pairs)
    assert np.isclose(sum(gain[pair] for pair in pairs), best(gain))


def test_a_large_assignment_equals_that_of_scipy():
    optimize = pytest.importorskip("scipy.optimize")
    rng = np.random.default_rng(0)
    for shape in ((60, 60), (40, 70), (70, 40)):
        gain = rng.uniform(-0.5, 1, shape)
        rows, columns = optimize.linear_sum_assignment(-np.maximum(gain, 0))
        column_of = assign(gain)
        total_gain = sum(gain[i, j] for i, j in enumerate(column_of.tolist()) if j >= 0)
        assert np.isclose(total_gain, np.maximum(gain, 0)[rows, columns].sum())
