"""Paths over the ground: how far two objects are apart at the moments at which both were seen."""

import numpy as np
import pytest

from streamkit.analytics.ground_paths import GROUND_COLUMNS, SAMPLE_S, SAMPLES, extend_paths, path_distance
from streamkit.analytics.track_store import TrackStore


def distance(*paths):
    """How far two objects are apart, and at how many common moments; a path is (time, x, y) of each frame."""
    tracks = TrackStore(**GROUND_COLUMNS)
    rows, _ = tracks.find(np.zeros(len(paths), np.int64), np.arange(len(paths)))
    seen = sorted((time_s, row, x, y) for row, path in zip(rows, paths, strict=True) for time_s, x, y in path)
    for time_s, row, x, y in seen:
        extend_paths(tracks, np.array([row]), np.array([[x, y]]), np.array([time_s]))
    apart_m, count = path_distance(tracks, rows[:1], rows[1:2])
    return float(apart_m[0]), int(count[0])


def walk(begin_s, end_s, *, step_s=0.1, first_x=0.0, y=0.0, speed=2.0):
    """A path along x, so many meters a second."""
    count = round((end_s - begin_s) / step_s) + 1
    return [(begin_s + step_s * n, first_x + speed * step_s * n, y) for n in range(count)]


@pytest.mark.parametrize("step_s", [0.04, 0.1, 0.13, 0.35])
@pytest.mark.parametrize("late_s", [0.0, 0.05])
def test_distances_do_not_depend_on_the_frame_rate(step_s, late_s):
    other = [(time_s + late_s, x + 2.0 * late_s, 3.0) for time_s, x, _ in walk(0.0, 4.0, step_s=step_s)]
    apart_m, count = distance(walk(0.0, 4.0), other)
    assert apart_m == pytest.approx(3.0, abs=1e-6)
    assert count >= 8


def test_a_path_keeps_its_latest_positions():
    apart_m, count = distance(walk(0.0, 60.0), walk(0.0, 60.0, y=4.0))
    assert (apart_m, count) == (pytest.approx(4.0), SAMPLES)


def test_positions_in_a_gap_are_not_interpolated():
    """One object is not seen for two seconds, in which it goes elsewhere."""
    with_gap = [*walk(0.0, 1.0), *walk(3.05, 4.05, first_x=1000.0)]
    apart_m, count = distance(with_gap, walk(0.0, 3.05))
    assert apart_m == pytest.approx(0.0, abs=1e-6)
    assert count == round(1.0 / SAMPLE_S) + 1


def test_objects_without_common_times_have_no_distance():
    apart_m, count = distance(walk(0.0, 1.0), walk(1.5, 3.0))
    assert np.isnan(apart_m)
    assert count == 0


@pytest.mark.parametrize(("late_s", "is_compared"), [(0.0, True), (0.25, True), (0.35, False)])
def test_single_positions_are_compared_if_simultaneous(late_s, is_compared):
    apart_m, count = distance([(10.03, 0.0, 0.0)], [(10.03 + late_s, 3.0, 4.0)])
    assert count == 0
    assert apart_m == pytest.approx(5.0 if is_compared else np.nan, nan_ok=True)


def test_unknown_positions_are_skipped():
    unknown = [(time_s, np.nan, np.nan) for time_s, *_ in walk(0.0, 2.0)]
    assert np.isnan(distance(unknown, walk(0.0, 2.0))[0])
