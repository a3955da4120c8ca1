"""Classification of objects or whole frames."""

from __future__ import annotations

from typing import Annotated

from streamkit.core.stage import CompositePart, Score, stage
from streamkit.core.units import Of
from streamkit.models.card_option import Model
from streamkit.stages.inference.crop_model_base import CropModelBase
from streamkit.stages.inference.track_attributes import KeepAttributes, KeepFrameAttributes


@stage("classify", reads="pixels", writes="attributes")
class Classify(CropModelBase):
    """Give objects an attribute with a classification network; without `of`, give it to whole frames.

    Objects are cropped from the full-resolution frame. A track keeps its attribute: the network runs on a new track,
    again after `every`, and for a better view. Records have `"attributes": {"color": {"label": "red", "score": 0.8}}`.
    """

    model: Annotated[Model, "the model card, with task: classify."]
    of: Annotated[
        Of | None,
        "which objects, as detect, detect.person or {stage: detect, labels: [person, car]}; whole frames by default.",
    ] = None
    attribute: Annotated[str | None, "the attribute's name; by default the stage's id."] = None
    min_score: Annotated[Score | None, "below this score no attribute is given; by default the card's score."] = None

    def parts(self) -> list[CompositePart]:
        """Return the parts from crop selection to the attribute; see `streamkit/core/crops.py`."""
        score = self.model.score if self.min_score is None else self.min_score
        kept = {"model": self.model, "smooth": self.smooth, "attribute": self.attribute, "min_score": score}
        if self.of is None:
            keep = CompositePart("keep", KeepFrameAttributes, kept)
        else:
            keep = CompositePart("keep", KeepAttributes, {**kept, "of": self.of, "track_ttl": self.track_ttl})
        return [*self.asking(self.of), keep]
