"""The parts of a composite whose network finds objects: `detect`, `segment` and `pose`."""

from __future__ import annotations

from typing import Any, ClassVar

from streamkit.stage import Part
from streamkit.stages.infer import Infer
from streamkit.stages.postprocess import Postprocess
from streamkit.stages.preprocess import Preprocess
from streamkit.stages.views import looking

READ = (
    "model", "min_score", "iou", "agnostic", "labels", "top_k", "min_size", "max_size", "roi", "units", "anchor",
    "tiles",
)  # fmt: skip
RUN = ("model", "providers", "threads", "cuda_graph")


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
    """Refuse a card of another task, and what postprocess refuses."""
    task, card = type(stage).name, stage.model
    if card.task != task:
        raise ValueError(f"{task} needs a card with task: {task}; {card.name} has task: {card.task}")
    Postprocess(**some(stage, READ))


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
