"""The metric code gives the published scores for the tracker's result that ships with the data."""

import numpy as np
import pytest
from support.mot import by_frame, read, read_truth, scores, without_ignored
from support.official_scores import trackeval_scores
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


def test_distractors_and_marks_count_as_trackeval_counts_them(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    track_rows = []
    for frame in range(1, 31):
        for number, kind in enumerate((1, 1, 1, 2, 8, 12, 3, 1), 1):
            box = 70 * number + frame, 50, 40, 80
            rows.append((frame, number, *box, number != 8, kind, 1))
            if rng.random() < 0.8:
                track_rows.append((frame, number + 10 * (frame > 15), *(np.array(box) + rng.normal(0, 3, 4))))
    truth_rows = np.array(rows, float)
    tracks = np.array(track_rows)
    official = trackeval_scores(tmp_path, [("a", truth_rows, tracks, 30)], preprocess=True)
    truth = read_truth(tmp_path / "gt" / "a" / "gt" / "gt.txt", 30)
    counted = scores(*without_ignored(truth, by_frame(np.column_stack([tracks, np.ones(len(tracks))]), 30)))
    assert counted["HOTA"] == pytest.approx(official["HOTA"]["HOTA"].mean())
    assert counted["MOTA"] == pytest.approx(official["CLEAR"]["MOTA"])
    assert counted["IDF1"] == pytest.approx(official["Identity"]["IDF1"])
    assert sum(len(frame.ids[frame.counts]) for frame in truth) == 90
