"""Regions of interest and tiles: which frames, and which parts of them, a network sees (`every:`, `roi:`, `tiles:`).

A composite with any of these options begins with the part `look`, which puts one row per view on the batch, as
`streamkit/core/crops.py` describes; all views are still one launch of `preprocess`. `postprocess` merges the objects of
a frame's views and discards those whose anchor is outside of every polygon.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from streamkit.analytics.geometry import Areas
from streamkit.analytics.shapes import Anchor, Polygons, Shape, Units, by_name, check_units
from streamkit.core.crops import Crops
from streamkit.core.data import Batch, Detections, Frame
from streamkit.core.stage import BatchStage, CompositePart
from streamkit.ops import views
from streamkit.ops.boxes import Rect
from streamkit.stages.inference.objects import WHOLE

_LEAST = 32
_EDGE_NETWORK_PX = 2.0  # a box that ends so near to where the view ends goes on behind it


@dataclass(frozen=True, slots=True)
class Tiles:
    """Tiling of a frame; in the YAML {size: [640, 640], overlap: 0.2}.

    Attributes:
        size: width and height in source pixels.
        overlap: the share of a tile that overlaps its neighbour.
        whole: also run on the whole frame, for objects larger than a tile.
    """

    size: tuple[int, int]
    overlap: float = 0.2
    whole: bool = True

    @staticmethod
    def read(value: Any) -> Tiles:
        """Parse the YAML value; raise ValueError."""
        if isinstance(value, Tiles):
            return value
        if not isinstance(value, dict) or "size" not in value or value.keys() - {"size", "overlap", "whole"}:
            raise ValueError("must be {size: [width, height], overlap: 0.2, whole: true}, the last two as you like")
        size, overlap, whole = value["size"], value.get("overlap", 0.2), value.get("whole", True)
        if not isinstance(size, (list, tuple)) or len(size) != 2 or not all(_is_whole(v) and v >= _LEAST for v in size):
            raise ValueError(f"must have a size of [width, height] in whole pixels, each {_LEAST} or more")
        if isinstance(overlap, bool) or not isinstance(overlap, (int, float)) or not 0 <= overlap <= 0.9:
            raise ValueError("must have an overlap from 0 to 0.9, the share of a tile that its neighbour has too")
        if not isinstance(whole, bool):
            raise ValueError("must have true or false for whole")
        return Tiles((size[0], size[1]), float(overlap), whole)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(cls.read)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        pixels = {"type": "integer", "minimum": _LEAST}
        parts = {
            "size": {"type": "array", "items": pixels, "minItems": 2, "maxItems": 2},
            "overlap": {"type": "number", "minimum": 0, "maximum": 0.9},
            "whole": {"type": "boolean"},
        }
        return {"type": "object", "properties": parts, "required": ["size"], "additionalProperties": False}


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


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
                text = f"tiles of {wide}x{high} are larger than the roi: make them smaller, or leave them out"
                raise ValueError(text)

    @property
    def wanted(self) -> bool:
        """Whether frames are seen in parts."""
        return self.roi is not None or self.tiles is not None

    def parts(self, width: int, height: int) -> list[Rect]:
        """Return each polygon's bounding rectangle in a frame of this size; the whole frame without polygons."""
        if self.roi is None:
            return [(0, 0, width, height)]
        size = (width, height) if self.units == "share" else (1, 1)
        found = [views.around(shape * size, width, height) for shape in self.shapes]
        return list(dict.fromkeys(rect for rect in found if rect is not None))

    def rects(self, width: int, height: int) -> list[tuple[Rect, Rect]]:
        """Return the views of a frame of this size, each with the part it belongs to."""
        found: dict[Rect, Rect] = {}
        for part in self.parts(width, height):
            if self.tiles is None:
                found.setdefault(part, part)
                continue
            laid = views.tiles(part, self.tiles.size, self.tiles.overlap)
            for rect in [part, *laid] if self.tiles.whole and len(laid) > 1 else laid:
                found.setdefault(rect, part)
        return list(found.items())

    def inside(self, xyxy: np.ndarray, sizes_wh: np.ndarray) -> np.ndarray:
        """Return (n,) bool: whether each box's anchor is in a polygon; all true without polygons."""
        if self.areas is None:
            return np.ones(len(xyxy), bool)
        x1, y1, x2, y2 = xyxy.astype(np.float64).T
        x = {"left": x1, "right": x2}.get(self.anchor, (x1 + x2) * 0.5)
        y = {"foot": y2, "top": y1}.get(self.anchor, (y1 + y2) * 0.5)
        xy = np.clip(np.stack([x, y], axis=1), 0.5, sizes_wh - 0.5)
        return np.asarray(self.areas.inside(xy / sizes_wh if self.units == "share" else xy).any(axis=1))

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
        outward, axis = (1 if edge > 1 else -1), edge % 2
        inner = within[:, edge] != (sizes_wh[:, axis] if edge > 1 else 0)
        return np.asarray(inner & ((xyxy[:, edge] - within[:, edge]) * outward > -_EDGE_NETWORK_PX / scale[:, axis]))


def looking(stage: Any) -> list[CompositePart]:
    """Return the part `look` of a composite, if its `roi`, `tiles` or `every` require it."""
    seen = {name: getattr(stage, name) for name in ("roi", "units", "anchor", "tiles")}
    every = getattr(stage, "every", 1)
    return (
        [CompositePart("look", SelectRegions, {**seen, "every": every})]
        if InferenceRegions(**seen).wanted or every > 1
        else []
    )


@dataclass(eq=False)
class SelectRegions(BatchStage, name="look", reads=("pixels",), writes=("crops",)):
    """Choose the views of each frame; see the module.

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
        self._views = InferenceRegions(self.roi, self.units, self.anchor, self.tiles)
        self._known: dict[tuple[int, int], np.ndarray] = {}

    def process(self, batch: Batch) -> Batch:
        """Set `batch.rows` and, unless frames are seen as a whole, `batch.crops`."""
        seen = [self._sees(frame) for frame in batch.frames]
        if not self._views.wanted:
            batch.rows = np.flatnonzero(seen).astype(np.int32)
            return batch
        none = np.zeros((0, 4), np.int32)
        rects = [
            self._rects(frame.width, frame.height) if sees else none
            for frame, sees in zip(batch.frames, seen, strict=True)
        ]
        together = np.concatenate(rects) if rects else np.zeros((0, 4), np.int32)
        batch.rows = np.repeat(np.arange(len(rects), dtype=np.int32), [len(part) for part in rects])
        batch.crops = Crops(together, np.full(len(together), WHOLE, np.int32))
        self.context.counters.add("views seen", len(together))
        return batch

    def _sees(self, frame: Frame) -> bool:
        """Whether the frame is one of every n-th; a skipped one is marked so."""
        if frame.ordinal % self.every == 0:
            return True
        frame.skipped |= {self._table}
        self.context.counters.add("frames not looked at")
        return False

    def _rects(self, width: int, height: int) -> np.ndarray:
        found = self._known.get((width, height))
        if found is None:
            rects = [rect for rect, _ in self._views.rects(width, height)]
            if not rects:
                self.context.log(f"the roi is outside of pictures of {width}x{height}: nothing is found in them")
            found = self._known[width, height] = np.array(rects, np.int32).reshape(-1, 4)
        return found


@dataclass(slots=True)
class RegionMerger:
    """Merges the objects of a batch's views; made with what is known before the objects are on the host.

    Attributes:
        seen: the stage's views.
        rows: (r,) the frame of each view.
        rects: (r, 4) int32 the views.
        scale: (r, 2) float32, network pixels per source pixel.
        sizes_wh: (n, 2) width and height of each frame.
    """

    seen: InferenceRegions
    rows: np.ndarray
    rects: np.ndarray
    scale: np.ndarray
    sizes_wh: np.ndarray

    def __call__(
        self, table: Detections, *, iou: float, agnostic: bool, top_k: int
    ) -> tuple[Detections, dict[str, int]]:
        """Return the frames' table made of the views' table, and how many rows each cause removed."""
        view = table.batch_row
        frame = self.rows[view]
        within, sizes, scale = self._within()[view], self.sizes_wh[frame], self.scale[view]
        inside = self.seen.inside(table.xyxy, sizes.astype(np.float64))
        inside &= ~self.seen.unseen(table.xyxy, within, sizes, scale)
        cut = views.cut_off(table.xyxy, self.rects[view], within, scale)
        mine = np.flatnonzero(inside)
        kept, taken, left_out = views.merge(
            table.xyxy[mine], table.score[mine], table.class_id[mine], frame[mine], view[mine], cut[mine],
            iou=iou, agnostic=agnostic, top_k=top_k,
        )  # fmt: skip
        made = table[mine[kept]]
        row_id = np.arange(len(made), dtype=np.int32)
        made = made.with_columns(batch_row=np.asarray(self.rows[made.batch_row], np.int32), row_id=row_id)
        return made, {"nms": taken, "top_k": left_out, "roi": len(table) - len(mine)}

    def _within(self) -> np.ndarray:
        """Return (r, 4): the part of the frame that each view belongs to."""
        known: dict[tuple[int, int], list[Rect]] = {}
        found: list[Rect] = []
        for row in dict.fromkeys(self.rows.tolist()):
            width, height = self.sizes_wh[row].tolist()
            if (width, height) not in known:
                known[width, height] = [part for _, part in self.seen.rects(width, height)]
            found += known[width, height]
        return np.array(found, np.int32).reshape(-1, 4)
