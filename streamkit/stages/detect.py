"""Finds objects: preprocess, infer and postprocess in one, as the model's card says."""

from __future__ import annotations

from typing import Literal

from streamkit.analytics.shapes import Anchor, Polygons, Units
from streamkit.stage import Composite, Count, Part, Pixels, Score, stage
from streamkit.stages.finding import check_task, finding, only_with
from streamkit.stages.views import Tiles
from streamkit.stages.within import finding_within
from streamkit.units import Model, Of


@stage("detect", reads="pixels", writes="detections")
class Detect(Composite):
    """Find objects with a network: preprocess, infer and postprocess in one.

    `run.py graph` shows the parts; `insert: {after: preprocess, stage: my_stage}` puts a stage between them.

    Options:
        model: the model's card: a name beside the YAML, in its models/, or one that ships; or a path.
        of: look within these objects only, as detect, detect.car or {stage: detect, labels: [car, truck]}; what is
            found has a table of its own, named after this stage.
        min_score: the least score of an object, 0 to 1, or one for each class as {car: 0.5, person: 0.3}; by default
            the card's.
        iou: an object whose box overlaps a better one by more than this is dropped; by default the card's.
        agnostic: objects suppress each other whatever their class.
        labels: keep these classes only.
        top_k: at most this many objects a frame, the best.
        min_size: drop boxes whose shorter side is below this, in source pixels.
        max_size: drop boxes whose longer side is above this, in source pixels.
        roi: the area, or areas by name, [[x, y], ...], that objects are looked for in: the network sees what is around
            each, and an object counts whose anchor is inside.
        units: of the roi: source pixels, or shares of the picture's width and height.
        anchor: the point of an object's box that must be inside the roi.
        tiles: look for small objects in overlapping tiles of the picture, {size: [640, 640], overlap: 0.2}; unless
            `whole` is false also in all of it. Each tile is a row of the network's batch.
        every: look at each source's every so many-th frame only; those between cost no inference, and a `track` stage
            below gives them the objects that it expects, marked `predicted`.
        pad: with `of`, the share of the box that is added on each side of the crop.
        batch: with `of`, crops of one run of the network, at most.
        providers: ONNX Runtime's providers, first choice first; by default `cuda` on a GPU and `cpu` without one.
        threads: CPU threads for one run; by default the machine's cores shared among the instances.
        cuda_graph: replay a CUDA graph for each batch size; faster for small networks, not possible for all. The first
            frame then waits until the network is ready as it is fastest.
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
    every: Count = 1
    pad: Score = 0.1
    batch: Count = 32
    providers: tuple[Literal["tensorrt", "cuda", "cpu"], ...] = ()
    threads: Count | None = None
    cuda_graph: bool = False

    def __post_init__(self) -> None:
        """Refuse a card of another task, and what postprocess refuses."""
        check_task(self)
        if self.of is None:
            only_with(self, "crops are made with of", ("pad", "batch"))
        else:
            only_with(self, "with of, the network sees crops of objects", ("roi", "units", "anchor", "tiles", "every"))

    def parts(self) -> list[Part]:
        """The stages with their share of the options."""
        return finding(self) if self.of is None else finding_within(self)
