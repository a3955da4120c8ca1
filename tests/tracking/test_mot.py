"""The metric code gives the published scores for the tracker's result that ships with the data."""

import numpy as np
import pytest
from support.mot import by_frame, read, scores
from support.packages import require

require("trackeval")


def test_the_published_scores_are_reproduced(test_data):
    folder = test_data / "mot" / "TUD-Campus"
    shipped_scores = scores(
        by_frame(read(folder / "gt" / "gt.txt"), 71), by_frame(read(folder / "tracker_result_test.txt"), 71)
    )
    assert shipped_scores["MOTA"] == pytest.approx(0.526, abs=0.0005)
    assert shipped_scores["IDF1"] == pytest.approx(0.558, abs=0.0005)


def test_truth_scores_one_and_nothing_scores_nothing():
    truth = [(np.array([1, 2]), np.array([[0, 0, 9, 9], [20, 0, 30, 9]], float))] * 5
    assert scores(truth, truth)["IDF1"] == 1
    none = [(np.zeros(0, int), np.zeros((0, 4)))] * 5
    assert scores(truth, none)["MOTA"] == 0
