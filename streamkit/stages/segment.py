"""Finds which pixels belong to what: objects with their masks, or the classes of all places."""

from __future__ import annotations

from typing import Literal

from streamkit.analytics.shapes import Anchor, Polygons, Units
from streamkit.stage import Composite, Count, Part, Pixels, Score, stage
from streamkit.stages.details import detailing
from streamkit.stages.finding import READ, check_task, finding, only_with
from streamkit.stages.regions import telling_regions
from streamkit.stages.views import Tiles
from streamkit.units import Model, Of


@stage("segment", reads="pixels", writes=("detections", "mask"))
class Segment(Composite):
    """Find objects with their masks or, with a semantic network, the class of each place of the picture.

    Each object has a mask in records, COCO's run-length encoding in source pixels: `"mask": {"size": [h, w],
    "counts": "..."}`. With `of`, the objects of another stage get masks. A semantic network finds no objects; records
    have a mask for each class: `"segmentation": {"road": {...}}`.

    Options:
        model: the model's card, with task: segment; its family says whether it finds objects or classes of places.
        of: give masks to these objects, as detect, detect.person or {stage: detect, labels: [person, car]}.
        min_score: the least score of an object, 0 to 1, or one for each class as {car: 0.5, person: 0.3}; by default
            the card's.
        iou: an object whose box overlaps a better one by more than this is dropped; by default the card's.
        agnostic: objects suppress each other whatever their class.
        labels: keep these classes only; of places, all but `background` if left out.
        top_k: at most this many objects a frame, the best.
        min_size: drop boxes whose shorter side is below this, in source pixels; with `of`, do not ask about them.
        max_size: drop boxes whose longer side is above this, in source pixels.
        min_share: leave out a class that covers less than this share of the picture; semantic networks only.
        roi: the area, or areas by name, [[x, y], ...], that objects are looked for in.
        units: of the roi: source pixels, or shares of the picture's width and height.
        anchor: the point of an object's box that must be inside the roi.
        tiles: look for small objects in overlapping tiles of the picture, {size: [640, 640], overlap: 0.2}.
        pad: with `of`, the share of the box that is added on each side of the crop.
        batch: with `of`, crops of one run of the network, at most.
        providers: ONNX Runtime's providers, first choice first; by default `cuda` on a GPU and `cpu` without one.
        threads: CPU threads for one run; by default the machine's cores shared among the instances.
        cuda_graph: replay a CUDA graph for each batch size.
    """

    model: Model
    of: Of | None = None
    min_score: Score | dict[str, Score] | None = None
    iou: Score | None = None
    agnostic: bool = False
    labels: list[str] | None = None
    top_k: Count = 100
    min_size: Pixels = 0.0
    max_size: Pixels | None = None
    min_share: Score = 0.0
    roi: Polygons | None = None
    units: Units = "pixels"
    anchor: Anchor = "foot"
    tiles: Tiles | None = None
    pad: Score = 0.1
    batch: Count = 32
    providers: tuple[Literal["tensorrt", "cuda", "cpu"], ...] = ()
    threads: Count | None = None
    cuda_graph: bool = False

    def __post_init__(self) -> None:
        """Refuse a card of another task, and options that say nothing about its network."""
        check_task(self)
        known = tuple(name for name in READ if name not in ("model", "labels"))
        if self._regions():
            text = f"{self.model.name} is a semantic network, which finds no objects"
            only_with(self, text, (*known, "of", "pad", "batch"))
            return
        only_with(self, f"min_share is for semantic networks, which {self.model.name} is not", ("min_share",))
        if self.of is None:
            only_with(self, "crops are made with of", ("pad", "batch"))
        else:
            others = ("agnostic", "top_k", "max_size", "roi", "units", "anchor", "tiles")
            only_with(self, "with of, the objects are those of another stage", others)

    def parts(self) -> list[Part]:
        """The stages with their share of the options."""
        if self._regions():
            return telling_regions(self)
        return finding(self) if self.of is None else detailing(self)

    def _regions(self) -> bool:
        from streamkit.models.families import family

        return family(self.model.family).regions
