"""Values that are not finite are noticed."""

import numpy as np
import pytest

from streamkit.models.finite_values import FiniteValues


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("bad", "broken"), [(np.nan, True), (np.inf, True), (-np.inf, False), (65504.0, False)])
def test_a_non_finite_value_is_noticed_a_second_later(bad, broken):
    clock = Clock()
    values = FiniteValues(clock)
    outputs = {"boxes": np.zeros(4, np.float32), "scores": np.array([0.5, bad], np.float32), "labels": np.zeros(2, int)}
    assert not values.broken_by(outputs)
    clock.now_s += 0.5
    assert not values.broken_by(outputs)
    clock.now_s += 0.6
    assert values.broken_by({"boxes": np.zeros(4, np.float32)}) == broken
    clock.now_s += 2
    assert not values.broken_by(outputs)  # the run in between was fine
