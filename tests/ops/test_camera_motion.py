"""A camera's motion between two pictures: its accuracy, what it ignores, when it is not known, and the device's."""

import statistics
import time

import numpy as np
import pytest
from support.textures import HEIGHT, WIDTH, as_surface, corner_error, seen_through, similarity, texture

from streamkit.core.data import Surface
from streamkit.ops import traffic
from streamkit.ops.camera_motion import camera_motions, displacement

NO_BOXES = np.zeros((0, 4), np.float32)
MOTIONS = {
    "still": similarity(),
    "pan": similarity(dx=23, dy=-8),
    "fast pan": similarity(dx=-55),
    "zoom": similarity(zoom=1.07),
    "roll": similarity(roll_degrees=3),
    "all": similarity(dx=9, dy=5, zoom=0.95, roll_degrees=-2),
}


def estimate(before, now, boxes=(NO_BOXES, NO_BOXES), on=as_surface):
    marks, (no_motion,) = camera_motions([on(before)], [before.shape[::-1]], boxes[:1], [None])
    assert no_motion is None
    return camera_motions([on(now)], [now.shape[::-1]], boxes[1:], marks)[1][0]


@pytest.mark.parametrize("camera", MOTIONS.values(), ids=MOTIONS)
def test_the_motion_of_a_picture_is_estimated_to_half_a_pixel(camera):
    luma = texture()
    assert corner_error(estimate(luma, seen_through(luma, camera)), camera) < 0.5


@pytest.mark.parametrize(("width", "height"), [(1920, 1080), (360, 640), (353, 287), (1366, 768)])
def test_motion_is_in_pixels_of_frames_of_any_size(width, height):
    luma = texture(1, width, height)
    camera = similarity(dx=width / 40, dy=-height / 60, zoom=1.02, width=width, height=height)
    error = corner_error(estimate(luma, seen_through(luma, camera)), camera, width, height)
    assert error < 0.001 * max(width, height)


def with_a_bus(luma, x):
    """The picture with an object over half of it, whose texture moves by itself."""
    picture = luma.copy()
    picture[60:300, x : x + 400] = texture(9)[60:300, 100:500]
    return picture


def test_what_moves_inside_detections_is_ignored():
    luma = texture()
    before = with_a_bus(luma, 100)
    now = with_a_bus(luma, 112)
    boxes = [np.array([(x, 60, x + 400, 300)], np.float32) for x in (100, 112)]
    assert corner_error(estimate(before, now, boxes), similarity()) < 0.5
    assert displacement(estimate(before, now), WIDTH, HEIGHT) > 0.01, "the bus decides"


def test_an_undetected_object_on_plain_ground_moves_no_camera():
    """Most corners are on it, but all of them are in a few areas of the picture."""
    ground = np.full((HEIGHT, WIDTH), 60, np.uint8)
    rng = np.random.default_rng(0)
    for x, y in rng.uniform((30, 30), (WIDTH - 40, HEIGHT - 40), (16, 2)).astype(int):
        ground[y : y + 10, x : x + 10] = 200
    car = texture(9)[60:260, 100:240]
    pictures = []
    for shift in (0, 12):
        picture = ground.copy()
        picture[80 + shift : 280 + shift, 250:390] = car
        pictures.append(picture)
    motion = estimate(*pictures)
    assert motion is None or displacement(motion, WIDTH, HEIGHT) < 0.001


def test_invalid_boxes_are_no_obstacle():
    luma = texture()
    boxes = np.array([(np.nan, 0, 10, 10), (50, 50, 40, 40), (-90, -90, 1e6, 20), (0, 0, np.inf, 9)], np.float32)
    camera = similarity(dx=10)
    assert corner_error(estimate(luma, seen_through(luma, camera), (boxes, boxes)), camera) < 0.5


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (np.full((HEIGHT, WIDTH), 16, np.uint8), np.full((HEIGHT, WIDTH), 16, np.uint8)),
        (texture(1), texture(2)),
        (texture(), np.full((HEIGHT, WIDTH), 16, np.uint8)),
        (texture(), seen_through(texture(), similarity(zoom=2.0))),
        (texture(), texture(0, 320, 180)),
        (texture(0, 24, 16), texture(0, 24, 16)),
        (texture(0, 700, 2), texture(0, 700, 2)),
        (texture(0, 1, 1), texture(0, 1, 1)),
    ],
    ids=["dark", "a cut", "to black", "a jump of the zoom", "another size", "too small", "too flat", "a pixel"],
)
def test_motion_is_unknown_where_few_corners_agree(before, now):
    assert estimate(before, now) is None


def test_nothing_is_estimated_of_nothing():
    assert camera_motions([], [], [], []) == ([], [])


def on_device(luma):
    import cupy

    surface = as_surface(luma)
    return Surface(cupy.asarray(surface.data), surface.color)


@pytest.mark.gpu
@pytest.mark.parametrize("camera", MOTIONS.values(), ids=MOTIONS)
def test_the_device_estimates_the_same_motion(camera):
    luma = texture()
    now = seen_through(luma, camera)
    boxes = [np.array([(100, 80, 260, 300), (400, 20, 470, 200)], np.float32)] * 2
    on_host = estimate(luma, now, boxes)
    assert corner_error(estimate(luma, now, boxes, on_device), on_host) < 0.001 * WIDTH


@pytest.mark.gpu
def test_the_device_knows_as_little_where_few_corners_agree():
    dark = np.full((HEIGHT, WIDTH), 16, np.uint8)
    for before, now in ((dark, dark), (texture(1), texture(2)), (texture(), texture(0, 320, 180))):
        assert estimate(before, now, on=on_device) is None


@pytest.mark.gpu
def test_frames_of_all_sizes_are_estimated_together_on_the_device():
    sizes = [(1920, 1080), (640, 360), (353, 287)]
    pairs = []
    for width, height in sizes:
        luma = texture(1, width, height)
        now = seen_through(luma, similarity(dx=width / 50, width=width, height=height))
        pairs.append((on_device(luma), on_device(now)))
    earlier, _ = camera_motions([before for before, _ in pairs], sizes, [NO_BOXES] * 3, [None] * 3)
    _, motions = camera_motions([now for _, now in pairs], sizes, [NO_BOXES] * 3, earlier)
    for motion, (width, height) in zip(motions, sizes, strict=True):
        camera = similarity(dx=width / 50, width=width, height=height)
        assert corner_error(motion, camera, width, height) < 0.001 * width


@pytest.mark.gpu
def test_the_device_measures_frames_with_and_without_an_earlier_one_together():
    luma = texture()
    camera = similarity(dx=9, dy=-4)
    surfaces = [on_device(luma), on_device(seen_through(luma, camera))]
    sizes = [(WIDTH, HEIGHT)] * 2
    (first, _), no_motions = camera_motions(surfaces, sizes, [NO_BOXES] * 2, [None, None])
    assert no_motions == [None, None]
    other, _ = camera_motions([on_device(texture(0, 320, 180))], [(320, 180)], [NO_BOXES], [None])
    _, motions = camera_motions([surfaces[1]] * 3, sizes[:1] * 3, [NO_BOXES] * 3, [None, first, other[0]])
    assert (motions[0], motions[2]) == (None, None)
    assert corner_error(motions[1], camera) < 0.001 * WIDTH


@pytest.mark.gpu
@pytest.mark.alone
@pytest.mark.parametrize("cameras", [1, 4, 16])
def test_a_frame_of_1080p_takes_half_a_millisecond_and_copies_no_pixels(cameras, record_property):
    luma = texture(0, 1920, 1080)
    sizes = [(1920, 1080)] * cameras
    boxes = [np.tile([(200.0, 300.0, 260.0, 420.0)], (30, 1)) + 40.0 * np.arange(30)[:, None]] * cameras
    surfaces = [on_device(luma), on_device(seen_through(luma, similarity(dx=12, width=1920, height=1080)))]
    earlier, _ = camera_motions(surfaces[:1] * cameras, sizes, boxes, [None] * cameras)
    spent_s = []
    before = traffic.so_far()
    for turn in range(60):
        started_s = time.perf_counter()
        earlier, motions = camera_motions([surfaces[(turn + 1) % 2]] * cameras, sizes, boxes, earlier)
        spent_s.append(time.perf_counter() - started_s)
        assert all(motion is not None for motion in motions)
    assert traffic.so_far().to_host - before.to_host <= 60 * cameras * 4096
    frame_s = statistics.median(spent_s[10:]) / cameras
    record_property("milliseconds_a_frame", round(1000 * frame_s, 3))
    print(f"{cameras} cameras: {1000 * frame_s:.3f} ms a frame")
    assert frame_s <= 0.0005
