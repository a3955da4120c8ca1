import numpy as np
import pytest

from streamkit.core.data import Color
from streamkit.ops import planes
from streamkit.ops.color import from_rgb

SIZES = [(8, 6), (7, 6), (8, 5), (7, 5), (2, 2), (1, 1), (64, 2)]


def nv12(width, height, seed=0):
    data = np.random.default_rng(seed).integers(0, 256, planes.nv12_shape(width, height), np.uint8)
    rows = data.shape[0] * 2 // 3
    if width % 2:
        data[:rows, width] = data[:rows, width - 1]
    if height % 2:
        data[height] = np.concatenate([data[height - 1, :width], data[height - 1, width - 1 : width]])[: data.shape[1]]
    return data


def turned(data, width, height, rotation, **how):
    out = np.empty(planes.nv12_shape(*planes.rotated_size(width, height, rotation)), np.uint8)
    planes.rotate(data, width, height, rotation, out, **how)
    return out


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_rotating_and_back_changes_nothing(size, rotation):
    data = nv12(*size)
    there = turned(data, *size, rotation)
    back = turned(there, *planes.rotated_size(*size, rotation), 360 - rotation)
    np.testing.assert_array_equal(back, data)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
def test_mirroring_twice_changes_nothing(size, rotation):
    data = nv12(*size)
    there = turned(data, *size, rotation, mirrored=True)
    back = turned(there, *planes.rotated_size(*size, rotation), -rotation % 360)
    np.testing.assert_array_equal(turned(back, *size, 0, mirrored=True), data)


def test_a_frame_is_mirrored_before_rotation():
    data = np.zeros((9, 4), np.uint8)  # 4 wide, 6 high
    data[0] = [1, 2, 3, 4]
    data[6] = [10, 20, 30, 40]
    out = turned(data, 4, 6, 0, mirrored=True)
    assert out[0].tolist() == [4, 3, 2, 1]
    assert out[6].tolist() == [30, 40, 10, 20]
    out = turned(data, 4, 6, 90, mirrored=True)
    assert out[:4, 5].tolist() == [4, 3, 2, 1]
    assert out[4, 4:].tolist() == [30, 40]
    assert out[5, 4:].tolist() == [10, 20]


def test_a_quarter_turn_is_clockwise():
    data = np.zeros((9, 4), np.uint8)  # 4 wide, 6 high
    data[0] = [1, 2, 3, 4]
    data[6] = [10, 20, 30, 40]
    out = turned(data, 4, 6, 90)
    assert out.shape == (6, 6)
    assert out[:4, 5].tolist() == [1, 2, 3, 4]
    assert out[4, 4:].tolist() == [10, 20]
    assert out[5, 4:].tolist() == [30, 40]


@pytest.mark.parametrize("size", [(64, 48), (63, 48), (64, 47), (63, 47)])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
def test_colors_stay_at_their_positions(size, rotation, mirrored):
    from streamkit.core.data import Surface
    from streamkit.ops.color import to_rgb

    width, height = size
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([4 * x, 255 - 5 * y, 128 + 2 * x - 2 * y], -1).clip(0, 255).astype(np.uint8)
    color = Color("bt601")
    data = from_rgb(rgb, color)
    upright = to_rgb(Surface(data, color), width, height)
    new = planes.rotated_size(width, height, rotation)
    turned_color = planes.rotated_color(color, width, height, rotation, mirrored=mirrored)
    surface = Surface(turned(data, width, height, rotation, mirrored=mirrored), turned_color)
    actual = to_rgb(surface, *new).astype(int)
    expected = upright[:, ::-1] if mirrored else upright
    assert np.abs(actual - np.rot90(expected, -rotation // 90)).max() <= 1


def test_narrowing_rounds_and_clips():
    values = np.array([0, 1, 2, 5, 6, 1021, 1022, 1023], np.uint16)
    assert planes.narrow(values, 10).tolist() == [0, 0, 1, 1, 2, 255, 255, 255]
    assert planes.narrow(np.array([127, 128, 65407, 65535], np.uint16), 16).tolist() == [0, 1, 255, 255]


def test_high_and_low_bits_narrow_alike():
    low = np.arange(1024, dtype=np.uint16)
    out = np.empty((1, 1024), np.uint8)
    planes.narrow_p016((low << 6)[None], out)
    np.testing.assert_array_equal(out[0], planes.narrow(low, 10))
    np.testing.assert_array_equal(out[0], np.minimum((low + 2) >> 2, 255))


@pytest.mark.parametrize("size", SIZES)
def test_odd_edges_are_repeated(size):
    width, height = size
    y = np.random.default_rng(1).integers(0, 256, (height, width), np.uint8)
    chroma = np.full(((height + 1) // 2, (width + 1) // 2), 7, np.uint8)
    out = np.empty(planes.nv12_shape(width, height), np.uint8)
    planes.pack(y, chroma, chroma + 1, Color(), out)
    rows = out.shape[0] * 2 // 3
    np.testing.assert_array_equal(out[:rows], np.pad(y, ((0, height % 2), (0, width % 2)), "edge"))
    assert (out[rows:, 0::2] == 7).all()
    assert (out[rows:, 1::2] == 8).all()


def test_merged_chroma_is_centerd():
    y = np.zeros((2, 2), np.uint8)
    u = np.array([[10, 20], [30, 41]], np.uint8)
    out = np.empty((3, 2), np.uint8)
    color = planes.pack(y, u, u, Color("bt601", chroma_x=0, chroma_y=0), out)
    assert out[2].tolist() == [25, 25]  # 25.25
    assert (color.chroma_x, color.chroma_y) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("u", "mean", "siting"),
    [
        ([[10, 13], [30, 41]], [[24]], (0.5, 0.5)),  # of 94 / 4, rounded up
        ([[10, 13], [30, 40]], [[23]], (0.5, 0.5)),
        ([[10], [13]], [[12]], (0.0, 0.5)),  # 4:2:2: halves round up
        ([[11], [13]], [[12]], (0.0, 0.5)),
        ([[255, 255], [255, 254]], [[255]], (0.5, 0.5)),
        ([[9]], [[9]], (0.0, 0.0)),
    ],
)
def test_merged_chroma_is_the_rounded_mean(u, mean, siting):
    out = np.empty((3, 2), np.uint8)
    u = np.array(u, np.uint8)
    v = 255 - u
    color = planes.pack(np.zeros((2, 2), np.uint8), u, v, Color("bt601", chroma_x=0, chroma_y=0), out)
    assert out[2, 0] == mean[0][0]
    assert abs(255 - int(out[2, 1]) - mean[0][0]) <= 1
    assert (color.chroma_x, color.chroma_y) == siting


@pytest.mark.parametrize("shape", [(3, 5), (3, 3), (2, 3)])
def test_chroma_of_odd_sizes_keeps_its_last_sample(shape):
    """Of a frame of 5 x 3 pixels, with chroma at every place, at every second column, and at every second of both."""
    u = (np.arange(shape[0] * shape[1]).reshape(shape) * 10).astype(np.uint8)
    out = np.empty(planes.nv12_shape(5, 3), np.uint8)
    planes.pack(np.zeros((3, 5), np.uint8), u, u, Color(), out)
    chroma = out[4:, 0::2]
    assert chroma.shape == (2, 3)
    corner = u[-1, -1]
    assert chroma[-1, -1] == corner


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="needs NV12 data"):
        planes.pack(np.zeros((4, 4), np.uint8), None, None, Color(), np.zeros((6, 6), np.uint8))
    with pytest.raises(ValueError, match="rotating 4x4 by 90"):
        planes.rotate(np.zeros((6, 4), np.uint8), 4, 4, 90, np.zeros((6, 6), np.uint8))
    with pytest.raises(ValueError, match="90, 180 or 270"):
        planes.rotate(np.zeros((6, 4), np.uint8), 4, 4, 45, np.zeros((6, 4), np.uint8))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [(8, 6), (2, 2), (640, 360), (626, 360), (66, 18)])
@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize("mirrored", [False, True])
def test_device_and_host_rotate_equally(size, rotation, mirrored):
    import cupy

    data = nv12(*size)
    expected = turned(data, *size, rotation, mirrored=mirrored)
    out = cupy.empty(expected.shape, cupy.uint8)
    planes.rotate(cupy.asarray(data), *size, rotation, out, mirrored=mirrored)
    np.testing.assert_array_equal(out.get(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(3, 2), (540, 640), (3, 34), (540, 626)])
def test_device_and_host_narrow_equally(shape):
    import cupy

    data = np.random.default_rng(2).integers(0, 65536, shape, np.uint16)
    expected = np.empty(shape, np.uint8)
    out = cupy.empty(shape, cupy.uint8)
    planes.narrow_p016(data, expected)
    planes.narrow_p016(cupy.asarray(data), out)
    np.testing.assert_array_equal(out.get(), expected)
