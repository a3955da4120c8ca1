# SPDX-License-Identifier: Apache-2.0
"""Regions of interest and tiles: which frames, and which parts of them, a network sees (`every:`, `roi:`, `tiles:`).

A composite with any of these options begins with the part `regions`, which puts one row per region on the batch, as
`streamkit/core/crops.py` describes; all regions are still one launch of `preprocess`. `postprocess` merges the objects
of a frame's regions and discards those whose anchor is outside of every polygon.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np

from streamkit.analytics.geometry import Areas
from streamkit.analytics.per_source_steps import anchors, shape_scales
from streamkit.analytics.shapes import Anchor, Polygons, Shape, Units, by_name, check_units
from streamkit.core.crops import Crops
from streamkit.core.data import Batch, Detections, Frame
from streamkit.core.logs import LogOnce
from streamkit.core.stage import BatchStage, Composite, CompositePart
from streamkit.core.units import Unit
from streamkit.models.families import ReadOptions
from streamkit.ops import views
from streamkit.ops.boxes import Rect
from streamkit.stages.inference.select_objects import WHOLE_FRAME

logger = logging.getLogger(__name__)

_EDGE_NETWORK_PX = 2.0  # an object whose box ends so near the edge of a region may continue beyond it
_TilePixels = Annotated[int, Unit("pixels", minimum=32)]


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiling of a frame; in the YAML {size: [640, 640], overlap: 0.2}.

    Attributes:
        size: width and height in source pixels.
        overlap: the share of a tile that overlaps its neighbor.
        full_frame: also run on the whole frame, for objects larger than a tile.
    """

    size: tuple[_TilePixels, _TilePixels]
    overlap: Annotated[float, Unit("share of a tile", minimum=0, maximum=0.9)] = 0.2
    full_frame: bool = True


@dataclass(frozen=True, slots=True)
class InferenceRegions:
    """A stage's `roi`, `units`, `anchor` and `tiles`: which parts of a frame are seen, and which objects count.

    Raises:
        ValueError: coordinates that the units cannot mean, or a tile that is larger than every polygon.
    """

    roi: Shape | dict[str, Shape] | None = None
    units: Units = "pixels"
    anchor: Anchor = "foot"
    tiles: Tiles | None = None
    areas: Areas | None = field(default=None, init=False)
    shapes: tuple[np.ndarray, ...] = field(default=(), init=False)
    _rects: dict[tuple[int, int, tuple[float, float]], np.ndarray] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.roi is None:
            return
        polygons = list(by_name(self.roi).values())
        check_units(self.units, polygons)
        object.__setattr__(self, "areas", Areas(polygons))
        object.__setattr__(self, "shapes", tuple(np.array(polygon, np.float64) for polygon in polygons))
        if self.tiles is not None and self.units == "pixels":
            sides = [shape.max(axis=0) - shape.min(axis=0) for shape in self.shapes]
            if all((np.array(self.tiles.size) >= side).all() for side in sides):
                wide, high = self.tiles.size
                raise ValueError(
                    f"tiles of {wide}x{high} are larger than the roi: make them smaller, or leave them out"
                )

    @property
    def wanted(self) -> bool:
        """Whether frames are seen in parts."""
        return self.roi is not None or self.tiles is not None

    def parts(self, width: int, height: int, scale: tuple[float, float] = (1.0, 1.0)) -> list[Rect]:
        """Return each polygon's bounding rectangle in a frame of this size; the whole frame without polygons.

        `scale` is its `Frame.shape_scale`.
        """
        if self.roi is None:
            return [(0, 0, width, height)]
        unit = (width, height) if self.units == "share" else scale
        rects = [views.bounding_rect(shape * unit, width, height) for shape in self.shapes]
        return list(dict.fromkeys(rect for rect in rects if rect is not None))

    def rects(self, width: int, height: int, scale: tuple[float, float] = (1.0, 1.0)) -> np.ndarray:
        """Return (k, 2, 4) int32: each region of a frame of this size, and the part that it belongs to."""
        key = width, height, scale
        if key in self._rects:
            return self._rects[key]
        part_of: dict[Rect, Rect] = {}
        for part in self.parts(width, height, scale):
            laid = [part] if self.tiles is None else views.tiles(part, self.tiles.size, self.tiles.overlap)
            whole = [part] if self.tiles is not None and self.tiles.full_frame and len(laid) > 1 else []
            for rect in (*whole, *laid):
                part_of.setdefault(rect, part)
        self._rects[key] = np.array(list(part_of.items()), np.int32).reshape(-1, 2, 4)
        return self._rects[key]

    def inside(self, xyxy: np.ndarray, sizes_wh: np.ndarray, scales: np.ndarray) -> np.ndarray:
        """Return (n,) bool: whether each box's anchor is in a polygon; all true without polygons.

        Args:
            xyxy: (n, 4) boxes in pixels of their frames.
            sizes_wh: (n, 2) float64, width and height of the frames.
            scales: (n, 2) float64, `Frame.shape_scale` of the frames.
        """
        if self.areas is None:
            return np.ones(len(xyxy), bool)
        xy = anchors(xyxy.astype(np.float64), sizes_wh, self.anchor)
        return np.asarray(self.areas.inside(xy / (sizes_wh if self.units == "share" else scales)).any(axis=1))

    def unseen(self, xyxy: np.ndarray, within: np.ndarray, sizes_wh: np.ndarray, scale: np.ndarray) -> np.ndarray:
        """Return (n,) bool: whether each box's anchor lies at the edge of its part, so the object continues beyond.

        Args:
            xyxy: (n, 4) boxes in source pixels.
            within: (n, 4) the polygon's bounding rectangle that each box was found in.
            sizes_wh: (n, 2) width and height of the frames.
            scale: (n, 2) network pixels per source pixel.
        """
        edge = {"left": 0, "top": 1, "right": 2, "foot": 3}.get(self.anchor)
        if self.areas is None or edge is None:
            return np.zeros(len(xyxy), bool)
        outward = 1 if edge > 1 else -1
        axis = edge % 2
        inner = within[:, edge] != (sizes_wh[:, axis] if edge > 1 else 0)
        return np.asarray(inner & ((xyxy[:, edge] - within[:, edge]) * outward > -_EDGE_NETWORK_PX / scale[:, axis]))


def select_regions(stage: Composite) -> list[CompositePart]:
    """Return the part `regions` of a composite, if its `roi`, `tiles` or `every` require it."""
    options = {name: getattr(stage, name) for name in ("roi", "units", "anchor", "tiles")}
    every = getattr(stage, "every", 1)
    needed = InferenceRegions(**options).wanted or every > 1
    return [CompositePart("regions", SelectRegions, {**options, "every": every})] if needed else []


@dataclass(eq=False)
class SelectRegions(BatchStage, name="regions", reads=("pixels",), writes=("crops",)):
    """Choose the regions of each frame; see the module.

    Attributes:
        roi: polygons; the network sees the bounding rectangle of each.
        units: of the polygons' coordinates.
        anchor: the point of a box that must be in a polygon.
        tiles: tiling of each region.
        every: run on every n-th frame of each source only.
    """

    roi: Polygons | None = None
    units: Units = "pixels"
    anchor: Anchor = "foot"
    tiles: Tiles | None = None
    every: int = 1

    def open(self) -> None:
        """Prepare for frames of any size."""
        self._table = self.context.id.split(".", 1)[0]
        self._regions = InferenceRegions(self.roi, self.units, self.anchor, self.tiles)
        self._warn = LogOnce(logger.warning)

    def process(self, batch: Batch) -> Batch:
        """Set `batch.rows` and, unless the network sees whole frames, `batch.crops`."""
        selected = [row for row, frame in enumerate(batch.frames) if self._is_selected(frame)]
        if not self._regions.wanted:
            batch.rows = np.array(selected, np.int32)
            return batch
        rects = [self._rects(batch.frames[row]) for row in selected]
        together = np.concatenate(rects) if rects else np.zeros((0, 4), np.int32)
        batch.rows = np.repeat(np.array(selected, np.int32), [len(part) for part in rects])
        batch.crops = Crops(together, np.full(len(together), WHOLE_FRAME, np.int32))
        self.context.counters.add("regions inferred", len(together))
        return batch

    def _is_selected(self, frame: Frame) -> bool:
        """Whether the network runs on the frame, which is marked as skipped if not."""
        if frame._state.ordinal % self.every == 0:
            return True
        frame._state.skipped_detectors |= {self._table}
        self.context.counters.add("frames skipped: every")
        return False

    def _rects(self, frame: Frame) -> np.ndarray:
        rects = self._regions.rects(frame.width, frame.height, frame.shape_scale)[:, 0]
        if not len(rects):
            size = f"{frame.width}x{frame.height}"
            self._warn(f"the roi is outside of frames of {size}: no objects are detected in them")
        return rects


@dataclass(frozen=True, slots=True)
class FrameGeometry:
    """Sizes of a batch's frames.

    Attributes:
        sizes_wh: (n, 2) int64, width and height of each frame.
        shape_scales: (n, 2) float64, `Frame.shape_scale` of each frame.
    """

    sizes_wh: np.ndarray
    shape_scales: np.ndarray

    @classmethod
    def of(cls, frames: Sequence[Frame]) -> FrameGeometry:
        """Return those of some frames."""
        sizes = np.array([(frame.width, frame.height) for frame in frames], np.int64)
        return cls(sizes, shape_scales(frames))

    def rects(self, regions: InferenceRegions, row: int) -> np.ndarray:
        """Return `InferenceRegions.rects` for a frame."""
        width, height = self.sizes_wh[row].tolist()
        across, down = self.shape_scales[row].tolist()
        return regions.rects(width, height, (across, down))


def merge_regions(
    table: Detections,
    regions: InferenceRegions,
    rows: np.ndarray,
    crops: Crops,
    scale: np.ndarray,
    frames: FrameGeometry,
    options: ReadOptions,
) -> tuple[Detections, dict[str, int]]:
    """Return the table of a batch's frames from that of their regions, and how many rows each cause removed.

    Args:
        table: the objects of the regions; `batch_row` is the region.
        regions: the stage's regions.
        rows: (r,) the frame of each crop.
        crops: the r regions, or the objects of another stage that the network saw.
        scale: (r, 2) float32, network pixels per source pixel.
        frames: sizes and scales of the batch's frames.
        options: the options of non-max suppression.
    """
    region = table.batch_row
    frame = rows[region]
    within = crops.rects  # the polygon's rectangle that each region is a tile of; an object's crop is no tile
    if crops.row_id[0] == WHOLE_FRAME:
        within = np.concatenate([frames.rects(regions, row)[:, 1] for row in dict.fromkeys(rows.tolist())])
    within = within[region]
    sizes = frames.sizes_wh[frame]
    scale = scale[region]
    inside = regions.inside(table.xyxy, sizes.astype(np.float64), frames.shape_scales[frame])
    inside &= ~regions.unseen(table.xyxy, within, sizes, scale)
    cut = views.is_cut_off(table.xyxy, crops.rects[region], within, scale)
    inside_rows = np.flatnonzero(inside)
    merged_rows, suppressed, left_out = views.merge(
        table.xyxy[inside_rows],
        table.score[inside_rows],
        table.class_id[inside_rows],
        frame[inside_rows],
        region[inside_rows],
        cut[inside_rows],
        iou=options.iou,
        agnostic=options.agnostic,
        top_k=options.top_k,
        corners=table.extra["corners"][inside_rows] if "corners" in table.extra else None,
    )
    merged = table[inside_rows[merged_rows]]
    row_id = np.arange(len(merged), dtype=np.int32)
    merged = merged.with_columns(batch_row=np.asarray(rows[merged.batch_row], np.int32), row_id=row_id)
    return merged, {"nms": suppressed, "top_k": left_out, "roi": len(table) - len(inside_rows)}
