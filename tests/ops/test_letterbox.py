"""Where frames land: the authors' rules by example, and what must hold for every size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.ops.letterbox import InputSpec, geometry, placement


@pytest.mark.parametrize(
    ("options", "picture", "expected"),
    [
        # Ultralytics: round(d / 2 - 0.1) to the left and above
        ({"size": (640, 640)}, (1920, 1080), (0, 140, 640, 360)),
        ({"size": (640, 640)}, (480, 360), (0, 80, 640, 480)),
        ({"size": (640, 640)}, (427, 640), (106, 0, 427, 640)),
        ({"size": (416, 416)}, (640, 427), (0, 69, 416, 278)),
        ({"size": (416, 416), "anchor": "top_left"}, (640, 427), (0, 0, 416, 278)),
        ({"size": (10, 10)}, (1000, 1), (0, 4, 10, 1)),
        ({"size": (320, 320), "resize": "stretch"}, (640, 427), (0, 0, 320, 320)),
        ({"size": (320, 320), "resize": "stretch", "anchor": "top_left"}, (1, 1), (0, 0, 320, 320)),
        # torchvision: Resize(256), CenterCrop(224)
        ({"size": (224, 224), "resize": "crop", "resize_to": 256}, (640, 427), (-80, -16, 383, 256)),
        ({"size": (224, 224), "resize": "crop", "resize_to": 256}, (427, 640), (-16, -80, 256, 383)),
        ({"size": (224, 224), "resize": "crop"}, (500, 500), (0, 0, 224, 224)),
        ({"size": (224, 224), "resize": "crop", "anchor": "top_left"}, (448, 224), (0, 0, 448, 224)),
        ({"size": (224, 224), "resize": "crop", "resize_to": 200}, (200, 200), (12, 12, 200, 200)),
    ],
)
def test_letterbox_placement_is_computed(options, picture, expected) -> None:
    spec = InputSpec(**options)
    assert placement(spec, *picture) == expected
    left, top, width, height = expected
    assert geometry(spec, *picture) == (width / picture[0], height / picture[1], left, top)


sides = st.integers(1, 5000)
inputs = st.integers(1, 1500)


@given(
    sides,
    sides,
    st.tuples(inputs, inputs),
    st.sampled_from(["letterbox", "stretch", "crop"]),
    st.sampled_from(["center", "top_left"]),
)
def test_every_image_has_its_placement(width, height, size, resize, anchor) -> None:
    spec = InputSpec(size, resize=resize, anchor=anchor)
    left, top, new_width, new_height = placement(spec, width, height)
    assert new_width >= 1
    assert new_height >= 1
    if resize == "crop":
        assert min(new_width, new_height) == min(size)
        assert (left, top) == (0, 0) or anchor == "center"
        assert abs(size[0] - new_width - 2 * left) <= 1 or anchor == "top_left"  # in the middle but for rounding
    else:
        assert left >= 0
        assert top >= 0
        assert left + new_width <= size[0]
        assert top + new_height <= size[1]
        assert (new_width, new_height) == size or new_width == size[0] or new_height == size[1]
    if resize == "letterbox":
        assert abs(new_width / new_height - width / height) <= (width / height + 1) / min(new_width, new_height)
        assert 0 <= size[0] - new_width - 2 * left <= 1 or anchor == "top_left"


@given(sides, sides, st.sampled_from(["letterbox", "stretch", "crop"]), st.data())
def test_boxes_are_mapped_back_to_the_source(width, height, resize, data) -> None:
    spec = InputSpec((416, 320), resize=resize)
    scale_x, scale_y, offset_x, offset_y = np.array(geometry(spec, width, height), np.float32).tolist()
    x = data.draw(st.floats(0, width))
    y = data.draw(st.floats(0, height))
    assert ((x * scale_x + offset_x) - offset_x) / scale_x == pytest.approx(x, abs=width * 1e-5 + 1e-3 / scale_x)
    assert ((y * scale_y + offset_y) - offset_y) / scale_y == pytest.approx(y, abs=height * 1e-5 + 1e-3 / scale_y)
    place = placement(spec, width, height)
    assert width * scale_x + offset_x == pytest.approx(place.left + place.width, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"resize": "squash"}, "InputSpec.resize must be one of letterbox, stretch, crop, got 'squash'"),
        ({"layout": "chwn"}, "InputSpec.layout must be one of nchw, nhwc"),
        ({"dtype": "f64"}, "InputSpec.dtype must be one of f32, f16, u8"),
        ({"mean": (1, 2)}, "InputSpec.mean must have 3 values"),
        ({"pad": (1, 2)}, "InputSpec.pad must have 3 values"),
        ({"size": (0, 5)}, "sizes must be at least 1"),
        ({"std": (1, 0, 1)}, "scale and std must be above 0"),
    ],
)
def test_an_invalid_spec_is_refused(options, message) -> None:
    with pytest.raises(ValueError, match=message):
        InputSpec(**{"size": (8, 8), **options})


def test_an_image_must_have_pixels() -> None:
    with pytest.raises(ValueError, match="at least 1x1 pixels, got 0x5"):
        geometry(InputSpec((8, 8)), 0, 5)


def test_the_spec_has_shape_and_affine_map() -> None:
    spec = InputSpec((8, 4), scale=1 / 255, mean=(0.5, 0, 0), std=(0.5, 1, 2), pad=51, layout="nhwc")
    assert spec.shape(5) == (5, 4, 8, 3)
    assert InputSpec((8, 4)).shape(5) == (5, 3, 4, 8)
    factor, summand, pad = spec.affine()
    np.testing.assert_allclose(factor * 255 + summand, ((1 - 0.5) / 0.5, 1, 0.5))
    np.testing.assert_allclose(pad, ((0.2 - 0.5) / 0.5, 0.2, 0.1))
