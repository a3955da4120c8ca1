"""The plain loop that a pipeline is compared with: where it puts an image."""

import numpy as np
import pytest

from streamkit.bench.plain_loop import letterbox

GRAY = 114


@pytest.mark.parametrize(
    ("height", "width", "size", "anchor", "inside"),
    [
        (60, 100, (50, 50), "center", (0, 10, 50, 40)),
        (60, 100, (50, 50), "corner", (0, 0, 50, 30)),
        (100, 60, (50, 50), "center", (10, 0, 40, 50)),
        (100, 60, (50, 50), "corner", (0, 0, 30, 50)),
        (50, 50, (100, 40), "center", (30, 0, 70, 40)),
        (50, 50, (40, 101), "center", (0, 30, 40, 70)),
        (50, 50, (101, 40), "corner", (0, 0, 40, 40)),
        (20, 40, (80, 40), "center", (0, 0, 80, 40)),
    ],
)
def test_an_image_keeps_its_aspect_ratio_with_gray_padding(height, width, size, anchor, inside):
    image, scale, left, top = letterbox(np.full((height, width, 3), 200, np.uint8), size, anchor)
    x1, y1, x2, y2 = inside
    expected = np.full((size[1], size[0], 3), GRAY, np.uint8)
    expected[y1:y2, x1:x2] = 200
    assert np.array_equal(image, expected)
    assert (scale, left, top) == (min(size[0] / width, size[1] / height), x1, y1)
