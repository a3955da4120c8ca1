"""Every miss has the cause that made it: one small scene for each."""

from pathlib import Path

import numpy as np
import pytest

from streamkit.config.graph import build
from streamkit.config.pipeline_config import read_text
from streamkit.evaluate.boxes import EvaluatedFrame, FlatBoxes
from streamkit.evaluate.causes import CANDIDATE_SCORE, Miss, attribute, suggestions
from streamkit.evaluate.detection import match
from streamkit.evaluate.observe import Observations, detectors_of

NAMES = ("car", "person", "bike")
FRAMES = [EvaluatedFrame("a", 0, 0.0, 640, 360)]
AT = (100, 100, 200, 200)
BESIDE = (110, 100, 210, 200)  # overlaps AT by 0.82
FAR = (400, 100, 500, 200)


def boxes(*rows):
    """Rows of class, box, score and track."""
    return FlatBoxes.of(
        [
            (
                0,
                np.array([box for _, box, *_ in rows], float).reshape(-1, 4),
                np.array([r[2] for r in rows], float),
                np.array([NAMES.index(r[0]) for r in rows], int),
                np.array([r[3] for r in rows], int),
                np.zeros(len(rows), bool),
            )
        ]
    )


FROM_A_FILE = "{stage: detections, path: samples/street.truth.jsonl"


def causes(
    truth, detected=(), low=(), raw=(), *, options="", track=None, inferred=(0,), frames=FRAMES, detector="{model: demo"
):
    stages = f"  detect: {detector}{options}}}\n" + (f"  track: {track}\n" if track else "")
    text = f"sources: {{a: samples/street.mp4}}\nstages:\n{stages}"
    graph = build(read_text(text, folder=Path(__file__).resolve().parents[2]))
    parts = (boxes(*part) for part in (truth, detected, low, raw))
    detectors = detectors_of(graph)
    seen = Observations(frames, NAMES, 3, *parts, np.array(inferred, int), True, detectors, graph, [], [], 0, {}, [])
    matches = match(seen.truth, seen.detections, frames, NAMES)
    return [(miss.row, miss.cause) for miss in attribute(seen, matches, tracked=bool(track))]


CAR = ("car", AT, 1, 1)


@pytest.mark.parametrize(
    ("cause", "scene"),
    [
        ("not detected", {}),
        ("not detected", {"low": [("car", AT, 0.04, -1)]}),
        ("min_score", {"low": [("car", AT, 0.2, -1)]}),
        ("min_score", {"low": [("car", AT, CANDIDATE_SCORE, -1)]}),
        ("nms", {"raw": [("car", AT, 0.6, -1), ("car", FAR, 0.9, -1)], "low": [("car", FAR, 0.9, -1)]}),
        ("size", {"raw": [("car", AT, 0.6, -1)], "low": [("car", AT, 0.6, -1)], "options": ", min_size: 150"}),
        ("size", {"raw": [("car", AT, 0.6, -1)], "low": [("car", AT, 0.6, -1)], "options": ", max_size: 50"}),
        (
            "top_k",
            {
                "raw": [("car", AT, 0.6, -1)],
                "low": [("car", AT, 0.6, -1), ("car", FAR, 0.9, -1)],
                "options": ", top_k: 1",
            },
        ),
        ("removed by a later stage", {"raw": [("car", AT, 0.6, -1)], "low": [("car", AT, 0.6, -1)]}),
        ("wrong class", {"raw": [("bike", AT, 0.6, -1)], "detected": [("bike", AT, 0.6, 1)]}),
        ("wrong class", {"raw": [("bike", AT, 0.6, -1)]}),
        ("labels", {"raw": [("bike", AT, 0.6, -1)], "options": ", labels: [car, person]"}),
        ("roi", {"low": [("car", AT, 0.2, -1)], "options": ", roi: [[0, 0], [640, 0], [640, 190], [0, 190]]"}),
        ("min_score", {"low": [("car", AT, 0.2, -1)], "options": ", roi: [[0, 0], [640, 0], [640, 210], [0, 210]]"}),
        ("every", {"inferred": (), "options": ", every: 2"}),
    ],
)
def test_each_miss_has_its_cause(cause, scene):
    assert causes([CAR], **scene) == [(0, cause)]


@pytest.mark.parametrize(("label", "other"), [("car", "bike"), ("bike", "car")])
def test_a_neighboring_class_number_is_a_wrong_class(label, other):
    assert causes([(label, AT, 1, 1)], detected=[(other, AT, 0.6, 1)]) == [(0, "wrong class")]


@pytest.mark.parametrize(
    ("score", "options", "cause"),
    [
        (0.6, "", "removed by a later stage"),
        (0.06, "", "removed by a later stage"),
        (0.6, ", min_score: 0.7", "min_score"),
        (0.6, ", min_score: 0.5", "removed by a later stage"),
        (0.04, "", "not detected"),
    ],
)
def test_boxes_of_a_file_have_no_threshold_unless_the_stage_has(score, options, cause):
    low = [("car", AT, score, -1)]
    assert causes([CAR], low=low, options=options, detector=FROM_A_FILE) == [(0, cause)]


@pytest.mark.parametrize(("bottom", "cause"), [(95, "roi"), (105, "min_score")])
def test_a_region_in_pixels_is_scaled_with_the_frame(bottom, cause):
    frames = [EvaluatedFrame("a", 0, 0.0, 640, 360, shape_scale=(2.0, 2.0))]
    options = f", roi: [[0, 0], [320, 0], [320, {bottom}], [0, {bottom}]]"
    assert causes([CAR], low=[("car", AT, 0.2, -1)], options=options, frames=frames) == [(0, cause)]


def test_two_objects_with_a_common_box_are_merged():
    box = ("car", BESIDE, 0.9, -1)
    scene = {"detected": [box], "low": [box], "raw": [box]}
    assert causes([CAR, ("car", BESIDE, 1, 2)], **scene) == [(0, "merged")]


@pytest.mark.parametrize(
    ("score", "method", "cause"),
    [
        (0.05, "bytetrack", "track.low_score"),
        (0.3, "bytetrack", "track.high_score"),
        (0.05, "sort", "track.high_score"),
        (0.45, "bytetrack", "track.new_score"),
        (0.7, "bytetrack", "track.confirm"),
    ],
)
def test_a_detected_object_without_a_track_names_the_trackers_threshold(score, method, cause):
    assert causes([CAR], [("car", AT, score, -1)], track=f"{{method: {method}}}") == [(0, cause)]


def test_a_hit_has_no_cause():
    assert causes([CAR], [("car", BESIDE, 0.9, 4)], track="{}") == []


def test_the_three_most_frequent_causes_suggest_what_to_change():
    counts = {"min_score": 6, "track.new_score": 5, "track.high_score": 4, "track.low_score": 3}
    misses = [Miss(row, cause, 0.1 * row) for cause, count in counts.items() for row in range(count)]
    assert suggestions(None, misses[::-1]) == [
        "min_score: half of these 6 boxes have a score of 0.25 or more",
        "track.new_score: half of these 5 boxes have a score of 0.20 or more",
        "track.high_score: half of these 4 boxes have a score of 0.15 or more",
    ]


def test_rare_causes_or_those_without_a_threshold_suggest_nothing():
    misses = [*(Miss(row, "min_score", 0.2) for row in range(2)), *(Miss(row, "nms", 0.9) for row in range(9))]
    assert suggestions(None, misses) == []
