# SPDX-License-Identifier: Apache-2.0
"""A stage between the parts of `detect` that changes the tensor, on the CPU or the GPU."""

from typing import Annotated

from streamkit import Batch, BatchStage, Point, stage


@stage("hide_region", reads="tensor", scope="source")
class HideRegion(BatchStage):
    """Paint a rectangle of the network's input with one value, so that nothing is found there.

    Goes between preprocess and infer: `insert: {after: preprocess, stage: hide_region, ...}`. The frames
    themselves are not changed.
    """

    region: Annotated[tuple[Point, Point], "two opposite corners, [[x, y], [x, y]] in source pixels."]
    value: Annotated[float, "the value to paint, in the tensor's own scale."] = 0.5

    def process(self, batch: Batch) -> Batch:
        """Paint each frame's part of the tensor (B, 3, H, W), which is NumPy's or CuPy's."""
        if batch.tensor.shape[1] != 3:
            raise ValueError(f"hide_region needs a network that takes (B, 3, H, W), got {batch.tensor.shape}")
        for row, (scale_x, scale_y, offset_x, offset_y) in enumerate(batch.geometry.tolist()):
            (left, right), (top, bottom) = (sorted(ends) for ends in zip(*self.region, strict=True))
            x1, x2 = (max(0, round(x * scale_x + offset_x)) for x in (left, right))
            y1, y2 = (max(0, round(y * scale_y + offset_y)) for y in (top, bottom))
            batch.tensor[row, :, y1:y2, x1:x2] = self.value
        return batch
