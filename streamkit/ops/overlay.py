# SPDX-License-Identifier: Apache-2.0
"""Drawing of rectangles, lines, stencils and sprites into NV12 frames, a whole batch at once.

The drawing is a flat table of marks, the same for host and device, made by `streamkit.ops.annotate`. Every position and
size in it is even, so luma and chroma agree about each edge: a 2x2 block of pixels is either inside a mark or outside,
and colors never bleed. Marks are drawn in order, later ones on top, in integers, so the host and the kernel
(cuda/overlay.cu) produce equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from streamkit.core.data import Surface, array_module
from streamkit.ops.cuda.load import kernel
from streamkit.ops.glyphs import Atlas
from streamkit.ops.transfer import to_device

MARK = np.dtype(
    [
        ("x1", "<i4"),
        ("y1", "<i4"),
        ("x2", "<i4"),
        ("y2", "<i4"),
        ("border", "<i4"),
        ("color", "<u4"),
        ("ink", "<u4"),
        ("sprite", "<i4"),
    ]
)
"""One thing to draw, `struct Mark` of cuda/overlay.cu; x2 and y2 are the first pixels past it, and all may lie outside.

`color` is Y | Cb << 8 | Cr << 16 | opacity << 24. It goes onto the whole rectangle, or its `border` pixels' rim where
that is not 0. Then, where `sprite` is 0 or more, `ink` (no opacity) goes on as the sprite's masks say; the sprite is as
large as the rectangle, and `border` is 0. Two kinds take `color` onto some of the rectangle's blocks of 2x2 pixels:

- `sprite` LINE: those whose middle is no further than half of `border` from a line. It goes from the rectangle's upper
  left corner to the lower right one, from the lower left to the upper right where `ink` is 1, and ends half of `border`
  within them.
- `sprite` STENCIL: those whose bit is set in the atlas's stencils from byte `ink` on, row by row, each from a new byte,
  the highest bit first.
"""

LINE = -2
STENCIL = -3

FRAME = np.dtype(
    [("from", "<u8"), ("to", "<u8"), ("width", "<i4"), ("height", "<i4"), ("first", "<i4"), ("last", "<i4")]
)
"""One frame to draw, `struct Frame` of cuda/overlay.cu; its marks are those from `first` to before `last`."""

# as in cuda/overlay.cu
_TILE = 64
_THREADS = 256
_COLORED = 4096  # colored sprites kept
_PAIR = np.dtype("<u2")  # Cb | Cr << 8
_BYTES = np.arange(256, dtype=np.uint8)


def draw(
    surfaces: Sequence[Surface], marks: np.ndarray, ends: Sequence[int], atlas: Atlas, *, in_place: bool = False
) -> list[Surface]:
    """Draw marks onto frames of any sizes.

    On a device everything runs on the current stream, in one launch; `ready` of the drawn surfaces is its event.

    Args:
        surfaces: the frames, all on the host or all on the current device, completely written.
        marks: (m,) MARK on the host, ordered by frame.
        ends: the end of each frame's marks, ascending.
        atlas: holds the marks' sprites.
        in_place: draw into the surfaces themselves; only if nothing else reads them. A host array that is not
            writeable is copied all the same.

    Returns:
        A surface for each: a new one if something was drawn (unless `in_place`), else the one given.

    Raises:
        ValueError: `ends` does not match, or a mark's position or border is odd.
    """
    if len(ends) != len(surfaces) or (len(ends) and ends[-1] != len(marks)):
        raise ValueError(f"ends must have one end per surface, the last {len(marks)}, got {list(ends)}")
    if (np.ascontiguousarray(marks).view(np.int32).reshape(-1, 8)[:, :5] & 1).any():
        raise ValueError("a mark's x1, y1, x2, y2 and border must be even: NV12 stores one color for 2x2 pixels")
    if not len(marks):
        return list(surfaces)
    bounds = list(zip([0, *ends], ends, strict=False))
    if array_module(surfaces[0].data) is not np:
        return _draw_on_device(surfaces, marks, bounds, atlas, in_place)
    return change_on_host(surfaces, bounds, lambda surface, rows: _draw_on_host(surface, marks[rows], atlas), in_place)


def change_on_host(
    surfaces: Sequence[Surface],
    bounds: Sequence[tuple[int, int]],
    change: Callable[[Surface, slice], None],
    in_place: bool,
) -> list[Surface]:
    """Apply `change` to each surface that has rows of a table, given by its bounds, or to a copy of the surface."""
    changed = list(surfaces)
    for i, (first, last) in enumerate(bounds):
        if first < last:
            if not (in_place and surfaces[i].data.flags.writeable):
                changed[i] = Surface(surfaces[i].data.copy(), surfaces[i].color)
            change(changed[i], slice(first, last))
    return changed


def _draw_on_device(
    surfaces: Sequence[Surface], marks: np.ndarray, bounds: list[tuple[int, int]], atlas: Atlas, in_place: bool
) -> list[Surface]:
    import cupy

    drawn = list(surfaces)
    frames = []
    for i, (first, last) in enumerate(bounds):
        if first < last:
            old = surfaces[i]
            new = old if in_place else Surface(cupy.empty(old.data.shape, np.uint8), old.color)
            frames.append((old.data.data.ptr, new.data.data.ptr, old.width, old.height, first, last))
            drawn[i] = new
    table = np.array(frames, FRAME)
    on_device = to_device(table, marks)
    grid = (-(-int(table["width"].max()) // _TILE), -(-int(table["height"].max()) // _TILE), len(frames))
    stencils = atlas.stencils()
    stencils = to_device(stencils)[0] if len(stencils) else on_device[0]  # the kernel needs a valid pointer
    kernel("overlay.cu", "overlay")(grid, (_THREADS,), (*on_device, atlas.on_device(), stencils))
    set_ready(drawn, bounds)
    return drawn


def set_ready(surfaces: Sequence[Surface], bounds: Sequence[tuple[int, int]]) -> None:
    """Record an event on the current stream, and set it as `ready` of each surface that has rows of a table."""
    import cupy

    done = cupy.cuda.Event(block=False, disable_timing=True)
    done.record()
    for surface, (first, last) in zip(surfaces, bounds, strict=True):
        if first < last:
            surface.ready = done


# ---------------------------------------------------------------------------------------------------- on the host


def _draw_on_host(surface: Surface, marks: np.ndarray, atlas: Atlas) -> None:
    luma = surface.data[: surface.height]
    chroma = surface.data[surface.height :].view(_PAIR)
    for x1, y1, x2, y2, border, color, ink, sprite in marks.tolist():
        if sprite == LINE:
            _blend_blocks(luma, chroma, x1, y1, *_line(x2 - x1, y2 - y1, border, bool(ink)), color)
        elif sprite == STENCIL:
            row, column = np.nonzero(atlas.stencil_at(ink, (x2 - x1) // 2, (y2 - y1) // 2))
            _blend_blocks(luma, chroma, x1, y1, row, column, color)
        elif sprite >= 0:
            _draw_sprite(luma, chroma, (x1, y1, x2, y2), color, ink, sprite, atlas)
        elif border:
            for left, top, right, bottom in _border_rects(x1, y1, x2, y2, border):
                _fill(luma, chroma, left, top, right, bottom, color)
        else:
            _fill(luma, chroma, x1, y1, x2, y2, color)


def _fill(luma: np.ndarray, chroma: np.ndarray, x1: int, y1: int, x2: int, y2: int, color: int) -> None:
    """Fill a rectangle with a color. Slices end at the frame's far border by themselves, but not at the near one."""
    if x1 < 0 or y1 < 0:
        x1 = max(x1, 0)
        y1 = max(y1, 0)
        x2 = max(x2, 0)
        y2 = max(y2, 0)
    pairs = chroma[y1 // 2 : y2 // 2, x1 // 2 : x2 // 2]
    if color >> 24 == 255:
        luma[y1:y2, x1:x2] = color & 255
        pairs[...] = color >> 8 & 0xFFFF
    elif pairs.size:
        import cv2

        # The result of a byte depends on the byte alone, so a table of 256 per channel is enough.
        y, cb, cr = (_blend(_BYTES, color >> shift, color >> 24).astype(np.uint8) for shift in (0, 8, 16))
        luma[y1:y2, x1:x2] = cv2.LUT(luma[y1:y2, x1:x2], y)
        halves = pairs.view(np.uint8).reshape(*pairs.shape, 2)
        halves[...] = cv2.LUT(halves, np.stack([cb, cr], axis=1)[None])


@lru_cache(maxsize=1024)
def _line(width: int, height: int, border: int, rises: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and columns of the blocks of a line's rectangle that are on the line.

    Only blocks in a band around it are tested, along the rectangle's longer side: a line may be as long as the frame,
    and then covers a thousandth of its rectangle.
    """
    half = border // 2
    ax = half
    bx = width - half
    ay, by = (height - half, half) if rises else (half, height - half)
    dx = bx - ax
    dy = by - ay
    flat = abs(dx) >= abs(dy)
    length, wide, long = (dx, width, height) if flat else (dy, height, width)
    places = np.arange(wide // 2)
    slope = (dy if flat else dx) / length if length else 0.0
    middle = (ay if flat else ax) + slope * (2 * places + 1 - (ax if flat else ay))
    reach = border + 2  # across the long side it is at most border / sqrt(2) away, and the rounding's two pixels more
    across = np.floor((middle[:, None] - reach) / 2).astype(np.int64) + np.arange(reach + 2)
    along_it = np.broadcast_to(places[:, None], across.shape)
    inside = (across >= 0) & (across < long // 2)
    row, column = (across[inside], along_it[inside]) if flat else (along_it[inside], across[inside])
    px = 2 * column + 1 - ax
    py = 2 * row + 1 - ay
    squared = dx * dx + dy * dy
    along = px * dx + py * dy
    across_it = px * dy - py * dx
    near = np.where(along <= 0, px**2 + py**2, (px - dx) ** 2 + (py - dy) ** 2) * 4 <= border**2
    between = (along > 0) & (along < squared)
    on = np.where(between, 4 * across_it**2 <= border**2 * squared, near)
    return row[on], column[on]


def _blend_blocks(
    luma: np.ndarray, chroma: np.ndarray, x1: int, y1: int, row: np.ndarray, column: np.ndarray, color: int
) -> None:
    """Apply a color to blocks of 2x2 pixels, relative to the one at x1, y1; blocks outside the frame are skipped."""
    row = row + y1 // 2
    column = column + x1 // 2
    rows = luma.shape[0] // 2
    columns = luma.shape[1] // 2
    there = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    row = row[there]
    column = column[there]
    opacity = color >> 24
    for y, x in ((0, 0), (0, 1), (1, 0), (1, 1)):
        at = 2 * row + y, 2 * column + x
        luma[at] = color & 255 if opacity == 255 else _blend(luma[at], color, opacity)
    if opacity == 255:
        chroma[row, column] = color >> 8 & 0xFFFF
        return
    halves = chroma.view(np.uint8)
    for i, shift in ((0, 8), (1, 16)):
        at = row, 2 * column + i
        halves[at] = _blend(halves[at], color >> shift, opacity)


def _draw_sprite(
    luma: np.ndarray,
    chroma: np.ndarray,
    box: tuple[int, int, int, int],
    color: int,
    ink: int,
    sprite: int,
    atlas: Atlas,
) -> None:
    """Draw a sprite on its rectangle, which may extend beyond the frame."""
    x1, y1, x2, y2 = box
    left = max(x1, 0)
    top = max(y1, 0)
    under = luma[top : max(y2, 0), left : max(x2, 0)]
    pairs = chroma[top // 2 : max(y2, 0) // 2, left // 2 : max(x2, 0) // 2]
    rows, columns = pairs.shape
    cut = slice(top - y1, top - y1 + 2 * rows), slice(left - x1, left - x1 + 2 * columns)
    half = slice((top - y1) // 2, (top - y1) // 2 + rows), slice((left - x1) // 2, (left - x1) // 2 + columns)
    if color >> 24 == 255:
        y, pair = _colored(atlas, sprite, x2 - x1, y2 - y1, color, ink)
        under[...] = y[cut]
        pairs[...] = pair[half]
        return
    y_mask, pair_mask = atlas.masks(sprite, x2 - x1, y2 - y1)
    halves = pairs.view(np.uint8)
    for part, mask, shift in (
        (under, y_mask[cut], 0),
        (halves[:, 0::2], pair_mask[half], 8),
        (halves[:, 1::2], pair_mask[half], 16),
    ):
        ground = _blend(part, color >> shift, color >> 24) if color >> 24 else part
        part[...] = _blend(ground, ink >> shift, mask)


def _border_rects(x1: int, y1: int, x2: int, y2: int, border: int) -> tuple[tuple[int, int, int, int], ...]:
    """Return the rim of a rectangle as four rectangles that share no pixel."""
    upper = min(y1 + border, y2)
    left = min(x1 + border, x2)
    lower = max(y2 - border, upper)
    right = max(x2 - border, left)
    return (x1, y1, x2, upper), (x1, lower, x2, y2), (x1, upper, left, lower), (right, upper, x2, lower)


def _blend(under: np.ndarray, over: int, share: np.ndarray | int) -> np.ndarray:
    """Blend the low byte of `over` onto `under` with share / 255, rounded: bytes in, bytes as uint16 out."""
    share = np.asarray(share, np.uint16)
    return np.asarray((under.astype(np.uint16) * (255 - share) + (over & 255) * share + 127) // 255)


def _colored(atlas: Atlas, sprite: int, width: int, height: int, color: int, ink: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a sprite on its background: luma (height, width) uint8, chroma (height / 2, width / 2) uint16 pairs."""
    key = sprite, color, ink
    colored = atlas.colored.get(key)
    if colored is None:
        if len(atlas.colored) >= _COLORED:
            atlas.colored.clear()
        y_mask, pair_mask = atlas.masks(sprite, width, height)
        y, cb, cr = (
            _blend(np.full_like(mask, color >> shift & 255), ink >> shift, mask)
            for mask, shift in ((y_mask, 0), (pair_mask, 8), (pair_mask, 16))
        )
        colored = atlas.colored[key] = y.astype(np.uint8), cb | cr << 8
    return colored
