"""Embedding vectors of objects: similar objects have similar vectors."""

from __future__ import annotations

from typing import Annotated

from streamkit.core.stage import CompositePart, stage
from streamkit.core.units import Of
from streamkit.models.card_option import Model
from streamkit.stages.inference.crop_model_base import CropModelBase
from streamkit.stages.inference.detector_base import some
from streamkit.stages.inference.track_attributes import KeepEmbeddings


@stage("embed", reads=("pixels", "detections"), writes="embedding")
class Embed(CropModelBase):
    """Give objects an embedding, a vector of length 1 that later stages compare.

    The column `embedding` has a row for each object, NaN if the network did not run on it. Objects are selected and
    refreshed as in `classify`. Put it above a tracker for re-identification; below one, each track keeps its own.
    """

    model: Annotated[Model, "the model card, with task: embed."]
    of: Annotated[Of, "which objects, as detect, detect.person or {stage: detect, labels: [person, car]}."]
    record: Annotated[bool, "write the vectors into records."] = False

    def parts(self) -> list[CompositePart]:
        """Return the parts from crop selection to the column; see `streamkit/core/crops.py`."""
        kept = some(self, ("model", "of", "smooth", "track_ttl", "record"))
        return [*self.asking(self.of), CompositePart("keep", KeepEmbeddings, kept)]
