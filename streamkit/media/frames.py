# SPDX-License-Identifier: Apache-2.0
"""Converts decoded FFmpeg frames on the host to surfaces: layout, bit depth, color and rotation."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from streamkit.core.data import SQUARE, Color, Surface
from streamkit.ops import planes

if TYPE_CHECKING:
    from streamkit.media.surfaces import SurfacePool

_PLANAR = re.compile(r"yuv[aj]?(420|422|444)p(\d+)?(?:le)?")
_GRAY = re.compile(r"gray(\d+)?(?:le)?")
_HIGH = re.compile(r"p01[026]le")

# FFmpeg's numbers, which are those of ITU-T H.273; smpte240m is close to BT.709
_MATRICES: dict[int, Any] = {1: "bt709", 4: "bt601", 5: "bt601", 6: "bt601", 7: "bt709", 9: "bt2020", 10: "bt2020"}
_SITINGS = {1: (0.0, 0.5), 2: (0.5, 0.5), 3: (0.0, 0.0), 4: (0.5, 0.0), 5: (0.0, 1.0), 6: (0.5, 1.0)}
_FULL_RANGE = 2


class DecodedFrame(NamedTuple):
    """A decoded frame.

    Attributes:
        pts_s: presentation time in seconds.
        width: width in pixels as shown, after rotation.
        height: height, likewise.
        surface: the pixels.
        damaged: whether its data is damaged or refers to missing data, and the decoder concealed that.
        pixel_aspect: width of a pixel divided by its height, after rotation.
    """

    pts_s: float
    width: int
    height: int
    surface: Surface
    damaged: bool = False
    pixel_aspect: Fraction = SQUARE


class StreamAspect:
    """Pixel aspect ratio of a stream, as players show it.

    The container's ratio applies until the coded video changes its own, as broadcasts do from 4:3 to 16:9.

    Args:
        stream: an `av.VideoStream`, before its next frame is decoded.
    """

    def __init__(self, stream: Any) -> None:
        self._shown: Fraction = stream.sample_aspect_ratio or SQUARE
        self._coded: Fraction = stream.codec_context.sample_aspect_ratio or SQUARE

    def of(self, orientation: Orientation, context: Any) -> Fraction:
        """Width of a pixel divided by its height, once the frame that `context` decoded last is upright."""
        coded = context.sample_aspect_ratio or SQUARE
        if coded != self._coded:
            self._shown = self._coded = coded
        if self._shown != SQUARE and orientation.rotation % 180:
            return 1 / self._shown
        return self._shown


def color_of(frame: Any, *, centerd: bool = False) -> Color:
    """Color format of a frame's samples.

    Defaults if the stream does not specify them: BT.709 from 720 lines up and BT.601 below, 16..235, chroma sited left.

    Args:
        frame: an `av.VideoFrame`.
        centerd: whether chroma is centerd by default, as in JPEG.
    """
    matrix = _MATRICES.get(int(frame.colorspace), "bt709" if frame.height >= 720 else "bt601")
    full = int(frame.color_range) == _FULL_RANGE or frame.format.name.startswith("yuvj")
    # PyAV before 19 does not report the siting
    sited = _SITINGS.get(int(getattr(frame, "chroma_location", 0)), (0.5, 0.5) if centerd else (0.0, 0.5))
    return Color(matrix, full, *sited)


class Orientation(NamedTuple):
    """Transform that makes a frame upright: mirror left to right first, then rotate by `rotation` degrees clockwise."""

    rotation: int = 0
    mirrored: bool = False


def orientation_of(frame: Any) -> Orientation:
    """Transform of an `av.VideoFrame` from its display matrix; angles are rounded to quarter turns."""
    matrix = _display_matrix(frame)
    if matrix is None:
        return Orientation()
    # (a, b, u, c, d, v, x, y, w): x' = a x + c y, y' = b x + d y, with y downwards
    a, b, _, c, d, *_ = np.frombuffer(matrix, np.int32)[:9].astype(float) / 65536
    mirrored = bool(a * d - b * c < 0)
    if mirrored:  # the frame is mirrored first, so the rest is a rotation
        a = -a
        b = -b
    return Orientation(round(math.degrees(math.atan2(b, a)) / 90) % 4 * 90, mirrored)


def _display_matrix(frame: Any) -> Any | None:
    """The display matrix of an `av.VideoFrame` as a buffer; None if it has none.

    `frame.side_data` would store a container in the frame that refers back to it: such frames are freed by full garbage
    collections only.
    """
    from av.sidedata import sidedata

    if "_missing_" not in vars(sidedata.Type):  # PyAV raises ValueError for types that it has no name for
        setattr(sidedata.Type, "_missing_", classmethod(_unnamed_type))  # noqa: B010
    container: Any = sidedata.SideDataContainer
    return container(frame).get("DISPLAYMATRIX")


def _unnamed_type(kind: Any, number: int) -> Any:
    """A member for a type of side data that PyAV has no name for, such as 31, EXIF."""
    member = object.__new__(kind)
    member._name_ = f"TYPE_{number}"
    member._value_ = number
    return kind._value2member_map_.setdefault(number, member)


class OrientationReader:
    """Reads the orientation of the frames of a stream, in the order in which they are decoded.

    Reading a frame's side data takes longer than all of its other properties. So it is read where the orientation can
    change: on the first frame, on a keyframe after other frames, and where the angle differs.
    """

    def __init__(self) -> None:
        self._rotation: int | None = None
        self._was_keyframe = False
        self._orientation = Orientation()

    def __call__(self, frame: Any) -> Orientation:
        """Transform that makes an `av.VideoFrame` upright."""
        rotation = frame.rotation
        is_keyframe = frame.key_frame
        if rotation != self._rotation or (is_keyframe and not self._was_keyframe):
            self._orientation = orientation_of(frame)
        self._rotation = rotation
        self._was_keyframe = is_keyframe
        return self._orientation


def to_surface(
    frame: Any, pool: SurfacePool, *, orientation: Orientation | None = None, centerd: bool = False
) -> tuple[int, int, Surface]:
    """Convert a frame to an upright NV12 surface.

    Args:
        frame: an `av.VideoFrame` of any pixel format, on the host.
        pool: a pool on the host.
        orientation: transform that makes the frame upright; None to read it from the frame.
        centerd: as for `color_of`.

    Returns:
        Width and height as shown, and the surface.
    """
    color = color_of(frame, centerd=centerd)
    rotation, mirrored = orientation_of(frame) if orientation is None else orientation
    width = frame.width
    height = frame.height
    surface = pool.surface(width, height, color)
    surface.color = color = _fill(frame, color, surface.data)
    if not (rotation or mirrored):
        return width, height, surface
    new_width, new_height = planes.rotated_size(width, height, rotation)
    turned = pool.surface(
        new_width, new_height, planes.rotated_color(color, width, height, rotation, mirrored=mirrored)
    )
    planes.rotate(surface.data, width, height, rotation, turned.data, mirrored=mirrored)
    return new_width, new_height, turned


def _fill(frame: Any, color: Color, out: np.ndarray) -> Color:
    """Write a frame's samples into NV12 `out`; return the resulting color format."""
    name = frame.format.name
    width = frame.width
    height = frame.height
    planar = _PLANAR.fullmatch(name)
    gray = _GRAY.fullmatch(name)
    if planar:
        bits = int(planar[2] or 8)
        across = planar[1] != "444"
        down = planar[1] == "420"
        size = (width + 1) // 2 if across else width, (height + 1) // 2 if down else height
        y, u, v = (_plane(frame, i, *(size if i else (width, height)), bits) for i in range(3))
        return planes.pack(y, u, v, color, out)
    if gray:
        return planes.pack(_plane(frame, 0, width, height, int(gray[1] or 8)), None, None, color, out)
    if name == "nv12" or _HIGH.fullmatch(name):
        bits = 8 if name == "nv12" else 16
        y = _plane(frame, 0, width, height, bits)
        chroma = _plane(frame, 1, (width + 1) // 2 * 2, (height + 1) // 2, bits)
        return planes.pack(y, chroma[:, 0::2], chroma[:, 1::2], color, out)
    if frame.format.is_rgb or name == "pal8":
        from streamkit.ops.color import from_rgb

        color = Color(color.matrix, False, 0.0, 0.5)
        out[:] = from_rgb(frame.reformat(format="rgb24", threads=1).to_ndarray(), color)
        return color
    # the rest are rare layouts of Y, Cb and Cr: FFmpeg makes them planar, without changing matrix and range; in one
    # thread, because with several some rows of odd-sized frames differ from run to run
    same = int(frame.colorspace), int(frame.color_range)
    flat = frame.reformat(
        format="yuv444p",
        src_colorspace=same[0],
        dst_colorspace=same[0],
        src_color_range=same[1],
        dst_color_range=same[1],
        threads=1,
    )
    return _fill(flat, color, out)


def _plane(frame: Any, i: int, width: int, height: int, bits: int) -> np.ndarray:
    """Plane `i` as (height, width) uint8."""
    plane = frame.planes[i]
    dtype = np.dtype(np.uint8 if bits == 8 else "<u2")
    samples = np.frombuffer(plane, dtype).reshape(-1, plane.line_size // dtype.itemsize)[:height, :width]
    return planes.narrow(samples, bits)
