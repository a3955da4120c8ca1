import itertools

import cv2
import numpy as np
import pytest

from streamkit.data import Color, Device
from streamkit.errors import SourceError
from streamkit.ops.color import to_rgb
from streamkit.stage import Context
from streamkit.stages.pictures import Pictures
from streamkit.stages.test_pattern import TestPattern, pattern_options


def picture(width=40, height=30, shade=0):
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([5 * x, 7 * y, 0 * x + shade], -1).clip(0, 255).astype(np.uint8)


def write(path, rgb):
    assert cv2.imwrite(str(path), rgb[..., ::-1])


def frames(uri, device=None, **given):
    source = Pictures(uri=str(uri), **given)
    source.context = Context(id="shots", device=device or Device())
    return source, source.frames()


@pytest.mark.parametrize("suffix", ["png", "bmp", "jpg", "webp", "tif"])
@pytest.mark.parametrize("size", [(40, 30), (41, 31)])
def test_a_picture_keeps_its_colours(tmp_path, suffix, size):
    write(tmp_path / f"a.{suffix}", picture(*size))
    _, made = frames(tmp_path)
    (frame,) = made
    assert (frame.width, frame.height) == size
    assert frame.surface.color == Color("bt601", True, 0.5, 0.5)
    got = to_rgb(frame.surface, *size).astype(int)
    assert np.abs(got - picture(*size)).mean() < 4


def test_order_times_and_turns(tmp_path):
    for i in (1, 2, 10):
        write(tmp_path / f"shot{i}.png", picture(shade=20 * i))
    _, made = frames(tmp_path / "shot*.png", rate=2.0, loop=2)
    found = list(made)
    assert [f.index for f in found] == list(range(6))
    assert [f.pts_s for f in found] == [0, 0.5, 1, 1.5, 2, 2.5]
    blue = [int(to_rgb(f.surface, 40, 30)[0, 0, 2]) for f in found]
    assert blue == pytest.approx([20, 40, 200] * 2, abs=4)


def test_every_takes_some(tmp_path):
    for i in range(5):
        write(tmp_path / f"{i}.png", picture())
    assert [f.index for f in frames(tmp_path, every=2)[1]] == [0, 2, 4]


def test_exif_turns_the_picture(tmp_path):
    write(tmp_path / "a.jpg", picture(40, 30))
    data = (tmp_path / "a.jpg").read_bytes()
    orientation_6 = bytes.fromhex("ffe100224578696600004d4d002a00000008000101120003000000010006000000000000")
    (tmp_path / "a.jpg").write_bytes(data[:2] + orientation_6 + data[2:])
    (frame,) = frames(tmp_path)[1]
    assert (frame.width, frame.height) == (30, 40)


def test_a_broken_picture_fails_alone(tmp_path):
    for i in range(4):
        write(tmp_path / f"{i}.jpg", picture())
    whole = (tmp_path / "1.jpg").read_bytes()
    (tmp_path / "1.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "2.jpg").write_bytes(b"no picture at all")
    source, made = frames(tmp_path)
    found = [next(made) for _ in range(4)]
    with pytest.raises(SourceError, match=r"1\.jpg: the JPEG is cut short; .*2\.jpg: this is not a picture"):
        next(made)
    assert [f.error is None for f in found] == [True, False, False, True]
    assert str(tmp_path / "2.jpg") in found[2].error
    assert source.context.counters["pictures that cannot be read"] == 2


def test_no_such_picture(tmp_path):
    _, made = frames(tmp_path / "a.jpg")
    assert "No such file" in next(made).error
    with pytest.raises(SourceError, match="No such file"):
        next(made)


def pattern(uri, device=None, **given):
    source = TestPattern(uri=uri, **given)
    source.context = Context(id="test", device=device or Device())
    return source.frames()


def test_the_pattern_is_the_same_in_every_run_and_moves():
    one = [f.surface.data.copy() for f in pattern("test://?width=64&height=36&frames=10")]
    two = [f.surface.data.copy() for f in pattern("test://?width=64&height=36&frames=10")]
    assert len(one) == 10
    assert all((a == b).all() for a, b in zip(one, two, strict=True))
    assert all((a != b).any() for a, b in itertools.pairwise(one))


def test_the_patterns_frames():
    found = list(pattern("test://?width=63&height=35&fps=50&frames=3"))
    assert [(f.index, f.pts_s, f.width, f.height) for f in found] == [
        (0, 0.0, 63, 35),
        (1, 0.02, 63, 35),
        (2, 0.04, 63, 35),
    ]
    assert found[0].surface.data.shape == (54, 64)


def test_a_pattern_without_an_end():
    made = pattern("test://?width=16&height=16&frames=0")
    assert [next(made).index for _ in range(300)][-1] == 299
    made.close()


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("test://?widht=3", "no parameter 'widht', only width"),
        ("test://?width=x", "width must be a number from 2 up, got 'x'"),
        ("test://?frames=1.5", "frames must be"),
        ("test://?fps=0", "fps must be"),
    ],
)
def test_wrong_patterns(uri, text):
    with pytest.raises(SourceError, match=text):
        pattern_options(uri)


@pytest.mark.gpu
def test_both_come_to_the_device(tmp_path):
    import cupy

    write(tmp_path / "a.png", picture(41, 31))
    for make in (lambda d: frames(tmp_path, device=d)[1], lambda d: pattern("test://?width=66&height=34&frames=9", d)):
        for one, other in zip(make(Device()), make(Device("cuda")), strict=True):
            assert isinstance(other.surface.data, cupy.ndarray)
            other.surface.ready.synchronize()
            np.testing.assert_array_equal(other.surface.data.get(), one.surface.data)
