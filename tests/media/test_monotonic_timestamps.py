"""Times that only rise: over loops, clocks that are set, B frames, and decoding times that are missing or wrong."""

import threading
from contextlib import closing
from fractions import Fraction
from itertools import pairwise

import av
import pytest
from support.clips import write
from support.clock import fake_time

from streamkit.core.counters import Counters
from streamkit.media import monotonic_timestamps
from streamkit.media.demux import Demuxer
from streamkit.media.live_clock import JUMPS as CORRECTED_JUMPS
from streamkit.media.live_clock import LiveClock
from streamkit.media.monotonic_timestamps import TICKS_PER_S, MonotonicTimestamps
from streamkit.media.mux import Clip
from streamkit.media.ring import PacketRing

# frames a second, and ticks of 90 kHz from one to the next
RATE = 10
TICK = 9000
STEP = TICKS_PER_S // RATE
# the order in which frames are decoded: without B frames, with some between two others, and with B frames of B
ORDERS = {
    "none": [0, 1, 2, 3, 4, 5, 6, 7],
    "some": [0, 3, 1, 2, 6, 4, 5, 7],
    "pyramid": [0, 4, 2, 1, 3, 7, 6, 5],
}
DEPTH = {"none": 0, "some": 1, "pyramid": 2}
JUMPS = {"back": -3_000_000_000, "a little back": -6 * TICK, "ahead": 3600 * 90_000, "beyond a day": 90_000 * 100_000}


def packets(order, times_of_decoding, groups=4, first=5_000_000_000):
    """Times of showing and decoding, and whether it is a keyframe; `times_of_decoding` says how the second are."""
    for group in range(groups):
        for place, number in enumerate(order):
            at = group * len(order) + place
            pts = first + (group * len(order) + number) * TICK
            right_dts = (
                first + (at - DEPTH[next(name for name, shown_order in ORDERS.items() if shown_order is order)]) * TICK
            )
            yield pts, {"right": right_dts, "as shown": pts, "missing": None}[times_of_decoding], place == 0


def clock(live=True):
    timestamps = MonotonicTimestamps()
    timestamps.begin(Fraction(1, 90_000), Fraction(RATE), live=live)
    return timestamps


def holds(times):
    assert all(dts <= pts for pts, dts in times)
    assert all(b[1] - a[1] >= TICKS_PER_S // 1000 for a, b in pairwise(times))


@pytest.mark.parametrize("times_of_decoding", ["right", "as shown", "missing"])
@pytest.mark.parametrize("jump", JUMPS)
@pytest.mark.parametrize("name", ORDERS)
def test_frame_distances_survive_a_change_of_the_clock(name, jump, times_of_decoding):
    timestamps = clock()
    order = ORDERS[name]
    before = [timestamps.times(*packet[:2], keyframe=packet[2]) for packet in packets(order, "right")]
    behind = packets(order, times_of_decoding, first=5_000_000_000 + 4 * 8 * TICK + JUMPS[jump])
    behind = [timestamps.times(*packet[:2], keyframe=packet[2]) for packet in behind]
    holds(before + behind)
    for times in (before, behind):
        assert [pts - times[0][0] for pts, _ in times] == [(group * 8 + n) * STEP for group in range(4) for n in order]
    gap = behind[0][0] - max(pts for pts, _ in before)
    assert STEP <= gap <= 2 * STEP, "the first frame behind is shown after the last one before, and soon"


def test_valid_decode_timestamps_are_unchanged():
    timestamps = clock()
    sent = list(packets(ORDERS["pyramid"], "right"))
    times = [timestamps.times(pts, dts, keyframe=key) for pts, dts, key in sent]
    assert [dts for _, dts in times] == [(dts - sent[0][1]) * TICKS_PER_S // 90_000 for _, dts, _ in sent]


def test_a_repeated_decode_timestamp_is_derived_from_the_frame_order():
    """It is a frame's duration after the one before it, not a millisecond."""
    timestamps = clock(live=False)
    order = ORDERS["some"]
    repeated = 6
    sent = list(packets(order, "right"))
    sent[repeated] = sent[repeated][0], sent[repeated - 1][1], sent[repeated][2]
    times = [timestamps.times(pts, dts, keyframe=key) for pts, dts, key in sent]
    holds(times)
    assert min(after[1] - before[1] for before, after in pairwise(times)) >= STEP
    assert [pts - times[0][0] for pts, _ in times] == [(group * 8 + n) * STEP for group in range(4) for n in order]


def test_frames_without_timestamps_are_a_frame_duration_apart():
    timestamps = clock(live=False)
    times = [timestamps.times(None, None, keyframe=number == 0) for number in range(5)]
    assert [b[0] - a[0] for a, b in pairwise(times)] == [STEP] * 4
    holds(times)


def test_a_packet_without_timestamps_does_not_shift_later_packets():
    timestamps = clock(live=False)
    for number in range(50):
        timestamps.times(number * TICK, number * TICK, keyframe=number % 10 == 0)
    assert timestamps.times(None, None, keyframe=False) == (50 * STEP, 50 * STEP)
    assert timestamps.times(51 * TICK, 51 * TICK, keyframe=False) == (51 * STEP, 51 * STEP)


def test_a_changed_live_clock_continues_after_the_elapsed_time(now):
    timestamps = clock()
    before = [timestamps.times(*packet[:2], keyframe=packet[2]) for packet in packets(ORDERS["some"], "right")]
    now.now_s += 7
    behind = timestamps.times(0, 0, keyframe=True)
    assert behind[1] - before[-1][1] == 7 * TICKS_PER_S


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("bf", ["0", "2", "3"])
@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_clips_across_a_clock_jump_keep_the_frame_distances(tmp_path, bf, suffix, jump_s):
    """FFmpeg's decoding times are those of showing from there on."""
    options = {"g": "10", "bf": bf, "b_strategy": "0", "b-pyramid": "normal", "sc_threshold": "0"}
    path = write(tmp_path / "a.mp4", frames=60, options=options)
    ring = PacketRing(("record",), limit_bytes=1 << 30, guard=threading.Lock())
    with av.open(str(path)) as source:
        stream = source.streams.video[0]
        ring.begin(stream, live=True)
        for number, packet in enumerate(p for p in source.demux(stream) if p.size):
            if number >= 30:
                packet.pts = packet.dts = packet.pts + round((jump_s + 7200) / packet.time_base)
            else:
                shift = round(7200 / packet.time_base)
                packet.pts = packet.pts + shift
                packet.dts = packet.dts + shift
            ring.put(packet)
    for first in (10, 30, 40):
        taken = ring.packets(first, 99)
        clip = Clip(tmp_path / f"{first}.{suffix}", taken[0], {})
        assert all(clip.write(packet) for packet in taken)
        clip.finish()
        with av.open(str(clip.path)) as back:
            frames = [float(frame.time) for frame in back.decode(video=0)]
        steps = [b - a for a, b in pairwise(frames)]
        assert len(frames) == 60 - first
        over = [steps.pop(30 - first - 1)] if first < 30 else []
        assert steps == pytest.approx([0.04] * len(steps), abs=0.002)
        assert all(step > 0.038 and step < 0.3 for step in over)


def test_clips_are_recorded_after_a_camera_changes_its_clock(rtsp, tmp_path):
    options = {"g": "10", "bf": "2", "b_strategy": "0", "sc_threshold": "0"}
    uri = rtsp({"a": write(tmp_path / "a.mp4", frames=250, options=options)}).url("a")
    ring = PacketRing(("record",), limit_bytes=1 << 30, guard=threading.Lock())
    counters = Counters()
    times = []
    set_at = None
    with closing(Demuxer(uri, clock=LiveClock(counters=counters))) as demuxer:
        ring.begin(demuxer.stream, live=True)
        for packet in demuxer.packets():
            ring.put(packet)
            times.append(packet.pts)
            if len(times) == 60:
                with closing(Demuxer(uri)) as other:
                    next(other.packets())
            if set_at is None and counters[CORRECTED_JUMPS]:
                set_at = len(times) - 1
            if set_at is not None and len(times) > set_at + 50:
                break
            assert len(times) < 200, "its clock was not set"
    first = next(packet for packet in ring.packets(set_at, 999) if packet.keyframe)
    clip = Clip(tmp_path / "b.mp4", first, {})
    assert all(clip.write(packet) for packet in ring.packets(first.number, first.number + 29))
    clip.finish()
    with av.open(str(clip.path)) as back:
        frames = [float(frame.time) for frame in back.decode(video=0)]
    assert [b - a for a, b in pairwise(frames)] == pytest.approx([0.04] * 29, abs=0.002)


MS = TICKS_PER_S // 1000


@pytest.fixture(autouse=True)
def now(monkeypatch):
    return fake_time(monkeypatch, monotonic_timestamps)


def started(*, live=False, rate=Fraction(10)):
    timestamps = MonotonicTimestamps()
    timestamps.begin(Fraction(1, 1000), rate, live=live)  # ticks of a millisecond
    return timestamps


def fed(timestamps, *times, keyframe=False):
    """Times of showing and decoding in ms, of packets with these times."""
    mapped = [timestamps.times(*pair, keyframe=keyframe) for pair in times]
    return [(pts / MS, dts / MS) for pts, dts in mapped]


@pytest.mark.parametrize("back", [100, 999, 1000])
def test_a_timestamp_up_to_a_second_back_is_moved_after_the_previous_frame(back):
    """It is shown as soon as may be; those behind it are where they were."""
    mapped = fed(started(), (0, 0), (5000, 5000), (5000 - back, 5000 - back), (5200, 5200))
    assert mapped[2] == (5001, 5001)
    assert mapped[3][0] == 5200
    assert 5001 < mapped[3][1] <= 5200


@pytest.mark.parametrize("back", [1001, 5000, 10**9])
def test_a_timestamp_further_back_restarts_the_clock_a_frame_later(back):
    mapped = fed(started(), (0, 0), (5000, 5000), (5000 - back, 5000 - back), (5100 - back, 5100 - back))
    assert mapped[2:] == [(5100, 5100), (5200, 5200)]


@pytest.mark.parametrize(("ahead_ms", "jumps"), [(60_000, False), (61_999, False), (62_000, False), (62_001, True)])
def test_a_live_clock_a_minute_ahead_of_real_time_is_a_jump(now, ahead_ms, jumps):
    timestamps = started(live=True)
    fed(timestamps, (0, 0))
    now.now_s += 2.0
    assert fed(timestamps, (ahead_ms, ahead_ms)) == [(2000, 2000) if jumps else (ahead_ms, ahead_ms)]


@pytest.mark.parametrize(("live", "away_s", "gap_ms"), [(False, 7.0, 100), (True, 7.0, 7000), (True, 0.02, 100)])
def test_times_continue_after_a_reopening(now, live, away_s, gap_ms):
    """A file's next turn follows at once; a camera was away for as long as it was."""
    timestamps = started(live=live)
    fed(timestamps, (0, 0), (100, 100))
    timestamps.begin(Fraction(1, 1000), Fraction(10), live=live)
    assert timestamps.restarted
    now.now_s += away_s
    assert fed(timestamps, (40, 40), (140, 140)) == [(100 + gap_ms, 100 + gap_ms), (200 + gap_ms, 200 + gap_ms)]


def test_the_first_frame_of_a_loop_follows_all_frames_of_the_last_loop():
    timestamps = started()
    assert fed(timestamps, (200, 0), (500, 100), (300, 200))[1] == (500, 100)
    timestamps.begin(Fraction(1, 1000), Fraction(10), live=False)
    assert fed(timestamps, (0, 0)) == [(600, 600)], "not 300, one frame behind the last that was decoded"


def test_a_keyframe_before_earlier_frames_is_a_jump():
    """No frame from a keyframe on is shown before those that came: the clock was set back, if only a little."""
    timestamps = started()
    fed(timestamps, (0, 0), (100, 100), (200, 200))
    assert fed(timestamps, (150, 150), keyframe=True) == [(300, 300)]
    assert fed(timestamps, (250, 250)) == [(400, 400)]


def test_missing_decode_timestamps_are_derived_from_the_display_order():
    """Two frames of each group come before one that is shown ahead of them; decoding times are no later."""
    timestamps = started()
    shown = [0, 400, 200, 100, 300, 800, 600, 500, 700, 1200, 1000, 900, 1100]
    mapped = fed(timestamps, *[(pts, None) for pts in shown])
    assert all(dts <= pts for pts, dts in mapped)
    assert all(b[1] - a[1] >= 1 for a, b in pairwise(mapped))
    settled = mapped[8:]
    assert [pts - settled[0][0] for pts, _ in settled] == [pts - shown[8] for pts in shown[8:]]
    assert [round(b[1] - a[1]) for a, b in pairwise(settled)] == [100] * (len(settled) - 1)


def test_sixteen_reordered_frames_are_supported():
    """Sixteen frames come before one that is shown ahead of them all; a codec allows no more."""
    shown = [0, *range(1600, 0, -100), 1700, 1800, 1900]
    mapped = fed(started(), *[(pts, None) for pts in shown])
    assert all(dts <= pts for pts, dts in mapped)
    assert all(b[1] > a[1] for a, b in pairwise(mapped))
    assert [b[0] - a[0] for a, b in pairwise(mapped[-3:])] == [100, 100]
