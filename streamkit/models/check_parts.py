"""Common parts of `models check`: comparison of tensors, and decoding of outputs into a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Array, Detections, Device, Frame, Surface
from streamkit.models import reference
from streamkit.models.card import Card

TENSOR_LEVELS = 1.0
"""Largest error of a tensor's value against the exact rule, in levels of 0..255."""
OPENCV_LEVELS = 0.5
"""Mean error against OpenCV's resize of the RGB picture, in levels. Single values differ more where colours clip."""


class Tensors:
    """Makes the pipeline's tensors, and compares them with the exact rule (`preprocess_reference`) and with OpenCV.

    Args:
        card: the network.
        device: where the tensors are made; if it is a GPU, it must be current.

    Attributes:
        worst: the largest error against the exact rule so far, in levels of 0..255.
    """

    def __init__(self, card: Card, device: Device) -> None:
        self._spec, self._device = card.input, device
        std = np.array(card.input.std).reshape((3, 1, 1) if card.input.layout == "nchw" else 3)
        self._per_level = card.input.scale / std
        self.worst = 0.0
        self._means: list[float] = []

    def of(self, frame: Frame) -> tuple[Array, np.ndarray, np.ndarray]:
        """Return a frame's tensor, (1, ...), on the device and on the host, and its geometry, (1, 4)."""
        from streamkit.ops.preprocess import preprocess, preprocess_reference
        from streamkit.ops.transfer import fetch

        surface, size = frame.surface, (frame.width, frame.height)
        assert surface is not None
        there = surface
        if self._device.kind != "cpu":
            there = Surface(self._device.xp.asarray(surface.data), surface.color)
        made, geometry = preprocess([there], [size], self._spec)
        tensor = fetch([made])()[0].copy()
        wide = tensor.astype(np.float64)
        exact = preprocess_reference([surface], [size], self._spec)
        usual, _ = reference.tensor(reference.picture(surface, *size), self._spec)
        self.worst = max(self.worst, float((np.abs(wide - exact) / self._per_level).max()))
        self._means.append(float((np.abs(wide - usual) / self._per_level).mean()))
        return made, tensor, geometry

    @property
    def mean(self) -> float:
        """The mean error against OpenCV's result, in levels."""
        return float(np.mean(self._means))

    @property
    def passed(self) -> bool:
        """Whether both errors are within the tolerances."""
        return self.worst <= TENSOR_LEVELS and self.mean <= OPENCV_LEVELS


def table(
    card: Card, family: Any, outputs: Mapping[str, Array], geometry: np.ndarray, sizes_wh: np.ndarray
) -> Detections:
    """Decode a network's outputs as the pipeline does, with the card's thresholds; the table is on the host."""
    from streamkit.models.families import ReadOptions, unpack
    from streamkit.ops.transfer import fetch

    options = ReadOptions(np.full(max(1, len(card.labels)), card.score, np.float32), iou=card.iou)
    packed = family.read(outputs, geometry, sizes_wh, card.input.size, options)
    rest = family.rest(outputs, packed, geometry, sizes_wh, card.input.size)
    buffer, *arrays = fetch([packed.buffer, *(rest.arrays if rest else ())])()
    rows, counts, _ = packed.over(buffer)
    made = unpack(rows, counts, card.labels, family.columns)
    return rest.complete(made, arrays) if rest else made


def told(frames: int, tensor_max: float, opencv_mean: float, rest: str, passed: bool) -> str:
    """Return a report as text; `rest` is the line that differs between tasks."""
    return "\n".join([
        f"frames    {frames}",
        f"tensor    largest error {tensor_max:.4f} of 255 levels (limit {TENSOR_LEVELS:g}), "
        f"mean error against OpenCV's way {opencv_mean:.3f} (limit {OPENCV_LEVELS:g})",
        rest,
        "passed" if passed else "FAILED",
    ])  # fmt: skip
