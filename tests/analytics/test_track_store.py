import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from streamkit.analytics.track_store import TrackStore

NUMBERS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), unique=True, max_size=12)


class Remembering(RuleBasedStateMachine):
    """Tracks against a dict."""

    def __init__(self):
        super().__init__()
        self.tracks = TrackStore(value=np.int64(-7))
        self.expected_tracks = {}
        self.now = 0.0

    @rule(seen=NUMBERS)
    def see(self, seen):
        self.now += 1
        slot, track = np.array(seen, np.int64).reshape(-1, 2).T
        rows, fresh = self.tracks.find(slot, track)
        assert fresh.tolist() == [key not in self.expected_tracks for key in seen]
        assert len(set(rows.tolist())) == len(rows)
        expected = [self.expected_tracks.get(key, (-7, 0))[0] for key in seen]
        assert self.tracks["value"][rows].tolist() == expected
        for i, key in enumerate(seen):
            self.expected_tracks[key] = (int(self.now) * 100 + i, self.now)
            self.tracks["value"][rows[i]] = self.expected_tracks[key][0]
        self.tracks["seen_s"][rows] = self.now
        assert len(self.tracks) == len(self.expected_tracks)

    @rule(gap=st.integers(0, 3))
    def forget_the_unseen(self, gap):
        rows = self.tracks.unseen(np.arange(4), np.full(4, self.now), np.zeros(4, bool), gap)
        dropped = set(zip(self.tracks["slot"][rows].tolist(), self.tracks["track"][rows].tolist(), strict=True))
        assert dropped == {key for key, (_, seen) in self.expected_tracks.items() if self.now - seen > gap}
        self.tracks.drop(rows)
        for key in dropped:
            del self.expected_tracks[key]

    @rule(slot=st.integers(0, 3))
    def end(self, slot):
        self.tracks.end(slot)
        self.expected_tracks = {key: value for key, value in self.expected_tracks.items() if key[0] != slot}


Remembering.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestRemembering = Remembering.TestCase


def test_sources_without_a_time_are_unchanged():
    tracks = TrackStore()
    tracks.find(np.array([0, 1]), np.array([5, 5]))
    unseen = tracks.unseen(np.array([0]), np.array([100.0]), np.array([False]), 1.0)
    assert tracks["slot"][unseen].tolist() == [0]


def test_ended_tracks_are_listed_in_a_stable_order():
    orders = []
    for before in (0, 3):
        tracks = TrackStore()
        earlier = np.arange(before, dtype=np.int64)
        rows, _ = tracks.find(np.zeros(before, np.int64), earlier + 50)
        tracks.drop(rows)  # the rows are free again, in another order
        tracks.find(np.array([1, 0, 0, 1]), np.array([8, 9, 4, 2]))
        unseen = tracks.unseen(np.arange(2), np.array([100.0, 100.0]), np.zeros(2, bool), 1.0)
        orders.append(list(zip(tracks["slot"][unseen].tolist(), tracks["track"][unseen].tolist(), strict=True)))
    assert orders[0] == orders[1] == [(0, 4), (0, 9), (1, 2), (1, 8)]


def test_a_track_ends_after_more_than_the_gap():
    tracks = TrackStore()
    rows, _ = tracks.find(np.zeros(2, np.int64), np.array([1, 2]))
    tracks["seen_s"][rows] = [10.0, 9.75]
    slot = np.array([0])
    now_s = np.array([12.0])
    assert tracks.unseen(slot, now_s, np.array([False]), 2.0).tolist() == [rows[1]]
    assert tracks.unseen(slot, now_s, np.array([True]), 2.0).tolist() == rows.tolist()
    assert tracks.unseen(slot[:0], now_s[:0], np.zeros(0, bool), 2.0).tolist() == []
