"""Finds which pixels belong to what: objects with their masks, or the classes of all places."""

from __future__ import annotations

from streamkit.stage import Count, Part, Score, stage
from streamkit.stages.details import detailing
from streamkit.stages.finding import READ, Finding, finding, only_with
from streamkit.stages.regions import telling_regions


@stage("segment", reads="pixels", writes=("detections", "mask"))
class Segment(Finding):
    """Find objects with their masks or, with a semantic network, the class of each place of the picture.

    Each object has a mask in records, COCO's run-length encoding in source pixels: `"mask": {"size": [h, w],
    "counts": "..."}`. With `of`, the objects of another stage get masks. A semantic network finds no objects; records
    have a mask for each class: `"segmentation": {"road": {...}}`.

    Options:
        model: the model's card, with task: segment; its family says whether it finds objects or classes of places.
        of: give masks to these objects, as detect, detect.person or {stage: detect, labels: [person, car]}.
        labels: keep these classes only; of places, all but `background` if left out.
        min_size: drop boxes whose shorter side is below this, in source pixels; with `of`, do not ask about them.
        min_share: leave out a class that covers less than this share of the picture; semantic networks only.
    """

    top_k: Count = 100
    min_share: Score = 0.0

    def check_use(self) -> None:
        """See `Finding.check_use`; a semantic network takes little of it."""
        if self._regions():
            known = tuple(name for name in READ if name not in ("model", "labels"))
            text = f"{self.model.name} is a semantic network, which finds no objects"
            only_with(self, text, (*known, "of", "pad", "batch"))
        else:
            only_with(self, f"min_share is for semantic networks, which {self.model.name} is not", ("min_share",))
            super().check_use()

    def parts(self) -> list[Part]:
        """The stages with their share of the options."""
        if self._regions():
            return telling_regions(self)
        return finding(self) if self.of is None else detailing(self)

    def _regions(self) -> bool:
        from streamkit.models.families import family_of

        return family_of(self.model).regions
