"""Segments that another process reads and cuts are those that this one would make."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import av
import numpy as np
import pytest
from support.clips import X264, X265, write
from support.messages import collect

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.media.demux import Demuxer
from streamkit.media.gop_segments import SegmentCutter
from streamkit.media.reader import VideoReader, reads_in_subprocess
from streamkit.media.received_packet import ReceivedPacket
from streamkit.media.segment_transfer import ReceivedSegments, read_segments
from streamkit.media.surfaces import SurfacePool
from streamkit.runtime.execution.ordered_executor import ThreadedExecutor
from streamkit.runtime.multiprocess.child_generator import ChildGenerator

CPU = Device()
FIELDS = ("pts", "dts", "size", "is_keyframe", "is_discard", "is_corrupt")


class Here:
    """The generator runs in this process; it can be cut off after some messages."""

    ended = "was killed by SIGKILL"

    def __init__(self, path, messages=10**6):
        self._sent: list[bytes] = []
        self._messages = read_segments(self._requests(), str(path), None)
        self._left = messages

    def _requests(self) -> Iterator[bytes]:
        while self._sent:
            yield self._sent.pop()

    def send(self, request):
        self._sent.append(request)

    def receive(self):
        self._left -= 1
        message = next(self._messages, None) if self._left >= 0 else None
        return None if message is None else memoryview(bytearray(message))

    def stop(self):
        self._left = 0


def flat(segments):
    """All segments: their starts, and their packets as tuples, each with its bytes; and those of the rest."""

    def packet(sent, hidden):
        data = sent.data if isinstance(sent, ReceivedPacket) else sent
        side = getattr(sent, "extradata", None)
        if side is None:
            side = bytes(sent.get_sidedata("new_extradata")) if sent.has_sidedata("new_extradata") else b""
        return tuple(getattr(sent, name) for name in FIELDS), hidden, bytes(data), side

    return [
        (
            segment.start,
            [packet(*segment_packet) for segment_packet in segment.packets],
            [packet(rest_packet, False) for rest_packet in segment.rest],
        )
        for segment in segments
    ]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("open.mp4", {"options": X264}),
        ("open.mkv", {"codec": "libx265", "options": X265}),
        ("closed.mkv", {"options": {"g": "10", "bf": "2"}}),
        ("one.mp4", {"options": {"g": "1000"}}),
        ("bare.h264", {"muxer": "h264", "options": {"g": "10"}}),
        ("vfr.mkv", {"options": {"g": "10", "bf": "2"}, "ticks": [n * n + 7 * n for n in range(200)]}),
    ],
)
def test_received_segments_equal_those_cut_in_this_process(tmp_path, name, options):
    path = write(tmp_path / name, 64, 48, 200, **options)
    demuxer = Demuxer(str(path))
    other = Demuxer(str(path))
    reasons = []
    received_reasons = []
    expected = flat(SegmentCutter(demuxer.packets(), demuxer, reasons.append))
    segments = ReceivedSegments(Here(path), other, received_reasons.append)
    assert not segments.ended
    assert flat(segments) == expected
    assert segments.ended
    assert received_reasons == reasons
    assert sum(len(packets) for _, packets, _ in expected) + sum(len(rest) for *_, rest in expected) >= 200
    for count in ("packets_read", "discarded", "damaged"):
        assert getattr(other, count) == getattr(demuxer, count)
    segments.raise_error()
    demuxer.close()
    other.close()


def test_real_videos_are_transferred(test_data):
    for name in ("codec/discard_first_keyframe.mp4", "codec/nasa_13013.mp4", "vtest_480x360.mp4"):
        demuxer = Demuxer(str(test_data / "videos" / name))
        expected = flat(SegmentCutter(demuxer.packets(), demuxer, lambda _: None))
        assert flat(ReceivedSegments(Here(test_data / "videos" / name), demuxer, lambda _: None)) == expected
        demuxer.close()


def test_the_error_that_ended_the_file_is_raised_last(tmp_path, monkeypatch):
    path = write(tmp_path / "a.mp4", frames=200, options={"g": "10"})
    packets = Demuxer.packets

    def broken(self):
        for number, packet in enumerate(packets(self)):
            if number == 95:
                raise SourceError("cannot be read further", cause="damaged", damaged=3)
            yield packet

    monkeypatch.setattr(Demuxer, "packets", broken)
    demuxer = Demuxer(str(path))
    segments = ReceivedSegments(Here(path), demuxer, pytest.fail)
    assert sum(len(packets) for _, packets, _ in flat(segments)) == 95
    with pytest.raises(SourceError, match="cannot be read further") as raised:
        segments.raise_error()
    assert (raised.value.cause, raised.value.damaged) == ("damaged", 3)
    demuxer.close()


def test_a_removed_file_is_reported(tmp_path):
    path = write(tmp_path / "a.mp4", frames=40)
    demuxer = Demuxer(str(path))
    path.unlink()
    segments = ReceivedSegments(Here(path), demuxer, pytest.fail)
    assert flat(segments) == []
    with pytest.raises(SourceError, match="no such file"):
        segments.raise_error()
    demuxer.close()


@pytest.mark.parametrize("messages", [0, 1, 3])
def test_a_dead_process_is_reported(tmp_path, messages):
    path = write(tmp_path / "a.mp4", frames=200, options={"g": "10"})
    demuxer = Demuxer(str(path))
    segments = ReceivedSegments(Here(path, messages), demuxer, pytest.fail)
    assert len(list(segments)) == messages
    assert not segments.ended
    with pytest.raises(SourceError, match=r"a\.mp4 cannot be read further: the process that reads it was killed"):
        segments.raise_error()
    demuxer.close()


def test_a_received_packet_becomes_one_of_pyav(tmp_path):
    path = write(tmp_path / "a.mp4", frames=50, options={"g": "10"})
    demuxer = Demuxer(str(path))
    expected = list(demuxer.packets())
    (segment, *_) = ReceivedSegments(Here(path), demuxer, pytest.fail)
    for (packet, _), other in zip(segment.packets, expected, strict=False):
        converted = packet.av_packet()
        assert isinstance(converted, av.Packet)
        assert [getattr(converted, name) for name in FIELDS] == [getattr(other, name) for name in FIELDS]
        assert (bytes(converted), converted.time_base) == (bytes(other), other.time_base)
    demuxer.close()


def test_new_parameters_stay_with_their_packet(tmp_path):
    path = write(tmp_path / "a.mp4", frames=4)
    demuxer = Demuxer(str(path))
    packet = ReceivedPacket(memoryview(bytearray(b"abcd")), 1, 5, 4, 1, demuxer.stream.time_base, b"parameters")
    assert bytes(packet.av_packet().get_sidedata("new_extradata")) == b"parameters"
    assert not packet.rewrite()
    demuxer.close()


def test_lengths_become_start_codes_in_place():
    data = np.frombuffer(b"\0\0\0\2ab\0\0\0\1c", np.uint8).copy()
    packet = ReceivedPacket(memoryview(data), data.ctypes.data, 0, 0, 0, None, b"")
    assert packet.rewrite()
    assert bytes(data) == b"\0\0\0\1ab\0\0\0\1c"
    wrong = np.frombuffer(b"\0\0\0\2ab\0\0\0\5c", np.uint8).copy()
    assert not ReceivedPacket(memoryview(wrong), wrong.ctypes.data, 0, 0, 0, None, b"").rewrite()
    assert bytes(wrong) == b"\0\0\0\2ab\0\0\0\5c"  # FFmpeg gets it as it was


# ------------------------------------------------------------------------------------------ a reader with a process


def opened(path, device=CPU, process=ChildGenerator):
    executor = ThreadedExecutor(device, 1, process=process)
    return VideoReader(
        str(path), device, SurfacePool(device), Counters(), decoders=3, executor=executor, in_subprocess=True
    )


class StartedProcesses(list):
    """Starts the processes that read files, and lists them."""

    def __call__(self, *args):
        self.append(ChildGenerator(*args))
        return self[-1]

    def kill(self):
        os.kill(self[-1].pid, signal.SIGKILL)
        while self[-1].running:
            time.sleep(0.01)


@pytest.fixture
def processes():
    return StartedProcesses()


def frames(source, **part):
    return [(number, frame.pts_s, frame.surface.data.tobytes()) for number, frame in source.frames(**part)]


@pytest.mark.parametrize(("codec", "options"), [("libx264", X264), ("libx265", X265)])
def test_frames_are_equal_in_every_loop(tmp_path, processes, codec, options):
    path = write(tmp_path / "a.mp4", 64, 48, 150, codec=codec, options=options)
    logged = collect()
    source = opened(path, process=processes)
    alone = opened(path, process=None)
    expected = frames(alone)
    assert len(expected) == 150
    assert frames(source, start_s=1.0, end_s=2.0) == [frame for frame in expected if 1.0 <= frame[1] < 2.0]
    assert processes == []  # none is started for a part
    for _ in range(3):
        assert frames(source) == expected
    assert len(processes) == 1
    source.close()
    alone.close()
    assert logged == []
    with pytest.raises(ProcessLookupError):
        os.kill(processes[0].pid, 0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead/")]


def test_a_loop_left_early_is_not_continued(tmp_path, processes):
    path = write(tmp_path / "a.mp4", 64, 48, 400, options={"g": "10"})
    source = opened(path, process=processes)
    left = source.frames()
    assert [next(left)[0] for _ in range(40)] == list(range(40))
    left.close()
    assert [number for number, _ in source.frames()] == list(range(400))
    assert len(processes) == 2
    source.close()


@pytest.fixture(scope="module")
def noise(tmp_path_factory):
    """A video of 400 large packets: the process that reads it has to wait for this one."""
    path = tmp_path_factory.mktemp("noise") / "a.mp4"
    random = np.random.default_rng(1)
    pictures = [random.integers(0, 256, (192, 320, 3), np.uint8) for _ in range(8)]
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=25)
        stream.width = 320
        stream.height = 192
        stream.pix_fmt = "yuv420p"
        stream.options = {"preset": "ultrafast", "g": "40", "bf": "0"}
        for number in range(400):
            output.mux(stream.encode(av.VideoFrame.from_ndarray(pictures[number % 8], format="rgb24")))
        output.mux(stream.encode(None))
    assert path.stat().st_size > 10**7
    return path


def test_a_killed_process_ends_the_source_after_its_frames(noise, processes):
    source = opened(noise, process=processes)
    numbers: list[int] = []

    def read():
        for number, _ in source.frames():
            numbers.append(number)
            if number == 10:
                os.kill(processes[0].pid, signal.SIGKILL)

    with pytest.raises(SourceError, match=r"the process that reads it was killed by SIGKILL"):
        read()
    assert numbers == list(range(len(numbers)))
    assert 11 <= len(numbers) < 400
    source.close()


def test_a_process_that_dies_between_loops_is_replaced(tmp_path, processes):
    path = write(tmp_path / "a.mp4", 64, 48, 100, options={"g": "10"})
    source = opened(path, process=processes)
    expected = frames(source)
    processes.kill()
    assert frames(source) == expected
    source.close()


def test_stopping_ends_the_wait_for_a_hanging_process(noise, processes):
    source = opened(noise, process=processes)
    left = source.frames()
    next(left)
    os.kill(processes[0].pid, signal.SIGSTOP)
    for _ in range(10):
        next(left)
    left.close()
    source.close()


def test_the_file_is_read_in_this_process_if_none_can_be_started(tmp_path):
    def refused(*_):
        raise OSError(11, "Resource temporarily unavailable")

    path = write(tmp_path / "a.mp4", 64, 48, 100, options={"g": "10"})
    logged = collect()
    source = opened(path, process=refused)
    alone = opened(path, process=None)
    assert frames(source) == frames(alone)
    assert "no process can be started" in logged[0]
    assert "Resource temporarily unavailable" in logged[0]
    source.close()
    alone.close()


@pytest.mark.parametrize(
    ("count", "device", "in_subprocess"), [(6000, "cuda", True), (5999, "cuda", False), (6000, "cpu", False)]
)
def test_long_videos_for_a_gpu_are_read_in_a_subprocess(tmp_path, count, device, in_subprocess):
    path = write(tmp_path / "a.mp4", 64, 48, 30)
    demuxer = Demuxer(str(path))
    demuxer.info = replace(demuxer.info, frames=count)
    assert reads_in_subprocess(demuxer, Device(device)) is in_subprocess
    for of_this_process in ("/dev/fd/3", "/dev/stdin", "/proc/self/fd/3"):
        demuxer.uri = of_this_process
        assert not reads_in_subprocess(demuxer, Device(device))
    demuxer.uri = "/dev/shm/clip.mp4"  # files in memory
    assert reads_in_subprocess(demuxer, Device(device)) is in_subprocess
    demuxer.close()
    bare = Demuxer(str(write(tmp_path / "a.ts", 64, 48, 30)))
    bare.info = replace(bare.info, frames=count)
    assert not reads_in_subprocess(bare, Device(device))
    bare.close()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "name", ["bench_1080p_hevc.mp4", "bench_1080p_hevc_opengop.mp4", "bench_1080p_h264.mp4", "codec/nasa_13013.mp4"]
)
def test_nvdec_gives_the_same_frames(test_data, name):
    device = Device("cuda")
    path = test_data / "videos" / name

    def seen(source):
        for number, frame in source.frames():
            frame.surface.ready.synchronize()
            yield number, frame.pts_s, frame.width, hash(frame.surface.data.get().tobytes())

    source = opened(path, device)
    alone = opened(path, device, process=None)
    expected = list(seen(alone))
    for _ in range(2):
        assert list(seen(source)) == expected
    source.close()
    alone.close()
