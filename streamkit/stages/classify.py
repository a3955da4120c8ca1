"""Says what objects, or whole frames, are like: a class out of a network's list."""

from __future__ import annotations

from typing import Literal

from streamkit.stage import Composite, Count, Part, Pixels, Score, Seconds, stage
from streamkit.stages.answers import KeepAttributes, KeepFacts
from streamkit.stages.objects import asking, check_options
from streamkit.units import Model, Of


@stage("classify", reads="pixels", writes="attributes")
class Classify(Composite):
    """Give objects an attribute with a classification network; without `of`, give it to whole frames.

    Objects are cut from the full-resolution frame. A track keeps its answer: the network is asked when it is new, again
    after `every`, and for a better view. Records have `"attributes": {"color": {"label": "red", "score": 0.8}}`.

    Options:
        model: the model's card, with task: classify.
        of: which objects, as detect, detect.person or {stage: detect, labels: [person, car]}; whole frames if left out.
        attribute: the attribute's name; by default the stage's id.
        min_score: a less sure answer says nothing; by default the card's score.
        pad: share of the box that is added on each side of the crop.
        min_size: no object is asked about whose shorter side is below this, in source pixels.
        batch: crops of one run of the network, at most.
        every: how long an answer holds before the network is asked again; 0 asks on every frame.
        better: asked again when area x score of a track is more than so many times that of its best view.
        smooth: answers are averaged over time, and one so old counts for 1/e; 0 takes the newest alone.
        forget: a track that was not seen for so long begins anew.
        providers: ONNX Runtime's providers, first choice first; by default `cuda` on a GPU and `cpu` without one.
        threads: CPU threads for one run; by default the machine's cores shared among the instances.
        cuda_graph: replay a CUDA graph for each size of a run.
    """

    model: Model
    of: Of | None = None
    attribute: str | None = None
    min_score: Score | None = None
    pad: Score = 0.0
    min_size: Pixels = 16.0
    batch: Count = 32
    every: Seconds = 1.0
    better: float = 2.0
    smooth: Seconds = 2.0
    forget: Seconds = 10.0
    providers: tuple[Literal["tensorrt", "cuda", "cpu"], ...] = ()
    threads: Count | None = None
    cuda_graph: bool = False

    def __post_init__(self) -> None:
        """Refuse a card of another task."""
        check_options(self)

    def parts(self) -> list[Part]:
        """From choosing to keeping; see `streamkit/crops.py`."""
        score = self.model.score if self.min_score is None else self.min_score
        kept = {"model": self.model, "smooth": self.smooth, "attribute": self.attribute, "min_score": score}
        if self.of is None:
            keep = Part("keep", KeepFacts, kept)
        else:
            keep = Part("keep", KeepAttributes, {**kept, "of": self.of, "forget": self.forget})
        return [*asking(self), keep]
