import numpy as np
import pytest

from streamkit.core.data import Color, Surface
from streamkit.ops.color import to_rgb
from streamkit.ops.style import PALETTE, luminance, palette_yuv, text_color

COLORS = [Color(matrix, full) for matrix in ("bt601", "bt709", "bt2020") for full in (False, True)]


@pytest.mark.parametrize("color", COLORS, ids=str)
def test_stored_colors_are_read_back_as_the_palette(color):
    fills, text_colors = palette_yuv(color)
    for rgb, packed in [
        *zip(PALETTE, fills.tolist(), strict=True),
        *zip(map(text_color, PALETTE), text_colors.tolist(), strict=True),
    ]:
        y = packed & 255
        cb = packed >> 8 & 255
        cr = packed >> 16
        data = np.array([[y] * 4] * 4 + [[cb, cr] * 2] * 2, np.uint8)
        pixel = to_rgb(Surface(data, color), 4, 4)[0, 0].astype(int)
        assert np.abs(pixel - [rgb >> 16, rgb >> 8 & 255, rgb & 255]).max() <= 3


def test_full_range_black_and_white():
    assert {i & 255 for i in palette_yuv(Color(full_range=True))[1].tolist()} == {0, 255}
    assert {i & 255 for i in palette_yuv(Color(full_range=False))[1].tolist()} == {16, 235}


def test_text_is_legible_on_every_color():
    for rgb in PALETTE:
        dark, light = sorted((luminance(rgb), luminance(text_color(rgb))))
        assert (light + 0.05) / (dark + 0.05) >= 4, hex(rgb)


def test_colors_differ():
    assert len(set(PALETTE)) == len(PALETTE) == 20
    rgb = np.array([(c >> 16, c >> 8 & 255, c & 255) for c in PALETTE], float)
    apart = np.linalg.norm(rgb[:, None] - rgb[None], axis=-1) + np.eye(len(rgb)) * 999
    assert apart.min() > 45
