"""Gives objects a vector that tells them apart: near ones show the same."""

from __future__ import annotations

from typing import Literal

from streamkit.stage import Composite, Count, Part, Pixels, Score, Seconds, stage
from streamkit.stages.answers import KeepEmbeddings
from streamkit.stages.objects import asking, check_options
from streamkit.units import Model, Of


@stage("embed", reads=("pixels", "detections"), writes="embedding")
class Embed(Composite):
    """Give objects an embedding, a vector of length 1 that later stages compare.

    The column `embedding` has a row for each object, NaN where the network was not asked. Which objects are asked about
    and when is as in `classify`. Above a tracker it helps to know a person again; below one each track keeps its own.

    Options:
        model: the model's card, with task: embed.
        of: which objects, as detect, detect.person or {stage: detect, labels: [person, car]}.
        pad: share of the box that is added on each side of the crop.
        min_size: no object is asked about whose shorter side is below this, in source pixels.
        batch: crops of one run of the network, at most.
        every: how long a vector holds before the network is asked again; 0 asks on every frame.
        better: asked again when area x score of a track is more than so many times that of its best view.
        smooth: vectors are averaged over time, and one so old counts for 1/e; 0 takes the newest alone.
        forget: a track that was not seen for so long begins anew.
        record: write the vectors into records.
        providers: ONNX Runtime's providers, first choice first; by default `cuda` on a GPU and `cpu` without one.
        threads: CPU threads for one run; by default the machine's cores shared among the instances.
        cuda_graph: replay a CUDA graph for each size of a run.
    """

    model: Model
    of: Of
    pad: Score = 0.0
    min_size: Pixels = 16.0
    batch: Count = 32
    every: Seconds = 1.0
    better: float = 2.0
    smooth: Seconds = 2.0
    forget: Seconds = 10.0
    record: bool = False
    providers: tuple[Literal["tensorrt", "cuda", "cpu"], ...] = ()
    threads: Count | None = None
    cuda_graph: bool = False

    def __post_init__(self) -> None:
        """Refuse a card of another task."""
        check_options(self)

    def parts(self) -> list[Part]:
        """From choosing to keeping; see `streamkit/crops.py`."""
        names = ("model", "of", "smooth", "forget", "record")
        return [*asking(self), Part("keep", KeepEmbeddings, {name: getattr(self, name) for name in names})]
