"""Finds the key points of people, or of whatever a network knows."""

from __future__ import annotations

from typing import Literal

from streamkit.analytics.shapes import Anchor, Polygons, Units
from streamkit.stage import Composite, Count, Part, Pixels, Score, stage
from streamkit.stages.details import detailing
from streamkit.stages.finding import check_task, finding, only_with
from streamkit.stages.views import Tiles
from streamkit.units import Model, Of


@stage("pose", reads="pixels", writes=("detections", "keypoints"))
class Pose(Composite):
    """Find objects with their key points; with `of`, the points of objects that another stage found.

    Records have `"keypoints": [[x, y, score], ...]` in source pixels, in the order of the card's `keypoints`. A network
    for one person, such as MoveNet, is best asked about each: `of: detect.person`.

    Options:
        model: the model's card, with task: pose.
        of: give key points to these objects, as detect, detect.person or {stage: detect, labels: [person, dog]}.
        min_score: the least score of an object, 0 to 1, or one for each class; by default the card's.
        iou: an object whose box overlaps a better one by more than this is dropped; by default the card's.
        agnostic: objects suppress each other whatever their class.
        labels: keep these classes only.
        top_k: at most this many objects a frame, the best.
        min_size: drop boxes whose shorter side is below this, in source pixels; with `of`, do not ask about them.
        max_size: drop boxes whose longer side is above this, in source pixels.
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
    top_k: Count = 300
    min_size: Pixels = 0.0
    max_size: Pixels | None = None
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
        """Refuse a card of another task, and options that say nothing."""
        check_task(self)
        if self.of is None:
            only_with(self, "crops are made with of", ("pad", "batch"))
        else:
            others = ("agnostic", "top_k", "max_size", "roi", "units", "anchor", "tiles")
            only_with(self, "with of, the objects are those of another stage", others)

    def parts(self) -> list[Part]:
        """The stages with their share of the options."""
        return finding(self) if self.of is None else detailing(self)
