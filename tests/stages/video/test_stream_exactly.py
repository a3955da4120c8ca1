"""When `stream` connects, waits and counts: on a simulated clock, with a receiver that does what the test says."""

from fractions import Fraction

import numpy as np
import pytest
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Frame, Surface
from streamkit.core.errors import OutputError
from streamkit.core.stage import Context
from streamkit.media.encode import TIME_BASE
from streamkit.stages.video import stream as module
from streamkit.stages.video.stream import Stream

TICKS_PER_S = TIME_BASE.denominator


class Clock:
    now_s = 1000.0

    def monotonic(self):
        return self.now_s


class Receiver:
    """Takes the place of the connection: refuses, takes, or loses what is pushed."""

    def __init__(self):
        self.refuses = False
        self.connects_after = 1
        self.tried_s = []
        self.encodings = []
        self.pushes = []


@pytest.fixture
def clock(monkeypatch):
    fake_clock = Clock()
    monkeypatch.setattr(module, "time", fake_clock)
    return fake_clock


@pytest.fixture
def receiver(monkeypatch, clock):
    fake = Receiver()

    class Push:
        def __init__(self, url, encoder, timeout_s):
            self.connected = False
            self.ticks = []
            self.closed = False
            fake.tried_s.append(round(clock.now_s - 1000.0, 3))
            fake.pushes.append(self)

        def write(self, surface, ticks):
            if fake.refuses:
                raise OutputError("cannot push to it: Connection refused")
            self.ticks.append(ticks)
            self.connected = len(self.ticks) >= fake.connects_after

        def close(self):
            self.closed = True

    def encoder(chosen, encoding, surface, rate, *rest):
        fake.encodings.append((encoding, rate))

    monkeypatch.setattr(module, "Push", Push)
    monkeypatch.setattr(module, "make_encoder", encoder)
    return fake


def surface(width=64, height=48):
    return Surface(np.full((height * 3 // 2, width), 128, np.uint8), Color("bt601"))


def frame(pts_s, **options):
    return Frame("gate", 0, pts_s, 64, 48, options.get("surface") or surface())


def sink(**options):
    stage = Stream(url="rtsp://ann:secret@host/gate", encoder="cpu", **options)
    stage.logged = collect()
    stage.context = Context(id="stream", counters=Counters())
    stage.open()
    return stage


def counts(out):
    return dict(out.context.counters.values)


@pytest.mark.parametrize(
    ("step_s", "fps", "rate", "gop"),
    [
        (0.04, None, Fraction(25), 50),
        (1 / 240, None, Fraction(240), 480),
        (1 / 241, None, Fraction(25), 50),
        (10.0, None, Fraction(1, 10), 1),
        (10.1, None, Fraction(25), 50),
        (0.04, 5.0, Fraction(5), 10),
        (0.04, 50.0, Fraction(25), 50),
        (1001 / 30000, None, Fraction(30000, 1001), 60),
    ],
)
def test_rate_and_keyframes_come_from_the_first_two_frames(receiver, step_s, fps, rate, gop):
    out = sink(fps=fps)
    out.write(frame(0.0))
    out.write(frame(step_s))
    ((encoding, encoder_rate),) = receiver.encodings
    assert float(encoder_rate) == pytest.approx(float(rate), rel=1e-4)
    assert (encoding.gop, encoding.live, encoding.codec) == (gop, True, "h264")
    assert sink(gop=7).gop == 7


def test_fps_thins_out_evenly(receiver):
    out = sink(fps=10.0)
    for n in range(101):
        out.write(frame(n / 25))
    (push,) = receiver.pushes
    sent = [round(ticks / TICKS_PER_S * 25) + 1 for ticks in push.ticks]
    # an exact tenth of a second lies between two frames: those at it, or the first behind it
    assert sent == [
        1,
        4,
        6,
        9,
        11,
        14,
        16,
        19,
        *[n + 20 * k for k in range(1, 5) for n in (1, 4, 6, 9, 11, 14, 16, 19)],
    ]
    late = sink(fps=10.0)
    assert [late._due(at) for at in (0.0, 0.08, 0.09, 0.1, 5.0, 5.05, 5.1)] == [
        True,
        False,
        True,
        False,
        True,
        False,
        True,
    ]


def test_waits_between_two_tries_double_up_to_the_longest(receiver, clock):
    receiver.refuses = True
    out = sink(max_backoff=3.0)
    for n in range(200):
        clock.now_s = 1000.0 + n / 10
        out.write(frame(n / 10))
    assert receiver.tried_s == [0.1, 0.6, 1.6, 3.6, 6.6, 9.6, 12.6, 15.6, 18.6]
    assert counts(out) == {
        "frames not streamed: first frame": 1,
        "frames not streamed: no connection": 199,
        "stream connections lost or refused": 9,
        "stream reconnects": 8,
    }
    assert set(out.logged) == {"cannot push to it: Connection refused; retrying until it works"}


def test_a_connection_that_worked_begins_with_short_waits_again(receiver, clock):
    out = sink()
    receiver.refuses = True
    for n in range(30):
        clock.now_s = 1000.0 + n / 10
        receiver.refuses = not 16 <= n < 20
        out.write(frame(n / 10))
    assert receiver.tried_s == [0.1, 0.6, 1.6, 2.5]
    assert out.logged[1] == "gate is streamed to rtsp://ann:***@host/gate"
    assert counts(out)["frames streamed"] == 4
    assert counts(out)["frames not streamed: no connection"] == 25


def test_frames_count_as_streamed_once_there_is_a_connection(receiver):
    receiver.connects_after = 3
    out = sink()
    seen = []
    for n in range(6):
        out.write(frame(n / 25))
        seen.append(counts(out).get("frames streamed", 0))
    assert seen == [0, 0, 0, 3, 4, 5]
    assert out.logged == ["gate is streamed to rtsp://ann:***@host/gate"]
    out.close()
    assert receiver.pushes[0].closed
    assert counts(out) == {"frames not streamed: first frame": 1, "frames streamed": 5}


def test_frames_that_wait_for_a_connection_that_is_refused_are_counted(receiver):
    receiver.connects_after = 99
    out = sink()
    for n in range(4):
        out.write(frame(n / 25))
    receiver.refuses = True
    out.write(frame(4 / 25))
    assert counts(out)["frames not streamed: no connection"] == 4
    out.close()
    assert counts(out)["frames not streamed: no connection"] == 4


def test_each_connection_has_a_clock_from_0(receiver):
    out = sink()
    for at_s in (7.0, 7.04, 7.08):
        out.write(frame(at_s))
    out.write(frame(7.12, surface=surface(96, 80)))
    out.write(frame(7.16, surface=surface(96, 80)))
    first, second = (push.ticks for push in receiver.pushes)
    assert first == [0, round(0.04 * TICKS_PER_S)]
    assert second == [0, round(0.04 * TICKS_PER_S)]
    assert receiver.pushes[0].closed
    assert not receiver.pushes[1].closed
    assert counts(out)["stream reconnects"] == 1


def test_frames_whose_time_does_not_rise_are_counted(receiver):
    out = sink()
    for at_s in (7.0, 7.04, 7.08, 7.08, 7.0, 7.04, 7.12):
        out.write(frame(at_s))
    assert counts(out)["frames not streamed: timestamp not increasing"] == 3
    assert [round(ticks / TICKS_PER_S, 3) for ticks in receiver.pushes[0].ticks] == [0.0, 0.04, 0.08]


def test_frames_that_no_receiver_took_do_not_count_as_streamed(receiver):
    receiver.connects_after = 99
    out = sink()
    for n in range(4):
        out.write(frame(n / 25))
    out.close()
    assert counts(out) == {"frames not streamed: first frame": 1, "frames not streamed: no connection": 3}


def test_what_is_streamed_if_nothing_is_set():
    stage = Stream(url="rtsp://host/a")
    assert (stage.encoder, stage.codec, stage.fps, stage.quality, stage.bitrate) == ("auto", "h264", None, None, None)
    assert (stage.preset, stage.gop, stage.timeout, stage.max_backoff) == (None, None, 5.0, 10.0)


def test_frames_that_failed_or_have_no_pixels_are_counted_and_tell_no_rate(receiver):
    out = sink()
    failed = frame(0.0)
    bare = frame(0.04)
    failed.error = "detect failed"
    bare.surface = None
    for written in (failed, bare, frame(0.08), frame(0.12)):
        out.write(written)
    assert counts(out) == {
        "frames not streamed: no pixels": 2,
        "frames not streamed: first frame": 1,
        "frames streamed": 1,
    }


@pytest.mark.parametrize(("timeout_s", "fine"), [(0.0, False), (-1.0, False), (0.001, True)])
def test_the_shortest_timeout(timeout_s, fine):
    if fine:
        Stream(url="rtsp://host/a", timeout=timeout_s)
    else:
        with pytest.raises(ValueError, match="timeout must be longer than 0s"):
            Stream(url="rtsp://host/a", timeout=timeout_s)
