"""What the composites whose network finds objects have in common: `detect`, `segment` and `pose`; no stage itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from streamkit.analytics.shapes import Anchor, Polygons, Units
from streamkit.stage import Composite, Count, Part, Pixels, Score
from streamkit.stages.infer import Infer
from streamkit.stages.postprocess import Postprocess
from streamkit.stages.preprocess import Preprocess
from streamkit.stages.views import Tiles, looking
from streamkit.units import Model, Of

READ = (
    "model", "min_score", "iou", "agnostic", "labels", "top_k", "min_size", "max_size", "roi", "units", "anchor",
    "tiles",
)  # fmt: skip
RUN = ("model", "providers", "threads", "cuda_graph")


@dataclass(eq=False)
class Finding(Composite):
    """Finds objects, in whole frames or within what another stage found.

    Options:
        model: the model's card: a name beside the YAML, in its models/, or one that ships; or a path.
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
    pad: Score = 0.1
    batch: Count = 32
    providers: tuple[Literal["tensorrt", "cuda", "cpu"], ...] = ()
    threads: Count | None = None
    cuda_graph: bool = False

    def __post_init__(self) -> None:
        """Refuse a card of another task, what postprocess refuses, and options that say nothing."""
        check_task(self)
        Postprocess(**some(self, READ))
        self.check_use()

    def check_use(self) -> None:
        """Refuse options that say nothing with what else is given."""
        if self.of is None:
            only_with(self, "crops are made with of", ("pad", "batch"))
        else:
            others = ("agnostic", "top_k", "max_size", "roi", "units", "anchor", "tiles")
            only_with(self, "with of, the objects are those of another stage", others)


class FindMasks(Postprocess):
    """`postprocess` of a network whose objects have masks."""

    writes: ClassVar[tuple[str, ...]] = ("detections", "mask")


class FindPoints(Postprocess):
    """`postprocess` of a network whose objects have key points."""

    writes: ClassVar[tuple[str, ...]] = ("detections", "keypoints")


_WITH: dict[str, type[Postprocess]] = {"detect": Postprocess, "segment": FindMasks, "pose": FindPoints}


def some(stage: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The options of these names."""
    return {name: getattr(stage, name) for name in names}


def check_task(stage: Any) -> None:
    """Refuse a card of another task."""
    task, card = type(stage).name, stage.model
    if card.task != task:
        raise ValueError(f"{task} needs a card with task: {task}; {card.name} has task: {card.task}")


def finding(stage: Any) -> list[Part]:
    """From choosing what is seen, where `roi` or `tiles` ask for it, to the table of objects."""
    return [
        *looking(stage),
        Part("preprocess", Preprocess, {"model": stage.model}),
        Part("infer", Infer, some(stage, RUN)),
        Part("postprocess", _WITH[stage.model.task], some(stage, READ)),
    ]


def only_with(stage: Any, what: str, names: tuple[str, ...]) -> None:
    """Refuse options that say nothing here: where one of `names` is not what it is by default; `what` says why."""
    default = {name: field.default for name, field in type(stage).__dataclass_fields__.items()}
    given = [name for name in names if getattr(stage, name) != default[name]]
    if given:
        raise ValueError(f"{what}: leave out {', '.join(given)}")
