"""Finds objects: preprocess, infer and postprocess in one, as the model's card says."""

from __future__ import annotations

from typing import Any, Literal

from streamkit.stage import Composite, Count, Part, Pixels, Score, stage
from streamkit.stages.infer import Infer
from streamkit.stages.postprocess import Postprocess
from streamkit.stages.preprocess import Preprocess
from streamkit.units import Model


@stage("detect", reads="pixels", writes="detections")
class Detect(Composite):
    """Find objects with a network: preprocess, infer and postprocess in one.

    `run.py graph` shows the parts; `insert: {after: preprocess, stage: my_stage}` puts a stage between them.

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
        providers: ONNX Runtime's providers, first choice first; by default `cuda` on a GPU and `cpu` without one.
        threads: CPU threads for one run; by default the machine's cores shared among the instances.
        cuda_graph: replay a CUDA graph for each batch size; faster for small networks, not possible for all. The first
            frame then waits until the network is ready as it is fastest.
    """

    model: Model
    min_score: Score | dict[str, Score] | None = None
    iou: Score | None = None
    agnostic: bool = False
    labels: list[str] | None = None
    top_k: Count = 300
    min_size: Pixels = 0.0
    max_size: Pixels | None = None
    providers: tuple[Literal["tensorrt", "cuda", "cpu"], ...] = ()
    threads: Count | None = None
    cuda_graph: bool = False

    def __post_init__(self) -> None:
        """Refuse a card of another task, and what postprocess refuses."""
        if self.model.task != "detect":
            raise ValueError(f"detect needs a card with task: detect; {self.model.name} has task: {self.model.task}")
        Postprocess(**self._of("min_score", "labels"))

    def parts(self) -> list[Part]:
        """The three stages with their share of the options."""
        read = self._of("min_score", "iou", "agnostic", "labels", "top_k", "min_size", "max_size")
        return [
            Part("preprocess", Preprocess, self._of()),
            Part("infer", Infer, self._of("providers", "threads", "cuda_graph")),
            Part("postprocess", Postprocess, read),
        ]

    def _of(self, *names: str) -> dict[str, Any]:
        return {"model": self.model, **{name: getattr(self, name) for name in names}}
