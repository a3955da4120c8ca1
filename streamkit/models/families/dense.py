# SPDX-License-Identifier: Apache-2.0
"""Networks with a value for each place of the frame: depth, and anomaly.

Depth, (N, h, w) or (N, 1, h, w), has three forms, which no file tells apart by its shapes:

| family | values |
| --- | --- |
| `metric_depth` | meters: YOLO26-depth, Depth Anything's metric networks, ZoeDepth, Depth Pro |
| `relative_depth` | no unit, larger is farther: Depth Anything v3 |
| `inverse_depth` | no unit, larger is nearer: Depth Anything v1 and v2, MiDaS |

Anomaly is what anomalib 2 exports: a score of the image, a map of scores, and both above its threshold.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from streamkit.core.data import Array
from streamkit.models.facts import IMAGENET_MEAN, IMAGENET_STD, CardFacts
from streamkit.models.families.base import (
    Family,
    FamilyTraits,
    OutputFormat,
    Outputs,
    Shapes,
    Size,
    Values,
    authors_input,
    network_family,
)
from streamkit.models.families.rules import in_shape
from streamkit.models.network_file import ModelInfo

DepthForm = Literal["metric", "relative", "inverse"]

_DEPTH_NAMES = re.compile("depth|dispar", re.IGNORECASE)
_OTHER_MAPS = re.compile("heat|anomaly|keypoint|flow|mask|logit|seg|normal|conf|class", re.IGNORECASE)
"""Names of maps that are no depth."""
_DEPTH = "(N, h, w) or (N, 1, h, w)"


def _depth_anything() -> CardFacts:
    """Return the input of Depth Anything; depth has no thresholds."""
    facts = CardFacts()
    facts.add("Depth Anything: the authors' input", input_resize="stretch", input_color="rgb", input_scale="1/255")
    facts.add("Depth Anything: the authors' input", input_mean=IMAGENET_MEAN, input_std=IMAGENET_STD)
    return facts


_LINE = _depth_anything()


def _is_map(shape: tuple[Any, ...]) -> bool:
    """Whether a shape has a value for each place."""
    return len(shape) == 3 or (len(shape) == 4 and shape[1] == 1)


def _without_channel(output: Array) -> Array:
    return output[:, 0] if output.ndim == 4 else output


def _is_depth(info: ModelInfo, size: Size) -> bool:
    """Whether the map is of floats, in the shape of the input, and has no name of another kind of map."""
    name, dims = next((name, dims) for name, dims in info.output_dims.items() if _is_map(dims))
    if info.outputs[name].dtype.kind != "f":
        return False
    if _DEPTH_NAMES.search(name):
        return in_shape(dims[-2:], size)
    return len(dims) == 4 and dims[2:] == size[::-1] and not _OTHER_MAPS.search(name)


def _below_zero(values: Values, size: Size, classes: int | None) -> str:
    """Exclude values that are no distance."""
    lowest = min(float(array.min()) for array in values.values() if _is_map(array.shape))
    return "its values are below 0, and no distance is" if lowest < 0 else ""


def _traits(meaning: str, exports: str, **more: Any) -> FamilyTraits:
    """Return the traits of a form of depth; `exports` says whose networks were tried."""
    return FamilyTraits(
        formats=(OutputFormat(_DEPTH, f"the depth of each place, {meaning}; {exports}"),),
        plausible=_is_depth,
        meaning=meaning,
        hugging_face="DepthEstimation",
        **more,
    )


class DepthMap(Family):
    """One map per frame, no objects.

    Attributes:
        form: what the values are.
    """

    task = "depth"
    form: ClassVar[DepthForm]

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        self._map(outputs)

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset([self._map(outputs)[0]])

    def line(self, info: ModelInfo, size: Size | None) -> CardFacts:
        """See `Family.line`: Hugging Face's exports name the output `predicted_depth`."""
        return _LINE if "predicted_depth" in info.outputs else self.traits.line

    def maps(self, outputs: Outputs, classes: int = 0) -> Array:
        """Return the values as the network has them, (N, h, w) float32, on the outputs' device."""
        return _without_channel(self._map(outputs)[1]).astype(np.float32, copy=False)

    def _map(self, outputs: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the only map, by its name if there are several: its name, and its shape or array."""
        named = {name: output for name, output in outputs.items() if _DEPTH_NAMES.search(name)}
        return self._single(named if len(named) == 1 else outputs, _is_map, f"map {_DEPTH}")


@network_family(
    "metric_depth",
    _traits(
        "in meters",
        "YOLO26-depth of Ultralytics 8.4, Depth Anything of transformers 5.24",
        ultralytics=("depth",),
        doubt=_below_zero,
    ),
)
class MetricDepth(DepthMap):
    """Meters."""

    form = "metric"


@network_family(
    "relative_depth",
    _traits(
        "without a unit, larger is farther",
        "Depth Anything v3: as depth-anything-3 0.1.1 computes it, which has no export of its own; unverified",
        doubt=_below_zero,
    ),
)
class RelativeDepth(DepthMap):
    """Larger is farther; comparable within a frame only."""

    form = "relative"


@network_family(
    "inverse_depth", _traits("without a unit, larger is nearer", "Depth Anything v1 and v2 of transformers 5.24")
)
class InverseDepth(DepthMap):
    """Larger is nearer; comparable within a frame only."""

    form = "inverse"


_SCORE = "pred_score"
_MAP = "anomaly_map"
_REPEATED = ("pred_label", "pred_mask")
"""Outputs that are the score and the map above the network's threshold."""


@network_family(
    "anomalib",
    FamilyTraits(
        formats=(
            OutputFormat(
                "`pred_score` (N, 1), `anomaly_map` (N, 1, h, w)",
                "how unusual the image and each place are, 0 to 1, as anomalib 2.7 exports them: .5 is the threshold",
            ),
            OutputFormat("`pred_score` (N, 1)", "how unusual the image is"),
        ),
        line=authors_input("anomalib 2", 0.5, resize="stretch"),
    ),
)
class Anomalib(Family):
    """A score per image and, of most networks, a map of scores; `pred_label` and `pred_mask` repeat them."""

    task = "anomaly"

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        (score,) = self._named(outputs, (_SCORE,))
        if len(score) > 2 or (len(score) == 2 and score[1] != 1):
            raise ValueError(
                f"family {self.name}: output {_SCORE!r} must be (N,) or (N, 1), its shape is {tuple(score)}"
            )
        if _MAP in outputs and not _is_map(tuple(outputs[_MAP])):
            shape = tuple(outputs[_MAP])
            raise ValueError(
                f"family {self.name}: output {_MAP!r} must be (N, 1, h, w) or (N, h, w), its shape is {shape}"
            )

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`."""
        return frozenset({_SCORE, _MAP, *_REPEATED} & outputs.keys())

    def vectors(self, outputs: Outputs) -> Array:
        """Return the score of each image, (N, 1), on the outputs' device."""
        return self._named(outputs, (_SCORE,))[0].reshape(-1, 1)

    def finish(self, vectors: np.ndarray) -> np.ndarray:
        """Return the scores as float32, on the host."""
        return vectors.astype(np.float32)

    def maps(self, outputs: Outputs, classes: int = 0) -> Array | None:
        """Return the score of each place, (N, h, w) float32, on the outputs' device; None without a map."""
        return _without_channel(outputs[_MAP]).astype(np.float32, copy=False) if _MAP in outputs else None
