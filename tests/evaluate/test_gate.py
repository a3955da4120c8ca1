"""The gate: which metrics fail it, and why."""

import pytest

from streamkit.evaluate.gate import failures

NOTHING = {"ap": 0.5, "ap_large": None, "per_class": {"car": {"recall": None}}}


def report_of(**parts):
    report = {
        "detection": NOTHING,
        "tracking": None,
        "tracking_missing": "the truth has no ids",
        "counts": None,
        "counts_missing": "the pipeline has no line_counter",
        "speed": {"fps": 20.0},
    }
    return {**report, **parts}


@pytest.mark.parametrize(
    ("name", "minimum", "messages"),
    [
        ("ap", 0.5, []),
        ("ap", 0.3, []),
        ("fps", 19.5, []),
        ("ap", 0.51, ["ap is 0.500, below the minimum 0.51"]),
        ("fps", 20.5, ["fps is 20.000, below the minimum 20.5"]),
        ("ap_large", 0.1, ["ap_large is not measured (there is nothing to measure it on), minimum 0.1"]),
        ("recall.car", 0, ["recall.car is not measured (there is nothing to measure it on), minimum 0"]),
        ("idf1", 0.1, ["idf1 is not measured (the truth has no ids), minimum 0.1"]),
        ("counts", 0.1, ["counts is not measured (the pipeline has no line_counter), minimum 0.1"]),
    ],
)
def test_a_metric_below_its_minimum_or_not_measured_fails_with_the_reason(name, minimum, messages):
    assert list(failures(report_of(), {name: minimum})) == messages


def test_counts_without_true_events_have_no_share():
    report = report_of(counts={"accuracy": None}, counts_missing=None)
    assert list(failures(report, {"counts": 1})) == [
        "counts is not measured (there is nothing to measure it on), minimum 1"
    ]
