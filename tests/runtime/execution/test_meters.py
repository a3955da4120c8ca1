import math

import numpy as np
import pytest

from streamkit.runtime.execution.meters import Histogram, StageMeter, stage_total


@pytest.mark.parametrize("seconds", [2e-5, 1e-3, 0.04, 1.0, 900.0])
def test_a_duration_is_measured_within_two_percent(seconds):
    histogram = Histogram()
    histogram.add(seconds)
    for share in (0.0, 0.5, 1.0):
        assert histogram.quantile(share) == pytest.approx(seconds, rel=0.02)


@pytest.mark.parametrize("share", [0.01, 0.5, 0.95, 0.99, 1.0])
def test_quantiles_of_many_durations_are_within_two_percent(share):
    values = np.random.default_rng(1).lognormal(-4, 1.2, 5000)
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    wanted = float(np.sort(values)[max(0, math.ceil(share * len(values)) - 1)])
    assert histogram.quantile(share) == pytest.approx(wanted, rel=0.02)


def test_out_of_range_durations_are_counted_at_the_limits():
    histogram = Histogram()
    for value in (-1.0, 0.0, 1e-9, 1e9):
        histogram.add(value)
    assert histogram.counts.sum() == 4
    assert histogram.counts[0] == 3
    assert histogram.counts[-1] == 1
    assert 900 < histogram.quantile(1.0) < 1100


def test_an_empty_meter_is_nan_and_memory_is_constant():
    histogram = Histogram()
    size = histogram.counts.nbytes
    assert math.isnan(histogram.quantile(0.5))
    for _ in range(1000):
        histogram.add(0.01)
    assert histogram.counts.nbytes == size


def test_the_summary_is_in_milliseconds():
    histogram = Histogram()
    for value in [0.010] * 98 + [0.5] * 2:
        histogram.add(value)
    summary = histogram.summary()
    assert list(summary) == ["p50_ms", "p95_ms", "p99_ms"]
    assert summary["p50_ms"] == summary["p95_ms"] == pytest.approx(10, rel=0.02)
    assert summary["p99_ms"] == pytest.approx(500, rel=0.02)
    assert summary["p99_ms"] == pytest.approx(histogram.quantile(0.99) * 1000, abs=0.006)


def test_the_meters_of_a_stages_instances_are_summed():
    meter = StageMeter()
    other = StageMeter()
    meter.frames = 30
    meter.batches = 3
    meter.seconds = 0.5
    other.frames = 10
    other.seconds = 0.3
    assert StageMeter.total([meter, other]) == {
        "frames": 40,
        "instances": 2,
        "seconds": 0.8,
        "us_per_frame": 20_000.0,
    }
    other.failed = 2
    assert StageMeter.total([meter, other])["failed"] == 2
    assert StageMeter.total([StageMeter()])["us_per_frame"] is None


def test_counts_are_cumulative_up_to_the_bounds():
    histogram = Histogram()
    for seconds in (0.001, 0.02, 0.02, 0.4, 30.0):
        histogram.add(seconds)
    assert histogram.up_to([0.0005, 0.005, 0.1, 1.0, 1e6]) == [0, 1, 3, 4, 5]
    assert histogram.up_to([0.0, 1e-5]) == [0, 0]
    assert histogram.total_s() == pytest.approx(30.441, rel=0.01)
    assert Histogram().up_to([1.0]) == [0]
    assert Histogram().total_s() == 0


def edge(bucket: float) -> float:
    """The lower bound of a bucket in seconds."""
    return 1e-5 * 1.02**bucket


@pytest.mark.parametrize("bucket", [0, 1, 2, 35, 500, 931])
def test_buckets_are_two_percent_apart_from_ten_microseconds(bucket):
    for within in (0.01, 0.99):
        histogram = Histogram()
        histogram.add(edge(bucket + within))
        assert np.flatnonzero(histogram.counts).tolist() == [bucket]
        assert histogram.quantile(0.5) == pytest.approx(edge(bucket + 0.5), rel=1e-9)
        assert histogram.total_s() == pytest.approx(edge(bucket + 0.5), rel=1e-9)
        assert histogram.up_to([edge(bucket + 0.99), edge(bucket + 1.01)]) == [0, 1]


def test_too_long_durations_are_in_the_last_bucket():
    histogram = Histogram()
    histogram.add(1e9)
    assert histogram.counts[931] == 1
    assert histogram.quantile(1.0) == pytest.approx(edge(931.5), rel=1e-9)


@pytest.mark.parametrize(
    ("counts", "wanted"),
    [
        ({100: 500, 200: 450, 300: 40, 500: 10}, (100, 200, 300)),
        ({50: 499, 400: 1, 450: 449, 500: 1, 600: 39, 650: 1, 700: 10}, (400, 500, 650)),
    ],
)
def test_the_summary_uses_the_middles_of_buckets(counts, wanted):
    histogram = Histogram()
    for bucket, count in counts.items():
        histogram.counts[bucket] = count
    quantiles_ms = [round(edge(bucket + 0.5) * 1000, 2) for bucket in wanted]
    assert histogram.summary() == dict(zip(("p50_ms", "p95_ms", "p99_ms"), quantiles_ms, strict=True))


def test_a_new_meter_is_empty():
    meter = StageMeter()
    assert (meter.frames, meter.batches, meter.failed, meter.other_errors, meter.seconds) == (0, 0, 0, 0, 0.0)


def test_the_total_of_a_stage_is_rounded_and_missing_counts_are_zero():
    parts = [{"frames": 4, "instances": 1, "seconds": 0.1234564}, {"frames": 3, "instances": 2, "failed": 1}, {}]
    assert stage_total(parts) == {
        "frames": 7,
        "instances": 3,
        "seconds": 0.123,
        "us_per_frame": 17636.6,
        "failed": 1,
    }
    assert stage_total([{"seconds": 1.0}]) == {"frames": 0, "instances": 0, "seconds": 1.0, "us_per_frame": None}
    assert stage_total([{"frames": 3, "seconds": 100.0}])["us_per_frame"] == 33333333.3
    assert stage_total([{"frames": 2}]) == {"frames": 2, "instances": 0, "seconds": 0, "us_per_frame": 0.0}
