"""Base of the composites whose network detects objects, `detect`, `segment` and `pose`; not a stage itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from streamkit.analytics.shapes import Anchor, Polygons, Units
from streamkit.core.stage import Composite, CompositePart, Count, Pixels, Score
from streamkit.core.units import Of
from streamkit.models.card_option import Model
from streamkit.stages.inference.infer import Infer
from streamkit.stages.inference.inference_regions import Tiles, looking
from streamkit.stages.inference.postprocess import Postprocess
from streamkit.stages.inference.preprocess import Preprocess

READ = (
    "model", "min_score", "iou", "agnostic", "labels", "top_k", "min_size", "max_size", "roi", "units", "anchor",
    "tiles",
)  # fmt: skip
RUN = ("model", "providers", "threads", "cuda_graph")


@dataclass(eq=False)
class DetectorBase(Composite):
    """Finds objects, in whole frames or within what another stage found.

    Options:
        model: the model card: a name in models/ beside the YAML, or one that ships with streamkit; or a path.
        min_score: minimum score of an object, 0 to 1, or one per class as {car: 0.5, person: 0.3}; by default the
            card's.
        iou: an object whose box overlaps a better one by more than this is discarded; by default the card's.
        agnostic: objects suppress each other across classes.
        labels: keep these classes only.
        top_k: maximum number of objects per frame; the best are kept.
        min_size: discard boxes whose shorter side is below this, in source pixels.
        max_size: discard boxes whose longer side is above this, in source pixels.
        roi: the region, or regions by name, [[x, y], ...], in which objects are detected: the network sees the bounding
            rectangle of each, and an object counts if its anchor is inside.
        units: of the roi: source pixels, or shares of the frame's width and height.
        anchor: the point of an object's box that must be inside the roi.
        tiles: detect small objects in overlapping tiles of the frame, {size: [640, 640], overlap: 0.2}, and also in
            the whole frame unless `whole` is false. Each tile is a row of the network's batch.
        pad: with `of`, the share of the box that is added on each side of the crop.
        batch: with `of`, the maximum number of crops in one run of the network.
        providers: ONNX Runtime's providers in order of preference; by default `cuda` on a GPU, `cpu` without one.
        threads: CPU threads of one run; by default the machine's cores divided among the instances.
        cuda_graph: replay a CUDA graph for each batch size; faster for small networks, not possible for all. The first
            frame then waits until the network is fully tuned.
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
        """Check the card's task, the options of postprocess, and options without effect."""
        check_task(self)
        Postprocess(**some(self, READ))
        self.check_use()

    def check_use(self) -> None:
        """Check that no option is given without effect."""
        if self.of is None:
            only_with(self, "crops are made with of", ("pad", "batch"))
        else:
            others = ("agnostic", "top_k", "max_size", "roi", "units", "anchor", "tiles")
            only_with(self, "with of, the objects are those of another stage", others)


class FindMasks(Postprocess, writes=("detections", "mask")):
    """`postprocess` of a network whose objects have masks."""


class FindPoints(Postprocess, writes=("detections", "keypoints")):
    """`postprocess` of a network whose objects have keypoints."""


_WITH: dict[str, type[Postprocess]] = {"detect": Postprocess, "segment": FindMasks, "pose": FindPoints}


def some(stage: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the options of these names."""
    return {name: getattr(stage, name) for name in names}


def check_task(stage: Any) -> None:
    """Check that the card's task is the stage's; raise ValueError."""
    task, card = type(stage).name, stage.model
    if card.task != task:
        raise ValueError(f"{task} needs a card with task: {task}; {card.name} has task: {card.task}")


def finding(stage: Any) -> list[CompositePart]:
    """Return the parts from the choice of regions, if `roi`, `tiles` or `every` are set, to the table of objects."""
    return [
        *looking(stage),
        CompositePart("preprocess", Preprocess, {"model": stage.model}),
        CompositePart("infer", Infer, some(stage, RUN)),
        CompositePart("postprocess", _WITH[stage.model.task], some(stage, READ)),
    ]


def only_with(stage: Any, what: str, names: tuple[str, ...]) -> None:
    """Check that options without effect here have their defaults; raise ValueError starting with `what`.

    Args:
        stage: the composite.
        what: the reason.
        names: the options.
    """
    default = {name: field.default for name, field in type(stage).__dataclass_fields__.items()}
    given = [name for name in names if getattr(stage, name) != default[name]]
    if given:
        raise ValueError(f"{what}: leave out {', '.join(given)}")
