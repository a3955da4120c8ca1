"""A file that was cut is told, in every container, also where its times do not begin at 0; a whole one is not."""

import struct
from contextlib import closing
from types import SimpleNamespace

import av
import pytest
from support.clips import shifted, write
from support.clock import fake_time

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.media import integrity
from streamkit.media.integrity import ArrivalMonitor, check_integrity, lost_frames
from streamkit.media.mp4_boxes import boxes
from streamkit.media.reader import VideoReader
from streamkit.media.surfaces import SurfacePool


def count(path):
    with closing(VideoReader(str(path), Device(), SurfacePool(Device()), Counters())) as reader:
        return sum(1 for _ in reader.frames())


@pytest.mark.parametrize("shift_s", [0.0, 2.0, 3600.0])
@pytest.mark.parametrize(
    ("name", "codec", "options"),
    [
        ("a.mkv", "libx264", {}),
        ("a.webm", "libvpx-vp9", {}),
        ("a.flv", "libx264", {}),
        ("a.mp4", "libx264", {"movflags": "faststart"}),
        ("a.mov", "mjpeg", {"movflags": "faststart"}),
    ],
)
def test_truncated_files_are_reported_and_complete_ones_are_not(tmp_path, name, codec, options, shift_s):
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
    first = write(tmp_path / "first.nut", frames=100, codec=codec, pix_fmt=pix_fmt, options={"bf": "0"})
    path = shifted(tmp_path / name, first, shift_s, **options)
    assert count(path) == 100
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])
    with pytest.raises(SourceError, match=r"ends early: .*of 4\.[01] s could be read") as caught:
        count(path)
    assert caught.value.cause == "truncated"


@pytest.mark.parametrize("shift_s", [0.0, 2.0])
def test_a_truncated_avi_with_empty_frames_is_reported(tmp_path, shift_s):
    first = write(tmp_path / "first.nut", frames=100, codec="mpeg4")
    path = shifted(tmp_path / "a.avi", first, shift_s)
    assert count(path) == 100
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.index(b"idx1") * 6 // 10])
    with pytest.raises(SourceError, match="ends early") as caught:
        count(path)
    assert caught.value.cause == "truncated"


def cut_behind(path, packets):
    """Cut an mp4 whose index is at its beginning, behind so many packets."""
    with av.open(str(path)) as container:
        places = [packet.pos for packet in container.demux(video=0) if packet.size]
    path.write_bytes(path.read_bytes()[: places[packets]])


@pytest.mark.parametrize(
    ("frames", "left", "whole"),
    [
        # of what the header promises 2 % and 3 more may be missing, and half a second: it may have been written early
        (100, 99, True),
        (100, 95, True),
        (100, 94, False),
        (100, 75, False),
        (500, 488, True),
        (500, 487, True),
        (500, 486, False),
    ],
)
def test_a_file_with_too_few_of_its_promised_frames_is_truncated(tmp_path, frames, left, whole):
    path = write(tmp_path / "a.mp4", frames=frames, rate=100, options={"bf": "0", "movflags": "faststart"})
    moved = shifted(tmp_path / "b.mp4", path, 0.0, movflags="faststart")
    cut_behind(moved, left)
    if whole:
        assert count(moved) == left
        return
    with pytest.raises(SourceError) as caught:
        count(moved)
    assert caught.value.cause == "truncated"
    could_read = f"{left} of {frames} frames, {left / 100:.1f} of {frames / 100:.1f} s could be read"
    assert str(caught.value) == f"{moved} ends early: {could_read}; the file is truncated"


@pytest.mark.parametrize(("left", "whole"), [(88, True), (87, False)])
def test_a_file_without_a_frame_count_is_truncated_by_its_duration(tmp_path, left, whole):
    first = write(tmp_path / "a.mp4", frames=100, options={"bf": "0", "movflags": "faststart"})
    path = shifted(tmp_path / "b.mkv", first, 0.0)
    with av.open(str(path)) as container:
        places = [packet.pos for packet in container.demux(video=0) if packet.size]
    path.write_bytes(path.read_bytes()[: places[left]])
    if whole:
        assert count(path) == left
    else:
        with pytest.raises(SourceError, match=r"ends early: 3\.5 of 4\.0 s could be read"):
            count(path)


def two_recordings(folder):
    """Two transport streams of 50 frames each: one from 6 s to 8 s, one from 0 s to 2 s."""
    late = write(folder / "first.nut", frames=50, options={"bf": "0"})
    return shifted(folder / "late.ts", late, 6.0), shifted(folder / "early.ts", late, 0.0)


def test_a_recording_whose_clock_restarts_is_complete(tmp_path):
    late, early = two_recordings(tmp_path)
    joined = tmp_path / "joined.ts"
    joined.write_bytes(late.read_bytes() + early.read_bytes())
    assert count(joined) == 100
    playlist = tmp_path / "list.m3u8"
    playlist.write_text(
        "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nlate.ts\n#EXT-X-DISCONTINUITY\n"
        "#EXTINF:2,\nearly.ts\n#EXT-X-ENDLIST\n"
    )
    assert count(playlist) == 100


def test_a_truncated_playlist_with_a_discontinuity_is_reported(tmp_path):
    two_recordings(tmp_path)
    playlist = tmp_path / "list.m3u8"
    playlist.write_text(
        "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:4\n#EXTINF:2,\nlate.ts\n#EXT-X-DISCONTINUITY\n"
        "#EXTINF:4,\nearly.ts\n#EXT-X-ENDLIST\n"
    )
    with pytest.raises(SourceError, match=r"ends early: 4\.0 of 6\.0 s could be read"):
        count(playlist)


@pytest.fixture
def fragments(tmp_path):
    """The header of a fragmented MP4 that states 10 s, and its four fragments of a second."""
    options = {"bf": "0", "g": "25", "sc_threshold": "0"}
    first = write(tmp_path / "first.nut", frames=100, options=options)
    path = shifted(tmp_path / "whole.mp4", first, 0.0, movflags="frag_keyframe+empty_moov+default_base_moof")
    content = bytearray(path.read_bytes())
    for kind in (b"mvhd", b"mdhd"):
        at = content.index(kind)
        (ticks_per_s,) = struct.unpack_from(">I", content, at + 16)
        struct.pack_into(">I", content, at + 20, 10 * ticks_per_s)
    parts = [bytes(content[box.start : box.end]) for box in boxes(lambda a, b: bytes(content[a:b]), len(content))]
    kinds = [part[4:8] for part in parts]
    begins = [place for place, kind in enumerate(kinds) if kind == b"moof"]
    assert len(begins) == 4
    return b"".join(parts[: begins[0]]), [parts[place] + parts[place + 1] for place in begins]


def test_some_fragments_of_a_video_are_complete_despite_its_header(tmp_path, fragments):
    header, parts = fragments
    for numbers, frames in (([2], 25), ([0, 1, 2, 3], 100), ([1, 3], 50)):
        path = tmp_path / "segment.mp4"
        path.write_bytes(header + b"".join(parts[number] for number in numbers))
        assert count(path) == frames


def test_a_truncated_fragmented_video_is_reported(tmp_path, fragments):
    header, parts = fragments
    path = tmp_path / "cut.mp4"
    path.write_bytes((header + b"".join(parts))[: -len(parts[3]) // 2])
    with pytest.raises(SourceError) as caught:
        count(path)
    assert caught.value.cause == "truncated"
    with path.open("rb") as file, pytest.raises(SourceError, match="ends early"):
        read_file(file)


def read_file(file):
    reader = VideoReader("s3://bucket/cut.mp4", Device(), SurfacePool(Device()), Counters(), file=file)
    with closing(reader):
        return sum(1 for _ in reader.frames())


@pytest.fixture
def clock(monkeypatch):
    return fake_time(monkeypatch, integrity, now_s=3.0)


def started_monitor(timeout_s):
    return ArrivalMonitor("rtsp://ann:secret@host/a", timeout_s)


def lasts_s(monitor, clock, *, keyframes=(), many=31):
    """Seconds until the source is given up: `many` packets at once, then one every half second."""
    start_s = clock.now_s
    for number in range(1000):
        clock.now_s = start_s + 0.5 * max(0, number - many + 1)
        try:
            monitor.packet(number, number in keyframes)
        except SourceError as error:
            return clock.now_s - start_s, str(error), error.cause
    raise AssertionError("it is never given up")


def test_a_source_without_frames_times_out(clock):
    after_s, reason, cause = lasts_s(started_monitor(5.0), clock, keyframes=[0, 40])
    assert cause == "codec"
    assert after_s == 5.5, "at 5 s exactly it is not yet too long, and a second keyframe gives no more time"
    assert reason == "rtsp://ann:***@host/a: packets arrive, but no frame could be decoded in 5 s"


def test_joining_between_keyframes_waits_up_to_a_minute(clock):
    after_s, reason, _ = lasts_s(started_monitor(5.0), clock)
    assert after_s == 60.5
    assert reason.endswith("in 60 s")
    assert lasts_s(started_monitor(90.0), clock)[0] == 90.5, "or the timeout, where that is longer"


def test_the_timeout_counts_from_the_first_keyframe(clock):
    """It comes after 5 s, and another one 2.5 s later."""
    assert lasts_s(started_monitor(20.0), clock, keyframes=[40, 45])[0] == 25.5


def test_the_timeout_needs_more_packets_than_a_decoder_buffers(clock):
    monitor = started_monitor(5.0)
    for number in range(30):
        clock.now_s += 100.0
        monitor.packet(number, number == 0)
    with pytest.raises(SourceError, match="no frame could be decoded"):
        monitor.packet(30, False)
    monitor.frame_decoded()
    clock.now_s += 100.0
    for number in range(30):
        monitor.packet(number, False)  # a frame came: all is counted from there


def test_the_arrival_time_of_the_last_packets_is_available(clock):
    monitor = started_monitor(5.0)
    for number in range(100):
        clock.now_s = 1000.0 + number
        monitor.packet(number, False)
        monitor.frame_decoded()
    assert monitor.arrival_s(99) == 1099.0
    assert monitor.arrival_s(71) == 1071.0, "the last 29 packets are known"
    assert monitor.arrival_s(70) == 1099.0, "of older ones only the newest packet's time"
    assert monitor.arrival_s(71) == 1099.0, "each frame is asked for once"
    assert monitor.arrival_s(12345) == 1099.0


def demuxer_at_end(
    *,
    codec="h264",
    frames=None,
    duration_s=None,
    start_s=0.0,
    live=False,
    packets=100,
    discarded=0,
    damaged=0,
    container="matroska,webm",
    uri="/videos/a.mp4",
    covered_s=None,
):
    """A demuxer at its end: what its header says, and what was read. The packets reach to `covered_s`."""
    info = SimpleNamespace(codec=codec, frames=frames, duration_s=duration_s, start_s=start_s, live=live)
    form = SimpleNamespace(format=SimpleNamespace(name=container))
    return SimpleNamespace(
        info=info,
        uri=uri,
        packets_read=packets,
        discarded=discarded,
        damaged=damaged,
        container=form,
        stream=SimpleNamespace(time_base=0.01),
        covered_ticks=None if covered_s is None else round(covered_s * 100),
    )


def trouble(demuxer, last_s=3.96, shown=100, damage=0, *, whole=True, step_s=0.04):
    """The cause and text of what is raised; None where nothing is."""
    try:
        check_integrity(demuxer, last_s, shown, damage, whole=whole, step_s=step_s)
    except SourceError as error:
        return error.cause, str(error).removeprefix(f"{demuxer.uri}").strip(": ")
    return None


@pytest.mark.parametrize(
    ("counts", "shown", "expected"),
    [
        ({"frames": 100}, 100, 0),
        ({"frames": 100}, 97, 3),
        ({"frames": 100, "discarded": 2}, 97, 1),
        ({"frames": 100, "discarded": 5}, 97, 0),  # never below zero
        ({"frames": 101}, 97, 0),  # not demuxer_at_end whole: a file that was cut is another matter
        ({"frames": 99}, 97, 0),
        ({"frames": None}, 97, 0),
        ({"frames": 100, "codec": "hevc"}, 97, 3),
        ({"frames": 100, "codec": "av1"}, 97, 3),
        ({"frames": 100, "codec": "vp9"}, 97, 3),
        ({"frames": 100, "codec": "mpeg4"}, 97, 0),  # a packet may show none
    ],
)
def test_lost_frames_are_counted(counts, shown, expected):
    assert lost_frames(demuxer_at_end(**counts), shown) == expected


@pytest.mark.parametrize(
    ("counts", "how", "expected"),
    [
        ({"duration_s": 4.0}, {}, None),
        # half a second may be missing, or three frames
        ({"duration_s": 4.0}, {"last_s": 3.5}, None),
        ({"duration_s": 4.0}, {"last_s": 3.44}, ("truncated", "3.5 of 4.0 s")),
        ({"duration_s": 40.0}, {"last_s": 36.0, "step_s": 1.0}, None),
        ({"duration_s": 40.0}, {"last_s": 35.75, "step_s": 1.0}, ("truncated", "36.8 of 40.0 s")),
        # measured from where the video begins
        ({"duration_s": 4.0, "start_s": 10.0}, {"last_s": 13.96}, None),
        ({"duration_s": 4.0, "start_s": 10.0}, {"last_s": 4.0}, ("truncated", "-6.0 of 4.0 s")),
        ({"duration_s": 4.0, "live": True}, {"last_s": 1.0, "damage": 5}, None),
        # a clock that restarts: what the packets cover counts
        ({"duration_s": 4.0, "container": "mpegts", "covered_s": 3.96}, {"last_s": 1.96}, None),
        ({"duration_s": 4.0, "container": "mpegts", "covered_s": 3.0}, {"last_s": 1.96}, ("truncated", "3.0 of 4.0 s")),
        # all that the header promises was read: the times are wrong, and nothing is missing
        ({"duration_s": 4.0, "frames": 100}, {"last_s": 2.0}, None),
        ({"duration_s": 4.0, "frames": 101}, {"last_s": 2.0}, ("truncated", "100 of 101 frames, 2.0 of 4.0 s")),
        # 2 % of the frames that are promised and three more may be missing
        ({"frames": 100, "packets": 95}, {}, None),
        ({"frames": 100, "packets": 94}, {"shown": 94}, ("truncated", "94 of 100 frames, 4.0 s")),
        ({"frames": 1000, "packets": 977}, {}, None),
        ({"frames": 1000, "packets": 976}, {"shown": 976}, ("truncated", "976 of 1000 frames, 4.0 s")),
        # of a part of the video no frames are promised
        ({"frames": 200}, {}, ("truncated", "100 of 200 frames, 4.0 s")),
        ({"frames": 200}, {"whole": False}, None),
        ({"duration_s": 9.0, "frames": 100}, {"whole": False}, ("truncated", "4.0 of 9.0 s")),
        # AVI counts places, of which any may be empty
        ({"frames": 200, "container": "avi"}, {}, None),
    ],
)
def test_videos_that_end_early_are_recognized(counts, how, expected):
    error = trouble(demuxer_at_end(**counts), **how)
    if expected is None:
        assert error is None
    else:
        assert error == (expected[0], f"ends early: {expected[1]} could be read; the file is truncated")


@pytest.mark.parametrize(
    ("by_decoder", "by_demuxer", "message"),
    [
        (0, 0, None),
        (1, 0, "1 frame was"),
        (0, 1, "1 frame was"),
        (1, 1, "1 frame was"),
        (2, 3, "3 frames were"),
        (3, 2, "3 frames were"),
        (1234, 0, "1,234 frames were"),
    ],
)
def test_damage_seen_by_either_check_is_reported_once(by_decoder, by_demuxer, message):
    demuxer = demuxer_at_end(damaged=by_demuxer)
    if message is None:
        assert trouble(demuxer, damage=by_decoder) is None
        return
    with pytest.raises(SourceError, match=f"is damaged: {message} lost or concealed") as caught:
        check_integrity(demuxer, 3.96, 100, by_decoder, whole=True, step_s=0.04)
    assert caught.value.cause == "damaged"
    assert caught.value.damaged == max(by_decoder, by_demuxer)


@pytest.mark.parametrize(
    ("counts", "cause"),
    [
        ({"packets": 5}, "damaged"),
        ({"packets": 0, "frames": 10}, "truncated"),
        ({"packets": 0, "duration_s": 4.0}, "truncated"),
        ({"packets": 0}, "empty"),
        ({"packets": 5, "uri": "http://host/a.mp4"}, None),
    ],
)
def test_a_video_without_a_decoded_frame_is_an_error(counts, cause):
    with pytest.raises(SourceError, match="no frame could be decoded") as caught:
        check_integrity(demuxer_at_end(**counts), None, 0, 0, whole=True, step_s=0.04)
    assert caught.value.cause == cause
    check_integrity(demuxer_at_end(**counts), None, 0, 0, whole=False, step_s=0.04)  # a part may hold none
