"""Room for tracks: a lane for each detector of a source, empty when it begins."""

import numpy as np
import pytest

from streamkit.tracking.track_state import TRACK, TrackPool


@pytest.mark.parametrize(("now", "seen", "shape"), [("mean", "seen_mean", (4, 2)), ("cov", "seen_cov", (4, 3))])
def test_a_filter_is_copied_into_a_field_of_equal_shape(now, seen, shape):
    """Compiled code looks at no bounds: a larger one would be written over what is behind the smaller."""
    assert TRACK[now].shape == TRACK[seen].shape == shape


def test_lanes_are_separate_and_stable():
    pool = TrackPool()
    keys = [(source, table) for source in "abc" for table in ("people", "cars")]
    lanes = [pool.lane(*key) for key in keys]
    assert len(set(lanes)) == 6
    assert [pool.lane(*key) for key in keys] == lanes
    assert max(lanes) < len(pool.lanes) == len(pool.tracks) == len(pool.embeddings)
    assert len(pool.lanes) == 8


def test_a_reused_lane_is_empty():
    pool = TrackPool()
    first = pool.lane("a", "t")
    other = pool.lane("b", "t")
    assert np.isnan(pool.lanes["time_s"]).all()
    pool.lanes[first] = (3, 2.5, 1, 1)
    pool.lanes[other] = (4, 2.5, 1, 1)
    pool.end("a")
    assert pool.lane("c", "t") == first
    assert pool.lanes[first]["count"] == pool.lanes[first]["detected"] == pool.lanes[first]["epoch"] == 0
    assert np.isnan(pool.lanes[first]["time_s"])
    assert pool.lanes[other]["count"] == 4


def test_contents_survive_growth():
    pool = TrackPool()
    lane = pool.lane("a", "t")
    pool.reserve(1, 2)
    pool.tracks[lane]["id"] = np.arange(16)
    pool.embeddings[lane] = np.arange(32).reshape(16, 2)
    pool.lane("b", "t")
    pool.reserve(17, 2)
    assert pool.tracks.shape == (2, 32)
    assert pool.tracks[lane]["id"].tolist() == [*range(16), *[0] * 16]
    assert pool.embeddings[lane, :16].ravel().tolist() == list(range(32))
    before = pool.tracks
    pool.reserve(32, 2)
    assert pool.tracks is before
    pool.reserve(33, 2)
    assert pool.tracks.shape == (2, 64)
    pool.reserve(128, 2)
    assert pool.tracks.shape == (2, 128)


def test_embeddings_of_another_length_are_dropped():
    pool = TrackPool()
    pool.reserve(1, 2)
    pool.embeddings[:] = 1
    pool.reserve(1, 2)
    assert (pool.embeddings == 1).all()
    pool.reserve(1, 3)
    assert pool.embeddings.shape == (1, 16, 3)
    assert not pool.embeddings.any()


def test_counters_are_never_released():
    pool = TrackPool()
    places = [pool.counter(name) for name in "abcde"]
    assert places == [0, 1, 2, 3, 4]
    pool.last_id[:5] = [7, 8, 9, 10, 11]
    pool.end("b")
    assert pool.counter("b") == 1
    assert pool.counter("f") == 5
    assert pool.last_id[:5].tolist() == [7, 8, 9, 10, 11]
    assert len(pool.last_id) == 8
