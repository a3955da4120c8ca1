"""Embedding vectors of objects: similar objects have similar vectors."""

from __future__ import annotations

from streamkit.core.stage import CompositePart, stage
from streamkit.core.units import Of
from streamkit.stages.inference.crop_model_base import CropModelBase
from streamkit.stages.inference.detector_base import some
from streamkit.stages.inference.track_attributes import KeepEmbeddings


@stage("embed", reads=("pixels", "detections"), writes="embedding")
class Embed(CropModelBase):
    """Give objects an embedding, a vector of length 1 that later stages compare.

    The column `embedding` has a row for each object, NaN if the network did not run on it. Objects are selected and
    refreshed as in `classify`. Put it above a tracker for re-identification; below one, each track keeps its own.

    Options:
        model: the model card, with task: embed.
        of: which objects, as detect, detect.person or {stage: detect, labels: [person, car]}.
        every: how long a vector holds before the network runs again; 0 runs it on every frame.
        smooth: vectors are averaged over time; one this old has weight 1/e. 0 uses the newest alone.
        record: write the vectors into records.
    """

    of: Of
    record: bool = False

    def parts(self) -> list[CompositePart]:
        """Return the parts from crop selection to the column; see `streamkit/core/crops.py`."""
        kept = some(self, ("model", "of", "smooth", "track_ttl", "record"))
        return [*self.asking(self.of), CompositePart("keep", KeepEmbeddings, kept)]
