"""Scores of tracks equal those that TrackEval computes from MOTChallenge files; errors are located where they are."""

import numpy as np
import pytest
from support.official_scores import trackeval_scores
from support.packages import require

from streamkit.evaluate.boxes import EvaluatedFrame, FlatBoxes
from streamkit.evaluate.tracking import check_packages, track_errors, tracking_scores

require("trackeval")


def rows_of(path):
    return np.loadtxt(path, delimiter=",", ndmin=2)[:, :6]


def flat(sequences):
    """Rows of frame, id, x, y, w, h of each sequence as boxes of one class, and the frames."""
    frames = []
    parts = []
    for name, rows, count in sequences:
        for frame in range(count):
            frame_rows = rows[rows[:, 0] == frame + 1]
            xyxy = np.hstack([frame_rows[:, 2:4], frame_rows[:, 2:4] + frame_rows[:, 4:6]])
            n = len(frame_rows)
            parts.append(
                (len(frames), xyxy, np.ones(n), np.zeros(n, int), frame_rows[:, 1].astype(int), np.zeros(n, bool))
            )
            frames.append(EvaluatedFrame(name, frame, frame / 25, 640, 480))
    return FlatBoxes.of(parts), frames


def walk(seed, count=60, people=5):
    """People who walk, and a tracker that loses some and confuses others: rows of truth and of tracks."""
    rng = np.random.default_rng(seed)
    truth = []
    tracks = []
    names = {person: person + 1 for person in range(people)}
    for frame in range(1, count + 1):
        for person in range(people):
            x = 40.5 + 90 * person + 2 * frame * (-1) ** person
            y = 100.25 + 10 * np.sin(frame / 7 + person)
            truth.append((frame, person + 1, x, y, 40, 90))
            if rng.random() < 0.02:
                names[person] = int(rng.integers(20, 10_000))
            if rng.random() > 0.1:
                tracks.append((frame, names[person], *(np.array([x, y, 40, 90]) + rng.normal(0, 3, 4))))
    return np.array(truth), np.round(np.array(tracks), 6)


def compare(tmp_path, sequences):
    truth, frames = flat([(name, real, count) for name, real, _, count in sequences])
    detections, _ = flat([(name, tracks, count) for name, _, tracks, count in sequences])
    scores = tracking_scores(truth, detections, frames, ["person"])
    theirs = trackeval_scores(tmp_path, sequences)
    expected = {
        "hota": theirs["HOTA"]["HOTA"].mean(),
        "deta": theirs["HOTA"]["DetA"].mean(),
        "assa": theirs["HOTA"]["AssA"].mean(),
        "mota": theirs["CLEAR"]["MOTA"],
        "idf1": theirs["Identity"]["IDF1"],
        "switches": theirs["CLEAR"]["IDSW"],
        "fragments": theirs["CLEAR"]["Frag"],
    }
    for part in (scores, scores["per_class"]["person"]):
        assert {name: part[name] for name in expected} == pytest.approx(expected, abs=1e-6)
    errors = track_errors(truth, detections, frames, ["person"])
    assert sum(error.kind == "switch" for error in errors) == theirs["CLEAR"]["IDSW"]
    return scores


def test_scores_equal_trackeval_on_files(tmp_path):
    scores = compare(tmp_path, [("one", *walk(1), 60), ("two", *walk(2), 60)])
    assert scores["switches"] > 3


def test_scores_equal_trackeval_on_a_published_result(tmp_path, test_data):
    folder = test_data / "mot" / "TUD-Campus"
    truth = rows_of(folder / "gt" / "gt.txt")
    tracks = rows_of(folder / "tracker_result_test.txt")
    scores = compare(tmp_path, [("campus", truth, tracks, 71)])
    assert (scores["mota"], scores["idf1"]) == pytest.approx((0.526, 0.558), abs=0.0005)


def of(*rows):
    """Boxes of frame, id and x, of 10 x 10."""
    return FlatBoxes.of(
        (f, np.array([[x, 0, x + 10, 10]]), np.ones(1), np.zeros(1, int), np.array([i]), np.zeros(1, bool))
        for f, i, x in rows
    )


FRAMES = [EvaluatedFrame("a", n, n / 25, 640, 480) for n in range(8)]


def test_a_switch_and_a_fragment_are_named_with_their_frames():
    truth = of(*((frame, 7, 0) for frame in range(8)), *((frame, 8, 100) for frame in range(8)))
    tracks = of(
        *((frame, 1, 0) for frame in (0, 1, 2)),
        *((frame, 5, 0) for frame in (3, 4, 5, 6, 7)),
        *((frame, 2, 100) for frame in (0, 1, 4, 5, 6, 7)),
    )
    errors = track_errors(truth, tracks, FRAMES, ["person"])
    assert [(e.kind, e.frame, e.object_id, e.before, e.after, e.lost) for e in errors] == [
        ("switch", 3, 7, 1, 5, 0),
        ("fragment", 4, 8, 2, 2, 2),
    ]


def test_untracked_objects_do_not_count_and_classes_are_separate():
    truth = of(*((frame, 7, 0) for frame in range(8)))
    tracks = of(*((frame, -1, 0) for frame in range(8)))
    scores = tracking_scores(truth, tracks, FRAMES, ["person", "car"])
    assert scores["mota"] == 0
    assert scores["idf1"] == 0
    assert scores["per_class"]["car"]["mota"] is None


def test_a_track_on_an_ignored_region_is_not_a_false_positive():
    truth = of(*((frame, 7, 0) for frame in range(8)), *((frame, -1, 100) for frame in range(8)))
    truth.ignore = truth.track_id < 0
    tracks = of(*((frame, 1, 0) for frame in range(8)), *((frame, 2, 100) for frame in range(8)))
    assert tracking_scores(truth, tracks, FRAMES, ["person"])["mota"] == 1


def test_a_track_on_an_object_counts_although_an_ignored_region_covers_it():
    truth = of(*((frame, 7, 0) for frame in range(8)), *((frame, -1, 1) for frame in range(8)))
    truth.ignore = truth.track_id < 0
    tracks = of(*((frame, 1, 0) for frame in range(8)))
    assert tracking_scores(truth, tracks, FRAMES, ["person"])["mota"] == 1


def test_a_track_in_a_large_ignored_region_does_not_count_although_it_touches_an_object():
    truth = of(*((frame, 7, 0) for frame in range(8)), *((frame, -1, 0) for frame in range(8)))
    truth.ignore = truth.track_id < 0
    truth.xyxy[truth.ignore, 2:] = 200
    beside = of(*((frame, 1, 5) for frame in range(8)))
    assert tracking_scores(truth, beside, FRAMES, ["person"])["mota"] == 0  # missed, and no false positive


def test_a_missing_trackeval_is_reported_with_the_install_commands(monkeypatch):
    import sys

    from streamkit.core.errors import MissingPackage

    monkeypatch.setitem(sys.modules, "trackeval.metrics", None)
    with pytest.raises(MissingPackage, match=r"\[eval\]' && python -m pip install --no-deps 'trackeval"):
        check_packages()
