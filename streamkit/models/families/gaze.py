# SPDX-License-Identifier: Apache-2.0
"""L2CS: the direction of a face's gaze as two angles, each a softmax over bins of degrees.

An angle is the expected bin x its width - offset, as in https://github.com/Ahmednull/L2CS-Net: 90 bins of 4 degrees
from -180 (Gaze360), or 28 bins of 3 degrees from -42 (MPIIFaceGaze).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.models.facts import IMAGENET_MEAN, IMAGENET_STD
from streamkit.models.families.base import (
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Shapes,
    authors_input,
    listed,
    network_family,
)
from streamkit.models.families.rules import softmax
from streamkit.models.families.vectors import Vector

_BINS = {90: (4.0, 180.0), 28: (3.0, 42.0)}
"""Width of a bin and offset in degrees, by the number of bins."""
_ANGLES = ("yaw", "pitch")


def _reference_gaze(image: PlainImage) -> np.ndarray:
    angles = []
    for angle in ("yaw", "pitch"):
        (logits,) = [output for name, output in image.outputs.items() if angle in name.lower()]
        shares = softmax(logits)
        width, offset = {90: (4, 180), 28: (3, 42)}[len(shares)]
        angles.append(sum(place * share for place, share in enumerate(shares)) * width - offset)
    return np.array(angles)


@network_family(
    "l2cs",
    FamilyTraits(
        formats=(
            OutputFormat(
                "`yaw` (N, 90), `pitch` (N, 90)",
                "a value for each bin of an angle, before the softmax; or 28 bins. L2CS, with the names of "
                "gaze-estimation's export, whose yaw is the horizontal angle; the authors' code calls that one pitch. "
                "Unverified",
            ),
        ),
        line=authors_input("L2CS", 0, resize="stretch", mean=list(IMAGENET_MEAN), std=list(IMAGENET_STD)),
        reference=_reference_gaze,
    ),
)
class Gaze(Vector):
    """Two angles in degrees, named by the card's labels."""

    task = "classify"
    numbers = _ANGLES

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        named = self._angles(outputs)
        for name, shape in named:
            size = shape[1] if len(shape) == 2 else 0
            if isinstance(size, int) and size not in _BINS:
                bins = " or ".join(f"(N, {count})" for count in _BINS)
                raise ValueError(
                    f"family {self.name}: output {name!r} must be {bins}, a value for each bin of an angle; its shape "
                    f"is {tuple(shape)}"
                )
        if classes != len(_ANGLES):
            raise ValueError(
                f"family {self.name} gives two angles, and the label list has {classes}; give it [{', '.join(_ANGLES)}]"
            )

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset(name for name, _ in self._angles(outputs))

    def length(self, outputs: Shapes) -> int | None:
        """See `Vector.length`."""
        return len(_ANGLES)

    def vectors(self, outputs: Outputs) -> Array:
        """Return (r, 2), yaw and pitch of each row in degrees, on the outputs' device."""
        angles = []
        for _, logits in self._angles(outputs):
            xp = array_module(logits)
            bins = logits.shape[1]
            width, offset = _BINS[bins]
            wide = logits.astype(np.float32)
            powers = xp.exp(wide - wide.max(axis=1, keepdims=True))
            places = xp.arange(bins, dtype=np.float32)
            expected = (powers * places).sum(axis=1) / powers.sum(axis=1)
            angles.append(expected * np.float32(width) - np.float32(offset))
        return xp.stack(angles, axis=1)

    def _angles(self, outputs: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return yaw and pitch: the name of each output, and its shape or array."""
        names_by_angle = [[name for name in outputs if angle in name.lower()] for angle in _ANGLES]
        if any(len(names) != 1 for names in names_by_angle):
            raise ValueError(
                f"family {self.name} reads two outputs whose names have yaw and pitch; the network has "
                f"{listed(outputs)}; export it with these names"
            )
        return [(name, outputs[name]) for (name,) in names_by_angle]
