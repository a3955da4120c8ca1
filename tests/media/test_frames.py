import av
import numpy as np
import pytest
from support.clips import scene, write

from streamkit.core.data import Color, Device
from streamkit.media.frames import color_of, orientation_of, to_surface
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
        "yuv420p", "nv12", "yuv420p10le", "yuv420p12le", "p010le", "yuv422p", "yuv444p", "yuv422p10le", "yuv444p12le",
        "yuva420p", "yuyv422", "uyvy422", "rgb24", "bgr0", "gbrp", "yuv440p", "yuv411p",
    ],
)  # fmt: skip
def test_every_layout_shows_the_same_picture(layout, size):
    if layout in ("nv12", "p010le", "yuyv422", "uyvy422", "yuv411p") and size[0] % 2:
        pytest.skip("FFmpeg has no such frames of odd width")
    width, height, surface = to_surface(frame_of(layout, *size), SurfacePool(Device()))
    assert (width, height) == size
    got = to_rgb(surface, width, height).astype(int)
    limit = 24 if layout == "yuv411p" else 12
    assert np.abs(got - scene(0, *size)).max() <= limit
    # FFmpeg makes the chroma here, by its own idea of its siting: steep gradients show that
    assert np.abs(got - scene(0, *size)).mean() <= 4


@pytest.mark.parametrize("layout", ["gray", "gray10le"])
def test_gray_has_neutral_chroma(layout):
    _, _, surface = to_surface(frame_of(layout, 63, 47), SurfacePool(Device()))
    assert (surface.data[48:] == 128).all()
    assert surface.data[:47, :63].std() > 10


def test_flat_420_is_taken_sample_by_sample():
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
def test_colour_comes_from_the_stream_or_the_size(tmp_path, options, height, color):
    path = write(tmp_path / "a.mp4", 64, height, 1, **options)
    with av.open(str(path)) as container:
        found = color_of(next(container.decode(video=0)))
    assert (found.matrix, found.full_range) == (color.matrix, color.full_range)


@pytest.mark.parametrize(("name", "matrix", "full"), [
    ("bt2020_10bit.mp4", "bt2020", False), ("bt601_limited_range.mp4", "bt601", False),
    ("bt709_full_range.mp4", "bt709", True), ("testsrc2_h265.mp4", "bt709", False),
])  # fmt: skip
def test_colour_of_real_streams(test_data, name, matrix, full):
    with av.open(str(test_data / "videos" / "codec" / name)) as container:
        color = color_of(next(container.decode(video=0)))
    assert (color.matrix, color.full_range) == (matrix, full)


@pytest.mark.parametrize(("counterclockwise", "turns"), [(90, 1), (180, 2), (-90, 3)])
@pytest.mark.parametrize("size", [(64, 48), (62, 46)])
def test_pictures_are_turned_upright(tmp_path, counterclockwise, turns, size):
    path = write(tmp_path / "a.mp4", *size, 1, rotation=counterclockwise, options={"crf": "1"})
    with av.open(str(path)) as container:
        width, height, surface = to_surface(next(container.decode(video=0)), SurfacePool(Device()))
    want = np.rot90(scene(0, *size), turns)
    assert (height, width) == want.shape[:2]
    assert np.abs(to_rgb(surface, width, height).astype(int) - want).mean() < 3


@pytest.mark.parametrize("flips", [(False, False), (True, False), (False, True)], ids=["plain", "hflip", "vflip"])
@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
@pytest.mark.parametrize("size", [(64, 48), (63, 47)])
def test_every_display_matrix_is_followed(size, degrees, flips):
    """Each pixel goes where FFmpeg's matrix (x' = a x + c y, y' = b x + d y, y downwards) sends it."""
    frame = DisplayFrame(frame_of("yuv444p", *size), degrees, *flips)
    width, height, surface = to_surface(frame, SurfacePool(Device()))
    given = scene(0, *size)
    a, b, c, d = frame.quarter_turns
    y, x = np.mgrid[0 : size[1], 0 : size[0]]
    to_x, to_y = a * x + c * y, b * x + d * y
    want = np.empty((height, width, 3), np.uint8)
    want[to_y - to_y.min(), to_x - to_x.min()] = given
    assert np.abs(to_rgb(surface, width, height).astype(int) - want).mean() < 4


class DisplayFrame:
    """An `av.VideoFrame` with a display matrix, as a container gives it one."""

    def __init__(self, frame, degrees, hflip, vflip):
        cosine, sine = round(np.cos(np.radians(degrees))), round(np.sin(np.radians(degrees)))
        self.quarter_turns = cosine, sine, -sine, cosine
        if hflip or vflip:  # as av_display_matrix_flip does: behind the turn
            a, b, c, d = self.quarter_turns
            across, down = (-1 if hflip else 1), (-1 if vflip else 1)
            self.quarter_turns = a * across, b * down, c * across, d * down
        a, b, c, d = self.quarter_turns
        matrix = np.array([a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30], np.int32)
        self._frame, self.side_data = frame, {"DISPLAYMATRIX": matrix.tobytes()}

    def __getattr__(self, name):
        return getattr(self._frame, name)


@pytest.mark.parametrize(
    ("degrees", "hflip", "vflip", "turn"),
    [
        (0, False, False, (0, False)), (90, False, False, (270, False)), (180, False, False, (180, False)),
        (-90, False, False, (90, False)), (0, True, False, (0, True)), (0, False, True, (180, True)),
        (0, True, True, (180, False)), (90, True, False, (90, True)), (-90, True, False, (270, True)),
        (100, False, False, (270, False)),
    ],
)  # fmt: skip
def test_a_mirrored_video_is_shown_as_ffmpeg_means_it(tmp_path, degrees, hflip, vflip, turn):
    """Phones that film with the front camera write such matrices."""
    path = tmp_path / "a.mp4"
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=25, options={"crf": "1"})
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.set_display_rotation(degrees, hflip=hflip, vflip=vflip)
        output.mux(stream.encode(frame_of("yuv420p")))
        output.mux(stream.encode(None))
    with av.open(str(path)) as container:
        frame = next(container.decode(video=0))
    assert orientation_of(frame) == turn
    width, height, surface = to_surface(frame, SurfacePool(Device()))
    rotation, mirrored = turn
    want = scene(0, 64, 48)
    want = np.rot90(want[:, ::-1] if mirrored else want, -rotation // 90)
    assert (height, width) == want.shape[:2]
    assert np.abs(to_rgb(surface, width, height).astype(int) - want).mean() < 4
