"""Makes the network's input of a batch's pictures."""

from __future__ import annotations

from streamkit.data import Batch
from streamkit.stage import BatchStage, stage
from streamkit.units import Model


@stage("preprocess", reads="pixels", writes="tensor")
class Preprocess(BatchStage):
    """Resize, convert and normalise each frame into the network's input tensor.

    One kernel launch a batch on a GPU. A partial batch is padded to the next of the sizes that were warmed.

    Options:
        model: the card whose `input` says how.
    """

    model: Model

    def open(self) -> None:
        """Read what the network's file says of its input."""
        from streamkit.models.network import check_model

        self._spec = check_model(self.model).input

    def process(self, batch: Batch) -> Batch:
        """Set `batch.tensor` and `batch.geometry`."""
        from streamkit.ops.preprocess import preprocess

        surfaces = [frame.surface for frame in batch.frames]
        if any(surface is None for surface in surfaces):
            raise ValueError("preprocess needs frames with pictures")
        sizes = [(frame.width, frame.height) for frame in batch.frames]
        rows = next((n for n in self.context.batch_sizes if n >= len(batch)), len(batch))
        batch.tensor, batch.geometry = preprocess(surfaces, sizes, self._spec, batch=rows)  # type: ignore[arg-type]
        return batch
