# SPDX-License-Identifier: Apache-2.0
"""Preparation of a network's input tensor from frames."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from streamkit.core.batch_buckets import FEW, sizes, steps
from streamkit.core.crops import Crops, LazyRows
from streamkit.core.data import Array, Batch, Frame
from streamkit.core.stage import BatchStage, Context, Count, stage
from streamkit.models.card_option import Model
from streamkit.models.network import check_model

FewRows = Annotated[bool, "rows come few at a time: many live sources then tune one small size of a run only."]


def run_sizes(context: Context, largest: int | None, few_rows: bool) -> tuple[int, ...]:
    """The sizes of a run of a network, ascending.

    Args:
        context: of the stage.
        largest: maximum number of rows; None for the pipeline's batch.
        few_rows: whether rows come few at a time, as the crops of tracks do.
    """
    device = context.device
    if few_rows and device.kind == "cuda" and context.runtime.live:
        return (min(FEW, largest or FEW),)
    return context.batch_sizes if largest is None else sizes(largest, device)


@stage("preprocess", reads="pixels", writes="tensor", warms_up=True)
class Preprocess(BatchStage):
    """Resize, convert and normalize each frame into the network's input tensor.

    This is one kernel launch per batch on a GPU. A partial batch is padded to the next warmed size. If there are more
    regions than one run of the network takes, each run's tensor is made when that run begins.
    """

    model: Annotated[Model, "the model card; its `input` describes the tensor."]
    batch: Annotated[Count | None, "rows of one run, for stages on parts of frames; by default the pipeline's."] = None
    few_rows: FewRows = False

    def open(self) -> None:
        """Read the input's shape and type from the network's file."""
        self._spec = check_model(self.model).input
        self._sizes = run_sizes(self.context, self.batch, self.few_rows)

    def process(self, batch: Batch) -> Batch:
        """Set `batch.tensor` and `batch.geometry`."""
        rows = range(len(batch)) if batch.rows is None else batch.rows.tolist()
        frames = [batch.frames[row] for row in rows]
        if any(frame.surface is None for frame in frames):
            raise ValueError("preprocess needs frames with pixels")
        total = sum(steps(len(frames), self._sizes))
        if self.context.device.kind == "cuda" or (batch.crops is not None and total > self._sizes[-1]):
            batch.tensor, batch.geometry = self._rows(frames, batch.crops, total, batch.xp)
        else:
            batch.tensor, batch.geometry = self._preprocessed(frames, batch.crops, total)
        return batch

    def _preprocessed(self, frames: list[Frame], crops: Crops | None, total: int) -> tuple[Array, np.ndarray]:
        from streamkit.ops.preprocess import preprocess

        return preprocess(
            *_parts(frames),
            self._spec,
            batch=total,
            rects=_rects(crops),
            corners=None if crops is None else crops.corners,
            views=None if crops is None else crops.views,
        )

    def _rows(self, frames: list[Frame], crops: Crops | None, total: int, xp: Any) -> tuple[LazyRows, np.ndarray]:
        from streamkit.ops.letterbox import rect_geometry
        from streamkit.ops.preprocess_cuda import PackedImages, fill_packed

        spec = self._spec

        def shown(rows: np.ndarray) -> tuple[list[Frame], Crops | None]:
            used = rows[rows < len(frames)]  # the rest is padding
            return [frames[row] for row in used.tolist()], None if crops is None else crops.take(used)

        def make(rows: np.ndarray) -> Array:
            frames_shown, crops_shown = shown(rows)
            if not frames_shown:
                return xp.zeros(spec.shape(len(rows)), spec.numpy_dtype)
            return self._preprocessed(frames_shown, crops_shown, len(rows))[0]

        def write(rows: np.ndarray, target: PackedImages) -> None:
            frames_shown, crops_shown = shown(rows)
            views = None if crops_shown is None else crops_shown.views
            fill_packed(target, *_parts(frames_shown), spec, _rects(crops_shown), views)

        on_gpu = self.context.device.kind == "cuda"
        straightens = crops is not None and crops.corners is not None
        tensor = LazyRows(make, spec.shape(total), spec.numpy_dtype, write if on_gpu and not straightens else None)
        whole = np.array([(0, 0, frame.width, frame.height) for frame in frames], np.int64).reshape(-1, 4)
        placed = rect_geometry(spec, whole) if crops is None else rect_geometry(spec, crops.rects, crops.views)
        return tensor, placed[1]


def _parts(frames: list[Frame]) -> tuple[list[Any], list[tuple[int, int]]]:
    """Return the surfaces of frames, and their widths and heights."""
    return [frame.surface for frame in frames], [(frame.width, frame.height) for frame in frames]


def _rects(crops: Crops | None) -> list[tuple[int, int, int, int]] | None:
    return None if crops is None else [(x, y, right, bottom) for x, y, right, bottom in crops.rects.tolist()]
