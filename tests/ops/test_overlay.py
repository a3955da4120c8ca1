import re
from pathlib import Path

import numpy as np
import pytest

from streamkit.core.data import Color, Detections, Skeleton, Surface
from streamkit.ops import overlay, rle
from streamkit.ops.annotate import annotate
from streamkit.ops.glyphs import Atlas
from streamkit.ops.overlay import LINE, MARK, STENCIL, draw
from streamkit.ops.style import Style

RED = (90, 100, 240)
BLUE = (60, 230, 110)
OPAQUE = 255


def noise(height, width, seed=0, color=None):
    rng = np.random.default_rng(seed)
    return Surface(rng.integers(0, 256, (height * 3 // 2, width), dtype=np.uint8), color or Color())


def packed(ycc, opacity=OPAQUE):
    return ycc[0] | ycc[1] << 8 | ycc[2] << 16 | opacity << 24


def mark(x1, y1, x2, y2, ycc=RED, border=0, opacity=OPAQUE, ink=0, sprite=-1):
    return np.array([(x1, y1, x2, y2, border, packed(ycc, opacity), ink, sprite)], MARK)


def channels(surface):
    """(height, width, 3) int: each pixel's Y, and the Cb and Cr that it shares."""
    data = surface.data.astype(int)
    height = surface.height
    width = surface.width
    pairs = data[height:].reshape(height // 2, width // 2, 2).repeat(2, 0).repeat(2, 1)
    return np.dstack([data[:height], pairs])


def mix(under, over, share):
    return (under * (255 - share) + over * share + 127) // 255


def plain(surface, marks, atlas):
    """The oracle: pixel by pixel, as the table says."""
    frame = channels(surface)
    for x1, y1, x2, y2, border, color, ink, sprite in marks.tolist():
        masks = atlas.masks(sprite, x2 - x1, y2 - y1) if sprite >= 0 else None
        for y in range(max(y1, 0), min(y2, surface.height)):
            for x in range(max(x1, 0), min(x2, surface.width)):
                if border and x1 + border <= x < x2 - border and y1 + border <= y < y2 - border:
                    continue
                for channel in range(3):
                    value = mix(frame[y, x, channel], color >> 8 * channel & 255, color >> 24)
                    if masks:
                        share = masks[1][(y - y1) // 2, (x - x1) // 2] if channel else masks[0][y - y1, x - x1]
                        value = mix(value, ink >> 8 * channel & 255, int(share))
                    frame[y, x, channel] = value
    return frame


def draw_single(surface, marks, atlas=None, **options):
    return draw([surface], marks, [len(marks)], atlas or Atlas(), **options)[0]


# ------------------------------------------------------------------------------------------------------------- host


@pytest.mark.parametrize(
    "box",
    [(10, 8, 30, 28), (-6, -4, 10, 12), (30, 20, 90, 80), (-10, -10, 100, 100), (0, 0, 2, 2), (8, 8, 8, 20)],
    ids=["inside", "upper left", "lower right", "larger", "smallest", "no width"],
)
@pytest.mark.parametrize(("border", "opacity"), [(0, 255), (2, 255), (4, 255), (0, 100), (4, 77), (40, 255), (40, 9)])
def test_rectangle_equals_pixel_by_pixel(box, border, opacity):
    surface = noise(48, 64)
    marks = mark(*box, border=border, opacity=opacity)
    assert np.array_equal(channels(draw_single(surface, marks)), plain(surface, marks, Atlas()))


@pytest.mark.parametrize("opacity", [255, 0, 120])
@pytest.mark.parametrize("place", [(10, 8), (-12, -6), (50, 40), (-200, 8), (400, 8)])
def test_sprite_equals_pixel_by_pixel(place, opacity):
    atlas = Atlas()
    surface = noise(48, 64)
    sprite, width = atlas.text("car 7", 14)
    x, y = place
    marks = mark(x, y, x + width, y + 14, opacity=opacity, ink=packed(BLUE), sprite=sprite)
    assert np.array_equal(channels(draw_single(surface, marks, atlas)), plain(surface, marks, atlas))


def blocks_of_line(width, height, border, rises):
    """The blocks of 2 x 2 pixels of a line's rectangle whose middle is near enough, in whole numbers."""
    half = border // 2
    a = (half, height - half if rises else half)
    b = (width - half, half if rises else height - half)
    way = (b[0] - a[0], b[1] - a[1])
    squared = way[0] ** 2 + way[1] ** 2
    blocks = np.zeros((height // 2, width // 2), bool)
    for row in range(height // 2):
        for column in range(width // 2):
            x = 2 * column + 1 - a[0]
            y = 2 * row + 1 - a[1]
            along = x * way[0] + y * way[1]
            if along <= 0:
                near = 4 * (x * x + y * y) <= border**2
            elif along >= squared:
                near = 4 * ((x - way[0]) ** 2 + (y - way[1]) ** 2) <= border**2
            else:
                near = 4 * (x * way[1] - y * way[0]) ** 2 <= border**2 * squared
            blocks[row, column] = near
    return blocks


def on_blocks(surface, x1, y1, blocks, ycc, opacity):
    """The oracle: a color on blocks of a rectangle, where they are in the frame."""
    frame = channels(surface)
    for row, column in np.argwhere(blocks).tolist():
        top = y1 + 2 * row
        left = x1 + 2 * column
        if 0 <= top < surface.height and 0 <= left < surface.width:
            for channel in range(3):
                part = frame[top : top + 2, left : left + 2, channel]
                part[...] = mix(part, ycc[channel], opacity)
    return frame


@pytest.mark.parametrize("opacity", [255, 90])
@pytest.mark.parametrize("rises", [0, 1])
@pytest.mark.parametrize(
    ("place", "size", "border"),
    [
        ((6, 4), (40, 24), 2),
        ((6, 4), (40, 24), 6),
        ((6, 4), (24, 40), 4),
        ((6, 4), (22, 22), 8),
        ((6, 4), (40, 6), 6),
        ((6, 4), (6, 40), 6),
        ((6, 4), (4, 4), 4),
        ((6, 4), (2, 2), 2),
        ((-20, -10), (60, 44), 6),
        ((40, 30), (60, 44), 6),
        ((-90, -90), (300, 260), 10),
        ((-90, 4), (60, 20), 4),
    ],
)
def test_a_line_is_drawn_as_the_blocks_near_it(place, size, border, rises, opacity):
    surface = noise(48, 64)
    box = (*place, place[0] + size[0], place[1] + size[1])
    marks = mark(*box, border=border, opacity=opacity, ink=rises, sprite=LINE)
    expected = on_blocks(surface, *place, blocks_of_line(*size, border, rises), RED, opacity)
    assert np.array_equal(channels(draw_single(surface, marks)), expected)


@pytest.mark.parametrize("opacity", [255, 90, 0])
@pytest.mark.parametrize("place", [(6, 4), (-10, -6), (50, 40), (-200, 4), (4, 400)])
def test_a_stencil_is_drawn_as_its_set_blocks(place, opacity):
    """The second of two stencils, whose rows are not whole bytes."""
    rng = np.random.default_rng(3)
    atlas = Atlas()
    surface = noise(48, 64)
    atlas.stencil(rng.random((5, 3)) < 0.5)
    blocks = rng.random((7, 11)) < 0.5
    ink = atlas.stencil(blocks)
    marks = mark(*place, place[0] + 22, place[1] + 14, opacity=opacity, ink=ink, sprite=STENCIL)
    expected = on_blocks(surface, *place, blocks, RED, opacity)
    assert np.array_equal(channels(draw_single(surface, marks, atlas)), expected)


def test_pixels_outside_a_mark_are_unchanged():
    surface = noise(48, 64)
    drawn = channels(draw_single(surface, mark(10, 8, 30, 28, border=2)))
    changed = (drawn != channels(surface)).any(axis=2)
    rim = np.zeros((48, 64), bool)
    rim[8:28, 10:30] = True
    rim[10:26, 12:28] = False
    assert not changed[~rim].any()
    assert (drawn[rim] == RED).all()


def test_later_marks_are_on_top():
    marks = np.concatenate([mark(0, 0, 20, 20), mark(10, 10, 30, 30, BLUE)])
    drawn = channels(draw_single(noise(48, 64), marks))
    assert (drawn[15, 15] == BLUE).all()
    assert (drawn[5, 5] == RED).all()


def test_the_input_is_not_changed():
    surface = noise(48, 64)
    before = surface.data.copy()
    drawn = draw_single(surface, mark(0, 0, 20, 20))
    assert drawn is not surface
    assert drawn.color == surface.color
    assert np.array_equal(surface.data, before)


def test_in_place_draws_on_the_surface_itself():
    surface = noise(48, 64)
    assert draw_single(surface, mark(0, 0, 20, 20), in_place=True) is surface
    assert surface.data[0, 0] == RED[0]


def test_in_place_on_a_read_only_array_makes_a_copy():
    surface = noise(48, 64)
    surface.data.setflags(write=False)
    assert draw_single(surface, mark(0, 0, 20, 20), in_place=True).data[0, 0] == RED[0]


def test_images_without_marks_are_returned_unchanged():
    surfaces = [noise(48, 64, i) for i in range(3)]
    drawn = draw(surfaces, mark(0, 0, 8, 8), [0, 1, 1], Atlas())
    assert drawn[0] is surfaces[0]
    assert drawn[1] is not surfaces[1]
    assert drawn[2] is surfaces[2]
    assert draw(surfaces, np.zeros(0, MARK), [0, 0, 0], Atlas()) == surfaces
    assert draw([], np.zeros(0, MARK), [], Atlas()) == []


@pytest.mark.parametrize("odd", [{"box": (1, 0, 4, 4)}, {"box": (0, 0, 4, 5)}, {"border": 1}])
def test_odd_positions_are_refused(odd):
    with pytest.raises(ValueError, match="must be even"):
        draw_single(noise(48, 64), mark(*odd.get("box", (0, 0, 8, 8)), border=odd.get("border", 0)))


@pytest.mark.parametrize("ends", [[], [0], [1, 1]])
def test_mismatching_ends_are_refused(ends):
    with pytest.raises(ValueError, match="one end per surface, the last 1"):
        draw([noise(48, 64)], mark(0, 0, 4, 4), ends, Atlas())


# -------------------------------------------------------------------------------------------------------------- GPU

SIZES = [(360, 480), (360, 640), (1080, 1920), (2, 2), (64, 64), (66, 130), (432, 768), (720, 1280)]


def crowd(frames, max_boxes, seed=3):
    """A table of boxes, some partly or wholly outside, with skeletons and masks, and the surfaces they lie on."""
    rng = np.random.default_rng(seed)
    surfaces = []
    tables = []
    for row in range(frames):
        height, width = SIZES[row % len(SIZES)]
        surfaces.append(noise(height, width, row, Color(("bt601", "bt709", "bt2020")[row % 3], row % 2 == 0)))
        n = 0 if row == 5 else int(rng.integers(1, max_boxes))
        start = rng.uniform(-0.2, 1.1, (n, 2)) * [width, height]
        end = start + rng.uniform(0, 0.4, (n, 2)) * [width, height]
        tables.append(
            Detections(
                np.hstack([start, end]).astype(np.float32),
                rng.uniform(size=n).astype(np.float32),
                rng.integers(0, 30, n).astype(np.int32),
                np.full(n, row, np.int32),
                rng.integers(-1, 5000, n),
                ("person", "traffic light", "Straße"),
                {"keypoints": points_in(start, end, rng), "mask": masks_in(start, end, width, height, rng)},
                skeleton=Skeleton(edges=((0, 1), (1, 2), (0, 4), (3, 3))),
            )
        )
    return surfaces, Detections.concat(tables)


def points_in(start, end, rng):
    places = start[:, None] + rng.uniform(-0.1, 1.1, (len(start), 5, 2)) * (end - start)[:, None]
    return np.concatenate([places, rng.uniform(size=(len(start), 5, 1))], axis=2).astype(np.float32)


def masks_in(start, end, width, height, rng):
    """Noise in the boxes; nothing for every fourth."""
    encoded = np.full(len(start), None)
    for i, (x1, y1, x2, y2) in enumerate(np.hstack([start, end]).astype(int).clip(0, [width, height] * 2).tolist()):
        if i % 4:
            encoded[i] = rle.encode(rng.random((y2 - y1, x2 - x1)) < 0.7, width, height, x1, y1)
    return encoded


def on_device(surfaces):
    import cupy

    return [Surface(cupy.asarray(s.data), s.color) for s in surfaces]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "style", [Style(), Style(fill=0.3, color="track", thickness=6, text_size=40)], ids=["", "fill"]
)
@pytest.mark.parametrize(("frames", "max_boxes"), [(1, 5), (32, 20), (8, 200)])
def test_device_equals_host(style, frames, max_boxes):
    surfaces, table = crowd(frames, max_boxes)
    surfaces_on_device = on_device(surfaces)
    atlas = Atlas()
    marks, ends = annotate(surfaces, [table], style, atlas)
    expected = draw(surfaces, marks, ends, atlas)
    drawn_on_device = draw(surfaces_on_device, marks, ends, atlas)
    for was, host, device_surface, device in zip(surfaces, expected, drawn_on_device, surfaces_on_device, strict=True):
        assert np.array_equal(device_surface.data.get(), host.data)
        assert np.array_equal(device.data.get(), was.data), "what was given is not changed"
        assert (device_surface is device) == (host is was)
        assert (device_surface.ready is None) == (device_surface is device)


@pytest.mark.gpu
def test_device_in_place_equals_host():
    surfaces, table = crowd(8, 20)
    atlas = Atlas()
    surfaces_on_device = on_device(surfaces)
    marks, ends = annotate(surfaces, [table], Style(), atlas)
    drawn_on_device = draw(surfaces_on_device, marks, ends, atlas, in_place=True)
    assert all(a is b for a, b in zip(drawn_on_device, surfaces_on_device, strict=True))
    for device_surface, host in zip(drawn_on_device, draw(surfaces, marks, ends, atlas), strict=True):
        assert np.array_equal(device_surface.data.get(), host.data)


@pytest.mark.gpu
def test_device_draws_a_batch_in_one_launch_on_the_current_stream(monkeypatch):
    import cupy

    from streamkit.ops import overlay

    surfaces, table = crowd(32, 10)
    launches = []
    real = overlay.kernel

    def counted(*names):
        launches.append((names, cupy.cuda.get_current_stream().ptr))
        return real(*names)

    monkeypatch.setattr(overlay, "kernel", counted)
    atlas = Atlas()
    marks, ends = annotate(surfaces, [table], Style(), atlas)
    expected = draw(surfaces, marks, ends, atlas)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        surfaces_on_device = on_device(surfaces)
        drawn_on_device = draw(surfaces_on_device, marks, ends, atlas)
        drawn_on_device[0].ready.synchronize()
        assert launches == [(("overlay.cu", "overlay"), stream.ptr)]
        assert all(np.array_equal(a.data.get(), b.data) for a, b in zip(drawn_on_device, expected, strict=True))


def test_the_kernel_has_the_same_numbers_of_lines_and_stencils():
    code = Path(overlay.__file__).with_name("cuda").joinpath("overlay.cu").read_text()
    numbers = dict(re.findall(r"\b(LINE|STENCIL) = (-?\d+)", code))
    assert {name: int(number) for name, number in numbers.items()} == {"LINE": LINE, "STENCIL": STENCIL}
    assert max(LINE, STENCIL) < -1, "-1 is no sprite, and from 0 on it is a place in the atlas"
