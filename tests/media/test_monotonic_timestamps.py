"""Times that only rise: over loops, clocks that are set, B frames, and decoding times that are missing or wrong."""

import threading
import time
from contextlib import closing
from fractions import Fraction
from itertools import pairwise

import av
import pytest
from support.clips import write

from streamkit.core.counters import Counters
from streamkit.media.demux import Demuxer
from streamkit.media.live_clock import JUMPS as CORRECTED_JUMPS
from streamkit.media.live_clock import LiveClock
from streamkit.media.monotonic_timestamps import TICKS_PER_S, MonotonicTimestamps
from streamkit.media.mux import Clip
from streamkit.media.ring import PacketRing

RATE, TICK = 10, 9000  # frames a second, and ticks of 90 kHz from one to the next
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
def test_a_clock_that_is_set_goes_on_with_all_pictures_at_their_distances(name, jump, times_of_decoding):
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


def test_times_of_decoding_that_are_right_are_kept():
    timestamps = clock()
    sent = list(packets(ORDERS["pyramid"], "right"))
    times = [timestamps.times(pts, dts, keyframe=key) for pts, dts, key in sent]
    assert [dts for _, dts in times] == [(dts - sent[0][1]) * TICKS_PER_S // 90_000 for _, dts, _ in sent]


def test_a_decoding_time_that_is_repeated_is_derived_from_the_order_of_frames():
    """It is a frame's duration after the one before it, not a millisecond."""
    timestamps = clock(live=False)
    order, repeated = ORDERS["some"], 6
    sent = list(packets(order, "right"))
    sent[repeated] = sent[repeated][0], sent[repeated - 1][1], sent[repeated][2]
    times = [timestamps.times(pts, dts, keyframe=key) for pts, dts, key in sent]
    holds(times)
    assert min(after[1] - before[1] for before, after in pairwise(times)) >= STEP
    assert [pts - times[0][0] for pts, _ in times] == [(group * 8 + n) * STEP for group in range(4) for n in order]


def test_pictures_without_any_time_come_one_frame_time_apart():
    timestamps = clock(live=False)
    times = [timestamps.times(None, None, keyframe=number == 0) for number in range(5)]
    assert [b[0] - a[0] for a, b in pairwise(times)] == [STEP] * 4
    holds(times)


def test_a_packet_without_any_time_moves_no_later_one():
    timestamps = clock(live=False)
    for number in range(50):
        timestamps.times(number * TICK, number * TICK, keyframe=number % 10 == 0)
    assert timestamps.times(None, None, keyframe=False) == (50 * STEP, 50 * STEP)
    assert timestamps.times(51 * TICK, 51 * TICK, keyframe=False) == (51 * STEP, 51 * STEP)


def test_a_live_clock_that_is_set_has_the_gap_of_the_time_that_passed(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    timestamps = clock()
    before = [timestamps.times(*packet[:2], keyframe=packet[2]) for packet in packets(ORDERS["some"], "right")]
    now[0] += 7
    behind = timestamps.times(0, 0, keyframe=True)
    assert behind[1] - before[-1][1] == 7 * TICKS_PER_S


@pytest.mark.parametrize("suffix", ["mp4", "mkv"])
@pytest.mark.parametrize("bf", ["0", "2", "3"])
@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_clips_over_and_after_a_jump_show_every_picture_at_its_distance(tmp_path, bf, suffix, jump_s):
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


def test_a_camera_that_sets_its_clock_for_another_client_has_clips_from_there_on(rtsp, tmp_path):
    options = {"g": "10", "bf": "2", "b_strategy": "0", "sc_threshold": "0"}
    uri = rtsp({"a": write(tmp_path / "a.mp4", frames=250, options=options)}).url("a")
    ring = PacketRing(("record",), limit_bytes=1 << 30, guard=threading.Lock())
    counters = Counters()
    times, set_at = [], None
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
