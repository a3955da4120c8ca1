"""What the composites that ask a network about objects have in common: `classify` and `embed`; no stage itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from streamkit.stage import Composite, Count, Part, Pixels, Score, Seconds
from streamkit.stages.finding import RUN, check_task, some
from streamkit.stages.infer import Infer
from streamkit.stages.objects import FetchAnswers, select
from streamkit.stages.preprocess import Preprocess
from streamkit.units import Model, Of


@dataclass(eq=False, kw_only=True)
class Asking(Composite):
    """Asks a network about objects, and keeps the answers over time: `classify` and `embed`.

    Options:
        pad: share of the box that is added on each side of the crop.
        min_size: no object is asked about whose shorter side is below this, in source pixels.
        batch: crops of one run of the network, at most.
        every: how long an answer holds before the network is asked again; 0 asks on every frame.
        better: asked again when area x score of a track is more than so many times that of its best view.
        untracked: below a tracker, ask about objects that it has no track for too, on every frame: weak, brief ones.
        smooth: answers are averaged over time, and one so old counts for 1/e; 0 takes the newest alone.
        forget: a track that was not seen for so long begins anew.
        providers: ONNX Runtime's providers, first choice first; by default `cuda` on a GPU and `cpu` without one.
        threads: CPU threads for one run; by default the machine's cores shared among the instances.
        cuda_graph: replay a CUDA graph for each size of a run.
    """

    model: Model
    pad: Score = 0.0
    min_size: Pixels = 16.0
    batch: Count = 32
    every: Seconds = 1.0
    better: float = 2.0
    untracked: bool = False
    smooth: Seconds = 2.0
    forget: Seconds = 10.0
    providers: tuple[Literal["tensorrt", "cuda", "cpu"], ...] = ()
    threads: Count | None = None
    cuda_graph: bool = False

    def __post_init__(self) -> None:
        """Refuse a card of another task, and a view that is better by being worse."""
        check_task(self)
        if not self.better >= 1:
            raise ValueError(f"better must be 1 or more: how many times better a view has to be, got {self.better:g}")

    def asking(self, of: Of | None) -> list[Part]:
        """The parts that ask the network about crops, up to the answers."""
        return [
            select(of, **some(self, ("every", "forget", "pad", "min_size", "better", "untracked"))),
            Part("preprocess", Preprocess, some(self, ("model", "batch"))),
            Part("infer", Infer, some(self, (*RUN, "batch"))),
            Part("postprocess", FetchAnswers, {"model": self.model}),
        ]
