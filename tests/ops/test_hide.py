"""Hiding regions: against a plain loop, on its own properties, and the same bytes on the device."""

import numpy as np
import pytest

from streamkit.core.data import Color, Surface
from streamkit.ops.hide import REGION, hide


def noise(height, width, seed=0):
    rng = np.random.default_rng(seed)
    return Surface(rng.integers(0, 256, (height * 3 // 2, width), dtype=np.uint8), Color())


def region(x1, y1, x2, y2, cell, frame=0, smooth=0, first=0, mask=-1):
    columns, rows = -(-(x2 - x1) // cell), -(-(y2 - y1) // cell)
    return np.array([(frame, x1, y1, x2, y2, cell, columns, rows, first, mask, smooth)], REGION)


def together(*regions):
    table = np.concatenate(regions)
    count = table["columns"] * table["rows"]
    table["first"] = np.cumsum(count) - count
    return table


NONE = np.zeros(0, np.uint8)


def planes(surface):
    """Luma (h, w), and chroma (h / 2, w / 2, 2), int."""
    data, height, width = surface.data.astype(int), surface.height, surface.width
    return data[:height], data[height:].reshape(height // 2, width // 2, 2)


def plain(surface, regions, masks):
    """The oracle: sample by sample, as the table says."""
    luma, chroma = planes(surface)
    out = luma.copy(), chroma.copy()
    for one in regions.tolist():
        _, x1, y1, x2, y2, cell, columns, rows, _, mask, smooth = one
        for source, target, step in ((luma, out[0], 1), (chroma, out[1], 2)):
            side = cell // step
            part = source[y1 // step : y2 // step, x1 // step : x2 // step]
            means = np.zeros((rows, columns, *part.shape[2:]), int)
            for j in range(rows):
                for i in range(columns):
                    block = part[j * side : (j + 1) * side, i * side : (i + 1) * side]
                    n = block.shape[0] * block.shape[1]
                    means[j, i] = (block.sum(axis=(0, 1)) + n // 2) // n
            for y in range(part.shape[0]):
                for x in range(part.shape[1]):
                    if mask >= 0 and not masks[mask + y // side * columns + x // side]:
                        continue
                    value = means[y // side, x // side]
                    if smooth:
                        u, v = max(0, (2 * x + 1) * 128 // side - 128), max(0, (2 * y + 1) * 128 // side - 128)
                        i, j = min(u // 256, columns - 1), min(v // 256, rows - 1)
                        i2, j2 = min(i + 1, columns - 1), min(j + 1, rows - 1)
                        across, down = u % 256, v % 256
                        left = means[j, i] * (256 - down) + means[j2, i] * down
                        right = means[j, i2] * (256 - down) + means[j2, i2] * down
                        value = (left * (256 - across) + right * across + (1 << 15)) >> 16
                    target[y1 // step + y, x1 // step + x] = value
    return out


@pytest.mark.parametrize("smooth", [0, 1])
@pytest.mark.parametrize(
    "box", [(4, 6, 40, 38, 8), (0, 0, 64, 48, 16), (10, 2, 12, 4, 8), (2, 2, 62, 8, 20), (0, 40, 30, 48, 2)]
)
def test_a_region_equals_sample_by_sample(box, smooth):
    surface, regions = noise(48, 64), region(*box, smooth=smooth)
    for mine, theirs in zip(planes(hide([surface], regions, NONE)[0]), plain(surface, regions, NONE), strict=True):
        assert np.array_equal(mine, theirs)


def test_regions_that_overlap_and_masks():
    surface = noise(48, 64)
    masks = np.array([1, 0, 1, 1, 0, 1, 0, 0, 1], np.uint8)
    regions = together(
        region(0, 0, 40, 40, 8), region(20, 20, 64, 48, 12, smooth=1), region(8, 8, 32, 32, 8, mask=0, smooth=1)
    )
    for mine, theirs in zip(planes(hide([surface], regions, masks)[0]), plain(surface, regions, masks), strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("smooth", [0, 1])
def test_nothing_finer_than_a_cell_is_left(smooth):
    """Two pictures whose cells have the same means cannot be told apart afterwards."""
    first, second = noise(64, 64, 1), noise(64, 64, 1)
    y, uv = second.data[:64], second.data[64:]
    rng = np.random.default_rng(2)
    for top in range(0, 64, 16):
        for left in range(0, 64, 16):
            y[top : top + 16, left : left + 16] = rng.permuted(y[top : top + 16, left : left + 16].ravel()).reshape(
                16, 16
            )
            part = uv[top // 2 : top // 2 + 8, left : left + 16]
            pairs = part.reshape(-1, 2)
            part[...] = pairs[rng.permutation(len(pairs))].reshape(8, 16)
    assert (first.data != second.data).mean() > 0.9
    regions = region(0, 0, 64, 64, 16, smooth=smooth)
    assert np.array_equal(hide([first], regions, NONE)[0].data, hide([second], regions, NONE)[0].data)


def test_outside_of_regions_nothing_changes_and_what_was_given_is_as_it_was():
    surface = noise(48, 64)
    before = surface.data.copy()
    hidden = hide([surface], region(8, 8, 24, 24, 8), NONE)[0]
    assert hidden is not surface
    assert np.array_equal(surface.data, before)
    changed = hidden.data != before
    assert changed[8:24, 8:24].any()
    changed[8:24, 8:24] = changed[52:60, 8:24] = False
    assert not changed.any()


def test_in_place():
    surface, copy = noise(48, 64), noise(48, 64)
    regions = together(region(0, 0, 40, 40, 8), region(20, 20, 64, 48, 12, smooth=1))
    expected = hide([copy], regions, NONE)[0]
    assert hide([surface], regions, NONE, in_place=True)[0] is surface
    assert np.array_equal(surface.data, expected.data)
    surface.data.setflags(write=False)
    assert hide([surface], regions, NONE, in_place=True)[0] is not surface


def test_only_pictures_with_regions_are_new():
    surfaces = [noise(48, 64, i) for i in range(3)]
    hidden = hide(surfaces, region(0, 0, 8, 8, 8, frame=1), NONE)
    assert [a is b for a, b in zip(hidden, surfaces, strict=True)] == [True, False, True]
    assert hide(surfaces, np.zeros(0, REGION), NONE) == surfaces


@pytest.mark.parametrize(
    "box", [(1, 0, 8, 8, 8), (0, 0, 8, 8, 7), (0, 0, 66, 8, 8), (8, 8, 8, 16, 8), (-2, 0, 8, 8, 8)]
)
def test_regions_that_cannot_be(box):
    with pytest.raises(ValueError, match="a region"):
        hide([noise(48, 64)], region(*box), NONE)


SIZES = [(360, 480), (1080, 1920), (2, 2), (64, 66), (130, 66), (432, 768)]


def crowd(frames, most, seed=3):
    """Pictures, regions upon each other all over them, and their masks."""
    rng = np.random.default_rng(seed)
    surfaces, parts, masks = [], [], []
    for row in range(frames):
        height, width = SIZES[row % len(SIZES)]
        surfaces.append(noise(height, width, row))
        for _ in range(0 if row == 4 else int(rng.integers(1, most))):
            x1, y1 = (2 * int(rng.integers(0, size // 2)) for size in (width, height))
            x2, y2 = 2 * int(rng.integers(x1 // 2, width // 2) + 1), 2 * int(rng.integers(y1 // 2, height // 2) + 1)
            one = region(x1, y1, x2, y2, 2 * int(rng.integers(1, 40)), row, int(rng.integers(2)))
            if rng.random() < 0.3:
                one["mask"] = sum(map(len, masks))
                masks.append(rng.integers(0, 2, int(one["columns"][0] * one["rows"][0]), dtype=np.uint8))
            parts.append(one)
    return surfaces, together(*parts), np.concatenate(masks)


@pytest.mark.gpu
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("frames", "most"), [(1, 3), (32, 12)])
def test_device_equals_host(frames, most, in_place):
    import cupy

    surfaces, regions, masks = crowd(frames, most)
    given = [Surface(cupy.asarray(s.data), s.color) for s in surfaces]
    before = [s.data.copy() for s in given]
    expected = hide(surfaces, regions, masks)
    found = hide(given, regions, masks, in_place=in_place)
    for mine, theirs, was, device in zip(expected, found, before, given, strict=True):
        assert np.array_equal(theirs.data.get(), mine.data)
        assert (theirs is device) == (in_place or mine is surfaces[found.index(theirs)])
        if not in_place:
            assert (device.data == was).all(), "what was given is not changed"


def test_the_crowd_is_one():
    """What the device is tested with is well on the host, too: every region lies in its picture."""
    surfaces, regions, masks = crowd(6, 4)
    hidden = hide(surfaces, regions, masks)
    for row, surface in enumerate(surfaces[:1]):
        own = regions[regions["frame"] == row]
        for mine, theirs in zip(planes(hidden[row]), plain(surface, own, masks), strict=True):
            assert np.array_equal(mine, theirs)
