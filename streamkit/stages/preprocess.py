"""Makes the network's input of a batch's pictures."""

from __future__ import annotations

from streamkit.data import Batch
from streamkit.stage import BatchStage, Count, stage
from streamkit.steps import sizes, steps
from streamkit.units import Model


@stage("preprocess", reads="pixels", writes="tensor")
class Preprocess(BatchStage):
    """Resize, convert and normalise each frame into the network's input tensor.

    One kernel launch a batch on a GPU. A partial batch is padded to the next of the sizes that were warmed.

    Options:
        model: the card whose `input` says how.
        batch: rows of a run of the network, where a stage asks about parts of frames; by default the pipeline's.
    """

    model: Model
    batch: Count | None = None

    def open(self) -> None:
        """Read what the network's file says of its input."""
        from streamkit.models.network import check_model

        self._spec = check_model(self.model).input
        self._sizes = self.context.batch_sizes if self.batch is None else sizes(self.batch, self.context.device)

    def process(self, batch: Batch) -> Batch:
        """Set `batch.tensor` and `batch.geometry`."""
        from streamkit.ops.preprocess import preprocess

        rows = range(len(batch)) if batch.rows is None else batch.rows.tolist()
        frames = [batch.frames[row] for row in rows]
        surfaces = [frame.surface for frame in frames]
        if any(surface is None for surface in surfaces):
            raise ValueError("preprocess needs frames with pictures")
        batch.tensor, batch.geometry = preprocess(
            surfaces,  # type: ignore[arg-type]
            [(frame.width, frame.height) for frame in frames],
            self._spec,
            batch=sum(steps(len(frames), self._sizes)),
            rects=None
            if batch.crops is None
            else [(x, y, right, bottom) for x, y, right, bottom in batch.crops.rects.tolist()],
        )
        return batch
