# SPDX-License-Identifier: Apache-2.0
"""Detections as tables of other libraries: pandas and supervision, which are optional."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamkit.core.data import Detections, array_module
from streamkit.core.errors import needs
from streamkit.core.records import table_records
from streamkit.ops import rle

_DTYPES = {
    "label": "object",
    "class_id": "int64",
    "score": "float64",
    "x1": "float64",
    "y1": "float64",
    "x2": "float64",
    "y2": "float64",
    "track_id": "Int64",
}


def to_pandas(table: Detections) -> Any:
    """See `Detections.to_pandas`."""
    with needs("pandas", "", "to_pandas"):
        import pandas
    _check_on_host(table, "to_pandas")
    rows = table_records(table)
    for row in rows:
        row.update(zip(("x1", "y1", "x2", "y2"), row.pop("box"), strict=True))
    names = [name for name in _DTYPES if name != "track_id" or table.track_id is not None]
    names += [name for name in table.extra if name not in table.private]
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pandas.DataFrame({name: pandas.Series(columns[name], dtype=_DTYPES.get(name)) for name in names})


def to_supervision(table: Detections) -> Any:
    """See `Detections.to_supervision`."""
    with needs("supervision", "", "to_supervision"):
        import supervision
        from supervision.config import ORIENTED_BOX_COORDINATES
    _check_on_host(table, "to_supervision")
    public = {name: table.extra[name] for name in table.extra if name not in {*table.private, "keypoints"}}
    masks = public.pop("mask", None)
    if "corners" in public:  # the name that supervision's annotators and metrics read
        public[ORIENTED_BOX_COORDINATES] = public.pop("corners")
    return supervision.Detections(
        xyxy=table.xyxy.copy(),
        confidence=table.score.copy(),
        class_id=table.class_id.astype(int),
        tracker_id=None if table.track_id is None else table.track_id.copy(),
        mask=None if masks is None else _masks(masks),
        data={"class_name": np.array(table.label, str), **{name: column.copy() for name, column in public.items()}},
    )


def to_supervision_keypoints(table: Detections) -> Any:
    """See `Detections.to_supervision_keypoints`."""
    with needs("supervision", "", "to_supervision_keypoints"):
        import supervision
    _check_on_host(table, "to_supervision_keypoints")
    if "keypoints" not in table.extra:
        raise ValueError("this table has no column keypoints; the stage pose writes it")
    points = np.nan_to_num(table.extra["keypoints"])
    return supervision.KeyPoints(
        xy=np.ascontiguousarray(points[:, :, :2]),
        keypoint_confidence=np.ascontiguousarray(points[:, :, 2]),
        detection_confidence=table.score.copy(),
        class_id=table.class_id.astype(int),
        data={"class_name": np.array(table.label, str)},
    )


def _masks(column: np.ndarray) -> np.ndarray | None:
    """(n, height, width) bool; an object without a mask has no pixels. None if no object has a mask."""
    size = next((mask["size"] for mask in column if mask is not None), None)
    if size is None:
        return None
    return np.stack([np.zeros(size, bool) if mask is None else rle.decode(mask) for mask in column])


def _check_on_host(table: Detections, what: str) -> None:
    if array_module(table.xyxy) is not np:
        raise ValueError(f"{what} needs a table on the host; this one is on the GPU, as between stages of `detect`")
