"""Preprocess: the fast forms against the plain one, and the plain one against what users do with OpenCV."""

import threading

import numpy as np
import pytest

from streamkit.core.data import Color, Surface
from streamkit.ops.boxes import crop_rects
from streamkit.ops.color import from_rgb
from streamkit.ops.preprocess import InputSpec, geometry, preprocess, preprocess_reference
from streamkit.ops.preprocess_cuda import PackedImages, fill_packed

LEFT = Color()
CENTER = Color("bt601", True, 0.5, 0.5)
TOP_LEFT = Color("bt2020", False, 0.0, 0.0)
SIZES = [(1, 1), (2, 1), (1, 2), (5, 3), (3, 50), (33, 64), (64, 48), (101, 77), (200, 33), (320, 180)]
IMAGENET = {"scale": 1 / 255, "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
SPECS = {
    "letterbox": InputSpec((75, 64)),
    "up": InputSpec((224, 160), color="bgr", anchor="top_left"),
    "stretch": InputSpec((32, 48), resize="stretch", **IMAGENET),
    "crop": InputSpec((48, 40), resize="crop", resize_to=64, color="bgr", pad=(1.0, 2.0, 3.0), **IMAGENET),
    "crop padded": InputSpec((64, 64), resize="crop", resize_to=32, anchor="center", pad=0),
    "nhwc": InputSpec((75, 64), layout="nhwc", color="bgr", pad=(10.0, 20.0, 30.0)),
    "f16": InputSpec((64, 64), dtype="f16", scale=1 / 255),
    "f16 nhwc": InputSpec((64, 64), dtype="f16", layout="nhwc", scale=1 / 255),
    "u8": InputSpec((64, 64), dtype="u8", layout="nhwc", pad=0),
    "u8 nchw": InputSpec((64, 50), dtype="u8", mean=(10, 10, 10), color="bgr"),
    "antialias": InputSpec((32, 48), resize="stretch", antialias=True, **IMAGENET),
    "antialias crop": InputSpec((24, 20), resize="crop", resize_to=26, antialias=True, pad=0, color="bgr"),
    "antialias f16 nhwc": InputSpec((21, 30), antialias=True, dtype="f16", layout="nhwc", scale=1 / 255),
}


def surface(width: int, height: int, color: Color = LEFT, seed: int = 0) -> Surface:
    shape = ((height + 1) // 2 * 3, (width + 1) // 2 * 2)
    return Surface(np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8), color)


def levels(spec: InputSpec, error: np.ndarray) -> np.ndarray:
    """A tensor's error in pixel levels, 0..255."""
    shape = (3, 1, 1) if spec.layout == "nchw" else (3,)
    return np.abs(error) / spec.affine()[0].reshape(shape)


def tolerance(spec: InputSpec) -> float:
    """The largest error in levels: a rounding of the dtype on top of the arithmetic."""
    return {"f32": 0.01, "f16": 0.5, "u8": 1.0}[spec.dtype]


@pytest.mark.parametrize("color", [LEFT, CENTER, TOP_LEFT, Color(chroma_x=1.0, chroma_y=1.0)], ids=str)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_host_equals_reference(spec: InputSpec, color: Color) -> None:
    surfaces = [surface(*size, color, seed) for seed, size in enumerate(SIZES)]
    tensor, scales = preprocess(surfaces, SIZES, spec)
    reference = preprocess_reference(surfaces, SIZES, spec)
    assert tensor.dtype == reference.dtype == spec.numpy_dtype
    assert tensor.shape == reference.shape == spec.shape(len(SIZES))
    error = levels(spec, tensor.astype(np.float64) - reference)
    assert error.max() <= tolerance(spec)
    assert error.mean() < 0.05
    assert scales.dtype == np.float32
    np.testing.assert_array_equal(scales, np.array([geometry(spec, *size) for size in SIZES], np.float32))


@pytest.mark.parametrize(("size", "side"), [((1920, 1080), 640), ((1920, 1080), 256), ((1919, 1079), 416)])
def test_large_images_are_preprocessed(size: tuple[int, int], side: int) -> None:
    frame = surface(*size)
    spec = InputSpec((side, side))
    error = np.abs(preprocess([frame], [size], spec)[0] - preprocess_reference([frame], [size], spec))
    assert error.max() < 0.1
    assert error.mean() < 0.005


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_batch_equals_its_frames_bit_for_bit(spec: InputSpec) -> None:
    surfaces = [surface(*size, (LEFT, CENTER)[seed % 2], seed) for seed, size in enumerate(SIZES)]
    tensor = preprocess(surfaces, SIZES, spec)[0].copy()
    for order in (range(len(SIZES)), reversed(range(len(SIZES)))):
        for i in order:
            np.testing.assert_array_equal(preprocess([surfaces[i]], [SIZES[i]], spec)[0][0], tensor[i])


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_rows_past_the_frames_are_padding(spec: InputSpec) -> None:
    preprocess([surface(64, 48)], [(64, 48)], spec, batch=4)[0][:] = 77  # memory that is used again
    tensor, scales = preprocess([surface(64, 48)], [(64, 48)], spec, batch=4)
    assert scales.shape == (1, 4)
    pad = spec.affine()[2].astype(spec.numpy_dtype)
    rest = tensor[1:] if spec.layout == "nhwc" else tensor[1:].transpose(0, 2, 3, 1)
    assert (rest == pad).all()
    np.testing.assert_array_equal(tensor[0], preprocess([surface(64, 48)], [(64, 48)], spec)[0][0])
    empty, scales = preprocess([], [], spec, batch=2)
    assert empty.shape == spec.shape(2)
    assert scales.shape == (0, 4)


def test_padding_is_normalized_and_in_the_order_of_color() -> None:
    black = np.zeros((10, 40, 3), np.uint8)
    frame = Surface(from_rgb(black, LEFT), LEFT)
    spec = InputSpec((40, 40), color="bgr", pad=(255.0, 51.0, 0.0), scale=1 / 255, mean=(0.5, 0, 0), std=(0.5, 1, 1))
    tensor, _ = preprocess([frame], [(40, 10)], spec)
    np.testing.assert_allclose(tensor[0, :, 0, 0], (1, 0.2, 0), atol=1e-6)
    np.testing.assert_allclose(tensor[0, :, 20, 20], (-1, 0, 0), atol=1e-6)


@pytest.mark.parametrize("color", ["rgb", "bgr"])
@pytest.mark.parametrize(("size", "side"), [((480, 360), 416), ((640, 427), 320), ((200, 150), 416)])
def test_preprocess_is_close_to_opencv(size: tuple[int, int], side: int, color: str) -> None:
    import cv2

    width, height = size
    stated = Color("bt601")  # OpenCV's one matrix
    y, x = np.mgrid[:height, :width]
    rgb = np.stack([120 + 60 * np.sin(x / 40), 110 + 60 * np.cos(y / 30), 130 + 40 * np.sin((x + y) / 50)], -1)
    data = from_rgb(rgb.round().astype(np.uint8), stated)
    frame = cv2.cvtColor(data, cv2.COLOR_YUV2RGB_NV12 if color == "rgb" else cv2.COLOR_YUV2BGR_NV12)[:height, :width]
    ratio = min(side / width, side / height)
    across = round(width * ratio)
    down = round(height * ratio)
    left = round((side - across) / 2 - 0.1)
    top = round((side - down) / 2 - 0.1)
    small = cv2.resize(frame, (across, down), interpolation=cv2.INTER_LINEAR)
    theirs = cv2.copyMakeBorder(
        small, top, side - down - top, left, side - across - left, cv2.BORDER_CONSTANT, value=(114, 114, 114)
    )
    ours, _ = preprocess([Surface(data, stated)], [size], InputSpec((side, side), color=color))
    error = np.abs(ours[0].transpose(1, 2, 0) - theirs)
    assert error.max() <= 4
    assert error.mean() <= 1


def test_a_box_of_the_source_is_at_its_position_in_the_tensor() -> None:
    rgb = np.zeros((120, 200, 3), np.uint8)
    rgb[40:80, 60:160] = 255
    spec = InputSpec((160, 128))
    tensor, scales = preprocess([Surface(from_rgb(rgb, LEFT), LEFT)], [(200, 120)], spec)
    ys, xs = np.nonzero(tensor[0, 1, 16:112] > 127)
    scale_x, scale_y, offset_x, offset_y = scales[0]
    box = [xs.min(), ys.min() + 16, xs.max() + 1, ys.max() + 17]
    expected = [60 * scale_x + offset_x, 40 * scale_y + offset_y, 160 * scale_x + offset_x, 80 * scale_y + offset_y]
    np.testing.assert_allclose(box, expected, atol=0.51)


def test_padding_of_odd_sizes_has_no_effect() -> None:
    size = (63, 47)
    spec = InputSpec((64, 64))
    clean = Surface(np.full((72, 64), 100, np.uint8), LEFT)
    data = clean.data.copy()
    data[:48, 63] = 255
    data[47] = 255
    np.testing.assert_array_equal(
        preprocess([Surface(data, LEFT)], [size], spec)[0], preprocess([clean], [size], spec)[0]
    )


def test_threads_do_not_disturb_each_other() -> None:
    spec = InputSpec((64, 64))
    wrong = []
    expected = [preprocess_reference([surface(64, 48, seed=seed)], [(64, 48)], spec) for seed in range(4)]

    def work(seed: int) -> None:
        held = []
        for _ in range(30):
            held.append(preprocess([surface(64, 48, seed=seed)], [(64, 48)], spec)[0])
            held = held[-3:]
            wrong.extend(seed for tensor in held if np.abs(tensor - expected[seed]).max() > 0.01)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ([(64, 48)], {}, "got 2 surfaces, 1 sizes and a batch of 2"),
        ([(64, 48)] * 2, {"batch": 1}, "2 sizes and a batch of 1"),
        ([(64, 48), (64, 50)], {}, "a surface of 64x48 pixels cannot hold a frame of 64x50"),
    ],
)
def test_mismatching_arguments_are_refused(sizes, options, message) -> None:
    with pytest.raises(ValueError, match=message):
        preprocess([surface(64, 48)] * 2, sizes, InputSpec((32, 32)), **options)


def test_kernel_arguments_are_computed() -> None:
    from streamkit.ops.preprocess_cuda import FRAME, SPEC, Plan

    spec = InputSpec((416, 320), color="bgr", **IMAGENET)
    packed, scales = Plan(spec).pack([surface(641, 427), surface(64, 48, CENTER)], [(641, 427), (64, 48)], [7, 9], 3)
    assert len(packed) == SPEC.itemsize + 3 * FRAME.itemsize
    assert (SPEC.itemsize % 8, FRAME.itemsize % 8) == (0, 0)
    header = np.frombuffer(packed, SPEC, 1)[0]
    frames = np.frombuffer(packed, FRAME, offset=SPEC.itemsize)
    assert (header["width"], header["height"], header["bgr"]) == (416, 320, 1)
    np.testing.assert_allclose(header["factor"], spec.affine()[0], rtol=1e-6)
    assert frames["image"]["data"].tolist() == [7, 9, 0]
    assert frames["image"]["pitch"].tolist() == [642, 64, 0]
    assert frames["image"]["rows"].tolist() == [428, 48, 0]
    assert frames["new_width"].tolist() == [416, 416, 0]
    np.testing.assert_allclose(frames["step_x"][:2] * scales[:, 0], 1, rtol=1e-6)
    assert scales.tolist() == np.array([geometry(spec, 641, 427), geometry(spec, 64, 48)], np.float32).tolist()


# ---------------------------------------------------------------------------------------------- a part of the frame

RECTS = [(0, 0, 101, 77), (0, 0, 40, 30), (20, 12, 61, 77), (100, 76, 101, 77), (2, 0, 3, 77), (34, 40, 98, 44)]


def cut(whole: Surface, rect: tuple[int, int, int, int]) -> Surface:
    """The part as a surface of its own, odd sizes padded as a surface's are; what pads it must not be seen."""
    left, top, right, bottom = rect
    wide = right - left + (right - left) % 2
    high = bottom - top + (bottom - top) % 2
    luma = whole.data[: whole.height][top : top + high, left : left + wide].copy()
    luma[bottom - top :] = 255
    luma[:, right - left :] = 255
    first = whole.height + top // 2
    chroma = whole.data[first : first + high // 2, left : left + wide]
    return Surface(np.concatenate([luma, chroma]), whole.color)


@pytest.mark.parametrize("color", [LEFT, CENTER, TOP_LEFT], ids=str)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_region_is_preprocessed_like_an_image(spec: InputSpec, color: Color) -> None:
    whole = surface(101, 77, color)
    parts = [cut(whole, rect) for rect in RECTS]
    sizes = [(right - left, bottom - top) for left, top, right, bottom in RECTS]
    many = [whole] * len(RECTS)
    frame_sizes = [(101, 77)] * len(RECTS)
    tensor, scales = preprocess(many, frame_sizes, spec, rects=RECTS)
    np.testing.assert_array_equal(tensor, preprocess(parts, sizes, spec)[0])
    np.testing.assert_array_equal(
        preprocess_reference(many, frame_sizes, spec, rects=RECTS), preprocess_reference(parts, sizes, spec)
    )
    for row, ((left, top, right, bottom), size) in enumerate(zip(RECTS, sizes, strict=True)):
        scale_x, scale_y, x, y = geometry(spec, *size)
        sx, sy, ox, oy = scales[row]
        np.testing.assert_allclose([left * sx + ox, top * sy + oy], [x, y], atol=1e-3)
        end = [x + scale_x * size[0], y + scale_y * size[1]]
        np.testing.assert_allclose([right * sx + ox, bottom * sy + oy], end, atol=1e-3)


@pytest.mark.parametrize(
    "rect", [(1, 0, 9, 9), (0, 3, 9, 9), (0, 0, 65, 48), (0, 0, 64, 49), (8, 8, 8, 20), (-2, 0, 9, 9)]
)
def test_an_invalid_region_is_refused(rect) -> None:
    with pytest.raises(ValueError, match=r"left and top even; got \(.* in 64x48"):
        preprocess([surface(64, 48)], [(64, 48)], InputSpec((32, 32)), rects=[rect])


def test_each_row_has_a_region() -> None:
    with pytest.raises(ValueError, match="one rect per surface, got 1 rects and 2 surfaces"):
        preprocess([surface(64, 48)] * 2, [(64, 48)] * 2, InputSpec((32, 32)), rects=[(0, 0, 8, 8)])


def test_kernel_arguments_of_a_region_are_computed() -> None:
    from streamkit.ops.preprocess_cuda import FRAME, SPEC, Plan

    whole = surface(101, 77)
    spec = InputSpec((64, 64))
    packed, _ = Plan(spec).pack([whole, whole], [(101, 77)] * 2, [1000, 1000], 2, [(20, 12, 61, 77), (0, 0, 40, 30)])
    frame = np.frombuffer(packed, FRAME, offset=SPEC.itemsize)["image"]
    assert frame["data"].tolist() == [1000 + 12 * 102 + 20, 1000]
    assert frame[["width", "height", "pitch"]].tolist() == [(41, 65, 102), (40, 30, 102)]
    # From there the kernel finds the part's first chroma row, in bytes behind the surface's first.
    chroma = 12 * 102 + 20 + int(frame["rows"][0]) * 102
    assert chroma == (78 + 6) * 102 + 20


# ------------------------------------------------------------------------------------------------------------- GPU


def on_device(frames: list[Surface]) -> list[Surface]:
    import cupy

    return [Surface(cupy.asarray(frame.data), frame.color) for frame in frames]


@pytest.mark.gpu
@pytest.mark.parametrize("color", [LEFT, CENTER, TOP_LEFT], ids=str)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_gpu_equals_reference(spec: InputSpec, color: Color) -> None:
    import cupy

    surfaces = [surface(*size, color, seed) for seed, size in enumerate(SIZES)]
    batch = len(SIZES) + 2
    with cupy.cuda.Stream(non_blocking=True) as stream:
        devices = on_device(surfaces)
        tensor, scales = preprocess(devices, SIZES, spec, batch=batch)
        stream.synchronize()
    assert isinstance(tensor, cupy.ndarray)
    assert tensor.dtype == spec.numpy_dtype
    assert isinstance(scales, np.ndarray)
    error = levels(spec, tensor.get().astype(np.float64) - preprocess_reference(surfaces, SIZES, spec, batch=batch))
    assert error.max() <= max(0.255, tolerance(spec))
    assert error.mean() < 0.05
    np.testing.assert_array_equal(scales, np.array([geometry(spec, *size) for size in SIZES], np.float32))


@pytest.mark.gpu
@pytest.mark.parametrize("rects", [None, RECTS], ids=["frames", "regions"])
@pytest.mark.parametrize(("block", "pitch"), [(1, 8), (2, 16)])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_packed_images_equal_the_tensor(
    spec: InputSpec, block: int, pitch: int, rects: list[tuple[int, int, int, int]] | None
) -> None:
    import cupy

    width, height = spec.size
    if spec.dtype == "u8" or spec.layout == "nhwc" or width % block or height % block:
        pytest.skip("the fused engine takes such images as a tensor")
    sizes = SIZES if rects is None else [(101, 77)] * len(rects)
    surfaces = on_device([surface(*size, LEFT, seed) for seed, size in enumerate(sizes)])
    for count in (1, len(sizes)):
        batch = count + (count > 1)
        parts = rects and rects[:count]
        tensor, _ = preprocess(surfaces[:count], sizes[:count], spec, batch=batch, rects=parts)
        rows = height // block
        columns = width // block
        blocks = tensor.reshape(batch, 3, rows, block, columns, block).transpose(0, 2, 4, 3, 5, 1)
        packed = cupy.full((batch, rows, columns, pitch), 7, np.float16)
        target = PackedImages(packed.data.ptr, batch, block, pitch)
        fill_packed(target, surfaces[:count], sizes[:count], spec, parts)
        channels = 3 * block**2
        expected = blocks.reshape(batch, rows, columns, channels).astype(np.float16)
        assert cupy.array_equal(packed[..., :channels], expected)
        assert not packed[..., channels:].any()


@pytest.mark.gpu
def test_gpu_batches_in_flight_do_not_mix() -> None:
    import cupy

    spec = InputSpec((320, 320), dtype="f16", scale=1 / 255)
    size = (640, 360)
    frames = [surface(*size, seed=seed) for seed in range(32)]
    devices = on_device(frames)
    single = [preprocess([device], [size], spec)[0] for device in devices]
    cupy.cuda.Device().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        order = np.random.default_rng(0).permutation
        rounds = [order(32) for _ in range(20)]
        tensors = [preprocess([devices[i] for i in rows], [size] * 32, spec)[0] for rows in rounds]  # none waited for
        stream.synchronize()
    for rows, tensor in zip(rounds, tensors, strict=True):
        for row, i in enumerate(rows):
            assert bool((tensor[row] == single[i][0]).all())


@pytest.mark.gpu
def test_gpu_waits_for_a_surface_that_is_not_ready() -> None:
    import cupy

    size = (1280, 720)
    spec = InputSpec((640, 640))
    frame = surface(*size)
    writer = cupy.cuda.Stream(non_blocking=True)
    reader = cupy.cuda.Stream(non_blocking=True)
    source = cupy.asarray(frame.data)
    target = cupy.zeros_like(source)
    cupy.cuda.Device().synchronize()
    with writer:
        busy = cupy.ones((4096, 4096), np.float32)
        for _ in range(20):
            busy = busy * np.float32(1.0001)
        target[...] = source
        ready = writer.record()
    with reader:
        tensor, _ = preprocess([Surface(target, frame.color, ready=ready)], [size], spec)
        reader.synchronize()
    assert np.abs(tensor.get() - preprocess_reference([frame], [size], spec)).max() < 0.255


VIEWS = np.array([[20, 10, 84, 42], [-30, 8, 98, 72], [60, -20, 140, 20], [90, 30, 240, 105]], np.float32)
"""What fills an input of twice the width: within a picture of 120 x 60, and beyond each of its edges."""


def test_a_view_beyond_the_frame_is_padded_at_its_place() -> None:
    """As if the frame had a border in the color of the padding."""
    rgb = np.random.default_rng(3).integers(90, 160, (10, 20, 3)).astype(np.uint8).repeat(6, 0).repeat(6, 1)
    spec = InputSpec((96, 48), pad=0)
    border = 160
    whole = np.zeros((380, 440, 3), np.uint8)
    whole[border : border + 60, border : border + 120] = rgb
    rects = crop_rects(VIEWS, np.array([(120, 60)] * len(VIEWS)))
    shown = [tuple(rect) for rect in rects.tolist()]
    tensor, scales = preprocess(
        [Surface(from_rgb(rgb, LEFT), LEFT)] * 4, [(120, 60)] * 4, spec, rects=shown, views=VIEWS
    )
    for image, scale, view in zip(tensor, scales, VIEWS, strict=True):
        x, y, right, bottom = (view + border).astype(int).tolist()
        expected = preprocess(
            [Surface(from_rgb(whole, LEFT), LEFT)], [(440, 380)], spec, rects=[(x, y, right, bottom)]
        )[0][0]
        away = np.abs(image - expected)
        assert np.median(away) < 2
        assert (away.max(axis=0) > 40).mean() < 0.1  # along the edges of the picture
        np.testing.assert_allclose(scale[:2], 96 / (view[2] - view[0]), rtol=0.03)
        np.testing.assert_allclose(scale[2:] + scale[:2] * view[:2], 0, atol=1.5)


@pytest.mark.gpu
@pytest.mark.parametrize("spec", [InputSpec((96, 48), pad=0), InputSpec((96, 48), antialias=True, dtype="f16")])
def test_gpu_and_host_preprocess_equal_views(spec: InputSpec) -> None:
    import cupy

    picture = surface(120, 60, CENTER)
    shown = [tuple(rect) for rect in crop_rects(VIEWS, np.array([(120, 60)] * len(VIEWS))).tolist()]
    on_gpu = Surface(cupy.asarray(picture.data), picture.color)
    host, scales = preprocess([picture] * 4, [(120, 60)] * 4, spec, rects=shown, views=VIEWS)
    device, scales_on_gpu = preprocess([on_gpu] * 4, [(120, 60)] * 4, spec, rects=shown, views=VIEWS)
    np.testing.assert_array_equal(scales, scales_on_gpu)
    assert levels(spec, np.abs(cupy.asnumpy(device).astype(np.float64) - host.astype(np.float64))).max() < 0.8


@pytest.mark.gpu
def test_gpu_refuses_a_mix_of_host_and_device() -> None:
    frames = [surface(64, 48), surface(64, 48)]
    with pytest.raises(ValueError, match="on one device"):
        preprocess([*on_device(frames[:1]), frames[1]], [(64, 48)] * 2, InputSpec((32, 32)))


@pytest.mark.gpu
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_gpu_and_host_preprocess_equal_regions(spec: InputSpec) -> None:
    whole = surface(101, 77, CENTER)
    many = [whole] * len(RECTS)
    sizes = [(101, 77)] * len(RECTS)
    tensor, scales = preprocess(on_device([whole]) * len(RECTS), sizes, spec, rects=RECTS)
    reference = preprocess_reference(many, sizes, spec, rects=RECTS)
    assert levels(spec, tensor.get().astype(np.float64) - reference).max() <= max(0.255, tolerance(spec))
    np.testing.assert_array_equal(scales, preprocess(many, sizes, spec, rects=RECTS)[1])
