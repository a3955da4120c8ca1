"""Timestamps of live sources: which are plausible, and the times of frames whose timestamps are not."""

import itertools
import random

import pytest
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.media.live_clock import JUMPS, RATES, REPLACED, LiveClock

TICKS_PER_S = 90_000
STEP_S = 0.04
B_FRAMES = [0, 3, 1, 2, 6, 4, 5, 9, 7, 8]  # decode order of frames in presentation order


class Camera:
    """Feeds the packets of a camera to a clock; times are in seconds."""

    def __init__(self, mode="auto", *, reorders=True, **options):
        self.counters = Counters()
        self.clock = LiveClock(mode, self.counters, "rtsp://gate/a", **options)
        self.reorders = reorders
        self.connect()

    def connect(self):
        self.clock.begin(1 / TICKS_PER_S, round(STEP_S * TICKS_PER_S), reorders=self.reorders)

    def send(self, stamp_s, arrived_s, *, keyframe=False, waited_s=STEP_S, dts_s=None):
        """Presentation time of a packet without reordering, or with another decoding time."""
        pts = round(stamp_s * TICKS_PER_S)
        dts = pts if dts_s is None else round(dts_s * TICKS_PER_S)
        pts, dts = self.clock.times(pts, dts, keyframe=keyframe, arrived_s=arrived_s, waited_s=waited_s)
        if dts_s is None:
            assert dts in (pts, None)
        return pts / TICKS_PER_S

    def send_all(self, packets):
        """Presentation times of packets by their timestamps and arrivals."""
        return [self.send(stamp_s, arrived_s) for stamp_s, arrived_s in packets]

    @property
    def counts(self):
        return dict(self.counters.values)


def steps(times_s):
    return [round(after - before, 4) for before, after in itertools.pairwise(times_s)]


def test_plausible_timestamps_are_unchanged():
    camera = Camera()
    stamps_s = [5.0 + n * STEP_S for n in B_FRAMES]
    assert [camera.send(stamp_s, n * STEP_S) for n, stamp_s in enumerate(stamps_s)] == pytest.approx(stamps_s)
    assert camera.clock.trusted
    assert camera.counts == {}


def test_a_negative_first_timestamp_starts_at_zero():
    camera = Camera()
    assert camera.send_all([(-0.04, 0.0), (0.0, 0.04)]) == pytest.approx([0.0, 0.04])


@pytest.mark.parametrize(
    ("stamp_s", "keyframe", "elapsed_s", "time_s"),
    [
        (8.04, False, 0.04, 8.04),
        (18.5, False, 0.5, 18.5),  # 10 s ahead of the time that has passed
        (18.51, False, 0.5, 8.5),
        (48.0, False, 31.0, 48.0),  # the camera was silent for as long
        (7.0, False, 0.5, 7.0),  # a B frame may be shown a second earlier
        (6.99, False, 0.5, 8.5),
        (7.98, True, 0.5, 8.5),  # no frame from a keyframe on is shown before an earlier one
        (3.0, False, 0.0, 8.001),
        (90_000.0, True, 2.0, 10.0),
    ],
)
def test_a_timestamp_that_jumps_is_replaced(stamp_s, keyframe, elapsed_s, time_s):
    camera = Camera()
    camera.send(8.0, 100.0)
    arrived_s = 100.0 + elapsed_s
    assert camera.send(stamp_s, arrived_s, keyframe=keyframe) == pytest.approx(time_s, abs=1e-4)
    corrected = abs(time_s - stamp_s) > 1e-3
    assert camera.counts == ({JUMPS: 1} if corrected else {})
    assert camera.clock.trusted is not corrected
    if stamp_s > 8.0 or keyframe or corrected:
        assert camera.send(stamp_s + 0.04, arrived_s + 0.04) == pytest.approx(time_s + 0.04, abs=1e-4)
        assert camera.clock.trusted


@pytest.mark.parametrize("jump_s", [-3600.0, -2.0, 3600.0])
def test_frames_keep_order_and_distances_over_a_jump(jump_s):
    camera = Camera()
    before_s = camera.send_all((n * STEP_S, n * STEP_S) for n in range(50))
    after_s = [
        camera.send((n + 50) * STEP_S + jump_s, (place + 50) * STEP_S, keyframe=n == 0)
        for place, n in enumerate(B_FRAMES)
    ]
    assert after_s == pytest.approx([before_s[-1] + (n + 1) * STEP_S for n in B_FRAMES], abs=1e-4)
    assert camera.counts == {JUMPS: 1}


def test_repeated_timestamps_are_replaced_by_arrival_times():
    camera = Camera()
    logged = collect()
    times_s = camera.send_all((0.0, n * STEP_S) for n in range(100))
    assert steps(times_s) == [STEP_S] * 99
    assert not camera.clock.trusted
    assert camera.counts == {REPLACED: 99}
    assert logged == ["rtsp://gate/a: its timestamps stand still; its frames have the times of their arrival"]


def test_simultaneous_packets_with_equal_timestamps_are_a_millisecond_apart():
    assert Camera().send_all([(1.0, 5.0)] * 3) == pytest.approx([1.0, 1.001, 1.002])


def test_two_frames_per_timestamp_do_not_run_ahead():
    camera = Camera()
    logged = collect()
    times_s = camera.send_all((n // 2 * 2 * STEP_S, n * STEP_S) for n in range(100))
    assert times_s == pytest.approx([n * STEP_S for n in range(100)], abs=1e-4)
    assert camera.counts == {REPLACED: 50}
    assert logged == []


@pytest.mark.parametrize("resumes_s", [STEP_S, 4.0 + STEP_S])
def test_a_recovered_clock_continues_at_the_arrival_time(resumes_s):
    """It may go on where it stood still, or where it would be."""
    camera = Camera()
    still_s = camera.send_all((0.0, n * STEP_S) for n in range(101))
    running_s = camera.send_all((resumes_s + n * STEP_S, (101 + n) * STEP_S) for n in range(50))
    assert steps(still_s + running_s) == [STEP_S] * 150
    assert camera.clock.trusted


def sent_with_dts(camera, shift_s=0.0, arrived_s=0.0):
    """Presentation and decoding times of packets with B frames, in frames."""
    sent = []
    for place, n in enumerate(B_FRAMES):
        pts, dts = (round((number * STEP_S + shift_s) * TICKS_PER_S) for number in (n, place - 1))
        now_s = arrived_s + place * STEP_S
        sent.append(camera.clock.times(pts, dts, keyframe=n == 0, arrived_s=now_s, waited_s=STEP_S))
    return [tuple(None if ticks is None else ticks / TICKS_PER_S / STEP_S for ticks in times) for times in sent]


def test_decoding_times_are_mapped_with_the_presentation_times():
    camera = Camera()
    pts, dts = zip(*sent_with_dts(camera), strict=True)
    assert pts == pytest.approx(B_FRAMES)
    assert dts == pytest.approx([place - 1 for place in range(10)])
    camera = Camera("arrival")
    times = sent_with_dts(camera)
    assert [dts for _, dts in times] == sorted(dts for _, dts in times)
    assert all(pts >= dts for pts, dts in times)


def test_decoding_times_after_a_jump_are_unknown_with_reordered_frames():
    for reorders in (True, False):
        camera = Camera(reorders=reorders)
        sent_with_dts(camera)
        after = sent_with_dts(camera, 500.0, 10 * STEP_S)
        assert [pts for pts, _ in after] == pytest.approx([10 + n for n in B_FRAMES], abs=0.01)
        assert {dts is None for _, dts in after} == {reorders}
        camera.connect()
        assert None not in {dts for _, dts in sent_with_dts(camera)}


def test_packets_without_times_stay_without():
    camera = Camera()
    assert camera.clock.times(None, None, keyframe=True, arrived_s=1.0) == (None, None)
    assert camera.clock.times(None, 5, keyframe=True, arrived_s=1.0) == (None, 5)
    assert camera.clock.times(7, None, keyframe=True, arrived_s=1.0) == (7, None)


# ------------------------------------------------------------------------------------------- arrival in place of stamps


@pytest.mark.parametrize("stamp_s", [0.0, 77.0, -5.0])
def test_arrival_mode_ignores_timestamps(stamp_s):
    camera = Camera("arrival", reorders=False)
    chance = random.Random(1)
    camera.send(2.0, 10.0)
    times_s = [camera.send(stamp_s * chance.random(), 10.5 + n) for n in range(20)]
    assert steps([2.0, *times_s]) == [0.5, *[1.0] * 19]
    assert not camera.clock.trusted
    assert camera.counts == {}


def test_arrival_mode_keeps_the_display_order():
    """Timestamps run twice too fast, and packets arrive in decode order."""
    camera = Camera("arrival")
    shown = [camera.send(2 * n * STEP_S, place * STEP_S) for place, n in enumerate(B_FRAMES)]
    assert [n for _, n in sorted(zip(shown, B_FRAMES, strict=True))] == sorted(B_FRAMES)
    assert max(shown) == pytest.approx(7 * STEP_S), "the last but two arrives with the highest timestamp"


def test_arrival_mode_dates_packets_without_times():
    clock = LiveClock("arrival")
    clock.begin(0.001, 40)
    times = [clock.times(None, None, keyframe=False, arrived_s=5.0 + n * 0.25) for n in range(3)]
    assert times == [(0, 0), (250, 250), (500, 500)]


# ------------------------------------------------------------------------------------------- clocks that run too fast


def drifting(rate, *, frames, first_s=0.0, fps=25.0):
    """Timestamps and arrivals of a camera whose clock runs `rate` times as fast as real time."""
    return [(first_s + n * rate / fps, first_s + n / fps) for n in range(frames)]


@pytest.mark.parametrize("rate", [1.2, 0.8, 2.0, 0.5, 6.0, 1.04])
def test_a_clock_of_another_rate_is_measured_and_corrected(rate):
    camera = Camera()
    logged = collect()
    frames = 2000
    times_s = camera.send_all(drifting(rate, frames=frames))
    assert camera.counts == {RATES: 1}
    assert len(logged) == 1
    message = f"{rate:.2f} times as fast as real time, such as timestamps for 30 frames/s where {30 * rate:.3g} arrive;"
    assert logged[0].startswith(f"rtsp://gate/a: its clock runs {message}")
    last_s = times_s[-500:]
    assert last_s[-1] - last_s[0] == pytest.approx(499 / 25, rel=0.005)
    assert all(step > 0 for step in steps(times_s))


def test_a_wrong_rate_is_noticed_within_eight_seconds():
    times_s = Camera().send_all(drifting(1.2, frames=300))
    assert steps(times_s)[205:] == pytest.approx([STEP_S] * 94, abs=0.001)


def test_the_senders_rate_is_kept_on_request():
    camera = Camera("sender")
    logged = collect()
    assert camera.send_all(drifting(1.2, frames=500)) == pytest.approx([n * 1.2 / 25 for n in range(500)])
    assert (camera.counts, logged) == ({}, [])
    assert camera.send(0.0, 20.0, keyframe=True) > 499 * 1.2 / 25, "time rises all the same"
    assert camera.counts == {JUMPS: 1}


def test_a_measured_rate_survives_a_reconnection():
    camera = Camera()
    camera.send_all(drifting(1.2, frames=300))
    camera.connect()
    assert steps(camera.send_all(drifting(1.2, frames=50, first_s=100.0))) == pytest.approx([STEP_S] * 49, abs=1e-4)
    assert camera.counts == {RATES: 1}


def test_a_corrected_rate_is_noticed():
    camera = Camera()
    camera.send_all(drifting(1.2, frames=500))
    logged = collect()
    mended = [(24.0 + n / 25, 20.0 + n / 25) for n in range(500)]
    times_s = camera.send_all(mended)
    assert steps(times_s)[-50:] == pytest.approx([STEP_S] * 50, abs=1e-4)
    assert logged == ["rtsp://gate/a: its clock runs at the rate of real time again"]
    assert camera.counts == {RATES: 1}


def late(delays_s):
    """A camera with a right clock whose packets arrive late, in order."""
    arrived_s = 0.0
    for n, delay_s in enumerate(delays_s):
        arrived_s = max(arrived_s, n / 25 + delay_s)
        yield n / 25, arrived_s


def jitter(frames, seed):
    chance = random.Random(seed)
    return [0.15 * chance.random() for _ in range(frames)]


@pytest.mark.parametrize(
    "delays_s",
    [
        jitter(3000, 1),
        jitter(3000, 2),
        [5.0 if 500 <= n < 625 else 0.0 for n in range(3000)],  # the network stalls for 5 s
        [min(0.9, n / 250) for n in range(3000)],  # buffers fill at 10 % of the time
        [8.0 if n > 1000 else 0.0 for n in range(3000)],  # the way is longer from then on
        [6.0 - n % 150 / 25 for n in range(3000)],  # segments of 6 s
        [max(0.0, 10.0 - n / 25) for n in range(3000)],  # 10 s come at once when it connects
    ],
    ids=["jitter", "other jitter", "stall", "congestion", "longer way", "segments", "first burst"],
)
def test_late_packets_do_not_change_the_measured_rate(delays_s):
    camera = Camera()
    times_s = camera.send_all(late(delays_s))
    assert times_s == pytest.approx([n / 25 for n in range(len(times_s))])
    assert camera.counts == {}


def test_a_slow_reader_measures_no_rate():
    """It takes 50 ms for each frame, and never waits for one."""
    camera = Camera()
    times_s = [camera.send(n / 25, n / 20, waited_s=0.0001) for n in range(2000)]
    assert times_s == pytest.approx([n / 25 for n in range(2000)])


@pytest.mark.parametrize(("share", "measured"), [(0.05, False), (0.08, False), (0.12, True), (0.15, True), (0.5, True)])
def test_a_reader_that_waits_10_percent_measures_every_window(share, measured):
    camera = Camera()
    for stamp_s, arrived_s in drifting(1.2, frames=1000):
        camera.send(stamp_s, arrived_s, waited_s=share * STEP_S)
    assert camera.counts == ({RATES: 1} if measured else {})


@pytest.mark.parametrize(("speed", "is_camera"), [(1.5, True), (3.0, False)])
def test_a_http_download_is_not_a_fast_camera(speed, is_camera):
    camera = Camera(real_time=False)
    camera.send_all(drifting(speed, frames=1000))
    assert camera.counts == ({RATES: 1} if is_camera else {})


def test_a_jump_does_not_change_the_rate():
    camera = Camera()
    for turn in range(40):
        first_s = turn * 1.5
        for n in range(38):
            camera.send(n / 25, first_s + n / 25, keyframe=n == 0)
    assert camera.counts == {JUMPS: 39}
