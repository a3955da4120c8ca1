"""Maps over frames: ranges, medians and colors against plain loops, and on both devices."""

import numpy as np
import pytest
from support.map_networks import gray_frames

from streamkit.core.data import Color, FrameMap
from streamkit.ops import rle
from streamkit.ops.frame_maps import frame_rects, medians, object_samples, paint, palette, ranged, to_maps

RANDOM = np.random.default_rng(5)
SIZE = (40, 24)  # of the maps
FRAMES = np.array([(160, 96), (90, 96)])


def placed(n=2):
    """Where maps lie: one stretched, one letterboxed with padding at the sides."""
    geometry = np.array([(40 / 160, 24 / 96, 0, 0), (22 / 90, 24 / 96, 9, 0)], np.float32)[:n]
    places = to_maps(geometry, SIZE, SIZE)
    return places, frame_rects(places, FRAMES[:n], SIZE)


def random_maps(n=2, broken=True):
    maps = RANDOM.random((n, SIZE[1], SIZE[0])).astype(np.float32) * 9 + 1
    if broken:
        maps[0, 3, 4] = np.nan
        maps[0, 5, 6] = np.inf
    return maps


def plain_median(maps, frame, box, to_map, rect, mask=None):
    """The lower median of the places whose middle is in the box, by loops."""
    values = []
    for y in range(rect[1], rect[3]):
        for x in range(rect[0], rect[2]):
            px = (x + 0.5 - to_map[2]) / to_map[0]
            py = (y + 0.5 - to_map[3]) / to_map[1]
            if box[0] <= px <= box[2] and box[1] <= py <= box[3] and (mask is None or mask[int(py), int(px)]):
                values.append(float(maps[frame, y, x]))
    values = sorted(value for value in values if np.isfinite(value))
    return values[(len(values) - 1) // 2] if values else np.nan


def test_medians_equal_a_plain_loop():
    maps = random_maps()
    places, rects = placed()
    boxes = np.array(
        [[10, 10, 70, 60], [0, 0, 160, 96], [30.5, 2, 44, 90], [0, 0, 90, 96], [60, 50, 300, 300]], np.float32
    )
    frame = np.array([0, 0, 1, 1, 1])
    samples, flags = object_samples(boxes, frame, places, rects)
    wanted = [plain_median(maps, f, b, places[f], rects[f]) for f, b in zip(frame, boxes, strict=True)]
    np.testing.assert_array_equal(medians(maps, samples, flags), np.array(wanted, np.float32))


def test_a_mask_chooses_the_places_and_a_small_object_has_one():
    maps = random_maps(1)
    places, rects = placed(1)
    mask = np.zeros((96, 160), bool)
    mask[20:70, 30:60] = True
    boxes = np.array([[10, 10, 90, 90], [33, 33, 33.5, 33.5], [10, 10, 90, 90], [0, np.nan, 5, 5]], np.float32)
    masks = [rle.encode(mask, 160, 96), None, rle.encode(np.zeros_like(mask), 160, 96), None]
    samples, flags = object_samples(boxes, np.zeros(4, np.int64), places, rects, masks)
    numbers = medians(maps, samples, flags)
    assert numbers[0] == np.float32(plain_median(maps, 0, boxes[0], places[0], rects[0], mask))
    assert numbers[1] == maps[0, 8, 8]
    assert numbers[2] == np.float32(plain_median(maps, 0, boxes[2], places[0], rects[0]))  # an empty mask
    assert np.isnan(numbers[3])


def test_a_large_object_is_sampled_evenly():
    ramp = np.broadcast_to(np.arange(518, dtype=np.float32), (1, 518, 518)).copy()
    places = to_maps(np.array([[1.0, 1.0, 0, 0]]), (518, 518), (518, 518))
    rects = frame_rects(places, np.array([(518, 518)]), (518, 518))
    samples, flags = object_samples(np.array([[100, 0, 401, 518]], np.float32), np.zeros(1, np.int64), places, rects)
    assert samples["columns"][0] <= 64
    assert medians(ramp, samples, flags)[0] == pytest.approx(250, abs=4)


@pytest.mark.parametrize("form", ["metric", "relative", "inverse"])
def test_the_nearest_place_of_the_frame_is_the_lightest(form):
    maps = random_maps()
    _, rects = placed()
    values, levels, broken = ranged(maps, rects, form)
    assert broken.tolist() == [True, False]
    assert levels[0, 3, 4] == levels[0, 5, 6] == 0
    left, _, right, _ = rects[1]
    assert (levels[1, :, :left] == 0).all()
    assert (levels[1, :, right:] == 0).all()
    inside = maps[1, :, left:right]
    near = inside == (inside.max() if form == "inverse" else inside.min())
    assert (levels[1, :, left:right][near] == 255).all()
    if form == "metric":
        assert values is maps
    else:
        assert (values[1, :, left:right].min(), values[1, :, left:right].max()) == (0, 1)
        assert values[1, :, left:right][near].tolist() == [0]


def test_a_map_with_one_value_has_no_colors():
    maps = np.full((1, 24, 40), 3, np.float32)
    values, levels, _ = ranged(maps, placed(1)[1], "relative")
    assert not levels.any()
    assert np.isnan(values).all()


def plain_paint(surface, shown, opacity):
    """Colors, block by block."""
    painted = surface.data.copy()
    colors = palette(shown.kind, surface.color, opacity)
    scale_x, scale_y, offset_x, offset_y = shown.to_map
    left, top, right, bottom = shown.rect
    for row in range(surface.height // 2):
        for column in range(surface.width // 2):
            x = min(max((2 * column + 1) * scale_x + offset_x - 0.5, left), right - 1)
            y = min(max((2 * row + 1) * scale_y + offset_y - 0.5, top), bottom - 1)
            x0 = int(x)
            y0 = int(y)
            wx = round((x - x0) * 256)
            wy = round((y - y0) * 256)
            corners = [
                [int(shown.levels[min(v, bottom - 1), min(u, right - 1)]) for u in (x0, x0 + 1)] for v in (y0, y0 + 1)
            ]
            lines = [a * (256 - wx) + b * wx for a, b in corners]
            level = (lines[0] * (256 - wy) + lines[1] * wy + 32768) >> 16 if np.all(corners) else 0
            color = int(colors[level])
            share = color >> 24
            for plane, ink in (
                (painted[2 * row : 2 * row + 2, 2 * column : 2 * column + 2], color & 255),
                (painted[surface.height + row, 2 * column : 2 * column + 1], color >> 8 & 255),
                (painted[surface.height + row, 2 * column + 1 : 2 * column + 2], color >> 16 & 255),
            ):
                plane[...] = (plane.astype(int) * (255 - share) + ink * share + 127) // 255
    return painted


def shown_maps(kind="depth", form="metric"):
    maps = random_maps() if form != "score" else RANDOM.random((2, 24, 40)).astype(np.float32)
    places, rects = placed()
    values, levels, _ = ranged(maps, rects, form)
    return [FrameMap(kind, values[i], levels[i], tuple(places[i].tolist()), tuple(rects[i].tolist())) for i in (0, 1)]


def pictures():
    return [
        gray_frames(RANDOM.integers(0, 256, (1, height, width), np.uint8), color=color)[0].surface
        for (width, height), color in zip(FRAMES.tolist(), (Color(), Color("bt601", full_range=True)), strict=True)
    ]


@pytest.mark.parametrize(("kind", "form"), [("depth", "metric"), ("relative_depth", "inverse"), ("anomaly", "score")])
def test_colors_equal_a_plain_loop(kind, form):
    surfaces = pictures()
    for surface, shown, painted in zip(
        surfaces, maps := shown_maps(kind, form), paint(surfaces, maps, 0.6), strict=True
    ):
        assert painted is not surface
        np.testing.assert_array_equal(painted.data, plain_paint(surface, shown, 0.6))


def test_frames_without_a_map_stay_and_drawing_in_place_makes_no_copy():
    surfaces = pictures()
    maps = shown_maps()
    assert paint(surfaces, [None, None], 0.5) == surfaces
    first, second = paint(surfaces, [None, maps[1]], 0.5)
    assert first is surfaces[0]
    wanted = second.data
    assert paint(surfaces, [None, maps[1]], 0.5, in_place=True)[1] is surfaces[1]
    np.testing.assert_array_equal(surfaces[1].data, wanted)


def test_anomalies_below_the_threshold_are_faint_and_usual_places_clear():
    opacity = palette("anomaly", Color(), 1.0) >> 24
    assert opacity[:78].max() == 0
    assert 0 < opacity[100] < 255
    assert (opacity[128:] == 255).all()


# ------------------------------------------------------------------------------------------------------------------ GPU


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["metric", "relative", "inverse", "score"])
@pytest.mark.parametrize("n", [1, 32])
def test_ranges_and_medians_are_equal_on_each_device(form, n):
    import cupy

    maps = np.concatenate([random_maps() - 5 for _ in range(16)])[:n]
    places, rects = (np.tile(part, (16, 1))[:n] for part in placed())
    boxes = RANDOM.uniform(-20, 180, (200, 4)).astype(np.float32)
    boxes[:, 2:] = boxes[:, :2] + RANDOM.uniform(0, 90, (200, 2))
    boxes[7, 1] = np.nan
    mask = rle.encode(RANDOM.random((96, 160)) > 0.5, 160, 96)
    masks = [mask if i % 3 else None for i in range(200)]
    samples, flags = object_samples(boxes, np.sort(RANDOM.integers(0, n, 200)), places, rects, masks)
    sides = [ranged(array, rects, form) for array in (maps, cupy.asarray(maps))]
    for host, device in zip(*sides, strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(device), host)
    numbers = medians(sides[1][0], samples, flags)
    assert isinstance(numbers, cupy.ndarray)
    np.testing.assert_array_equal(cupy.asnumpy(numbers), medians(sides[0][0], samples, flags))


@pytest.mark.gpu
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("kind", "form"), [("depth", "metric"), ("anomaly", "score")])
def test_colors_are_equal_on_each_device(kind, form, in_place):
    import cupy

    from streamkit.core.data import Surface

    surfaces = pictures()
    maps = shown_maps(kind, form)
    wanted = paint(surfaces, maps, 0.6)
    on_device = [Surface(cupy.asarray(surface.data), surface.color) for surface in surfaces]
    sent = [
        FrameMap(shown.kind, cupy.asarray(shown.values), cupy.asarray(shown.levels), shown.to_map, shown.rect)
        for shown in maps
    ]
    painted = paint(on_device, sent, 0.6, in_place=in_place)
    for surface, drawn, host in zip(on_device, painted, wanted, strict=True):
        assert (drawn is surface) is in_place
        np.testing.assert_array_equal(cupy.asnumpy(drawn.data), host.data)
    assert paint(on_device, [None, sent[1]], 0.6)[0] is on_device[0]
