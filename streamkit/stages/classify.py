"""Says what objects, or whole frames, are like: a class out of a network's list."""

from __future__ import annotations

from streamkit.stage import Part, Score, stage
from streamkit.stages.answers import KeepAttributes, KeepFacts
from streamkit.stages.asking import Asking
from streamkit.units import Of


@stage("classify", reads="pixels", writes="attributes")
class Classify(Asking):
    """Give objects an attribute with a classification network; without `of`, give it to whole frames.

    Objects are cut from the full-resolution frame. A track keeps its answer: the network is asked when it is new, again
    after `every`, and for a better view. Records have `"attributes": {"color": {"label": "red", "score": 0.8}}`.

    Options:
        model: the model's card, with task: classify.
        of: which objects, as detect, detect.person or {stage: detect, labels: [person, car]}; whole frames if left out.
        attribute: the attribute's name; by default the stage's id.
        min_score: a less sure answer says nothing; by default the card's score.
    """

    of: Of | None = None
    attribute: str | None = None
    min_score: Score | None = None

    def parts(self) -> list[Part]:
        """From choosing to keeping; see `streamkit/crops.py`."""
        score = self.model.score if self.min_score is None else self.min_score
        kept = {"model": self.model, "smooth": self.smooth, "attribute": self.attribute, "min_score": score}
        if self.of is None:
            keep = Part("keep", KeepFacts, kept)
        else:
            keep = Part("keep", KeepAttributes, {**kept, "of": self.of, "forget": self.forget})
        return [*self.asking(self.of), keep]
