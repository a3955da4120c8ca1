"""When a live source's packets came, and how long one is kept that no frame comes out of; on a simulated clock."""

import pytest

from streamkit.core.errors import SourceError
from streamkit.media import arrivals
from streamkit.media.arrivals import Arrivals


class Clock:
    now_s = 1000.0

    def monotonic(self):
        return self.now_s


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(arrivals, "time", made)
    return made


def begun(timeout_s):
    return Arrivals("rtsp://ann:secret@host/a", timeout_s)


def lasts_s(made, clock, *, keyframes=(), many=31):
    """Seconds until the source is given up: `many` packets at once, then one every half second."""
    begun_s = clock.now_s
    for number in range(1000):
        clock.now_s = begun_s + 0.5 * max(0, number - many + 1)
        try:
            made.packet(number, number in keyframes)
        except SourceError as error:
            return clock.now_s - begun_s, str(error), error.cause
    raise AssertionError("it is never given up")


def test_a_source_without_a_frame_is_given_up_after_its_timeout(clock):
    after_s, why, cause = lasts_s(begun(5.0), clock, keyframes=[0, 40])
    assert cause == "codec"
    assert after_s == 5.5, "at 5 s exactly it is not yet too long, and a second keyframe gives no more time"
    assert why == "rtsp://ann:***@host/a: packets come, but no frame could be decoded in 5 s"


def test_who_joins_between_two_keyframes_waits_a_minute_for_the_next(clock):
    after_s, why, _ = lasts_s(begun(5.0), clock)
    assert after_s == 60.5
    assert why.endswith("in 60 s")
    assert lasts_s(begun(90.0), clock)[0] == 90.5, "or the timeout, where that is longer"


def test_the_timeout_counts_from_the_first_keyframe(clock):
    """It comes after 5 s, and another one 2.5 s later."""
    assert lasts_s(begun(20.0), clock, keyframes=[40, 45])[0] == 25.5


def test_more_packets_have_to_come_than_a_decoder_holds_back(clock):
    made = begun(5.0)
    for number in range(30):
        clock.now_s += 100.0
        made.packet(number, number == 0)
    with pytest.raises(SourceError, match="no frame could be decoded"):
        made.packet(30, False)
    made.seen()
    clock.now_s += 100.0
    for number in range(30):
        made.packet(number, False)  # a frame came: all is counted from there


def test_when_a_frames_packet_came(clock):
    made = begun(5.0)
    for number in range(100):
        clock.now_s = 1000.0 + number
        made.packet(number, False)
        made.seen()
    assert made.came_s(99) == 1099.0
    assert made.came_s(71) == 1071.0, "the last 29 packets are known"
    assert made.came_s(70) == 1099.0, "of older ones only the newest packet's time"
    assert made.came_s(71) == 1099.0, "each frame is asked for once"
    assert made.came_s(12345) == 1099.0
