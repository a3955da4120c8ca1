"""Speeds over the ground; tests/analytics has the fit and the homography."""

import numpy as np
import pytest
from support.walks import walk

from streamkit.stages.analytics.motion import Speed
from streamkit.testing.kit import run_stage

# A picture in which 10 pixels are a meter, seen from straight above.
FLAT = {"points": ((0, 0), (640, 0), (640, 360), (0, 360)), "ground": ((0, 0), (64, 0), (64, 36), (0, 36))}


def test_speed_is_in_km_h_and_events_have_hysteresis():
    times = np.arange(0, 20, 0.1)
    speed = np.where(times < 8, 5.0, 2.0)  # meters a second
    x = 20 + np.cumsum(speed) * 0.1 * 10 * 0.8
    driving = walk({7: [(float(v), 100.0) for v in x]}, times=times.tolist(), label="car")
    processed = run_stage(Speed(**FLAT, limit_kmh=10), driving)
    column = np.array([frame.detections.extra["speed_kmh"][0] for frame in processed])
    assert np.isnan(column[:5]).all()
    assert column[10:75] == pytest.approx(5 * 0.8 * 3.6, rel=1e-3)
    assert column[-1] == pytest.approx(2 * 0.8 * 3.6, rel=1e-3)
    events = [(e.kind, e.pts_s, e.data["label"], e.data["limit_kmh"]) for f in processed for e in f.events]
    assert [event[0] for event in events] == ["speeding", "slowed"]
    assert events[0][1] == pytest.approx(1.0, abs=0.11)  # known after half a second, and held for half a second
    assert 8.5 < events[1][1] < 11.0  # the mean must come down, and stay for half a second
    assert events[0][2:] == ("car", 10)


def test_speed_on_a_real_cameras_plane():
    """A camera 6 m above a road, tilted down by 20 degrees: who drives away at 54 km/h is measured so all the way."""
    tilt = np.radians(20)
    focal = 500.0
    height = 6.0

    def seen(x, y):  # meters to the right and away
        depth = y * np.cos(tilt) + height * np.sin(tilt)
        below = height * np.cos(tilt) - y * np.sin(tilt)
        return float(320 + focal * x / depth), float(180 + focal * below / depth)

    ground = ((-3.0, 12.0), (3.0, 12.0), (3.0, 40.0), (-3.0, 40.0))
    stage = Speed(points=tuple(seen(*p) for p in ground), ground=ground, smoothing=1.0)
    times = np.arange(0, 3, 0.04)
    places = [seen(1.0, 11 + 15 * t) for t in times]
    processed = run_stage(stage, walk({1: places}, times=times.tolist()))
    column = np.array([frame.detections.extra["speed_kmh"][0] for frame in processed])
    assert column[15:] == pytest.approx(54.0, rel=2e-3)
