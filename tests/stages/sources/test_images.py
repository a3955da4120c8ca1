import itertools

import cv2
import numpy as np
import pytest

from streamkit.core.data import Color, Device
from streamkit.core.errors import SourceError
from streamkit.core.stage import Context
from streamkit.ops.color import to_rgb
from streamkit.stages.sources.images import ImageSource
from streamkit.stages.sources.test_pattern import TestPattern, pattern_options


def picture(width=40, height=30, shade=0):
    y, x = np.mgrid[0:height, 0:width]
    return np.stack([5 * x, 7 * y, 0 * x + shade], -1).clip(0, 255).astype(np.uint8)


def write(path, rgb):
    assert cv2.imwrite(str(path), rgb[..., ::-1])


def frames(uri, device=None, **options):
    source = ImageSource(uri=str(uri), **options)
    source.context = Context(id="shots", device=device or Device())
    return source, source.frames()


@pytest.mark.parametrize("suffix", ["png", "bmp", "jpg", "webp", "tif"])
@pytest.mark.parametrize("size", [(40, 30), (41, 31)])
def test_an_image_keeps_its_colors(tmp_path, suffix, size):
    write(tmp_path / f"a.{suffix}", picture(*size))
    _, stream = frames(tmp_path)
    (frame,) = stream
    assert (frame.width, frame.height) == size
    assert frame.surface.color == Color("bt601", True, 0.5, 0.5)
    actual = to_rgb(frame.surface, *size).astype(int)
    assert np.abs(actual - picture(*size)).mean() < 4


def test_images_have_order_times_and_loops(tmp_path):
    for i in (1, 2, 10):
        write(tmp_path / f"shot{i}.png", picture(shade=20 * i))
    _, stream = frames(tmp_path / "shot*.png", rate=2.0, loop=2)
    images = list(stream)
    assert [f.index for f in images] == list(range(6))
    assert [f.pts_s for f in images] == [0, 0.5, 1, 1.5, 2, 2.5]
    blue = [int(to_rgb(f.surface, 40, 30)[0, 0, 2]) for f in images]
    assert blue == pytest.approx([20, 40, 200] * 2, abs=4)


def test_every_selects_images(tmp_path):
    for i in range(5):
        write(tmp_path / f"{i}.png", picture())
    assert [f.index for f in frames(tmp_path, every=2)[1]] == [0, 2, 4]


TAKEN = [
    ({"start": 1.0}, range(2, 12)),
    ({"start": 1.01}, range(3, 12)),
    ({"start": 1.0, "end": 2.0}, [2, 3]),
    ({"end": 1.5}, [0, 1, 2]),
    ({"start": 1.5, "every": 4}, [4, 8]),
    ({"fps": 1.0}, [0, 2, 4, 6, 8, 10]),
    ({"fps": 1.0, "start": 1.5, "end": 4.0}, [3, 5, 7]),
    ({"fps": 1.0, "every": 3}, [0, 3, 6, 9]),
]
NOTHING = [
    ({"start": 100.0}, r"no frame between start 100 s and end; the .* is 6 s long$"),
    ({"start": 0.1, "end": 0.4}, r"between start 0\.1 s and end 0\.4 s; the"),
    ({"start": 4.5, "every": 10, "end": 5.0}, r"multiple of every, 10, between start 4\.5 s and end 5 s"),
]


@pytest.fixture(scope="module")
def dozen(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dozen")
    for i in range(12):
        write(folder / f"{i}.png", picture(shade=20 * i))
    return folder


@pytest.mark.parametrize(("options", "indices"), TAKEN)
def test_a_selection_of_images_is_read(dozen, options, indices):
    for stream in (
        frames(dozen, rate=2.0, **options)[1],
        pattern("test://?width=16&height=16&fps=2&frames=12", **options),
    ):
        assert [(f.index, f.pts_s) for f in stream] == [(i, i / 2) for i in indices]


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 12),
        ({"start": 1.0}, 10),
        ({"start": 1.0, "end": 2.0}, 2),
        ({"end": 1.5}, 3),
        ({"fps": 1.0}, 6),
        ({"every": 4}, 3),
        ({"fps": 1.0, "every": 3}, 4),
        ({"loop": 3}, 36),
        ({"loop": True}, None),
    ],
)
def test_the_number_of_frames_is_expected_before_the_first(dozen, options, count):
    source, coming = frames(dozen, rate=2.0, **options)
    next(coming)
    assert source.context.runtime.facts["expected_frames"] == count
    if count is not None:
        assert 1 + sum(1 for _ in coming) == count


def test_a_part_shows_its_images_in_every_loop(dozen):
    images = list(frames(dozen, rate=2.0, start=1.0, end=2.0, loop=2)[1])
    assert [(f.index, f.pts_s) for f in images] == [(2, 1.0), (3, 1.5), (4, 2.0), (5, 2.5)]
    assert [int(to_rgb(f.surface, 40, 30)[0, 0, 2]) for f in images] == pytest.approx([40, 60] * 2, abs=4)


@pytest.mark.parametrize(("options", "text"), NOTHING)
def test_a_selection_without_images_is_an_error(dozen, options, text):
    for stream in (
        frames(dozen, rate=2.0, **options)[1],
        pattern("test://?width=16&height=16&fps=2&frames=12", **options),
    ):
        with pytest.raises(SourceError, match=text):
            next(stream)


def test_an_endless_loop_over_nothing_ends(dozen):
    with pytest.raises(SourceError, match="no frame between start 100 s and end"):
        next(frames(dozen, loop=True, start=100.0)[1])


@pytest.mark.parametrize("kind", [ImageSource, TestPattern])
def test_an_end_before_the_start_is_refused(kind):
    with pytest.raises(ValueError, match="end must be after start, got start 2 s and end 1 s"):
        kind(uri="test://", start=2.0, end=1.0)


def test_exif_rotates_the_image(tmp_path):
    write(tmp_path / "a.jpg", picture(40, 30))
    data = (tmp_path / "a.jpg").read_bytes()
    orientation_6 = bytes.fromhex("ffe100224578696600004d4d002a00000008000101120003000000010006000000000000")
    (tmp_path / "a.jpg").write_bytes(data[:2] + orientation_6 + data[2:])
    (frame,) = frames(tmp_path)[1]
    assert (frame.width, frame.height) == (30, 40)


def test_a_broken_image_fails_alone(tmp_path):
    for i in range(4):
        write(tmp_path / f"{i}.jpg", picture())
    whole = (tmp_path / "1.jpg").read_bytes()
    (tmp_path / "1.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "2.jpg").write_bytes(b"no picture at all")
    source, stream = frames(tmp_path)
    images = [next(stream) for _ in range(4)]
    with pytest.raises(SourceError, match=r"1\.jpg: the JPEG is truncated; .*2\.jpg: this is not an image"):
        next(stream)
    assert [f.error is None for f in images] == [True, False, False, True]
    assert str(tmp_path / "2.jpg") in images[2].error
    assert source.context.counters["unreadable images"] == 2


def test_a_missing_image_is_reported(tmp_path):
    _, stream = frames(tmp_path / "a.jpg")
    assert "No such file" in next(stream).error
    with pytest.raises(SourceError, match="No such file"):
        next(stream)


def pattern(uri, device=None, **options):
    source = TestPattern(uri=uri, **options)
    source.context = Context(id="test", device=device or Device())
    return source.frames()


def test_the_pattern_is_the_same_in_every_run_and_moves():
    first_run = [f.surface.data.copy() for f in pattern("test://?width=64&height=36&frames=10")]
    second_run = [f.surface.data.copy() for f in pattern("test://?width=64&height=36&frames=10")]
    assert len(first_run) == 10
    assert all((a == b).all() for a, b in zip(first_run, second_run, strict=True))
    assert all((a != b).any() for a, b in itertools.pairwise(first_run))


def test_the_pattern_has_bars_from_black_to_white_and_a_white_box():
    first, second = (f.surface.data for f in pattern("test://?width=640&height=64&frames=2"))
    bars = [16 + column % 256 * 219 // 255 for column in range(644)]
    assert first[40, :640].tolist() == bars[:640]
    assert second[40, :640].tolist() == bars[4:644]  # they move by four pixels a frame
    assert (first[:8, :8] == 235).all()
    assert (second[2:10, 4:12] == 235).all()
    chroma = first[64:].reshape(32, 320, 2)
    assert chroma[0, [0, -1], 0].tolist() == [64, 192]
    assert chroma[[0, -1], 0, 1].tolist() == [192, 64]


def test_the_test_pattern_has_its_frames():
    images = list(pattern("test://?width=63&height=35&fps=50&frames=3"))
    assert [(f.index, f.pts_s, f.width, f.height) for f in images] == [
        (0, 0.0, 63, 35),
        (1, 0.02, 63, 35),
        (2, 0.04, 63, 35),
    ]
    assert images[0].surface.data.shape == (54, 64)


def test_an_endless_test_pattern_is_unbounded():
    stream = pattern("test://?width=16&height=16&frames=0")
    assert [next(stream).index for _ in range(300)][-1] == 299
    stream.close()
    assert TestPattern(uri="test://?frames=0").unbounded


def test_an_endless_test_pattern_ends_at_end():
    options = {"start": 20.0, "end": 20.2}
    assert [f.index for f in pattern("test://?width=16&height=16&frames=0", **options)] == list(range(500, 505))
    assert not TestPattern(uri="test://?frames=0", **options).unbounded


@pytest.mark.parametrize(
    ("uri", "text"),
    [
        ("test://?widht=3", "no parameter 'widht', only width"),
        ("test://pattrn", r"test://pattrn: after test:// come only parameters, as in test://\?width=640&height=360$"),
        ("test://widht=3", "only parameters, .*did you mean 'width'"),
        ("clip.mp4", "only parameters"),
        ("test://?width=x", "width must be a number from 2 to 16384, got 'x'"),
        ("test://?frames=1.5", "frames must be"),
        ("test://?fps=0", "fps must be"),
    ],
)
def test_invalid_test_patterns_are_refused(uri, text):
    with pytest.raises(SourceError, match=text):
        pattern_options(uri)


@pytest.mark.gpu
def test_images_and_patterns_are_uploaded_to_the_device(tmp_path):
    import cupy

    write(tmp_path / "a.png", picture(41, 31))
    uri = "test://?width=66&height=34&frames=9"
    for frames_on in (lambda device: frames(tmp_path, device)[1], lambda device: pattern(uri, device)):
        for host_frame, device_frame in zip(frames_on(Device()), frames_on(Device("cuda")), strict=True):
            assert isinstance(device_frame.surface.data, cupy.ndarray)
            device_frame.surface.ready.synchronize()
            np.testing.assert_array_equal(device_frame.surface.data.get(), host_frame.surface.data)


def test_an_oversized_image_fails_and_the_others_continue(tmp_path):
    write(tmp_path / "a.png", picture(40, 30))
    write(tmp_path / "b.png", picture(80, 30))
    write(tmp_path / "c.png", picture(40, 30))
    source, stream = frames(tmp_path, max_megapixels=0.0012)
    images = [next(stream) for _ in range(3)]
    with pytest.raises(SourceError, match=r"b\.png: 80x30 is 0\.0 megapixels, and the limit is 0\.0012; raise max_meg"):
        next(stream)
    assert [(f.index, f.width, f.error is None) for f in images] == [(0, 40, True), (1, 0, False), (2, 40, True)]
    assert source.context.counters["unreadable images"] == 1
    assert len(list(frames(tmp_path, max_megapixels=0.0024)[1])) == 3
