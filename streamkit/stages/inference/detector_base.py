"""Base of the composites whose network detects objects, `detect`, `segment` and `pose`; not a stage itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

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
    """Finds objects, in whole frames or within what another stage found."""

    model: Annotated[
        Model, "the model card: a name in models/ beside the YAML, or one that ships with streamkit; or a path."
    ]
    of: Of | None = None
    min_score: Annotated[
        Score | dict[str, Score] | None,
        "minimum score of an object, 0 to 1, or one per class as {car: 0.5, person: 0.3}; by default the card's.",
    ] = None
    iou: Annotated[
        Score | None, "an object whose box overlaps a better one by more than this is discarded; by default the card's."
    ] = None
    agnostic: Annotated[bool, "objects suppress each other across classes."] = False
    labels: Annotated[list[str] | None, "keep these classes only."] = None
    top_k: Annotated[Count, "maximum number of objects per frame; the best are kept."] = 300
    min_size: Annotated[Pixels, "discard boxes whose shorter side is below this, in source pixels."] = 0.0
    max_size: Annotated[Pixels | None, "discard boxes whose longer side is above this, in source pixels."] = None
    roi: Annotated[
        Polygons | None,
        "the region, or regions by name, [[x, y], ...], in which objects are detected: the network sees the bounding "
        "rectangle of each, and an object counts if its anchor is inside.",
    ] = None
    units: Annotated[Units, "of the roi: source pixels, or shares of the frame's width and height."] = "pixels"
    anchor: Annotated[Anchor, "the point of an object's box that must be inside the roi."] = "foot"
    tiles: Annotated[
        Tiles | None,
        "detect small objects in overlapping tiles of the frame, {size: [640, 640], overlap: 0.2}, and also in the "
        "whole frame unless `whole` is false. Each tile is a row of the network's batch.",
    ] = None
    pad: Annotated[Score, "with `of`, the share of the box that is added on each side of the crop."] = 0.1
    batch: Annotated[Count, "with `of`, the maximum number of crops in one run of the network."] = 32
    providers: Annotated[
        tuple[Literal["tensorrt", "cuda", "cpu"], ...],
        "ONNX Runtime's providers in order of preference; by default `cuda` on a GPU, `cpu` without one.",
    ] = ()
    threads: Annotated[
        Count | None, "CPU threads of one run; by default the machine's cores divided among the instances."
    ] = None
    cuda_graph: Annotated[
        bool,
        "replay a CUDA graph for each batch size; faster for small networks, not possible for all. The first frame "
        "then waits until the network is fully tuned.",
    ] = False

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
