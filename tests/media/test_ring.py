import io
import threading
from itertools import pairwise

import av
import pytest
from support.clips import write

from streamkit.media.ring import TICKS_PER_S, PacketRing, StreamFormat


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """50 frames, 25 a second, a keyframe every 10, B frames."""
    folder = tmp_path_factory.mktemp("clips")
    return write(folder / "a.mp4", frames=50, options={"g": "10", "bf": "2", "sc_threshold": "0"})


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return write(tmp_path_factory.mktemp("clips") / "b.mp4", 96, 80, frames=10)


def fill(ring, path, live=False):
    """Put every packet; return their pts in seconds, as the container has them."""
    with av.open(str(path)) as source:
        stream = source.streams.video[0]
        ring.begin(stream, live=live)
        times = []
        for packet in source.demux(stream):
            if packet.size:
                ring.put(packet)
                times.append(float(packet.pts * packet.time_base))
    return times


def ring(*readers, limit=1 << 30):
    return PacketRing(readers or ("record",), limit_bytes=limit, guard=threading.Lock())


def test_packets_are_stored_unchanged(clip):
    packet_ring = ring()
    fill(packet_ring, clip)
    with av.open(str(clip)) as source:
        packets = [p for p in source.demux(video=0) if p.size]
        packets_of_ring = packet_ring.packets(0, 99)
        assert [k.data for k in packets_of_ring] == [bytes(p) for p in packets]
        zero = packets[0].dts
        base = packets[0].time_base
        assert [k.pts / TICKS_PER_S for k in packets_of_ring] == [float((p.pts - zero) * base) for p in packets]
        assert [k.dts / TICKS_PER_S for k in packets_of_ring] == [float((p.dts - zero) * base) for p in packets]
    assert [k.number for k in packets_of_ring] == list(range(50))
    assert [k.number for k in packets_of_ring if k.keyframe] == [0, 10, 20, 30, 40]
    assert packet_ring.size_bytes == sum(len(k.data) for k in packets_of_ring)


def test_later_changes_of_a_packet_are_not_visible(clip):
    packet_ring = ring()
    with av.open(str(clip)) as source:
        stream = source.streams.video[0]
        packet_ring.begin(stream)
        packet = next(p for p in source.demux(stream) if p.size)
        before = bytes(packet)
        packet_ring.put(packet)
        packet.update(b"\0" * len(before))
    assert packet_ring.get(0).data == before


def test_the_position_of_a_frame_is_its_packet(clip):
    packet_ring = ring()
    times = fill(packet_ring, clip)
    for number, pts_s in enumerate(times):
        assert packet_ring.packet_ref(pts_s) == (packet_ring, number)
    assert packet_ring.packet_ref(999.0).number == 49, "the newest, where none has that time"


@pytest.mark.parametrize(
    ("number", "before_s", "keyframe"),
    [(49, 0, 40), (49, 0.5, 30), (45, 0.4, 30), (40, 0, 40), (39, 0, 30), (25, 0.08, 20), (25, 99, 0), (0, 0, 0)],
)
def test_the_previous_keyframe_is_located(clip, number, before_s, keyframe):
    packet_ring = ring()
    fill(packet_ring, clip)
    packet = packet_ring.get(number)
    assert packet_ring.keyframe_before(number, round(before_s * TICKS_PER_S)) == keyframe
    if before_s < 99:
        assert packet_ring.get(keyframe).pts <= packet.pts - before_s * TICKS_PER_S


def test_packets_are_removed_once_every_reader_released_them(clip):
    packet_ring = ring("a", "b")
    fill(packet_ring, clip)
    packet_ring.release("a", 30)
    assert packet_ring.get(0) is not None
    packet_ring.release("b", 12)
    assert packet_ring.get(11) is None
    assert packet_ring.packets(0, 99)[0].number == 12
    assert packet_ring.keyframe_before(15) is None, "the keyframe before has gone"
    assert packet_ring.keyframe_before(25) == 20
    packet_ring.release("b", 5)  # what has gone stays gone
    packet_ring.remove_reader("b")
    assert packet_ring.get(29) is None
    assert packet_ring.get(30) is not None
    packet_ring.remove_reader("a")
    assert (packet_ring.size_bytes, packet_ring.packets(0, 99), packet_ring.lost) == (0, [], 0)


def test_nothing_is_stored_without_readers(clip):
    packet_ring = ring("a")
    packet_ring.remove_reader("a")
    times = fill(packet_ring, clip)
    assert packet_ring.size_bytes == 0
    assert packet_ring.packet_ref(times[-1]).number == 49


def test_the_bytes_are_bounded_and_lost_packets_counted(clip):
    packet_ring = ring(limit=5_000)
    fill(packet_ring, clip)
    assert packet_ring.size_bytes <= 5_000
    assert packet_ring.lost == 50 - len(packet_ring.packets(0, 99)) > 0
    assert packet_ring.get(49) is not None


def test_time_continues_over_loops(clip):
    packet_ring = ring()
    for _ in range(3):
        times = fill(packet_ring, clip)
    packets = packet_ring.packets(0, 999)
    steps = {b.dts - a.dts for a, b in pairwise(packets)}
    assert steps == {TICKS_PER_S // 25}
    assert sorted(k.pts for k in packets) == [packets[0].pts + i * TICKS_PER_S // 25 for i in range(150)]
    assert len({id(k.stream_format) for k in packets}) == 1, "the same stream, the same form"
    assert packet_ring.packet_ref(times[3]).number == 103, "the newest turn's"


def test_an_outage_of_a_live_source_is_a_gap(clip, monkeypatch):
    from streamkit.media import monotonic_timestamps as module

    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    packet_ring = ring()
    fill(packet_ring, clip, live=True)
    now[0] += 30
    fill(packet_ring, clip, live=True)
    packets = packet_ring.packets(0, 999)
    assert (packets[50].dts - packets[49].dts) / TICKS_PER_S == 30


def test_a_clock_change_keeps_time_continuous(clip, monkeypatch):
    packet_ring = ring()
    with av.open(str(clip)) as source:
        stream = source.streams.video[0]
        packet_ring.begin(stream, live=True)
        for i, packet in enumerate(p for p in source.demux(stream) if p.size):
            ahead = {20: 3600, 30: -3600}.get(i // 10 * 10, 0)
            shift = round(ahead / packet.time_base)
            packet.pts = packet.pts + shift
            packet.dts = packet.dts + shift
            packet_ring.put(packet)
    packets = packet_ring.packets(0, 99)
    steps = [(b.dts - a.dts) / TICKS_PER_S for a, b in pairwise(packets)]
    assert min(steps) > 0
    assert max(steps) < 1


def test_packets_without_times_or_with_small_steps_back_are_stored(clip):
    packet_ring = ring()
    with av.open(str(clip)) as source:
        stream = source.streams.video[0]
        packet_ring.begin(stream)
        for i, packet in enumerate(p for p in source.demux(stream) if p.size):
            if i == 5:
                packet.pts = packet.dts = None
            if i == 7:
                packet.dts -= round(0.1 / packet.time_base)
            packet_ring.put(packet)
    packets = packet_ring.packets(0, 99)
    assert all(b.dts > a.dts for a, b in pairwise(packets))
    assert all(k.pts >= k.dts for k in packets)


def test_another_stream_starts_a_new_format(clip, other):
    packet_ring = ring()
    fill(packet_ring, clip)
    fill(packet_ring, other)
    packets = packet_ring.packets(0, 99)
    assert packets[49].stream_format != packets[50].stream_format
    assert hash(packets[0].stream_format) == hash(packets[49].stream_format)


def test_a_format_outlives_its_stream(clip):
    with av.open(str(clip)) as source:
        form = StreamFormat(source.streams.video[0])
        extradata = source.streams.video[0].codec_context.extradata
    with av.open(io.BytesIO(), "w", format="mp4") as output:
        copied = form.add_to(output)
        assert (copied.width, copied.height) == (64, 48)
    with av.open(str(clip)) as source:
        assert StreamFormat(source.streams.video[0]) == form
    assert extradata


@pytest.mark.parametrize("bf", ["0", "2"])
def test_first_packets_without_times_are_stored(tmp_path, bf):
    """FFmpeg gives an RTSP stream's first packets no decoding time, and its first one no time at all."""
    path = write(tmp_path / "a.mp4", frames=30, options={"g": "30", "bf": bf})
    whole = ring()
    camera = ring()
    fill(whole, path)
    with av.open(str(path)) as source:
        stream = source.streams.video[0]
        camera.begin(stream, live=True)
        for i, packet in enumerate(p for p in source.demux(stream) if p.size):
            if i < (1 if bf == "0" else 2):
                packet.dts = None
            if i == 0:
                packet.pts = None
            camera.put(packet)
    assert [k.pts - camera.get(0).pts for k in camera.packets(0, 99)] == [
        k.pts - whole.get(0).pts for k in whole.packets(0, 99)
    ]
    assert [k.dts for k in camera.packets(0, 99)] == [k.dts for k in whole.packets(0, 99)]
    assert all(k.pts >= k.dts for k in camera.packets(0, 99))


def test_a_stream_without_decoding_times_is_stored(clip):
    packet_ring = ring()
    with av.open(str(clip)) as source:
        stream = source.streams.video[0]
        packet_ring.begin(stream, live=True)
        for packet in source.demux(stream):
            if packet.size:
                packet.dts = None
                packet_ring.put(packet)
    packets = packet_ring.packets(0, 99)
    assert len(packets) == 50
    assert all(b.dts > a.dts for a, b in pairwise(packets))
    assert all(k.pts >= k.dts for k in packets)


def test_the_newest_packet_stays_at_any_size(clip):
    packet_ring = ring(limit=1)
    fill(packet_ring, clip)
    assert [packet.number for packet in packet_ring.packets(0, 99)] == [49]
    assert packet_ring.lost == 49


def test_the_keyframe_at_or_before_a_packet_is_located(clip):
    packet_ring = ring()
    fill(packet_ring, clip)
    assert [packet_ring.keyframe_before(number) for number in (9, 10, 11, 49)] == [0, 10, 10, 40]


def untimed(packet):
    """A camera's first packets have no times."""
    packet.pts = packet.dts = None
    return packet


def test_packets_waiting_for_times_are_dropped_with_their_connection(clip):
    buffer = ring()
    fill(buffer, clip, live=True)
    with av.open(str(clip)) as source:
        stream = source.streams.video[0]
        buffer.begin(stream, live=True)
        packets = (packet for packet in source.demux(stream) if packet.size)
        for waiting in (1, 2):
            buffer.put(untimed(next(packets)))
            assert buffer.packet_ref(999.0).number == 49 + waiting, "the newest packet, which has no time yet"
    times_s = fill(buffer, clip, live=True)
    assert [packet.number for packet in buffer.packets(0, 999)] == list(range(100))
    assert [buffer.packet_ref(pts_s).number for pts_s in times_s] == list(range(50, 100))
    assert buffer.get(50).data == buffer.get(0).data


def test_a_late_release_does_not_restore_a_removed_reader(clip):
    buffer = ring("record", "stream")
    fill(buffer, clip)
    buffer.remove_reader("record")
    buffer.release("record", 3)
    assert len(buffer.packets(0, 99)) == 50, "the other reader needs them"
    buffer.release("stream", 50)
    assert buffer.packets(0, 99) == []
    buffer.remove_reader("stream")
    buffer.release("stream", 10)
    fill(buffer, clip)
    assert buffer.packets(0, 999) == []
    assert buffer.size_bytes == 0
