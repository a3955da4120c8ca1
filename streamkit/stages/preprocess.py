"""Makes the network's input of a batch's pictures."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from streamkit.crops import Rows
from streamkit.data import Array, Batch, Frame
from streamkit.stage import BatchStage, Count, stage
from streamkit.steps import sizes, steps
from streamkit.units import Model


@stage("preprocess", reads="pixels", writes="tensor")
class Preprocess(BatchStage):
    """Resize, convert and normalise each frame into the network's input tensor.

    One kernel launch a batch on a GPU. A partial batch is padded to the next of the sizes that were warmed. More parts
    of frames than a run of the network takes are not made at once, but as they are run.

    Options:
        model: the card whose `input` says how.
        batch: rows of a run of the network, where a stage asks about parts of frames; by default the pipeline's.
    """

    warms_up: ClassVar[bool] = True

    model: Model
    batch: Count | None = None

    def open(self) -> None:
        """Read what the network's file says of its input."""
        from streamkit.models.network import check_model

        self._spec = check_model(self.model).input
        self._sizes = self.context.batch_sizes if self.batch is None else sizes(self.batch, self.context.device)

    def process(self, batch: Batch) -> Batch:
        """Set `batch.tensor` and `batch.geometry`."""
        rows = range(len(batch)) if batch.rows is None else batch.rows.tolist()
        frames = [batch.frames[row] for row in rows]
        if any(frame.surface is None for frame in frames):
            raise ValueError("preprocess needs frames with pictures")
        total = sum(steps(len(frames), self._sizes))
        if batch.crops is None or total <= self._sizes[-1]:
            batch.tensor, batch.geometry = self._made(frames, None if batch.crops is None else batch.crops.rects, total)
        else:
            batch.tensor, batch.geometry = self._rows(frames, batch.crops.rects, total, batch.xp)
        return batch

    def _made(self, frames: list[Frame], rects: np.ndarray | None, total: int) -> tuple[Array, np.ndarray]:
        from streamkit.ops.preprocess import preprocess

        return preprocess(
            [frame.surface for frame in frames],  # type: ignore[misc]
            [(frame.width, frame.height) for frame in frames],
            self._spec,
            batch=total,
            rects=None if rects is None else [(x, y, right, bottom) for x, y, right, bottom in rects.tolist()],
        )

    def _rows(self, frames: list[Frame], rects: np.ndarray, total: int, xp: Any) -> tuple[Rows, np.ndarray]:
        from streamkit.ops.preprocess import geometry

        spec = self._spec

        def make(rows: np.ndarray) -> Array:
            used = rows[rows < len(frames)]  # the rest is padding
            if not len(used):
                return xp.zeros(spec.shape(len(rows)), spec.numpy_dtype)
            return self._made([frames[row] for row in used.tolist()], rects[used], len(rows))[0]

        scales = [geometry(spec, right - x, bottom - y, x, y) for x, y, right, bottom in rects.tolist()]
        return Rows(make, spec.shape(total), spec.numpy_dtype), np.array(scales, np.float32)
