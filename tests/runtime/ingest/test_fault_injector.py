"""Faults on real sources: an opening at a time here, whole runs below."""

import threading
import time

import numpy as np
import pytest
from support.clips import write

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.core.errors import SourceError
from streamkit.core.fault_schedule import Fault
from streamkit.core.stage import Context
from streamkit.runtime.ingest.fault_injector import FaultInjector, FaultySource
from streamkit.stages.sources.source import VideoSource
from streamkit.stages.sources.test_pattern import TestPattern

URI = "test://?width=64&height=48&fps=25&frames=100"  # 4 s
ODD = {"at": 1.0, "for": 0.4}


class Camera:
    """One source, opened as often as a test wants; its faults go on from opening to opening."""

    def __init__(self, make, device=None, **fault):
        self.make, self.device = make, device or Device()
        self.faults, self.counters = FaultInjector(Fault(**fault), "cam"), Counters()

    def source(self):
        source = FaultySource(self.make(), self.faults)
        source.context = Context("cam", self.device, counters=self.counters)
        return source

    def read(self):
        """The frames of one opening, and why it ended; None for its own end."""
        frames, source = [], self.source()
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
def test_it_fails(fail, frames, message):
    camera = Camera(pattern(), fail=fail)
    frames_read, error = camera.read()
    assert [frame.index for frame in frames_read] == list(range(frames))
    assert message in error
    assert camera.counts == {"fault: failures": 1}


def test_times_count_from_the_first_picture_taken():
    frames, error = Camera(pattern(start=1.0), fail={"at": 1.0}).read()
    assert [frame.index for frame in frames] == list(range(25, 50))
    assert "at 1.00 s, frame 50" in error


def test_it_fails_at_other_places_when_it_is_opened_again():
    camera = Camera(pattern(), fail={"every": 1.0, "frame": 10})
    assert [len(camera.read()[0]) for _ in range(3)] == [10, 15, 25]
    assert camera.counts == {"fault: failures": 3}


def test_a_source_without_a_pace_pauses_in_a_freeze(plain):
    camera = Camera(pattern(), freeze={"at": [1.0, 2.0], "for": 0.3})
    start_s = time.monotonic()
    frames, error = camera.read()
    assert time.monotonic() - start_s >= 0.6
    assert error is None
    assert [frame.index for frame in frames] == [frame.index for frame in plain]
    assert camera.counts == {"fault: freezes": 2}


def test_a_still_picture_comes_again_and_again(plain):
    camera = Camera(pattern(), still=ODD)
    frames, error = camera.read()
    assert error is None
    assert [(frame.index, frame.pts_s) for frame in frames] == [(frame.index, frame.pts_s) for frame in plain]
    for i, (shown, original) in enumerate(zip(pixels(frames), pixels(plain), strict=True)):
        want = plain[25].surface.data if 25 <= i < 35 else original
        assert (shown == want).all(), i
    assert camera.counts == {"fault: frames repeated": 9}


def test_who_draws_on_a_still_picture_does_not_draw_on_the_next(plain):
    source = Camera(pattern(), still=ODD).source()
    source.open()
    for frame in source.frames():
        if 25 <= frame.index < 35:
            assert (frame.surface.data == plain[25].surface.data).all()
            frame.surface.data[:] = 0
    source.close()


def test_a_pattern_s_pictures_are_damaged_alike_in_every_run(plain):
    cameras = [Camera(pattern(), corrupt={**ODD, "share": 0.2}, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (pixels(camera.read()[0]) for camera in cameras)
    spoiled = [i for i, (a, b) in enumerate(zip(first, pixels(plain), strict=True)) if (a != b).any()]
    assert spoiled == list(range(25, 35))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert any((a != b).any() for a, b in zip(first, other, strict=True))
    assert cameras[0].counts == {"fault: frames damaged": 10}


def test_a_video_s_packets_are_damaged_before_decoding(clip):
    def video():
        return VideoSource(uri=str(clip))

    whole = pixels(Camera(video, fail={"at": 99.0}).read()[0])
    corrupt = {"at": 1.0, "for": 0.2, "share": 0.05}
    camera, again = Camera(video, corrupt=corrupt), Camera(video, corrupt=corrupt)
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


def test_damage_follows_a_loop(clip):
    camera = Camera(lambda: VideoSource(uri=str(clip), loop=2), corrupt={"at": 5.0, "for": 0.2, "share": 0.05})
    frames, error = camera.read()
    assert "is damaged" in error
    assert 5 <= camera.counts["fault: packets corrupted"] <= 6
    assert len(frames) > 190


def test_away_and_refused_and_back_again():
    camera = Camera(pattern(), away={"at": 1.0, "for": 0.3})
    frames, error = camera.read()
    assert len(frames) == 25
    assert error == "connection lost: injected outage for 0.3 s (fault: away)"
    nothing, error = camera.read()
    assert nothing == []
    assert "connection refused: injected outage for another 0." in error
    time.sleep(0.35)
    frames, error = camera.read()
    assert len(frames) == 100
    assert error is None
    assert camera.counts == {"fault: times away": 1, "fault: openings refused": 1}


def test_away_from_the_beginning():
    camera = Camera(pattern(), away={"at": 0.0, "for": 0.2})
    assert "connection refused" in camera.read()[1]
    time.sleep(0.25)
    assert camera.read()[1] is None


def test_one_object_may_be_opened_again_too():
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


@pytest.mark.alone
def test_what_a_paced_source_shows_in_a_freeze_is_missed():
    camera = Camera(paced(), freeze={"at": 0.4, "for": 0.4})
    source = camera.source()
    source.open()
    arrived = [(frame.index, time.monotonic() - frame.due_s) for frame in source.frames()]
    source.close()
    missed = camera.counts["fault: frames missed"]
    assert camera.counts == {"fault: freezes": 1, "fault: frames missed": missed}
    assert 8 <= missed <= 11
    assert len(arrived) == 30 - missed
    gaps = np.diff([index for index, _ in arrived])
    assert sorted(gaps)[-2:] == [1, missed + 1]
    assert np.median([late_s for _, late_s in arrived]) < 0.2  # a machine that stands still makes some late, not all


@pytest.mark.alone
def test_away_by_the_clock():
    camera = Camera(paced(), away={"at": 0.4, "for": 0.5})
    start_s = time.monotonic()
    frames, error = camera.read()
    assert "connection lost" in error
    assert 8 <= len(frames) <= 11
    assert "connection refused" in camera.read()[1]
    time.sleep(max(0.0, start_s + 1.0 - time.monotonic()))
    frames, error = camera.read()
    assert error is None
    assert len(frames) == 30


def test_what_came_while_it_was_closed_is_over():
    camera = Camera(paced(), fail={"at": [0.2, 0.5]})
    assert "injected" in camera.read()[1]
    time.sleep(0.4)
    assert camera.read()[1] is None


@pytest.mark.parametrize("make", [pattern(), paced()])
def test_it_stops_in_the_middle_of_a_freeze(make):
    source = Camera(make, freeze={"at": 0.1, "for": 3600.0}).source()
    source.open()
    timer = threading.Timer(0.5, source.stop)
    timer.start()
    frames = list(source.frames())
    source.close()
    timer.join()
    assert len(frames) < 5


# ---------------------------------------------------------------------------------------------------- whole runs


def test_a_run_says_and_counts_its_faults(run_pipeline, clip):
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


def test_a_run_without_faults_says_nothing_of_them(run_pipeline):
    ran = run_pipeline(f"sources: {{c: '{URI}'}}\nstages: {{collect: {{}}}}\n")
    assert ran.code == 0
    assert not any("fault" in text for text in [*ran.logged, *ran.report["counts"]])


# ---------------------------------------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
def test_on_a_gpu_pictures_are_held_and_damaged_as_on_the_cpu():
    fault = {"still": {"at": 0.4, "for": 0.4}, "corrupt": {"at": 0.6, "for": 0.4, "share": 0.1}}
    want, _ = Camera(pattern(), **fault).read()
    frames, error = Camera(pattern(), Device("cuda"), **fault).read()
    assert error is None
    for on_gpu, on_cpu in zip(frames, want, strict=True):
        on_gpu.surface.ready.synchronize()
        np.testing.assert_array_equal(on_gpu.surface.data.get(), on_cpu.surface.data)


@pytest.mark.gpu
def test_on_a_gpu_a_damaged_video_goes_on(test_data):
    path = test_data / "videos" / "vtest_480x360.mp4"

    def video():
        return VideoSource(uri=str(path), end=11.0)  # not at a fault: decoders read ahead, one farther than another

    camera = Camera(video, Device("cuda"), corrupt={"every": 3.0, "for": 0.5, "share": 0.02})
    frames, _ = camera.read()
    on_host = Camera(video, corrupt={"every": 3.0, "for": 0.5, "share": 0.02})
    on_host.read()
    assert camera.counts["fault: packets corrupted"] == on_host.counts["fault: packets corrupted"] > 10
    assert frames[-1].pts_s > 10
