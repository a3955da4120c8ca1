# SPDX-License-Identifier: Apache-2.0
"""Queries with a mask of their own: RF-DETR-Seg and other detectors of the DETR line, Mask2Former and EoMT.

| family | outputs | objects |
| --- | --- | --- |
| `detr_seg` | logits (N, Q, C), boxes (N, Q, 4), masks (N, Q, h, w) | as in `detr` |
| `mask_queries` | `class_queries_logits` (N, Q, C + 1), `masks_queries_logits` (N, Q, h, w) | boxes around the masks |

Masks are logits over the whole input. As all masks here they are cut at the object's box.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from streamkit.core.data import Array, array_module
from streamkit.models.families.base import (
    Columns,
    FamilyTraits,
    OutputFormat,
    Outputs,
    PlainImage,
    Shapes,
    Size,
    fits,
    is_inner,
    listed,
    network_family,
)
from streamkit.models.families.detr import Detr, are_logits, reference_detr
from streamkit.models.families.rules import in_shape, softmax
from streamkit.models.families.yolo import Masked
from streamkit.models.network_file import ModelInfo
from streamkit.ops.candidates import Coding, best_class

_CLASSES = "class_queries_logits"
_MASKS = "masks_queries_logits"


class QueryMasked(Masked):
    """Objects with the number of their query, whose mask is theirs."""

    columns: Columns = {"query": (1,)}  # noqa: RUF012  # never changed
    own_map = True

    def _check_masks(self, queries: tuple[str, Any], masks: tuple[str, Any]) -> None:
        """Check that there is a mask for each query; raise ValueError."""
        name, shape = queries
        count = shape[1]
        if isinstance(count, int) and not fits(masks[1][1], count):
            raise ValueError(
                f"family {self.name}: output {masks[0]!r} of shape {tuple(masks[1])} holds {masks[1][1]} masks, and "
                f"{name!r} of shape {tuple(shape)} {count} queries; each query has one mask"
            )


def query_numbers(frames: int, queries: int, dtype: Any, xp: Any) -> Array:
    """Return the number of each query, (frames, queries, 1); exact in float16 up to 2,048 queries."""
    return xp.broadcast_to(xp.arange(queries, dtype=dtype)[None, :, None], (frames, queries, 1))


def _are_masked_logits(info: ModelInfo, size: Size) -> bool:
    """Whether raw outputs are logits of queries, and maps in the shape of the input."""
    maps = [dims for dims in info.output_dims.values() if len(dims) == 4]
    return are_logits(info, size) and all(in_shape(dims[2:], size) for dims in maps)


def _reference_detr_seg(image: PlainImage) -> np.ndarray:
    outputs = {name: output for name, output in image.outputs.items() if output.ndim == 2}
    return reference_detr(image._replace(outputs=outputs))


@network_family(
    "detr_seg",
    FamilyTraits(
        formats=(
            OutputFormat(
                "logits (N, Q, C), boxes (N, Q, 4), masks (N, Q, h, w)",
                "as raw outputs of detr; mask logits over the whole input. RF-DETR-Seg (rfdetr 1.11: `dets`, `labels`, "
                "`masks`)",
            ),
        ),
        plausible=_are_masked_logits,
        hugging_face="Segmentation",
        selects=True,
        reference=_reference_detr_seg,
    ),
)
class DetrSeg(QueryMasked, Detr):
    """Queries, each with a box, a score per class and a mask. `select` as in `Detr`."""

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        if not self._is_raw(outputs):
            raise ValueError(
                f"family {self.name} reads class logits, boxes and masks of queries; the network has {listed(outputs)}"
            )
        Detr.check(self, outputs, classes)
        boxes = self._raw_names(outputs)[1]
        self._check_masks((boxes, outputs[boxes]), self._prototypes(outputs))

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`: as `detr`, and the masks."""
        return Detr.claims(self, outputs, classes) | {self._prototypes(outputs)[0]}

    def _prototypes(self, outputs: Mapping[str, Any]) -> tuple[str, Any]:
        return self._only(outputs, 4, "(N, queries, height, width)")

    def _further(self, boxes: Array) -> dict[str, Any]:
        frames, queries, _ = boxes.shape
        return {"points": query_numbers(frames, queries, boxes.dtype, array_module(boxes)), "step": 0}


def _reference_mask_queries(image: PlainImage) -> np.ndarray:
    shares = softmax(image.outputs[_CLASSES])[:, :-1]
    maps = image.outputs[_MASKS]
    size = np.array(image.input_size) / maps.shape[:0:-1]
    rows = []
    for query, logits in enumerate(maps):
        inside = logits > 0
        certainty = (1 / (1 + np.exp(-logits)))[inside].mean() if inside.any() else 0.0
        edges = [_reference_edges(logits.max(axis=axis)) if inside.any() else (0, 1) for axis in (0, 1)]
        corners = np.array(edges).T * size
        best = shares[query].argmax()
        rows.append([*corners.ravel(), shares[query, best] * certainty, best, query])
    return np.array(rows)


def _reference_edges(profile: np.ndarray) -> tuple[float, float]:
    """Where a line between the centers of places crosses 0 first and last; the ends of the map if it does not."""
    positive = np.flatnonzero(profile > 0)
    centers = np.arange(len(profile)) + 0.5
    first, last = positive[[0, -1]]
    low = 0.0 if first == 0 else np.interp(0, profile[first - 1 : first + 1], centers[first - 1 : first + 1])
    if last == len(profile) - 1:
        return float(low), float(len(profile))
    return float(low), float(np.interp(0, profile[[last + 1, last]], centers[[last + 1, last]]))


@network_family(
    "mask_queries",
    FamilyTraits(
        formats=(
            OutputFormat(
                f"`{_CLASSES}` (N, Q, C + 1), `{_MASKS}` (N, Q, h, w)",
                "class logits, of which the last is no object; mask logits over the whole input. Mask2Former and EoMT "
                "of Hugging Face's transformers 5.24",
            ),
        ),
        hugging_face="UniversalSegmentation",
        reference=_reference_mask_queries,
    ),
)
class MaskQueries(QueryMasked):
    """Queries, each with a class and a mask, without a box: the box is that of the mask.

    As in the authors' `post_process_instance_segmentation`, the score is the best class's share by softmax, times the
    mean probability of the mask's places. They scale the maps up before; here the mean is over the map's own places.
    """

    def check(self, outputs: Shapes, classes: int) -> None:
        """See `Family.check`."""
        logits, maps = self._named(outputs, (_CLASSES, _MASKS))
        for name, shape, rank in ((_CLASSES, logits, 3), (_MASKS, maps, 4)):
            if len(shape) != rank:
                raise ValueError(f"family {self.name}: output {name!r} must have {rank} dimensions, got {tuple(shape)}")
        self._check_classes(_CLASSES, logits, 2, 1, classes)
        self._check_masks((_CLASSES, logits), (_MASKS, maps))

    def claims(self, outputs: Shapes, classes: int) -> frozenset[str]:
        """See `Family.claims`: classes and masks, and features of inner layers."""
        return frozenset([_CLASSES, _MASKS, *filter(is_inner, outputs)])

    def candidates(self, outputs: Outputs, n: int, input_size: Size, min_score: np.ndarray) -> Any:
        """See `Family.candidates`."""
        logits, maps = (array[:n] for array in self._named(outputs, (_CLASSES, _MASKS)))
        xp = array_module(maps)
        _, queries, high, wide = maps.shape
        with np.errstate(all="ignore"):
            x1, x2 = _edges(maps.max(axis=2), xp)
            y1, y2 = _edges(maps.max(axis=3), xp)
            boxes = xp.stack([x1, y1, x2, y2], axis=2)
            shares = xp.exp(logits.astype(np.float64) - logits.max(axis=2, keepdims=True))
            shares = (shares / shares.sum(axis=2, keepdims=True))[:, :, :-1].astype(np.float32)
            inside = maps > 0
            probabilities = 1 / (1 + xp.exp(-xp.where(inside, maps, 0).astype(np.float32)))
            places = inside.sum(axis=(2, 3))
            certainty = (probabilities * inside).sum(axis=(2, 3)) / xp.maximum(places, 1)
        return best_class(
            boxes,
            shares,
            certainty.astype(np.float32),
            min_score=min_score,
            coding=Coding.XYXY,
            input_size=input_size,
            unit=(input_size[0] / wide, input_size[1] / high),
            points=query_numbers(n, queries, np.float32, xp),
            step=0,
        )

    def _prototypes(self, outputs: Mapping[str, Any]) -> tuple[str, Any]:
        return _MASKS, outputs[_MASKS]


def _edges(profile: Array, xp: Any) -> tuple[Array, Array]:
    """Return where the line between places crosses 0 first and last, in places; the map's ends if it does not.

    No pixel of a mask that is sampled bilinearly is outside: between two columns, the highest value of a mix is at most
    the mix of the highest values.

    Args:
        profile: (n, queries, places) the highest logit of each column or row of a map.
        xp: its module.
    """
    profile = profile.astype(np.float32)
    size = profile.shape[2]
    inside = profile > 0
    ends = []
    for direction in (1, -1):
        ordered = profile[:, :, ::direction]
        first = inside[:, :, ::direction].argmax(axis=2)[:, :, None]
        positive = xp.take_along_axis(ordered, first, axis=2)[:, :, 0]
        negative = xp.take_along_axis(ordered, xp.maximum(first - 1, 0), axis=2)[:, :, 0]
        first = first[:, :, 0]
        crossing = first - 0.5 - negative / (positive - negative)
        ends.append(xp.where(first > 0, crossing, 0).astype(np.float32))
    return ends[0], size - ends[1]
