# SPDX-License-Identifier: Apache-2.0
"""Image files (JPEG, PNG, BMP, TIFF, WebP) as RGB, with memory bounded by a limit on their size in pixels."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.errors import SourceError
from streamkit.io.image_header import image_size

IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp"})
"""Suffixes of image files."""
MAX_MEGAPIXELS = 100.0
"""Larger images are rejected unless the user allows them: a small file can decode to any size."""
PIXEL_LIMIT = {"max_pixels": str(int(MAX_MEGAPIXELS * 1e6))}
"""The same limit as an option of FFmpeg's decoders, and of opening a file to probe it."""
TOO_LARGE = (
    f"more than {MAX_MEGAPIXELS:g} megapixels a frame, and is not decoded; if you trust this still image, read it "
    "as {stage: images, uri: ..., max_megapixels: ...}"
)
"""The end of a message about a video."""
STRICT_JPEG = {"err_detect": "explode"}
"""Option of FFmpeg's decoder of JPEG to reject an image that ends early; by default it shows the part that there is."""
_CORNER = 4  # pixels across and down: less than JPEG codes together
_BYTES_PER_PIXEL = 16
"""An uncompressed image with 4 channels of 32 bits has so many; a larger file is no image and would fill the memory."""


def read_rgb(name: str, max_megapixels: float = MAX_MEGAPIXELS, allow: str = "max_megapixels") -> np.ndarray:
    """Read an image file, upright as its EXIF data say, as (height, width, 3) uint8 RGB.

    Args:
        name: the file.
        max_megapixels: a larger file is rejected by its header.
        allow: the option that raises that limit, for the message.

    Raises:
        SourceError: the file cannot be read, or is truncated, of another format, or too large; the text names it.
    """
    import cv2

    try:
        _check_size(name, max_megapixels, allow)
        raw = np.fromfile(name, np.uint8)
    except OSError as error:
        raise SourceError(f"{name}: {error.strerror or error}") from error
    # OpenCV fills the missing part of a JPEG with gray, and reports it on stderr only
    if raw[:2].tobytes() == b"\xff\xd8" and b"\xff\xd9" not in raw[-65536:].tobytes():
        raise SourceError(f"{name}: the JPEG is truncated")
    try:
        rgb = cv2.imdecode(raw, cv2.IMREAD_COLOR_RGB)
    except cv2.error as error:
        raise SourceError(f"{name}: {error.err}") from error
    if rgb is None:
        raise SourceError(f"{name}: this is not an image that OpenCV can read")
    if raw[:2].tobytes() == b"\xff\xd8" and _may_end_early(raw, rgb) and jpeg_ends_early(raw.tobytes()):
        raise SourceError(f"{name}: the JPEG is truncated")
    return np.asarray(rgb)


def _may_end_early(jpeg: np.ndarray, rgb: np.ndarray) -> bool:
    """Whether the data of a JPEG may be incomplete although it has an end: OpenCV fills the rest with one color."""
    corner = rgb[-_CORNER:, -_CORNER:]
    return b"\xff\xc2" in jpeg.tobytes() or bool((corner == corner[0, 0]).all())


def jpeg_ends_early(jpeg: bytes) -> bool:
    """Whether FFmpeg can decode a JPEG image only in part."""
    return not _decodes(jpeg, STRICT_JPEG) and _decodes(jpeg, {})


def _decodes(jpeg: bytes, options: dict[str, str]) -> bool:
    import av

    decoder: Any = av.CodecContext.create("mjpeg", "r")
    decoder.options = {**PIXEL_LIMIT, **options}
    try:
        decoder.decode(av.Packet(jpeg))
    except (ValueError, OSError, av.FFmpegError):
        return False
    return True


def _check_size(name: str, max_megapixels: float, allow: str) -> None:
    with open(name, "rb") as file:
        size = image_size(file)
        length = os.fstat(file.fileno()).st_size
    if not length:
        raise SourceError(f"{name}: the file is empty")
    if size is None:
        raise SourceError(f"{name}: this is not an image that OpenCV can read: no JPEG, PNG, BMP, TIFF or WebP header")
    pixels = size[0] * size[1]
    if pixels > max_megapixels * 1e6:
        raise SourceError(
            f"{name}: {size[0]}x{size[1]} is {pixels / 1e6:,.1f} megapixels, and the limit is {max_megapixels:g}; "
            f"raise {allow} if you trust the file"
        )
    if length > _BYTES_PER_PIXEL * pixels + (1 << 24):
        raise SourceError(f"{name}: {length:,} bytes are too many for an image of {size[0]}x{size[1]}")


def check_image(name: str) -> None:
    """Reject an image that is too large before FFmpeg decodes it to probe it; any other file passes.

    Raises:
        SourceError: it is too large; the text names it.
    """
    if not os.path.isfile(name):  # reading a pipe would consume its first bytes
        return
    try:
        with open(name, "rb") as file:
            size = image_size(file)
    except OSError:
        return  # FFmpeg reports it
    if size is not None and size[0] * size[1] > MAX_MEGAPIXELS * 1e6:
        raise SourceError(f"{name}: {size[0]}x{size[1]} is {TOO_LARGE}", cause="codec")


def natural_key(path: str | Path) -> list[tuple[int, str]]:
    """Sort key that compares runs of digits as numbers."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path)) if part]
