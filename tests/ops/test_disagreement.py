"""Where two detectors disagree: who is alone with an object, whose label differs, and what confirms."""

import pytest

from streamkit.ops.disagreement import disagreements
from streamkit.testing.kit import detections

LABELS = ("car", "person")
A = [0, 0, 40, 40]
B = [100, 0, 140, 40]
C = [200, 0, 240, 40]


def moved(box, by):
    return [box[0] + by, box[1], box[2] + by, box[3]]


def table(*objects, labels=LABELS):
    boxes, label, score = zip(*objects, strict=True) if objects else ((), (), ())
    return detections(boxes, score, label=label, labels=labels)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([(A, "car", 0.9)], [(moved(A, 5), "car", 0.9)], ([], [])),
        ([(A, "car", 0.9)], [(moved(A, 30), "car", 0.9)], ([0], [0])),
        ([(A, "car", 0.9), (B, "car", 0.8)], [(B, "car", 0.9), (C, "car", 0.7)], ([0], [1])),
        ([(A, "car", 0.4)], [], ([], [])),  # too weak to count
        ([(A, "car", 0.9)], [(A, "car", 0.1)], ([], [])),  # but it confirms
        ([(A, "car", 0.9)], [(A, "person", 0.9)], ([0], [])),  # one image of one object
        ([(A, "car", 0.9)], [(A, "person", 0.2)], ([], [])),
        ([(A, "car", 0.9)], [(moved(A, 2), "person", 0.9), (moved(A, 10), "car", 0.9)], ([], [0])),  # same label first
        ([(A, "car", 0.9), (moved(A, 8), "car", 0.9)], [(A, "car", 0.9)], ([1], [])),  # one box confirms one object
        ([], [], ([], [])),
    ],
)
def test_disagreements_of_two_detectors_are_listed(first, second, expected):
    assert disagreements(table(*first), table(*second), 0.5, 0.5) == expected


def test_a_label_unknown_to_the_other_detector_is_not_a_disagreement():
    first = table((A, "car", 0.9), (B, "person", 0.9))
    second = table(labels=("person", "bus"))
    assert disagreements(first, second, 0.5, 0.5) == ([1], [])
    assert disagreements(first, detections(), 0.5, 0.5) == ([0, 1], []), "its labels are unknown"
