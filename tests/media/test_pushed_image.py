"""Images that a program pushes: what is refused with which fix, and the surface that others become."""

import numpy as np
import pytest

from streamkit.core.counters import Counters
from streamkit.core.data import Device
from streamkit.media.pushed_image import ImageImporter, as_array, check_image
from streamkit.ops.color import to_rgb

EXPECTED = "an image is a uint8 array of shape (height, width, 3), got "


@pytest.mark.parametrize(
    ("shape", "dtype", "text"),
    [
        ((36, 64, 4), np.uint8, "uint8[36, 64, 4]; leave out the alpha channel: image[..., :3]"),
        ((36, 64, 5), np.uint8, "uint8[36, 64, 5]"),
        ((36, 64, 2), np.uint8, "uint8[36, 64, 2]"),
        ((3, 36, 64), np.uint8, "uint8[3, 36, 64]; the channels come last: image.transpose(1, 2, 0)"),
        ((3, 36, 4), np.uint8, "uint8[3, 36, 4]; the channels come last: image.transpose(1, 2, 0)"),
        ((36, 64), np.uint8, "uint8[36, 64]; repeat the gray values: numpy.dstack([image] * 3)"),
        ((36, 64, 1), np.uint8, "uint8[36, 64, 1]; repeat the gray values: numpy.dstack([image] * 3)"),
        ((2, 36, 64, 3), np.uint8, "uint8[2, 36, 64, 3]; push the images of a batch one by one"),
        ((36,), np.uint8, "uint8[36]"),
        ((36, 64, 3), np.float32, "float32[36, 64, 3]; convert it, as in (image * 255).astype(numpy.uint8)"),
        ((36, 64, 3), np.int64, "int64[36, 64, 3]; convert it, as in image.astype(numpy.uint8)"),
    ],
)
def test_an_array_that_is_not_an_image_is_refused_with_the_fix(shape, dtype, text):
    with pytest.raises(ValueError, match="an image is") as error:
        check_image(np.zeros(shape, dtype), (None, None))
    assert str(error.value) == EXPECTED + text


@pytest.mark.parametrize(("height", "width"), [(1, 64), (36, 1), (1, 1)])
def test_an_image_has_at_least_two_pixels_each_way(height, width):
    with pytest.raises(ValueError, match=f"at least 2x2 pixels, got {width}x{height}"):
        check_image(np.zeros((height, width, 3), np.uint8), (None, None))


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        ((None, None), None),
        ((64, 36), None),
        ((64, None), None),
        ((None, 36), None),
        ((65, 36), "65x36"),
        ((None, 37), "64x37"),
        ((36, 64), "36x64"),
    ],
)
def test_an_image_has_the_size_of_its_source(size, wanted):
    image = np.zeros((36, 64, 3), np.uint8)
    if wanted is None:
        assert check_image(image, size) == (64, 36)
        return
    with pytest.raises(ValueError, match=f"one size, {wanted}, got 64x36"):
        check_image(image, size)


def test_memory_sharing_images_are_read_without_a_copy():
    image = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)

    class Tensor:
        """As of another library."""

        def __dlpack__(self, **options):
            return image.__dlpack__(**options)

        def __dlpack_device__(self):
            return image.__dlpack_device__()

    assert as_array(image) is image
    assert np.shares_memory(as_array(Tensor()), image)
    with pytest.raises(TypeError, match="got str; convert it"):
        as_array("image.png")


@pytest.mark.parametrize("bgr", [False, True])
def test_a_surface_has_the_images_colors_and_does_not_share_memory(bgr):
    image = np.zeros((4, 6, 3), np.uint8)
    image[:, :, 0] = 200  # red, or blue where the channels are BGR
    importer = ImageImporter(Device("cpu"), bgr=bgr, counters=Counters())
    surface = importer(image)
    image[...] = 255
    expected = [0, 0, 200] if bgr else [200, 0, 0]
    assert np.abs(to_rgb(surface, 6, 4).astype(int) - expected).max() <= 3
    importer.close()
