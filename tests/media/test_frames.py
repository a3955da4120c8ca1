import io
from contextlib import closing

import av
import numpy as np
import pytest
from av.sidedata.sidedata import SideDataContainer
from PIL import Image
from support.clips import scene, write

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Device
from streamkit.media.frames import Orientation, OrientationReader, color_of, orientation_of, to_surface
from streamkit.media.reader import VideoReader
from streamkit.media.surfaces import SurfacePool
from streamkit.ops.color import to_rgb

BT601 = Color("bt601")


def frame_of(layout, width=64, height=48, index=0):
    rgb = av.VideoFrame.from_ndarray(scene(index, width, height), format="rgb24")
    return rgb.reformat(format=layout, dst_colorspace="ITU601", dst_color_range="MPEG", threads=1)


@pytest.mark.parametrize("size", [(64, 48), (63, 48), (64, 47), (33, 21)])
@pytest.mark.parametrize(
    "layout",
    [
        "yuv420p",
        "nv12",
        "yuv420p10le",
        "yuv420p12le",
        "p010le",
        "yuv422p",
        "yuv444p",
        "yuv422p10le",
        "yuv444p12le",
        "yuva420p",
        "yuyv422",
        "uyvy422",
        "rgb24",
        "bgr0",
        "gbrp",
        "yuv440p",
        "yuv411p",
    ],
)
def test_every_pixel_layout_gives_the_same_image(layout, size):
    if layout in ("nv12", "p010le", "yuyv422", "uyvy422", "yuv411p") and size[0] % 2:
        pytest.skip("FFmpeg has no such frames of odd width")
    width, height, surface = to_surface(frame_of(layout, *size), SurfacePool(Device()))
    assert (width, height) == size
    actual = to_rgb(surface, width, height).astype(int)
    limit = 24 if layout == "yuv411p" else 12
    assert np.abs(actual - scene(0, *size)).max() <= limit
    # FFmpeg makes the chroma here, by its own idea of its siting: steep gradients show that
    assert np.abs(actual - scene(0, *size)).mean() <= 4


@pytest.mark.parametrize("layout", ["gray", "gray10le"])
def test_gray_has_neutral_chroma(layout):
    _, _, surface = to_surface(frame_of(layout, 63, 47), SurfacePool(Device()))
    assert (surface.data[48:] == 128).all()
    assert surface.data[:47, :63].std() > 10


def test_planar_420_is_copied_sample_by_sample():
    frame = frame_of("yuv420p")
    _, _, surface = to_surface(frame, SurfacePool(Device()))
    np.testing.assert_array_equal(surface.data, frame.reformat(format="nv12").to_ndarray())


def test_ten_bits_are_rounded_and_clipped():
    frame = av.VideoFrame(4, 2, "yuv420p10le")
    for plane, values in zip(frame.planes, ([0, 1, 2, 3, 5, 6, 1021, 1023], [512, 514], [510, 509]), strict=True):
        row = np.zeros(plane.buffer_size // 2, "<u2")
        step = plane.line_size // 2
        for i, value in enumerate(values):
            row[i // plane.width * step + i % plane.width] = value
        plane.update(row.tobytes())
    _, _, surface = to_surface(frame, SurfacePool(Device()))
    assert surface.data.tolist() == [[0, 0, 1, 1], [1, 2, 255, 255], [128, 128, 129, 127]]


@pytest.mark.parametrize(
    ("options", "height", "color"),
    [
        ({"colorspace": 1, "color_range": 1}, 48, Color("bt709")),
        ({"colorspace": 6, "color_range": 1}, 48, Color("bt601")),
        ({"colorspace": 9, "color_range": 1}, 48, Color("bt2020")),
        ({"colorspace": 5, "color_range": 2}, 48, Color("bt601", full_range=True)),
        ({}, 48, Color("bt601")),
        ({}, 718, Color("bt601")),
        ({}, 720, Color("bt709")),
    ],
)
def test_color_comes_from_the_stream_or_the_size(tmp_path, options, height, color):
    path = write(tmp_path / "a.mp4", 64, height, 1, **options)
    with av.open(str(path)) as container:
        frame_color = color_of(next(container.decode(video=0)))
    assert (frame_color.matrix, frame_color.full_range) == (color.matrix, color.full_range)


@pytest.mark.parametrize(
    ("name", "matrix", "full"),
    [
        ("bt2020_10bit.mp4", "bt2020", False),
        ("bt601_limited_range.mp4", "bt601", False),
        ("bt709_full_range.mp4", "bt709", True),
        ("testsrc2_h265.mp4", "bt709", False),
    ],
)
def test_color_of_real_streams_is_read(test_data, name, matrix, full):
    with av.open(str(test_data / "videos" / "codec" / name)) as container:
        color = color_of(next(container.decode(video=0)))
    assert (color.matrix, color.full_range) == (matrix, full)


@pytest.mark.parametrize(("counterclockwise", "turns"), [(90, 1), (180, 2), (-90, 3)])
@pytest.mark.parametrize("size", [(64, 48), (62, 46)])
def test_frames_are_rotated_upright(tmp_path, counterclockwise, turns, size):
    path = write(tmp_path / "a.mp4", *size, 1, rotation=counterclockwise, options={"crf": "1"})
    with av.open(str(path)) as container:
        width, height, surface = to_surface(next(container.decode(video=0)), SurfacePool(Device()))
    expected = np.rot90(scene(0, *size), turns)
    assert (height, width) == expected.shape[:2]
    assert np.abs(to_rgb(surface, width, height).astype(int) - expected).mean() < 3


def with_display_matrix(path, size, degrees, *, hflip=False, vflip=False, frames=1):
    """Write a video whose container has a display matrix."""
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=25, options={"crf": "1", "g": "5", "preset": "ultrafast"})
        stream.width, stream.height = size
        stream.pix_fmt = "yuv444p"
        stream.set_display_rotation(degrees, hflip=hflip, vflip=vflip)
        for index in range(frames):
            output.mux(stream.encode(frame_of("yuv444p", *size, index)))
        output.mux(stream.encode(None))
    return path


@pytest.mark.parametrize("flips", [(False, False), (True, False), (False, True)], ids=["plain", "hflip", "vflip"])
@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("size", [(64, 48), (63, 47)])
def test_every_display_matrix_is_applied(tmp_path, size, degrees, flips):
    """Each pixel goes where FFmpeg's matrix (x' = a x + c y, y' = b x + d y, y downwards) sends it."""
    path = with_display_matrix(tmp_path / "a.mp4", size, degrees, hflip=flips[0], vflip=flips[1])
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
    matrix = SideDataContainer(frame).get("DISPLAYMATRIX")
    identity = [1 << 16, 0, 0, 0, 1 << 16]
    a, b, _, c, d = np.round((identity if matrix is None else np.frombuffer(matrix, np.int32)[:5]) / np.int32(1 << 16))
    width, height, surface = to_surface(frame, SurfacePool(Device()))
    y, x = np.mgrid[0 : size[1], 0 : size[0]]
    to_x = (a * x + c * y).astype(int)
    to_y = (b * x + d * y).astype(int)
    expected = np.empty((height, width, 3), np.uint8)
    expected[to_y - to_y.min(), to_x - to_x.min()] = scene(0, *size)
    assert np.abs(to_rgb(surface, width, height).astype(int) - expected).mean() < 4


def jpegs(orientations):
    """The bytes of JPEG images, each with its EXIF orientation; None for an image without EXIF."""
    images = []
    for index, orientation in enumerate(orientations):
        exif = Image.Exif()
        exif[0x0112] = orientation
        buffer = io.BytesIO()
        options = {} if orientation is None else {"exif": exif}
        Image.fromarray(scene(index, 64, 48)).save(buffer, "JPEG", quality=95, subsampling=0, **options)
        images.append(buffer.getvalue())
    return images


@pytest.mark.parametrize(
    ("orientation", "upright"),
    [
        (None, lambda image: image),
        (1, lambda image: image),
        (2, lambda image: image[:, ::-1]),
        (3, lambda image: image[::-1, ::-1]),
        (4, lambda image: image[::-1]),
        (5, lambda image: image.transpose(1, 0, 2)),
        (6, lambda image: np.rot90(image, -1)),
        (7, lambda image: image[::-1, ::-1].transpose(1, 0, 2)),
        (8, lambda image: np.rot90(image)),
    ],
)
def test_frames_with_exif_are_upright(tmp_path, orientation, upright):
    """PyAV has no name for the side data of EXIF, which comes beside its display matrix."""
    path = tmp_path / "camera.mjpeg"
    path.write_bytes(b"".join(jpegs([orientation] * 3)))
    with closing(VideoReader(str(path), Device(), SurfacePool(Device()), Counters())) as reader:
        frames = [frame for _, frame in reader.frames()]
    assert len(frames) == 3
    for index, frame in enumerate(frames):
        expected = upright(scene(index, 64, 48))
        assert (frame.height, frame.width) == expected.shape[:2]
        assert np.abs(to_rgb(frame.surface, frame.width, frame.height).astype(int) - expected).mean() < 3


def test_a_changing_orientation_is_applied(tmp_path):
    path = tmp_path / "camera.mjpeg"
    path.write_bytes(b"".join(jpegs([1, 1, 6, 6, 3, 1])))
    with closing(VideoReader(str(path), Device(), SurfacePool(Device()), Counters())) as reader:
        sizes = [(frame.width, frame.height) for _, frame in reader.frames()]
    assert sizes == [(64, 48)] * 2 + [(48, 64)] * 2 + [(64, 48)] * 2


def test_a_mirrored_orientation_without_an_angle_is_read_at_the_next_keyframe(tmp_path):
    """A picture that is flipped upside down has the angle 0, as one without a matrix has."""
    plain = with_display_matrix(tmp_path / "plain.mp4", (64, 48), 0, frames=4)
    flipped = with_display_matrix(tmp_path / "flipped.mp4", (64, 48), 0, vflip=True, frames=4)
    read = OrientationReader()
    orientations = []
    for path in (plain, flipped):
        with av.open(str(path)) as container:
            orientations += [read(frame) for frame in container.decode(video=0)]
    assert orientations == [Orientation()] * 4 + [Orientation(180, mirrored=True)] * 4


@pytest.mark.parametrize(
    ("degrees", "hflip", "vflip", "turn"),
    [
        (0, False, False, (0, False)),
        (90, False, False, (270, False)),
        (180, False, False, (180, False)),
        (-90, False, False, (90, False)),
        (0, True, False, (0, True)),
        (0, False, True, (180, True)),
        (0, True, True, (180, False)),
        (90, True, False, (90, True)),
        (-90, True, False, (270, True)),
        (100, False, False, (270, False)),
    ],
)
def test_a_mirrored_video_is_shown_as_by_ffmpeg(tmp_path, degrees, hflip, vflip, turn):
    """Phones that film with the front camera write such matrices."""
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=25, options={"crf": "1"})
        stream.width = 64
        stream.height = 48
        stream.pix_fmt = "yuv420p"
        stream.set_display_rotation(degrees, hflip=hflip, vflip=vflip)
        output.mux(stream.encode(frame_of("yuv420p")))
        output.mux(stream.encode(None))
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
    assert orientation_of(frame) == turn
    width, height, surface = to_surface(frame, SurfacePool(Device()))
    rotation, mirrored = turn
    expected = scene(0, 64, 48)
    expected = np.rot90(expected[:, ::-1] if mirrored else expected, -rotation // 90)
    assert (height, width) == expected.shape[:2]
    assert np.abs(to_rgb(surface, width, height).astype(int) - expected).mean() < 4
