"""Faults on real sources: an opening at a time here, whole runs below."""

import time
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from support.clips import write

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Device, Frame, Surface
from streamkit.core.errors import SourceError
from streamkit.core.fault_schedule import Fault
from streamkit.core.retry import Retry
from streamkit.core.stage import Context, Source
from streamkit.runtime.ingest import fault_injector
from streamkit.runtime.ingest.fault_injector import FaultInjector, FaultySource, faults_message
from streamkit.stages.sources.source import VideoSource
from streamkit.stages.sources.test_pattern import TestPattern

URI = "test://?width=64&height=48&fps=25&frames=100"  # 4 s
ODD = {"at": 1.0, "for": 0.4}


class Camera:
    """One source, opened as often as a test wants; its faults go on from opening to opening."""

    def __init__(self, make, device=None, **fault):
        self.make = make
        self.device = device or Device()
        self.faults = FaultInjector(Fault(**fault), "cam")
        self.counters = Counters()

    def source(self):
        source = FaultySource(self.make(), self.faults)
        source.context = Context("cam", self.device, counters=self.counters)
        return source

    def read(self):
        """The frames of one opening, and why it ended; None for its own end."""
        frames = []
        source = self.source()
        try:
            source.open()
            try:
                for frame in source.frames():
                    frames.append(frame)
            finally:
                source.close()
        except SourceError as error:
            return frames, str(error)
        return frames, None

    @property
    def counts(self):
        return dict(self.counters.values)


def pattern(**options):
    return lambda: TestPattern(**{"uri": URI, **options})


def pixels(frames):
    """Copies: a surface's memory is used again once nobody holds the surface."""
    return [frame.surface.data.copy() for frame in frames]


@pytest.fixture(scope="module")
def plain():
    return Camera(pattern(), fail={"at": 99.0}).read()[0]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """4 s, 25 pictures a second, a keyframe every 50, no B frames."""
    path = tmp_path_factory.mktemp("clips") / "a.mp4"
    return write(path, 128, 96, frames=100, options={"g": "50", "bf": "0"})


# ---------------------------------------------------------------------------------------- by the pictures' own times


@pytest.mark.parametrize(
    ("fail", "frames", "message"),
    [
        ({"at": 1.0}, 25, "injected failure at 1.00 s, frame 25 (fault: fail)"),
        ({"frame": 40}, 40, "frame 40 (fault: fail)"),
        ({"frame": [90, 3], "at": 2.0}, 3, "frame 3 (fault: fail)"),
        ({"every": 0.5}, 13, "at 0.52 s, frame 13"),
    ],
)
def test_a_fault_fails_the_source(fail, frames, message):
    camera = Camera(pattern(), fail=fail)
    frames_read, error = camera.read()
    assert [frame.index for frame in frames_read] == list(range(frames))
    assert message in error
    assert camera.counts == {"fault: failures": 1}


def test_times_count_from_the_first_frame():
    frames, error = Camera(pattern(start=1.0), fail={"at": 1.0}).read()
    assert [frame.index for frame in frames] == list(range(25, 50))
    assert "at 1.00 s, frame 50" in error


def test_random_faults_differ_after_reopening():
    camera = Camera(pattern(), fail={"every": 1.0, "frame": 10})
    assert [len(camera.read()[0]) for _ in range(3)] == [10, 15, 25]
    assert camera.counts == {"fault: failures": 3}


def test_a_still_image_is_repeated(plain):
    camera = Camera(pattern(), still=ODD)
    frames, error = camera.read()
    assert error is None
    assert [(frame.index, frame.pts_s) for frame in frames] == [(frame.index, frame.pts_s) for frame in plain]
    for i, (shown, original) in enumerate(zip(pixels(frames), pixels(plain), strict=True)):
        expected = plain[25].surface.data if 25 <= i < 35 else original
        assert (shown == expected).all(), i
    assert camera.counts == {"fault: frames repeated": 9}


def test_drawing_on_a_still_image_does_not_change_the_next(plain):
    source = Camera(pattern(), still=ODD).source()
    source.open()
    for frame in source.frames():
        if 25 <= frame.index < 35:
            assert (frame.surface.data == plain[25].surface.data).all()
            frame.surface.data[:] = 0
    source.close()


def test_frames_of_a_pattern_are_damaged_equally_in_every_run(plain):
    cameras = [Camera(pattern(), corrupt={**ODD, "share": 0.2}, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (pixels(camera.read()[0]) for camera in cameras)
    spoiled = [i for i, (a, b) in enumerate(zip(first, pixels(plain), strict=True)) if (a != b).any()]
    assert spoiled == list(range(25, 35))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert any((a != b).any() for a, b in zip(first, other, strict=True))
    assert cameras[0].counts == {"fault: frames damaged": 10}


def test_the_packets_of_a_video_are_damaged_before_decoding(clip):
    def video():
        return VideoSource(uri=str(clip))

    whole = pixels(Camera(video, fail={"at": 99.0}).read()[0])
    corrupt = {"at": 1.0, "for": 0.2, "share": 0.05}
    camera = Camera(video, corrupt=corrupt)
    again = Camera(video, corrupt=corrupt)
    frames, error = camera.read()
    assert "is damaged" in error
    counts = camera.counts
    assert counts.pop("fault: packets corrupted") == 5
    assert sum(counts.values()) > 0  # what the decoder concealed or gave up
    odd = [frame.index for frame in frames if (frame.surface.data != whole[round(frame.pts_s * 25)]).any()]
    assert odd[0] == 25
    assert odd[-1] < 75  # the keyframe at 50 mends it, in FFmpeg at the latest a few pictures on
    same = again.read()[0]
    assert again.counts == camera.counts
    assert all((a.surface.data == b.surface.data).all() for a, b in zip(frames, same, strict=True))


def test_packets_of_later_loops_are_damaged(clip):
    camera = Camera(lambda: VideoSource(uri=str(clip), loop=2), corrupt={"at": 5.0, "for": 0.2, "share": 0.05})
    frames, error = camera.read()
    assert "is damaged" in error
    assert 5 <= camera.counts["fault: packets corrupted"] <= 6
    assert len(frames) > 190


def test_the_same_source_may_be_reopened():
    source = Camera(pattern(), fail={"at": 1.0}).source()
    counts = []
    for _ in range(2):
        source.open()
        frames = source.frames()
        counts.append(0)
        try:
            for _ in frames:
                counts[-1] += 1
        except SourceError:
            pass
        source.close()
    assert counts == [25, 100]


# ------------------------------------------------------------------------------------------------ by the clock


def paced(**options):
    return pattern(pace="realtime", pace_seed=0, end=1.2, **options)


def test_faults_due_while_closed_are_dropped():
    camera = Camera(paced(), fail={"at": [0.2, 0.5]})
    assert "injected" in camera.read()[1]
    time.sleep(0.4)
    assert camera.read()[1] is None


# ---------------------------------------------------------------------------------------------------- whole runs


def test_a_run_reports_and_counts_its_faults(run_pipeline, clip):
    ran = run_pipeline(
        f"sources:\n  a: {{uri: '{URI}', fault: {{fail: 1s}}}}\n"
        f"  b: {{uri: '{URI}', fault: {{still: {{at: 1s, for: 400ms}}, seed: 3}}}}\n"
        f"  c: '{URI}'\n  d: {{stage: source, uri: {clip}, end: 3s, fault: {{corrupt: {{at: 1s, for: 0.2}}}}}}\n"
        "stages: {collect: {}}\n"
    )
    assert ran.code == 1
    assert {name: len(records) for name, records in ran.records.items()} == {"a": 25, "b": 100, "c": 100, "d": 75}
    assert ran.report["sources"]["a"]["error"] == "injected failure at 1.00 s, frame 25 (fault: fail)"
    assert "error" not in ran.report["sources"]["b"]
    counts = ran.report["counts"]
    assert (counts["fault: failures"], counts["fault: frames repeated"], counts["fault: packets corrupted"]) == (
        1,
        9,
        5,
    )
    texts = [text for text in ran.logged if "faults are injected" in text]
    assert texts == ["faults are injected, because the YAML sets `fault`, into a (fail), b (still), d (corrupt)"]


def test_a_run_without_faults_reports_none(run_pipeline):
    ran = run_pipeline(f"sources: {{c: '{URI}'}}\nstages: {{collect: {{}}}}\n")
    assert ran.code == 0
    assert not any("fault" in text for text in [*ran.logged, *ran.report["counts"]])


# ---------------------------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
def test_frames_are_frozen_and_damaged_equally_on_gpu_and_cpu():
    fault = {"still": {"at": 0.4, "for": 0.4}, "corrupt": {"at": 0.6, "for": 0.4, "share": 0.1}}
    expected, _ = Camera(pattern(), **fault).read()
    frames, error = Camera(pattern(), Device("cuda"), **fault).read()
    assert error is None
    for on_gpu, on_cpu in zip(frames, expected, strict=True):
        on_gpu.surface.ready.synchronize()
        np.testing.assert_array_equal(on_gpu.surface.data.get(), on_cpu.surface.data)


@pytest.mark.gpu
def test_a_damaged_video_continues_on_a_gpu(test_data):
    path = test_data / "videos" / "vtest_480x360.mp4"

    def video():
        return VideoSource(uri=str(path), end=11.0)  # not at a fault: decoders read ahead, one farther than another

    camera = Camera(video, Device("cuda"), corrupt={"every": 3.0, "for": 0.5, "share": 0.02})
    frames, _ = camera.read()
    on_host = Camera(video, corrupt={"every": 3.0, "for": 0.5, "share": 0.02})
    on_host.read()
    assert camera.counts["fault: packets corrupted"] == on_host.counts["fault: packets corrupted"] > 10
    assert frames[-1].pts_s > 10


class Clock:
    """The clock of the faults; a sleep moves it on, and does what a test gives."""

    def __init__(self, monkeypatch):
        self.now_s = 1000.0
        self.sleeps = []
        self.then = lambda: None
        monkeypatch.setattr(fault_injector, "time", SimpleNamespace(monotonic=lambda: self.now_s, sleep=self._sleep))

    def _sleep(self, seconds):
        self.sleeps.append(seconds)
        assert len(self.sleeps) < 10_000
        self.now_s += seconds
        self.then()


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


class ScriptedSource(Source):
    """Yields what a test gives; notes the calls."""

    unbounded = "its own"
    retry = Retry(max_wait_s=7.0)

    def __init__(self, frames=()):
        self._frames = frames
        self.calls = []

    def open(self):
        self.calls.append("open")

    def close(self):
        self.calls.append("close")

    def stop(self):
        self.calls.append("stop")

    def frames(self):
        yield from self._frames


def picture(index, pts_s, value=None, size=(16, 16), **fields):
    """A frame, with a surface of one gray if `value` is given."""
    width, height = size
    surface = None if value is None else Surface(np.full((height * 3 // 2, width), value, np.uint8), Color())
    return Frame("cam", index, pts_s, width, height, surface, **fields)


def start_injector(**fault):
    faults = FaultInjector(Fault(**fault), "cam")
    faults.begin()
    return faults


def faulty(inner, **fault):
    source = FaultySource(inner, FaultInjector(Fault(**fault), "cam"))
    source.context = Context("cam", counters=Counters())
    return source


def counts(source):
    return dict(source.context.counters.values)


def test_the_time_of_a_file_is_the_played_duration_over_loops(clock):
    faults = start_injector(fail={"at": 99.0})
    times_s = []
    for pts_s in (5.0, 6.5, 5.0, 5.5, 5.5, 0.0, 4.0):  # goes back at the start of each loop
        clock.now_s += 100.0
        faults.advance(picture(0, pts_s))
        times_s.append(faults.time_s)
    assert times_s == [0.0, 1.5, 1.5, 2.0, 2.0, 2.0, 6.0]
    assert not faults.realtime


def test_the_time_of_a_packet_is_its_decode_timestamp(clock):
    faults = start_injector(corrupt={"at": 99.0, "for": 1.0})
    faults.advance(picture(0, 0.0))
    faults.advance(picture(1, 7.0))

    def packet_s(pts, dts, time_base=Fraction(1, 10)):
        return faults.packet_s(SimpleNamespace(pts=pts, dts=dts, time_base=time_base))

    assert packet_s(99, 0) == 0.0
    assert packet_s(99, 20) == 2.0
    assert packet_s(35, None) == 3.5
    assert packet_s(None, None) == 7.0, "that of the frames"
    assert packet_s(50, 50, None) == 3.5, "no time of its own"
    assert packet_s(55, 55) == 5.5
    faults.realtime = True
    clock.now_s += 0.25
    assert packet_s(90, 90) == 0.25


@pytest.mark.parametrize(("later_s", "left_s", "times"), [(1.25, 0.25, 1), (1.5, 0.0, 0), (3.0, -1.5, 0)])
def test_the_outage_of_a_live_source_follows_the_clock(clock, later_s, left_s, times):
    faults = start_injector(away={"at": 1.0, "for": 0.5})
    counters = Counters()
    faults.realtime = True
    clock.now_s += later_s
    assert faults.outage_left_s(counters) == left_s
    assert counters["fault: times away"] == times


def test_a_source_cannot_be_opened_during_an_injected_outage(clock):
    inner = ScriptedSource()
    source = faulty(inner, away={"at": 0.0, "for": 2.5})
    with pytest.raises(SourceError) as raised:
        source.open()
    assert str(raised.value) == "connection refused: injected outage for another 2.5 s (fault: away)"
    assert (raised.value.cause, inner.calls) == ("refused", [])
    assert counts(source) == {"fault: times away": 1, "fault: openings refused": 1}
    clock.now_s += 2.5
    source.open()
    assert inner.calls == ["open"]
    assert counts(source) == {"fault: times away": 1, "fault: openings refused": 1}


def test_frames_of_a_live_source_are_missed_in_a_freeze(clock):
    def frames():
        for index in range(9):
            yield picture(index, 0.0, due_s=clock.now_s)
            clock.now_s += 0.25

    source = faulty(ScriptedSource(frames()), freeze={"at": 0.5, "for": 0.75})
    source.open()
    assert [frame.index for frame in source.frames()] == [0, 1, 5, 6, 7, 8]
    assert counts(source) == {"fault: freezes": 1, "fault: frames missed": 3}
    assert clock.sleeps == []


def test_a_file_waits_in_each_freeze_and_misses_nothing(clock):
    source = faulty(
        ScriptedSource([picture(n, n / 4) for n in range(5)]), freeze={"at": [0.5, 0.9, 0.95], "for": 0.125}
    )
    source.open()
    waited = []
    for frame in source.frames():
        waited.append((frame.index, round(sum(clock.sleeps), 6)))
        clock.sleeps.clear()
    assert waited == [(0, 0), (1, 0), (2, 0.125), (3, 0), (4, 0.25)]
    assert counts(source) == {"fault: freezes": 3}


def test_a_stop_ends_the_wait_in_a_freeze(clock):
    inner = ScriptedSource([picture(n, n / 4) for n in range(5)])
    source = faulty(inner, freeze={"at": 0.5, "for": 60.0})
    source.open()
    clock.then = lambda: source.stop() if len(clock.sleeps) == 3 else None
    assert [frame.index for frame in source.frames()] == [0, 1]
    assert clock.sleeps == [0.05] * 3
    assert inner.calls == ["open", "stop"]


def test_a_still_image_repeats_the_first_frame_of_each_size(clock):
    frames = [
        picture(0, 0.0, 10),
        picture(1, 1.0, 11),
        picture(2, 1.1, 12),
        picture(3, 1.2, 13, (32, 16)),
        picture(4, 1.3, 14, (32, 16)),
        picture(5, 1.4, 15, (32, 32)),
        picture(6, 1.5),
        picture(7, 1.6, 17),
        picture(8, 1.7, 18),
        picture(9, 2.0, 19),
    ]
    source = faulty(ScriptedSource(frames), still={"at": 1.0, "for": 1.0})
    source.open()
    values = [None if frame.surface is None else int(frame.surface.data[0, 0]) for frame in source.frames()]
    assert values == [10, 11, 11, 13, 13, 15, None, 17, 17, 19]
    assert counts(source) == {"fault: frames repeated": 3}


@pytest.mark.parametrize(
    ("count", "listed"),
    [
        (1, "s0 (fail, still)"),
        (5, "s0 (fail, still), s1 (fail, still), s2 (fail, still), s3 (fail, still), s4 (fail, still)"),
        (6, "s0 (fail, still), s1 (fail, still), s2 (fail, still), s3 (fail, still), s4 (fail, still) and 1 more"),
        (
            17,
            "s0 (fail, still), s1 (fail, still), s2 (fail, still), s3 (fail, still), s4 (fail, still) and 12 more",
        ),
    ],
)
def test_the_message_names_up_to_five_sources(count, listed):
    fault = Fault(fail={"at": 1.0}, still={"at": 1.0, "for": 1.0})
    faults = {f"s{number}": FaultInjector(fault, f"s{number}") for number in range(count)}
    assert faults_message(faults) == f"faults are injected, because the YAML sets `fault`, into {listed}"
