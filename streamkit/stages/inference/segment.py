"""Segmentation: objects with masks, or a class for each pixel."""

from __future__ import annotations

from typing import Annotated

from streamkit.core.stage import CompositePart, Count, Score, stage
from streamkit.core.units import Of, Pixels
from streamkit.models.card_option import Model
from streamkit.stages.inference.detector_base import READ, DetectorBase, finding, only_with
from streamkit.stages.inference.object_details import detailing
from streamkit.stages.inference.semantic import telling_regions


@stage("segment", reads="pixels", writes=("detections", "mask"))
class Segment(DetectorBase):
    """Find objects with their masks or, with a semantic network, the class of each place in the frame.

    Each object has a mask in records, as COCO run-length encoding in source pixels: `"mask": {"size": [h, w],
    "counts": "..."}`. With `of`, the objects of another stage get masks. A semantic network finds no objects; records
    have a mask for each class: `"segmentation": {"road": {...}}`.
    """

    model: Annotated[
        Model,
        "the model card, with task: segment; its family determines whether it finds objects or classes of places.",
    ]
    of: Annotated[
        Of | None, "give masks to these objects, as detect, detect.person or {stage: detect, labels: [person, car]}."
    ] = None
    labels: Annotated[
        list[str] | None, "keep these classes only; by default a semantic network keeps all but `background`."
    ] = None
    min_size: Annotated[
        Pixels, "discard boxes whose shorter side is below this, in source pixels; with `of`, skip such objects."
    ] = 0.0
    top_k: Annotated[Count, "maximum number of objects per frame; the best are kept."] = 100
    min_share: Annotated[
        Score, "omit a class that covers less than this share of the frame; semantic networks only."
    ] = 0.0

    def check_use(self) -> None:
        """See `DetectorBase.check_use`; a semantic network takes little of it."""
        if self._regions():
            known = tuple(name for name in READ if name not in ("model", "labels"))
            text = f"{self.model.name} is a semantic network, which finds no objects"
            only_with(self, text, (*known, "of", "pad", "batch"))
        else:
            only_with(self, f"min_share is for semantic networks, which {self.model.name} is not", ("min_share",))
            super().check_use()

    def parts(self) -> list[CompositePart]:
        """Return the parts with their options."""
        if self._regions():
            return telling_regions(self)
        return finding(self) if self.of is None else detailing(self)

    def _regions(self) -> bool:
        from streamkit.models.card import family_of

        return family_of(self.model).regions
