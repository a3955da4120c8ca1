"""Base of the composites that run a network on crops of objects, `classify` and `embed`; not a stage itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from streamkit.core.stage import Composite, CompositePart, Count, Pixels, Score, Seconds
from streamkit.core.units import Of
from streamkit.models.card_option import Model
from streamkit.stages.inference.detector_base import RUN, check_task, some
from streamkit.stages.inference.infer import Infer
from streamkit.stages.inference.objects import FetchAnswers, select
from streamkit.stages.inference.preprocess import Preprocess


@dataclass(eq=False, kw_only=True)
class CropModelBase(Composite):
    """Runs a network on crops of objects, and keeps the results over time: `classify` and `embed`."""

    model: Model
    pad: Annotated[Score, "share of the box that is added on each side of the crop."] = 0.0
    min_size: Annotated[Pixels, "skip objects whose shorter side is below this, in source pixels."] = 16.0
    batch: Annotated[Count, "maximum number of crops in one run of the network."] = 32
    every: Annotated[Seconds, "how long a result holds before the network runs again; 0 runs it on every frame."] = 1.0
    requery_ratio: Annotated[
        float, "asked again when area x score of a track is more than so many times that of its best view."
    ] = 2.0
    untracked: Annotated[
        bool, "below a tracker, also run on objects without a track, on every frame: weak, brief ones."
    ] = False
    smooth: Annotated[
        Seconds, "results are averaged over time; one this old has weight 1/e. 0 uses the newest alone."
    ] = 2.0
    track_ttl: Annotated[Seconds, "a track that was not seen for so long starts again."] = 10.0
    providers: Annotated[
        tuple[Literal["tensorrt", "cuda", "cpu"], ...],
        "ONNX Runtime's providers in order of preference; by default `cuda` on a GPU, `cpu` without one.",
    ] = ()
    threads: Annotated[
        Count | None, "CPU threads of one run; by default the machine's cores divided among the instances."
    ] = None
    cuda_graph: Annotated[bool, "replay a CUDA graph for each size of a run."] = False

    def __post_init__(self) -> None:
        """Check the card's task and `better`."""
        check_task(self)
        if not self.requery_ratio >= 1:
            raise ValueError(
                f"requery_ratio must be 1 or more: how many times better a view has to be, got {self.requery_ratio:g}"
            )

    def asking(self, of: Of | None) -> list[CompositePart]:
        """Return the parts that run the network on crops, up to the results."""
        return [
            select(of, **some(self, ("every", "track_ttl", "pad", "min_size", "requery_ratio", "untracked"))),
            CompositePart("preprocess", Preprocess, some(self, ("model", "batch"))),
            CompositePart("infer", Infer, some(self, (*RUN, "batch"))),
            CompositePart("postprocess", FetchAnswers, {"model": self.model}),
        ]
