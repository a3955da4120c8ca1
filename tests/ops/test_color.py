"""Color: against the standards' formulas written out, against known colors, and against FFmpeg."""

import itertools

import numpy as np
import pytest

from streamkit.core.counters import Counters
from streamkit.core.data import Color, Surface
from streamkit.ops.color import IMAGE, from_rgb, image_record, rgb_to_yuv, to_rgb, write_nv12, yuv_to_rgb

COLORS = [
    Color(matrix, full_range, *siting)
    for matrix, full_range, siting in itertools.product(
        ("bt601", "bt709", "bt2020"), (False, True), ((0.0, 0.5), (0.5, 0.5), (0.0, 0.0))
    )
]
WEIGHTS = {"bt601": (0.299, 0.587, 0.114), "bt709": (0.2126, 0.7152, 0.0722), "bt2020": (0.2627, 0.6780, 0.0593)}


def noise(width: int, height: int, seed: int = 0) -> np.ndarray:
    """NV12 data of random bytes that holds a frame of this size."""
    rows = (height + 1) // 2 * 3
    columns = (width + 1) // 2 * 2
    return np.random.default_rng(seed).integers(0, 256, (rows, columns), dtype=np.uint8)


def smooth(width: int, height: int) -> np.ndarray:
    """An RGB frame without edges, its colors within every matrix's range."""
    y, x = np.mgrid[:height, :width]
    channels = (
        120 + 60 * np.sin(x / width * 3) + 40 * np.cos(y / height * 2),
        110 + 70 * np.cos(x / width * 4 + 1),
        130 + 50 * np.sin((x / width + y / height) * 3),
    )
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def plainly(data: np.ndarray, color: Color, width: int, height: int) -> np.ndarray:
    """A frame pixel by pixel in Python's floats, from the standards: E'R = E'Y + 2 (1 - KR) E'CR, and so on."""
    kr, kg, kb = WEIGHTS[color.matrix]
    rows = data.shape[0] * 2 // 3

    def chroma(x: float, y: float, which: int) -> float:
        x = min(max((x - color.chroma_x) / 2, 0), (width + 1) // 2 - 1)
        y = min(max((y - color.chroma_y) / 2, 0), (height + 1) // 2 - 1)
        total = 0.0
        for j, wy in ((int(y), 1 - y % 1), (int(y) + 1, y % 1)):
            for i, wx in ((int(x), 1 - x % 1), (int(x) + 1, x % 1)):
                if wx * wy:
                    total += wx * wy * float(data[rows + j, 2 * i + which])
        return (total - 128) / (255 if color.full_range else 224)

    out = np.empty((height, width, 3))
    for y, x in np.ndindex(height, width):
        luma = float(data[y, x]) / 255 if color.full_range else (float(data[y, x]) - 16) / 219
        cb = chroma(x, y, 0)
        cr = chroma(x, y, 1)
        red = luma + 2 * (1 - kr) * cr
        blue = luma + 2 * (1 - kb) * cb
        out[y, x] = red, (luma - kr * red - kb * blue) / kg, blue
    return np.clip(out * 255, 0, 255)


@pytest.mark.parametrize("color", COLORS, ids=str)
@pytest.mark.parametrize(("width", "height"), [(12, 8), (7, 5), (1, 1), (2, 3)])
def test_to_rgb_equals_the_formula_of_the_standard(color: Color, width: int, height: int) -> None:
    data = noise(width, height)
    rgb = to_rgb(Surface(data, color), width, height)
    assert rgb.shape == (height, width, 3)
    assert rgb.dtype == np.uint8
    assert np.abs(rgb - plainly(data, color, width, height)).max() <= 0.501


@pytest.mark.parametrize(
    ("matrix", "full_range", "rgb", "yuv"),
    [
        ("bt601", False, (255, 0, 0), (81, 90, 240)),
        ("bt601", False, (0, 255, 0), (145, 54, 34)),
        ("bt601", False, (0, 0, 255), (41, 240, 110)),
        ("bt709", False, (255, 0, 0), (63, 102, 240)),
        ("bt709", False, (0, 255, 0), (173, 42, 26)),
        ("bt709", False, (0, 0, 255), (32, 240, 118)),
        ("bt601", True, (255, 0, 0), (76, 85, 255)),
        ("bt709", False, (255, 255, 255), (235, 128, 128)),
        ("bt2020", False, (0, 0, 0), (16, 128, 128)),
        ("bt2020", True, (255, 255, 255), (255, 128, 128)),
    ],
)
def test_primary_colors_are_exact(matrix, full_range, rgb, yuv) -> None:
    color = Color(matrix, full_range)
    data = from_rgb(np.full((2, 2, 3), rgb, np.uint8), color)
    assert (data[0, 0], data[2, 0], data[2, 1]) == yuv
    assert np.abs(to_rgb(Surface(data, color), 2, 2)[0, 0].astype(int) - rgb).max() <= 2


@pytest.mark.parametrize("color", COLORS, ids=str)
def test_conversion_and_back_preserves_colors(color: Color) -> None:
    np.testing.assert_allclose(yuv_to_rgb(color)[:, :3] @ rgb_to_yuv(color)[:, :3], np.eye(3), atol=1e-12)
    rgb = smooth(65, 47)
    data = from_rgb(rgb, color)
    assert data.shape == (72, 66)
    assert data.flags.c_contiguous
    back = to_rgb(Surface(data, color), 65, 47)
    error = np.abs(back.astype(int) - rgb)
    assert error.max() <= 6  # chroma at half the size
    assert error.mean() < 0.9


def test_odd_sizes_repeat_the_edge() -> None:
    data = from_rgb(np.arange(27, dtype=np.uint8).reshape(3, 3, 3) * 9, Color())
    assert data.shape == (6, 4)
    assert (data[:4, 3] == data[:4, 2]).all()
    assert (data[3] == data[2]).all()


@pytest.mark.parametrize(
    ("siting", "weights"),
    [(0.0, {1: 0.25, 2: 0.5, 3: 0.25}), (0.5, {2: 0.5, 3: 0.5}), (1.0, {2: 0.25, 3: 0.5, 4: 0.25})],
)
def test_chroma_is_averaged_around_its_position(siting: float, weights: dict[int, float]) -> None:
    for axis in (0, 1):
        color = Color("bt601", True, *((siting, 0.5) if axis == 1 else (0.5, siting)))
        for at in range(8):
            rgb = np.zeros((8, 8, 3), np.uint8)
            rgb[(slice(None), at) if axis == 1 else at] = (0, 0, 200)
            cb = from_rgb(rgb, color)[8:, 0::2].astype(float) - 128
            assert cb[1, 1] == pytest.approx(100 * weights.get(at, 0), abs=0.6)


@pytest.mark.parametrize("color", [c for c in COLORS if (c.chroma_x, c.chroma_y) == (0.0, 0.5)], ids=str)
def test_conversion_equals_ffmpeg(color: Color) -> None:
    av = pytest.importorskip("av")
    from av.video.reformatter import ColorRange, Interpolation, VideoReformatter

    data = from_rgb(smooth(128, 96), color)
    frame = av.VideoFrame.from_ndarray(data, format="nv12")
    space = {"bt601": 5, "bt709": 1, "bt2020": 9}[color.matrix]
    # Without these flags swscale's short cut makes white 253.
    accurate = Interpolation.BILINEAR | Interpolation.ACCURATE_RND | Interpolation.FULL_CHR_H_INT
    theirs = (
        VideoReformatter()
        .reformat(
            frame,
            format="rgb24",
            src_colorspace=space,
            dst_colorspace=space,
            interpolation=accurate,
            src_color_range=ColorRange.JPEG if color.full_range else ColorRange.MPEG,
            dst_color_range=ColorRange.JPEG,
        )
        .to_ndarray()
    )
    error = np.abs(to_rgb(Surface(data, color), 128, 96).astype(int) - theirs)
    assert error.mean() < 1
    assert error.max() <= 5


@pytest.mark.parametrize("chroma_y", [0.0, 0.5, 1.0])
def test_a_tall_image_has_no_seams_in_its_chroma(chroma_y: float) -> None:
    """`from_rgb` converts rows in bands; 64 columns make 4,096 rows a band."""
    rgb = np.random.default_rng(0).integers(0, 256, (4224, 64, 3), dtype=np.uint8)
    color = Color("bt709", False, 0.0, chroma_y)
    whole = np.empty((6336, 64), np.uint8)
    write_nv12(rgb, color, whole)
    assert np.abs(from_rgb(rgb, color).astype(int) - whole.astype(int)).max() <= 1


@pytest.mark.parametrize(
    "rgb", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32), np.zeros((0, 4, 3), np.uint8)]
)
def test_from_rgb_refuses_arrays_that_are_not_images(rgb: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"needs an image of shape \(h, w, 3\), uint8, got"):
        from_rgb(rgb, Color())


def test_a_surface_must_fit_the_image() -> None:
    surface = Surface(noise(8, 6), Color())
    with pytest.raises(ValueError, match="a surface of 8x6 pixels cannot hold a frame of 10x6"):
        to_rgb(surface, 10, 6)


def test_nothing_is_counted_on_the_host() -> None:
    counters = Counters()
    to_rgb(Surface(noise(8, 6), Color()), 8, 6, counters)
    assert counters["pixels to host"] == 0


def test_the_kernels_record() -> None:
    record = image_record(Color("bt601", True, 0.5, 0.0), (48, 64), 63, 31)
    assert IMAGE.itemsize == 64
    assert [record[n].item() for n in ("width", "height", "pitch", "rows", "chroma_x", "chroma_y")] == [
        63,
        31,
        64,
        32,
        0.5,
        0.0,
    ]
    assert record["rv"] == np.float32(1.402)
    assert record["y"] == 1


@pytest.mark.gpu
def test_a_copy_from_the_device_is_counted() -> None:
    import cupy

    data = noise(64, 48)
    counters = Counters()
    ours = to_rgb(Surface(cupy.asarray(data), Color()), 63, 47, counters)
    np.testing.assert_array_equal(ours, to_rgb(Surface(data, Color()), 63, 47))
    assert counters["pixels to host"] == 1


@pytest.mark.parametrize("xp", ["numpy", pytest.param("cupy", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("color", COLORS, ids=str)
@pytest.mark.parametrize(("width", "height"), [(64, 48), (33, 21), (2, 3)])
def test_write_nv12_equals_from_rgb_within_the_image(color: Color, width: int, height: int, xp: str) -> None:
    arrays = pytest.importorskip(xp)
    rgb = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    wanted = from_rgb(rgb, color).astype(int)
    out = arrays.empty(wanted.shape, np.uint8)
    write_nv12(arrays.asarray(rgb), color, out)
    written = np.asarray(out if xp == "numpy" else out.get()).astype(int)
    assert np.abs(written - wanted).max() <= 1
    assert (written == wanted).mean() > 0.99
