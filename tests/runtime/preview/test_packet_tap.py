"""The packets of a source on their way to viewers: when a video starts, goes on and starts again, and what it costs."""

import io

import av
import pytest
from support import clips, coded
from support.clock import FakeClock
from support.messages import collect

from streamkit.media.ring import PacketRing
from streamkit.runtime.preview.live import MAX_WAITING, LiveFragment, LiveOffset, LiveStart
from streamkit.runtime.preview.packet_tap import PacketTap


class Live:
    """A hub that keeps what comes; `generation` is what viewers want."""

    def __init__(self, generation=0):
        self.generation = generation
        self.received = []

    def viewed(self, source):
        assert source == "gate"
        return self.generation

    def attach(self, source, packets):
        assert source == "gate"
        self.packets = packets

    def make_video(self):
        messages, lost = self.packets.make_video()
        self.received += messages
        return lost

    def of(self, kind):
        return [message for message in self.received if isinstance(message, kind)]

    def pictures(self):
        """The media time and the number of each frame since the last start."""
        last = max(place for place, message in enumerate(self.received) if isinstance(message, LiveStart))
        data = self.received[last].init + b"".join(
            message.data for message in self.received[last:] if isinstance(message, LiveFragment)
        )
        with av.open(io.BytesIO(data)) as video:
            return [
                (round(frame.time, 4), coded.number_of(frame.to_ndarray(format="rgb24")))
                for frame in video.decode(video=0)
            ]


@pytest.fixture(name="path")
def path_fixture(tmp_path):
    return coded.clip(tmp_path / "clip.mp4", 40)


def play(tap, path, *, frames=40, shift_s=0.0, live=False, blank=0):
    """Pass a clip's packets as its source does; the first `blank` have no times, as a camera's.

    Video is made every ten packets.
    """
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        tap.begin(stream, live=live)
        for number, packet in enumerate(chunk for chunk in container.demux(stream) if chunk.size):
            if number == frames:
                break
            pts_s = float(packet.pts * stream.time_base)
            if number < blank:
                packet.pts = packet.dts = None
            tap.put(packet)
            tap.packet_ref(pts_s)
            tap.passed(pts_s + shift_s)
            if number % 10 == 0:
                tap._live.make_video()
    tap._live.make_video()


def test_nothing_is_produced_or_stored_without_a_viewer(path):
    live = Live()
    tap = PacketTap("gate", live)
    play(tap, path)
    assert live.received == []
    assert not len(tap._waiting)
    live.generation = 1
    play(tap, path, frames=15)
    assert live.of(LiveFragment)
    live.generation = 0
    play(tap, path, frames=1)
    assert not len(tap._waiting)
    assert tap._video._muxer is None


def test_a_video_starts_at_the_next_keyframe_with_record_times(path):
    live = Live()
    tap = PacketTap("gate", live)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        tap.begin(stream)
        for number, packet in enumerate(chunk for chunk in container.demux(stream) if chunk.size):
            live.generation = int(number >= 13)
            tap.put(packet)
            tap.packet_ref(number / 25)
            tap.passed(number / 25 + 100)
            live.make_video()
    (start,) = live.of(LiveStart)
    assert (start.generation, start.width, start.height) == (1, coded.WIDTH, coded.HEIGHT)
    assert start.offset_s == pytest.approx(100 + 20 / 25, abs=1e-4)
    assert live.of(LiveOffset) == []
    assert live.pictures() == [(round((number - 20) / 25, 4), number) for number in range(20, 39)]


def watched_from(path, viewed, *, step_s, frames=40, reconnects=()):
    """What viewers get who watch at the frames in `viewed`, by generation; a frame comes each `step_s` seconds."""
    live = Live()
    clock = FakeClock()
    tap = PacketTap("gate", live, clock=clock)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        tap.begin(stream)
        for number, packet in enumerate(chunk for chunk in container.demux(stream) if chunk.size):
            if number == frames:
                break
            if number in reconnects:
                tap.begin(stream)
            live.generation = viewed.get(number, 0)
            tap.put(packet)
            tap.packet_ref(number / 25)
            tap.passed(number / 25 + 100)
            clock.now_s += step_s
            live.make_video()
    return live


@pytest.mark.parametrize("step_s", [0.25, 0.35, 5.0])
def test_a_viewer_of_a_slow_source_does_not_wait_for_its_next_keyframe(path, step_s):
    live = watched_from(path, dict.fromkeys(range(26, 40), 1), step_s=step_s)
    (start,) = live.of(LiveStart)
    first = 30 if step_s == 0.25 else 20  # a keyframe in 2.5 s, or more than 3 s
    assert live.pictures() == [(round((number - first) / 25, 4), number) for number in range(first, 39)]
    assert start.offset_s == pytest.approx(100 + first / 25, abs=1e-4)
    assert live.of(LiveOffset) == []


@pytest.mark.parametrize("gap", [True, False])
def test_a_later_viewer_of_a_slow_source_does_not_wait(path, gap):
    viewed = {**dict.fromkeys(range(22, 25), 1), **dict.fromkeys(range(28 if gap else 25, 40), 2)}
    live = watched_from(path, viewed, step_s=1.0)
    first, second = live.of(LiveStart)
    assert first.offset_s == second.offset_s == pytest.approx(100 + 20 / 25, abs=1e-4)
    assert live.pictures() == [(round((number - 20) / 25, 4), number) for number in range(20, 39)]


def test_packets_of_another_connection_are_not_sent(path):
    live = watched_from(path, dict.fromkeys(range(26, 40), 1), step_s=1.0, reconnects=[25])
    assert live.pictures()[0] == (0.0, 30)


def test_an_oversized_gop_of_a_slow_source_is_not_stored(tmp_path):
    path = coded.clip(tmp_path / "long.mp4", 200, gop=90)
    for first_viewed, first_seen in ((155, 180), (120, 90)):
        live = watched_from(path, dict.fromkeys(range(first_viewed, 200), 1), step_s=1.0, frames=200)
        assert live.pictures()[0] == (0.0, first_seen)


def test_record_times_of_the_first_viewer_start_with_the_first_frame(path):
    live = Live(1)
    play(PacketTap("gate", live), path, shift_s=7.5)
    assert live.of(LiveStart)[0].offset_s is None
    assert live.of(LiveOffset) == [LiveOffset(0.0, 7.5)]


def test_the_video_continues_over_a_loop_and_sends_the_new_offset(path):
    live = Live(1)
    tap = PacketTap("gate", live)
    play(tap, path)
    play(tap, path, shift_s=1.7)  # the frames' clock goes on a little later than the packets'
    assert len(live.of(LiveStart)) == 1
    assert live.of(LiveOffset) == [LiveOffset(0.0, 0.0), LiveOffset(1.6, pytest.approx(0.1, abs=1e-4))]
    shown = live.pictures()
    assert [number for _, number in shown] == [*range(40), *range(39)]
    assert [time for time, _ in shown] == pytest.approx([number / 25 for number in range(79)], abs=1e-3)


def test_a_connection_starts_at_a_keyframe(path, tmp_path):
    live = Live(1)
    tap = PacketTap("gate", live)
    play(tap, path, frames=5)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        tap.begin(stream, live=True)
        for packet in [chunk for chunk in container.demux(stream) if chunk.size][7:]:
            tap.put(packet)
    live.make_video()
    assert [number for _, number in live.pictures()] == [*range(5), *range(10, 39)]


def test_first_packets_without_timestamps_get_their_times(path):
    live = Live(1)
    play(PacketTap("gate", live), path, blank=2, shift_s=3.0)
    assert live.pictures()[:5] == [(0.0, 0), (0.04, 1), (0.08, 2), (0.12, 3), (0.16, 4)]
    assert live.of(LiveStart)[0].offset_s == pytest.approx(3.0, abs=1e-3)
    assert live.of(LiveOffset) == []


def test_another_format_or_generation_starts_a_new_video(path, tmp_path):
    wide = coded.clip(tmp_path / "wide.mp4", 20, size=(400, 240))
    live = Live(1)
    tap = PacketTap("gate", live)
    play(tap, path)
    play(tap, wide)
    assert [(start.generation, start.width) for start in live.of(LiveStart)] == [(1, 320), (1, 400)]
    live.generation = 2
    play(tap, wide)
    assert [(start.generation, start.width) for start in live.of(LiveStart)] == [(1, 320), (1, 400), (2, 400)]
    assert live.pictures()[0] == (0.0, 0)


def test_the_video_restarts_after_a_time_without_viewers(path):
    live = Live(1)
    tap = PacketTap("gate", live)
    play(tap, path, frames=15)
    live.generation = 0
    play(tap, path, frames=15)
    live.generation = 2
    play(tap, path)
    assert [start.generation for start in live.of(LiveStart)] == [1, 2]


def test_an_unplayable_codec_is_reported_once(tmp_path):
    live = Live(1)
    logged = collect()
    play(PacketTap("gate", live), clips.write(tmp_path / "a.avi", codec="mpeg4", frames=10), frames=10)
    assert live.received == [LiveStart(1, error="browsers play h264 and hevc in pieces, and this is mpeg4")]
    assert logged == ["source gate cannot be shown as video: browsers play h264 and hevc in pieces, and this is mpeg4"]


def test_packets_also_reach_the_ring_buffer(path):
    live = Live(1)
    ring = PacketRing(("clip",), limit_bytes=1 << 20)
    tap = PacketTap("gate", live, ring)
    play(tap, path)
    assert len(ring.packets(0, 99)) == 40
    assert tap.packet_ref(20 / 25) == (ring, 20)
    assert PacketTap("gate", live).packet_ref(1.0) is None


def test_waiting_packets_are_limited_and_resume_at_a_keyframe(path):
    live = Live(1)
    tap = PacketTap("gate", live)
    play(tap, path, frames=5)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        for turn in range(20):
            tap.begin(stream)
            for number, packet in enumerate(packets):
                tap.put(packet)
                tap.packet_ref(number / 25)
                tap.passed(number / 25 + turn + number)  # a clock that is never right
        assert len(tap._waiting) <= 3 * MAX_WAITING
        lost = live.make_video()
    assert lost >= 20 * 40 - MAX_WAITING
    shown = live.pictures()
    assert [number for _, number in shown[:5]] == list(range(5))
    assert shown[5][1] % 10 == 0
    assert len(shown) <= 5 + MAX_WAITING
    times = [time for time, _ in shown]
    assert times == sorted(set(times))


def test_a_clock_change_of_the_camera_updates_record_times(path):
    live = Live(1)
    tap = PacketTap("gate", live)
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        tap.begin(stream)
        for number, packet in enumerate(chunk for chunk in container.demux(stream) if chunk.size):
            back = round(5 / stream.time_base) if number < 20 else 0
            packet.pts = packet.pts + back
            packet.dts = packet.dts + back
            pts_s = float(packet.pts * stream.time_base)
            tap.put(packet)
            tap.packet_ref(pts_s)
            tap.passed(pts_s + 7)
    live.make_video()
    assert live.of(LiveOffset) == [LiveOffset(0.0, 12.0), LiveOffset(0.8, 7.0)]
