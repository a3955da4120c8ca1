# SPDX-License-Identifier: Apache-2.0
"""`preprocess` on a GPU: one small copy and one launch per batch; for one frame, the launch alone.

A kernel's parameters of a frame are a record. All of it but the surface's address depends only on the frame's size and
color and is cached, so a frame costs Python a lookup and an address. The records of a batch are copied together, from
pinned memory, on the current stream; a staging buffer is reused once the event after its kernel has completed.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from streamkit.core.data import Array, Color, Surface
from streamkit.ops import traffic
from streamkit.ops.boxes import Rect, check_rects
from streamkit.ops.color import IMAGE, image_record
from streamkit.ops.cuda import driver
from streamkit.ops.cuda.load import kernel
from streamkit.ops.letterbox import InputSpec, geometry, placement, rect_geometry

SPEC = np.dtype(
    [
        ("factor", "<f4", 3),
        ("summand", "<f4", 3),
        ("pad", "<f4", 3),
        ("width", "<i4"),
        ("height", "<i4"),
        ("bgr", "<i4"),
    ]
)
"""`struct Spec` of cuda/preprocess.cu."""

FRAME = np.dtype(
    [
        ("image", IMAGE),
        ("left", "<i4"),
        ("top", "<i4"),
        ("new_width", "<i4"),
        ("new_height", "<i4"),
        ("step_x", "<f4"),
        ("step_y", "<f4"),
    ]
)
"""`struct Frame` of cuda/preprocess.cu."""

_BLOCK = (32, 8)
_OUT = {"f32": "float", "f16": "__half", "u8": "u8"}
_MAX_RECORDS = 4096  # sizes and colors; a run over frames of all sizes must not grow without end


@dataclass(frozen=True, slots=True)
class PackedImages:
    """Memory of the current device for a network's images, as convolutions of the fused engine read them.

    Pixels are blocks of `block` x `block` pixels of the images: the 3 channels of each, row by row, and zeros up to
    `pitch` values. Values are f16, and all images are back to back.

    Attributes:
        address: of the first value.
        images: number of images.
        block: 1, or 2 for images whose width and height are even.
        pitch: values from one pixel to the next.
    """

    address: int
    images: int
    block: int
    pitch: int


def fill(
    out: Array,
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    spec: InputSpec,
    rects: Sequence[Rect] | None,
    views: np.ndarray | None = None,
) -> np.ndarray:
    """Write the batch to `out` and return its geometry; arguments as `preprocess` has checked them."""
    layout = (f"OUT={_OUT[spec.dtype]}", f"NHWC={int(spec.layout == 'nhwc')}")
    return _fill(int(out.data.ptr), len(out), layout, surfaces, sizes, spec, rects, views)


def fill_packed(
    target: PackedImages,
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    spec: InputSpec,
    rects: Sequence[Rect] | None,
    views: np.ndarray | None = None,
) -> None:
    """Write a batch of a float network to memory; other arguments as for `preprocess`, at most `target.images` rows."""
    if rects is not None:
        check_rects(rects, sizes)
    layout = ("OUT=__half", "NHWC=1", f"BLOCK={target.block}", f"PITCH={target.pitch}")
    _fill(target.address, target.images, layout, surfaces, sizes, spec, rects, views, target.block)


def _fill(
    address: int,
    images: int,
    layout: tuple[str, ...],
    surfaces: Sequence[Surface],
    sizes: Sequence[tuple[int, int]],
    spec: InputSpec,
    rects: Sequence[Rect] | None,
    views: np.ndarray | None,
    pixels_of_thread: int = 1,
) -> np.ndarray:
    import cupy

    if images == 0:
        return np.zeros((0, 4), np.float32)
    stream = cupy.cuda.get_current_stream()
    driver.wait_for(stream, surfaces)

    packed, scales = _plan(spec).pack(surfaces, sizes, [s.data.data.ptr for s in surfaces], images, rects, views)
    defines = (*layout, "ANTIALIAS=1") if spec.antialias else layout
    threads = [length // pixels_of_thread for length in spec.size]
    grid = (-(-threads[0] // _BLOCK[0]), -(-threads[1] // _BLOCK[1]), images)
    if images == 1 and _fill_single(address, packed, grid, defines, stream):
        return scales
    launch = kernel("preprocess.cu", "preprocess", defines)
    staging = _Staging.take(len(packed))
    staging.send(packed, stream)
    launch(grid, _BLOCK, (staging.device, np.uint64(address)))
    staging.give_back(stream)
    return scales


def _fill_single(
    address: int, packed: bytearray, grid: tuple[int, int, int], defines: tuple[str, ...], stream: Any
) -> bool:
    """Queue a batch of one frame without a copy of its parameters; return whether the driver allows it."""
    to = ctypes.c_uint64(address)
    spec = ctypes.addressof(ctypes.c_char.from_buffer(packed))
    arguments = spec, spec + SPEC.itemsize, ctypes.addressof(to)
    return driver.launch(kernel("preprocess.cu", "preprocess_one", defines), grid, (*_BLOCK, 1), stream, arguments)


def spec_record(spec: InputSpec) -> np.ndarray:
    """Return the SPEC record, () shaped."""
    return np.array((*spec.affine(), *spec.size, int(spec.color == "bgr")), SPEC)


class Plan:
    """Makes the packed records of batches for one `InputSpec`. Needs no GPU."""

    def __init__(self, spec: InputSpec) -> None:
        self.spec = spec
        self._header = spec_record(spec).tobytes()
        self._record = lru_cache(maxsize=_MAX_RECORDS)(self._make_record)

    def pack(
        self,
        surfaces: Sequence[Surface],
        sizes: Sequence[tuple[int, int]],
        addresses: list[int],
        batch: int,
        rects: Sequence[Rect] | None = None,
        views: np.ndarray | None = None,
    ) -> tuple[bytearray, np.ndarray]:
        """Return the bytes of a SPEC and `batch` FRAMEs, and the geometry, (surfaces, 4) float32."""
        if rects is not None:
            return self._pack_parts(surfaces, addresses, batch, np.array(rects, np.int64).reshape(-1, 4), views)
        records = [self._header]
        scales = []
        for surface, size in zip(surfaces, sizes, strict=True):
            record, scale = self._record(size, surface.data.shape, surface.color)
            records.append(record)
            scales.append(scale)
        packed = bytearray(b"".join(records)).ljust(SPEC.itemsize + batch * FRAME.itemsize, b"\0")
        frames = np.frombuffer(packed, FRAME, offset=SPEC.itemsize)
        frames["image"]["data"][: len(addresses)] = addresses
        return packed, np.array(scales, np.float32).reshape(-1, 4)

    def _pack_parts(
        self,
        surfaces: Sequence[Surface],
        addresses: list[int],
        batch: int,
        rects: np.ndarray,
        views: np.ndarray | None,
    ) -> tuple[bytearray, np.ndarray]:
        """Return the same as `pack`, for parts of frames: objects have ever new sizes, so no record is cached."""
        kinds: dict[tuple[tuple[int, ...], Color], int] = {}
        kind = [kinds.setdefault((surface.data.shape, surface.color), len(kinds)) for surface in surfaces]
        whole = [image_record(color, shape, shape[1], shape[0] * 2 // 3) for shape, color in kinds]
        frames = np.zeros(batch, FRAME)
        used = frames[: len(rects)]
        left, top, right, bottom = rects.T
        if kinds:
            part = used["image"]
            part[:] = np.array(whole, IMAGE)[kind]
            # From the part's first luma row to its first chroma row: the luma rows below, and half of those above it.
            part["rows"] -= top // 2
            part["width"] = right - left
            part["height"] = bottom - top
            part["data"] = np.array(addresses, np.uint64) + (top * part["pitch"] + left).astype(np.uint64)
        place, scales = rect_geometry(self.spec, rects, views)
        for name, values in zip(("left", "top", "new_width", "new_height"), place.T, strict=True):
            used[name] = values
        used["step_x"], used["step_y"] = ((rects[:, 2:] - rects[:, :2]) / place[:, 2:]).T
        return bytearray(self._header + frames.tobytes()), scales

    def _make_record(
        self, size: tuple[int, int], shape: tuple[int, ...], color: Color
    ) -> tuple[bytes, tuple[float, ...]]:
        """Return the bytes of a FRAME without its address, and the geometry."""
        width, height = size
        place = placement(self.spec, width, height)
        values = (image_record(color, shape, width, height), *place, width / place.width, height / place.height)
        return np.array(values, FRAME).tobytes(), geometry(self.spec, width, height)


_plan = lru_cache(maxsize=64)(Plan)


class _Staging:
    """A pinned host buffer and a buffer of the same size on the current device, for one batch at a time.

    Instances are reused, oldest first, by any thread: a deque's operations are atomic.
    """

    _free: ClassVar[dict[tuple[int, int], deque[_Staging]]] = {}

    def __init__(self, key: tuple[int, int]) -> None:
        import cupy

        self._key = key
        capacity = key[1]
        self._pinned = cupy.cuda.alloc_pinned_memory(capacity)
        self._host = np.frombuffer(self._pinned, np.uint8, capacity)
        self._done = cupy.cuda.Event(disable_timing=True)
        self.device = cupy.empty(capacity, cupy.uint8)

    @classmethod
    def take(cls, size: int) -> _Staging:
        """Return a free instance of at least `size` bytes on the current device, or make one."""
        from cupy.cuda import runtime

        key = (runtime.getDevice(), 1 << max(10, (size - 1).bit_length()))
        free = cls._free.setdefault(key, deque())
        with suppress(IndexError):  # none is free
            oldest = free.popleft()
            if oldest._done.done:
                return oldest
            free.appendleft(oldest)
        return cls(key)

    def send(self, packed: bytearray, stream: Any) -> None:
        """Copy the bytes to the device, in the order of `stream`."""
        from cupy.cuda import runtime

        self._host[: len(packed)] = np.frombuffer(packed, np.uint8)
        runtime.memcpyAsync(self.device.data.ptr, self._pinned.ptr, len(packed), runtime.memcpyHostToDevice, stream.ptr)
        traffic.sent(len(packed))

    def give_back(self, stream: Any) -> None:
        """Free it for the next batch once `stream` reaches this point."""
        driver.record(self._done, stream)
        self._free[self._key].append(self)
