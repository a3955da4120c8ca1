"""How many frames a file is going to give: the estimate, and what sources really give."""

import math

import pytest

from streamkit.core.stage import Context
from streamkit.media.expected import expected_frames
from streamkit.stages.sources.images import ImageSource
from streamkit.stages.sources.source import VideoSource
from streamkit.stages.sources.test_pattern import TestPattern

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
        (FILE, {"fps": 5.0, "every": 2}, 40),
        (FILE, {"turns": 3}, 1200),
        (FILE, {"turns": math.inf}, None),
    ],
)
def test_the_estimate(facts, options, expected):
    given = {"start_s": 0.0, "end_s": None, "every": 1, "fps": None, "turns": 1, **options}
    assert expected_frames(facts, **given) == expected


@pytest.mark.parametrize(
    "options",
    [{}, {"every": 3}, {"fps": 5}, {"start": 2.0, "end": 5.0}, {"loop": 2, "end": 1.0}, {"every": 7, "loop": 2}],
)
def test_a_file_gives_as_many(root, options):
    made = VideoSource(uri=str(root / "samples" / "street.mp4"), **options)
    made.context = Context("a")
    made.open()
    count = sum(1 for _ in made.frames())
    assert abs(made.context.runtime.facts["expected_frames"] - count) <= options.get("loop", 1)


def test_a_loop_without_end_and_keyframes_have_none(root):
    for options in ({"loop": True}, {"keyframes": True}):
        made = VideoSource(uri=str(root / "samples" / "street.mp4"), **options)
        made.context = Context("a")
        next(iter(made.frames()))
        assert made.context.runtime.facts.get("expected_frames") is None


@pytest.mark.parametrize("options", ["width=32&height=32&frames=20", "width=32&height=32&frames=20&fps=50"])
def test_a_pattern_and_pictures_give_as_many(tmp_path, options):
    import cv2
    import numpy as np

    pattern = TestPattern(uri=f"test://?{options}", every=3)
    pattern.context = Context("a")
    assert pattern.context.runtime.facts == {}
    assert sum(1 for _ in pattern.frames()) == pattern.context.runtime.facts["expected_frames"] == 7
    for number in range(5):
        cv2.imwrite(str(tmp_path / f"{number}.png"), np.zeros((8, 8, 3), np.uint8))
    pictures = ImageSource(uri=str(tmp_path), loop=2)
    pictures.context = Context("a")
    assert sum(1 for _ in pictures.frames()) == pictures.context.runtime.facts["expected_frames"] == 10
