"""Gives objects a vector that tells them apart: near ones show the same."""

from __future__ import annotations

from streamkit.stage import Part, stage
from streamkit.stages.answers import KeepEmbeddings
from streamkit.stages.asking import Asking
from streamkit.stages.finding import some
from streamkit.units import Of


@stage("embed", reads=("pixels", "detections"), writes="embedding")
class Embed(Asking):
    """Give objects an embedding, a vector of length 1 that later stages compare.

    The column `embedding` has a row for each object, NaN where the network was not asked. Which objects are asked about
    and when is as in `classify`. Above a tracker it helps to know a person again; below one each track keeps its own.

    Options:
        model: the model's card, with task: embed.
        of: which objects, as detect, detect.person or {stage: detect, labels: [person, car]}.
        every: how long a vector holds before the network is asked again; 0 asks on every frame.
        smooth: vectors are averaged over time, and one so old counts for 1/e; 0 takes the newest alone.
        record: write the vectors into records.
    """

    of: Of
    record: bool = False

    def parts(self) -> list[Part]:
        """From choosing to keeping; see `streamkit/crops.py`."""
        kept = some(self, ("model", "of", "smooth", "forget", "record"))
        return [*self.asking(self.of), Part("keep", KeepEmbeddings, kept)]
