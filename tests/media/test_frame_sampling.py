"""Which frames of a source are taken."""

import itertools
import math

import pytest

from streamkit.core.stage import Context
from streamkit.media.frame_sampling import (
    FrameSampler,
    check_time_range,
    expected_frames,
    frame_range,
    no_frame_error,
    sample_frames,
)
from streamkit.stages.sources.images import ImageSource
from streamkit.stages.sources.source import VideoSource
from streamkit.stages.sources.test_pattern import TestPattern

RATE = 25


def taken(times, *, every=1, fps=None):
    sampler = FrameSampler(every, fps)
    return [n for n, pts_s in enumerate(times) if sampler.accepts(n, pts_s)]


def test_frames_are_sampled_by_number_and_by_rate():
    times = [n / RATE for n in range(50)]
    assert taken(times) == list(range(50))
    assert taken(times, every=20) == [0, 20, 40]
    assert taken(times, fps=5) == list(range(0, 50, 5))
    assert taken(times, fps=5, every=4) == [0, 8, 12, 16, 20, 28, 32, 36, 40, 48]  # 8 is the first one due behind 0.2 s
    assert taken([100 + pts_s for pts_s in times], fps=5) == list(range(0, 50, 5))
    assert taken(times, fps=60) == list(range(50))
    assert taken([0, 0, 0.2, 0.2, 0.4], fps=5) == [0, 2, 4]


def test_a_late_frame_does_not_shift_the_following():
    assert taken([0, 0.19, 0.39, 0.41, 0.6], fps=5) == [0, 2, 3, 4]


@pytest.mark.parametrize("back_s", [1.5, 40.0, 2**33 / 90_000, 1e9])
def test_sampling_continues_after_a_time_jump_back(back_s):
    """A second client at an RTSP mount, a counter that wraps: what is taken stays even, to a frame."""
    times = [n / RATE - (back_s if n >= 52 else 0.0) for n in range(150)]
    assert taken(times, fps=5) == [*range(0, 51, 5), *range(56, 150, 5)]


def test_a_repeatedly_set_back_clock_does_not_stop_sampling():
    times = [n / RATE - 2.0 * (n // 30) for n in range(600)]
    numbers = taken(times, fps=5)
    assert {b - a for a, b in itertools.pairwise(numbers)} == {5, 6}
    sinking = [-0.3 * n for n in range(100)]  # by less than a second each
    climbing = [*sinking, *(-29.7 + n / RATE for n in range(50))]
    assert len([n for n in taken(climbing, fps=5) if n >= 100]) >= 5  # a second at most is waited out


def test_jitter_is_not_a_jump():
    """Times that fall back by less than a second are waited for: the rate never rises by them."""
    times = [n / RATE + (0.9 if n % 10 == 3 else 0.0) for n in range(250)]
    assert taken(times, fps=5) == [0, *range(3, 250, 10)]
    slightly = [n / RATE - (1.0 if n >= 50 else 0.0) for n in range(100)]  # to 1.0 from 1.96: within it
    assert taken(slightly, fps=5) == [*range(0, 50, 5), 75, 80, 85, 90, 95]


@pytest.mark.parametrize("ahead_s", [3.0, 90_000.0])
def test_jumps_ahead_and_back_are_handled(ahead_s):
    times = [n / RATE + (ahead_s if 50 <= n < 53 else 0.0) for n in range(150)]
    assert taken(times, fps=5) == [*range(0, 51, 5), *range(56, 150, 5)]


def test_every_and_fps_are_combined():
    sampled = sample_frames(((n, f"p{n}", n / RATE) for n in range(20)), 2, 5)
    assert list(sampled) == [(n, f"p{n}", n / RATE) for n in (0, 6, 10, 16)]


def test_a_time_range_selects_frame_numbers():
    assert frame_range(100, 25, 0.0, None) == range(100)
    assert frame_range(100, 25, 1.0, 2.0) == range(25, 50)
    assert frame_range(100, 25, 1.01, 2.01) == range(26, 51)
    assert frame_range(100, 25, 3.0, 9.0) == range(75, 100)
    assert frame_range(None, 10, 0.5, None)[0] == 5
    assert frame_range(None, 10, 0.5, 1.0) == range(5, 10)
    with pytest.raises(ValueError, match="start 2 s and end 2 s"):
        check_time_range(2.0, 2.0)
    check_time_range(2.0, math.inf)
    check_time_range(2.0, None)


@pytest.mark.parametrize(
    ("limits", "more", "text", "cause"),
    [
        ((4.0, 0.0, None, 1), {}, "it ended before its first frame", None),
        ((4.0, 0.0, None, 1), {"keyframes": True}, "none of its frames can be decoded independently", "codec"),
        ((4.0, 5.0, None, 1), {}, "no frame between start 5 s and end; the video is 4 s long", None),
        ((None, 5.0, 6.5, 1), {}, "no frame between start 5 s and end 6.5 s", None),
        (
            (4.004, 0.0, 1.0, 1),
            {"keyframes": True},
            "no keyframe between start 0 s and end 1 s; the video is 4 s long",
            None,
        ),
        (
            (1.25, 0.5, None, 2),
            {},
            "no frame whose number is a multiple of every, 2, between start 0.5 s and end; the video is 1.25 s long",
            None,
        ),
    ],
)
def test_an_empty_selection_is_explained(limits, more, text, cause):
    length_s, start_s, end_s, every = limits
    error = no_frame_error("a.mp4", "the video", length_s, start_s, end_s, every, **more)
    assert str(error) == f"a.mp4: {text}"
    assert error.cause == cause


FILE = {"frames": 400, "fps": 25.0, "duration_s": 16.0}


@pytest.mark.parametrize(
    ("facts", "options", "expected"),
    [
        (FILE, {}, 400),
        ({**FILE, "frames": None}, {}, 400),
        ({**FILE, "fps": None}, {}, 400),
        ({**FILE, "duration_s": None}, {}, 400),
        ({**FILE, "frames": None, "fps": None}, {}, None),
        ({**FILE, "frames": None, "duration_s": None}, {}, None),
        ({**FILE, "fps": None, "duration_s": None}, {}, None),
        ({}, {}, None),
        (FILE, {"start_s": 4.0}, 300),
        (FILE, {"end_s": 4.0}, 100),
        (FILE, {"end_s": 40.0}, 400),
        (FILE, {"start_s": 4.0, "end_s": 6.0}, 50),
        (FILE, {"start_s": 17.0}, 0),
        (FILE, {"every": 3}, 134),
        (FILE, {"fps": 5.0}, 80),
        (FILE, {"fps": 50.0}, 400),
        (FILE, {"fps": 5.0, "end_s": 4.1}, 21),
        (FILE, {"fps": 5.0, "every": 2}, 80),
        (FILE, {"turns": 3}, 1200),
        (FILE, {"turns": math.inf}, None),
    ],
)
def test_the_number_of_frames_is_estimated(facts, options, expected):
    arguments = {"start_s": 0.0, "end_s": None, "every": 1, "fps": None, "turns": 1, **options}
    assert expected_frames(facts, **arguments) == expected


@pytest.mark.parametrize(
    "options",
    [{}, {"every": 3}, {"fps": 5}, {"start": 2.0, "end": 5.0}, {"loop": 2, "end": 1.0}, {"every": 7, "loop": 2}],
)
def test_a_file_gives_the_estimated_number_of_frames(root, options):
    source = VideoSource(uri=str(root / "samples" / "street.mp4"), **options)
    source.context = Context("a")
    source.open()
    count = sum(1 for _ in source.frames())
    assert abs(source.context.runtime.facts["expected_frames"] - count) <= options.get("loop", 1)


def test_endless_loops_and_keyframes_have_no_estimate(root):
    for options in ({"loop": True}, {"keyframes": True}):
        source = VideoSource(uri=str(root / "samples" / "street.mp4"), **options)
        source.context = Context("a")
        next(iter(source.frames()))
        assert source.context.runtime.facts.get("expected_frames") is None


@pytest.mark.parametrize("options", ["width=32&height=32&frames=20", "width=32&height=32&frames=20&fps=50"])
def test_patterns_and_images_give_the_estimated_number(tmp_path, options):
    import cv2
    import numpy as np

    pattern = TestPattern(uri=f"test://?{options}", every=3)
    pattern.context = Context("a")
    assert pattern.context.runtime.facts == {}
    assert sum(1 for _ in pattern.frames()) == pattern.context.runtime.facts["expected_frames"] == 7
    for number in range(5):
        cv2.imwrite(str(tmp_path / f"{number}.png"), np.zeros((8, 8, 3), np.uint8))
    frames = ImageSource(uri=str(tmp_path), loop=2)
    frames.context = Context("a")
    assert sum(1 for _ in frames.frames()) == frames.context.runtime.facts["expected_frames"] == 10
