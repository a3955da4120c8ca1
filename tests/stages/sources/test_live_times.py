"""Frames and recorded packets of cameras whose clocks are wrong: both have the same times, and these are plausible."""

import contextlib
import itertools
import time

import av
import pytest
from support.clips import write
from support.http_cameras import http_camera
from support.messages import collect
from support.rtsp_script import frames, scripted_camera

from streamkit.core.counters import Counters
from streamkit.core.errors import SourceError
from streamkit.core.stage import Context, FrameStage, RuntimeContext, stage
from streamkit.media.encode import TIME_BASE
from streamkit.media.ring import PacketRing
from streamkit.stages.sources.source import VideoSource

FRAMES = 40
RATE = 200.0  # frames sent per second, so that a test is short; their timestamps are for 25
BOGUS = {
    "stands still": lambda n: 0.0,
    "set back": lambda n: n / 25 - (2.0 if n >= 20 else 0.0),
    "set ahead": lambda n: n / 25 + (36_000.0 if n >= 20 else 0.0),
    "a little back": lambda n: n / 25 - (0.3 if n >= 20 else 0.0),
    "in pairs": lambda n: n // 2 * 2 / 25,
    "right": lambda n: n / 25,
}


def read(sent, *, ring=None, **options):
    """The frames of a camera that sends these, and what was counted."""
    counters = Counters()
    with scripted_camera(sent) as url:
        source = VideoSource(uri=url, transport="tcp", **options)
        source.context = Context("gate", counters=counters, runtime=RuntimeContext(packet_buffer=ring))
        with contextlib.closing(source.frames()) as stream:
            return list(stream), counters.values


@pytest.mark.parametrize(
    ("fault", "b_frames", "clock"),
    [
        *((fault, 0, "auto") for fault in BOGUS),
        *((fault, 2, "auto") for fault in BOGUS),
        ("right", 2, "sender"),
        ("right", 2, "arrival"),
        ("stands still", 0, "sender"),
        ("set back", 0, "arrival"),
    ],
)
def test_times_increase_and_stay_near_real_time(fault, b_frames, clock):
    """Without a reconnection, as with `reconnect: false`."""
    taken, counts = read(frames(FRAMES, rate=RATE, b_frames=b_frames, stamp=BOGUS[fault]), clock=clock)
    assert len(taken) == FRAMES
    times_s = [frame.pts_s for frame in taken]
    assert all(before < after for before, after in itertools.pairwise(times_s))
    assert times_s[-1] - times_s[0] < 6.0
    counts.pop("frames timed by arrival", None)  # no sender's clock is sent
    assert bool(counts) == (fault != "right" and clock != "arrival")


@pytest.mark.parametrize(
    ("fault", "clock"),
    [("right", "auto"), ("right", "arrival"), ("stands still", "auto"), ("set back", "auto"), ("set ahead", "sender")],
)
def test_frames_and_recorded_packets_have_the_same_times(fault, clock):
    ring = PacketRing(("record",), limit_bytes=1 << 30)
    taken, _ = read(frames(FRAMES, rate=RATE, stamp=BOGUS[fault]), ring=ring, clock=clock)
    packets = [ring.get(frame._state.packet_ref.number) for frame in taken]
    assert [packet.number for packet in packets] == list(range(FRAMES))
    offsets_s = [float(packet.pts * TIME_BASE) - frame.pts_s for packet, frame in zip(packets, taken, strict=True)]
    assert max(offsets_s) - min(offsets_s) < 0.002


def test_a_camera_with_a_stopped_clock_delivers_at_a_lower_rate():
    taken, _ = read(frames(100, rate=100.0, stamp=lambda n: 0.0), fps=10.0)
    assert 8 <= len(taken) <= 12


def test_a_clip_of_a_camera_with_a_stopped_clock_has_its_length(run_pipeline, tmp_path):
    @stage("alarm", writes="events")
    class Alarm(FrameStage):
        """Emit an event at frame 120."""

        def process(self, frame):
            if frame.index == 120:
                frame.emit("hit")

    with scripted_camera(frames(300, rate=100.0, gop=10, stamp=lambda n: 0.0), stays=True) as url:
        outcome = run_pipeline(
            f"""
            sources: {{gate: {{uri: "{url}", transport: tcp}}}}
            stages:
              alarm: {{}}
              record: {{when: alarm.hit, before: 300ms, after: 500ms, path: "{tmp_path}/clip-{{time}}.mp4"}}
              collect: {{}}
            """,
            extra=[Alarm],
            limit=250,
        )
    assert outcome.code == 0
    (clip,) = tmp_path.glob("clip-*.mp4")
    with av.open(str(clip)) as container:
        times_s = [frame.time for frame in container.decode(video=0)]
    assert times_s[-1] == pytest.approx(0.85, abs=0.15)
    assert len(times_s) == pytest.approx(85, abs=15)


def test_a_message_about_a_clock_hides_the_password():
    logged = collect()
    with scripted_camera(frames(20, rate=RATE, stamp=BOGUS["stands still"])) as url:
        source = VideoSource(uri=url.replace("rtsp://", "rtsp://ann:secret@"), transport="tcp")
        source.context = Context("gate")
        assert len(list(source.frames())) == 20
    (message,) = logged
    assert "rtsp://ann:***@127.0.0.1" in message
    assert "its timestamps stand still" in message


# ------------------------------------------------------------------------------------------------------ sender's clock

SENT_S = 1_000.0  # the sender's clock is so far behind this machine's


def reported(n):
    return time.time() - SENT_S if n % 10 == 0 else None


def test_a_sender_s_clock_dates_frames():
    taken, counts = read(frames(FRAMES, rate=25.0, ntp=reported), clock="sender")
    assert counts.get("frames timed by arrival", 0) <= 2, "the first report comes with the first frames"
    assert all(frame.time_s == pytest.approx(time.time() - SENT_S, abs=30.0) for frame in taken[5:])
    by_arrival, _ = read(frames(10, rate=RATE, ntp=reported))
    assert all(frame.time_s == pytest.approx(time.time(), abs=30.0) for frame in by_arrival)


@pytest.mark.parametrize(
    ("ntp_s", "stamp"),
    [(0.0, BOGUS["right"]), (4_000_000_000.0, BOGUS["right"]), (None, BOGUS["stands still"])],
    ids=["1970", "2096", "stamps that stand still"],
)
def test_an_implausible_senders_clock_is_ignored(ntp_s, stamp):
    def ntp(n):
        if n % 10:
            return None
        return time.time() - SENT_S if ntp_s is None else ntp_s + n / 25

    taken, counts = read(frames(40, rate=RATE, ntp=ntp, stamp=stamp), clock="sender")
    assert all(frame.time_s == pytest.approx(time.time(), abs=30.0) for frame in taken[5:])
    assert counts["frames timed by arrival"] >= 35


# ------------------------------------------------------------------------------------------------------ without times


def test_a_bare_stream_has_arrival_times(tmp_path):
    """It has no timestamps, and its rate is not known."""
    path = write(tmp_path / "a.h264", frames=60, muxer="h264", options={"bf": "0", "g": "10"})
    content = path.read_bytes()
    begins = [
        at for at in range(len(content) - 4) if content[at : at + 4] == b"\0\0\0\1" and content[at + 4] & 31 in (1, 7)
    ]
    parts = [content[begin:end] for begin, end in itertools.pairwise([*begins, len(content)])]

    def body(_):
        for part in parts:
            yield part
            time.sleep(0.01)

    with http_camera(body, "video/h264") as camera:
        source = VideoSource(uri=f"{camera.url}/live")
        source.context = Context("gate")
        arrived_s = []
        times_s = []
        with contextlib.suppress(SourceError):  # the connection ends
            for frame in source.frames():
                arrived_s.append(frame.due_s)
                times_s.append(frame.pts_s)
    assert len(times_s) >= 50
    late = slice(20, None)  # FFmpeg reads the first ones ahead
    offsets_s = [pts_s - s for pts_s, s in zip(times_s[late], arrived_s[late], strict=True)]
    assert max(offsets_s) - min(offsets_s) < 0.05
