"""Bounds of the clock that only rises, to the tick: what is a fault, what is a jump, and where time goes on."""

from fractions import Fraction
from itertools import pairwise

import pytest

from streamkit.media import monotonic_timestamps
from streamkit.media.monotonic_timestamps import TICKS_PER_S, MonotonicTimestamps

STEP = TICKS_PER_S // 10  # ten frames a second
SHORTEST = TICKS_PER_S // 1000
MS = TICKS_PER_S // 1000


class Clock:
    now_s = 1000.0

    def monotonic(self):
        return self.now_s


@pytest.fixture(autouse=True)
def now(monkeypatch):
    test_clock = Clock()
    monkeypatch.setattr(monotonic_timestamps, "time", test_clock)
    return test_clock


def started(*, live=False, rate=Fraction(10)):
    timestamps = MonotonicTimestamps()
    timestamps.begin(Fraction(1, 1000), rate, live=live)  # ticks of a millisecond
    return timestamps


def fed(timestamps, *times, keyframe=False):
    """Times of showing and decoding in ms, of packets with these times."""
    mapped = [timestamps.times(*pair, keyframe=keyframe) for pair in times]
    return [(pts / MS, dts / MS) for pts, dts in mapped]


def test_time_begins_at_the_first_packet_and_keeps_its_distances():
    timestamps = started()
    assert timestamps.restarted
    assert fed(timestamps, (5200, 5000), (5100, 5100), (5500, 5200), (5300, 5300)) == [
        (200, 0), (100, 100), (500, 200), (300, 300)
    ]  # fmt: skip
    assert not timestamps.restarted


@pytest.mark.parametrize(("rate", "step"), [(Fraction(10), STEP), (Fraction(50), STEP // 5), (None, TICKS_PER_S // 25)])
def test_a_frame_lasts_as_the_rate_says(rate, step):
    timestamps = started(rate=rate)
    assert timestamps.step == step
    assert timestamps.base == Fraction(TICKS_PER_S, 1000)


def test_packets_of_one_time_are_a_millisecond_apart():
    """Matroska counts milliseconds: nearer ones would be one."""
    assert fed(started(), (0, 0), (0, 0), (0, 0), (100, 100)) == [(0, 0), (1, 1), (2, 2), (100, 100)]


@pytest.mark.parametrize("back", [100, 999, 1000])
def test_a_time_that_falls_back_by_a_second_at_most_is_a_fault(back):
    """It is shown as soon as may be; those behind it are where they were."""
    mapped = fed(started(), (0, 0), (5000, 5000), (5000 - back, 5000 - back), (5200, 5200))
    assert mapped[2] == (5001, 5001)
    assert mapped[3][0] == 5200
    assert 5001 < mapped[3][1] <= 5200


@pytest.mark.parametrize("back", [1001, 5000, 10**9])
def test_a_time_that_falls_back_by_more_goes_on_one_frame_later(back):
    mapped = fed(started(), (0, 0), (5000, 5000), (5000 - back, 5000 - back), (5100 - back, 5100 - back))
    assert mapped[2:] == [(5100, 5100), (5200, 5200)]


@pytest.mark.parametrize(("ahead_ms", "jumps"), [(60_000, False), (61_999, False), (62_000, False), (62_001, True)])
def test_a_live_clock_that_leaps_a_minute_ahead_of_the_time_that_passed(now, ahead_ms, jumps):
    timestamps = started(live=True)
    fed(timestamps, (0, 0))
    now.now_s += 2.0
    assert fed(timestamps, (ahead_ms, ahead_ms)) == [(2000, 2000) if jumps else (ahead_ms, ahead_ms)]


def test_a_files_clock_may_leap_ahead():
    assert fed(started(), (0, 0), (10**8, 10**8)) == [(0, 0), (10**8, 10**8)]


@pytest.mark.parametrize(("live", "away_s", "gap_ms"), [(False, 7.0, 100), (True, 7.0, 7000), (True, 0.02, 100)])
def test_where_time_goes_on_after_another_opening(now, live, away_s, gap_ms):
    """A file's next turn follows at once; a camera was away for as long as it was."""
    timestamps = started(live=live)
    fed(timestamps, (0, 0), (100, 100))
    timestamps.begin(Fraction(1, 1000), Fraction(10), live=live)
    assert timestamps.restarted
    now.now_s += away_s
    assert fed(timestamps, (40, 40), (140, 140)) == [(100 + gap_ms, 100 + gap_ms), (200 + gap_ms, 200 + gap_ms)]


def test_the_first_frame_of_the_next_turn_is_shown_behind_all_of_the_last():
    timestamps = started()
    assert fed(timestamps, (200, 0), (500, 100), (300, 200))[1] == (500, 100)
    timestamps.begin(Fraction(1, 1000), Fraction(10), live=False)
    assert fed(timestamps, (0, 0)) == [(600, 600)], "not 300, one frame behind the last that was decoded"


def test_a_keyframe_shown_before_what_came_is_a_jump():
    """No frame from a keyframe on is shown before those that came: the clock was set back, if only a little."""
    timestamps = started()
    fed(timestamps, (0, 0), (100, 100), (200, 200))
    assert fed(timestamps, (150, 150), keyframe=True) == [(300, 300)]
    assert fed(timestamps, (250, 250)) == [(400, 400)]


@pytest.mark.parametrize(("count", "expected"), [(1, [(100, 100)]), (4, [(n, n) for n in (100, 200, 300, 400)])])
def test_packets_without_times(count, expected):
    assert fed(started(), *[(None, None)] * count) == expected


def test_a_packet_without_times_among_others_follows_one_frame_later():
    assert fed(started(), (0, 0), (100, 100), (None, None), (300, 300)) == [(0, 0), (100, 100), (200, 200), (300, 300)]


def test_decoding_times_that_are_missing_are_found_from_the_order_shown():
    """Two frames of each group come before one that is shown ahead of them; decoding times are no later."""
    timestamps = started()
    shown = [0, 400, 200, 100, 300, 800, 600, 500, 700, 1200, 1000, 900, 1100]
    mapped = fed(timestamps, *[(pts, None) for pts in shown])
    assert all(dts <= pts for pts, dts in mapped)
    assert all(b[1] - a[1] >= 1 for a, b in pairwise(mapped))
    settled = mapped[8:]
    assert [pts - settled[0][0] for pts, _ in settled] == [pts - shown[8] for pts in shown[8:]]
    assert [round(b[1] - a[1]) for a, b in pairwise(settled)] == [100] * (len(settled) - 1)


def test_the_deepest_reordering():
    """Sixteen frames come before one that is shown ahead of them all; a codec allows no more."""
    shown = [0, *range(1600, 0, -100), 1700, 1800, 1900]
    mapped = fed(started(), *[(pts, None) for pts in shown])
    assert all(dts <= pts for pts, dts in mapped)
    assert all(b[1] > a[1] for a, b in pairwise(mapped))
    assert [b[0] - a[0] for a, b in pairwise(mapped[-3:])] == [100, 100]
