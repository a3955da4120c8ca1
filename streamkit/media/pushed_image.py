# SPDX-License-Identifier: Apache-2.0
"""Images that a program pushes: their checks, and their conversion to surfaces on the pipeline's device."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from streamkit.core.counters import Counters
from streamkit.core.data import Array, Color, Device, Surface, array_module
from streamkit.media.surfaces import shared_pool, uploader
from streamkit.ops import traffic
from streamkit.ops.color import from_rgb, write_nv12

PUSHED_COLOR = Color("bt601", full_range=True, chroma_x=0.5, chroma_y=0.5)  # as for image files
TO_DEVICE = "pixels to device"
TO_HOST = "pixels to host"
# kDLCPU, kDLCUDAHost; kDLCUDA, kDLCUDAManaged
_ON_HOST = (1, 3)
_ON_GPU = (2, 13)
_EXPECTED = "an image is a uint8 array of shape (height, width, 3)"


def as_array(image: Any) -> Array:
    """The image as a NumPy or CuPy array, without a copy.

    Args:
        image: a NumPy or CuPy array, or any object with `__dlpack__`, such as a PyTorch tensor.

    Raises:
        TypeError: it is none of these, or its memory or dtype cannot be shared.
    """
    if isinstance(image, np.ndarray):
        return image
    if not hasattr(image, "__dlpack__"):
        raise TypeError(f"{_EXPECTED}, got {type(image).__name__}; convert it, as in numpy.asarray(image, numpy.uint8)")
    kind = int(image.__dlpack_device__()[0])
    try:
        if kind in _ON_GPU:
            import cupy

            return image if isinstance(image, cupy.ndarray) else cupy.from_dlpack(image)
        if kind in _ON_HOST:
            return np.from_dlpack(image)
    except (ImportError, BufferError, RuntimeError, ValueError) as error:
        raise TypeError(f"{_EXPECTED}; this {type(image).__name__} cannot be shared: {error}") from error
    raise TypeError(f"{_EXPECTED} on the host or a CUDA GPU; this {type(image).__name__} is on DLPack device {kind}")


def check_image(image: Array, size: tuple[int | None, int | None]) -> tuple[int, int]:
    """Return width and height of an image.

    Args:
        image: the array.
        size: the width and height that it must have; None for any.

    Raises:
        ValueError: its shape, dtype or size is wrong; the text has the fix.
    """
    got = f"{image.dtype}{list(image.shape)}"
    if image.ndim != 3 or image.shape[2] != 3:
        raise ValueError(f"{_EXPECTED}, got {got}{_shape_fix(image.shape)}")
    if image.dtype != np.uint8:
        scale = "(image * 255)" if image.dtype.kind == "f" else "image"
        raise ValueError(f"{_EXPECTED}, got {got}; convert it, as in {scale}.astype(numpy.uint8)")
    height, width = image.shape[:2]
    if width < 2 or height < 2:
        raise ValueError(f"an image has at least 2x2 pixels, got {width}x{height}")
    wanted = size[0] or width, size[1] or height
    if (width, height) != wanted:
        raise ValueError(
            f"the images of a source have one size, {wanted[0]}x{wanted[1]}, got {width}x{height} (width x height); "
            "resize the image, or push it into a source of its own"
        )
    return width, height


def _shape_fix(shape: tuple[int, ...]) -> str:
    if len(shape) == 3 and shape[0] == 3:
        return "; the channels come last: image.transpose(1, 2, 0)"
    if len(shape) == 3 and shape[2] == 4:
        return "; leave out the alpha channel: image[..., :3]"
    if len(shape) == 2 or (len(shape) == 3 and shape[2] == 1):
        return "; repeat the gray values: numpy.dstack([image] * 3)"
    if len(shape) == 4:
        return "; push the images of a batch one by one"
    return ""


class ImageImporter:
    """Converts images to surfaces. One call at a time.

    Args:
        device: the pipeline's device.
        bgr: whether the images are BGR, not RGB.
        counters: counts the copies between host and device.
    """

    def __init__(self, device: Device, *, bgr: bool, counters: Counters) -> None:
        self._device = device
        self._bgr = bgr
        self._counters = counters
        self._open = ExitStack()
        self._upload: Any = None

    def __call__(self, image: Array) -> Surface:
        """Copy a checked image to a new surface on the device; the image may be changed afterwards."""
        on_host = array_module(image) is np
        if on_host or self._device.kind == "cpu":
            return self._from_host(image if on_host else self._fetched(image))
        return self._on_gpu(image)

    def close(self) -> None:
        """Release the buffers for copies."""
        self._open.close()
        self._upload = None

    def _from_host(self, image: np.ndarray) -> Surface:
        if self._bgr:
            import cv2

            image = cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_BGR2RGB)
        surface = Surface(from_rgb(image, PUSHED_COLOR), PUSHED_COLOR)
        if self._device.kind == "cpu":
            return surface
        if self._upload is None:
            self._upload = self._open.enter_context(uploader(self._device))
        self._counters.add(TO_DEVICE)
        uploaded: Surface = self._upload(surface)
        return uploaded

    def _fetched(self, image: Array) -> np.ndarray:
        """An image of a GPU on the host."""
        self._counters.add(TO_HOST)
        traffic.fetched(image.nbytes)
        with image.device:
            return np.asarray(image.get())

    def _on_gpu(self, image: Array) -> Surface:
        """Convert an image in the order of the calling thread's current stream, and wait for that."""
        xp = self._device.xp
        index = self._device.index
        with xp.cuda.Device(index):
            xp.cuda.runtime.setDevice(index)  # `Device` leaves a thread without a context if it is the current one
            stream = xp.cuda.get_current_stream()
            if image.device.id != index:
                self._counters.add("pixels to another GPU")
            image = xp.asarray(image)
            height, width = image.shape[:2]
            pool = shared_pool(self._device)
            surface = pool.surface(width, height, PUSHED_COLOR, stream)
            write_nv12(image[..., ::-1] if self._bgr else image, PUSHED_COLOR, surface.data)
            pool.written(surface, stream)
            stream.synchronize()
        return surface
