# SPDX-License-Identifier: Apache-2.0
"""Tasks of Label Studio with pre-annotations, and the labeling configuration that they fit."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
import orjson

from streamkit.core.records import corners_of, numbers_of, points_of
from streamkit.query.annotations import IMAGES, outlines
from streamkit.query.selected_frames import SelectedFrame

_SIZE = 0.75
"""Width of a keypoint, in percent of the image's."""


class LabelStudioAnnotations:
    """`tasks.json`: a task for each image, with a prediction; and `label_config.xml`, the configuration of the project.

    An object is a rectangle, or the outlines of its mask, or its rotated box, as polygons; its keypoints are keypoint
    labels. Images are addressed as files of a local storage whose root contains the export's folder.

    Args:
        folder: where it writes.
        name: the name that the folder will have.
        labels: the classes.
        columns: the columns of the objects.
    """

    def __init__(self, folder: Path, name: str, labels: Sequence[str], columns: Collection[str]) -> None:
        self._folder = folder
        self._name = name
        self._labels = labels
        self._tasks: list[dict[str, Any]] = []
        self._points: dict[str, None] = {}
        self._has_polygons = bool({"mask", "corners"} & set(columns))

    def add(self, image: str, selected: SelectedFrame) -> None:
        """Add an image."""
        frame = selected.frame
        results = list(self._results(selected))
        scores = [annotation["score"] for annotation in results]
        self._tasks.append(
            {
                "data": {
                    "image": f"/data/local-files/?d={quote(f'{self._name}/{IMAGES}/{image}')}",
                    "source": selected.video,
                    "frame": frame.index,
                    "pts_s": round(frame.pts_s, 6),
                    **frame.facts,
                },
                "predictions": [
                    {
                        "model_version": "streamkit",
                        "score": round(float(np.mean(scores)), 4) if scores else 0.0,
                        "result": results,
                    }
                ],
            }
        )

    def finish(self) -> None:
        """Write both files."""
        (self._folder / "tasks.json").write_bytes(orjson.dumps(self._tasks, option=orjson.OPT_APPEND_NEWLINE))
        controls = [("RectangleLabels", "box", self._labels)]
        if self._has_polygons:
            controls.append(("PolygonLabels", "polygon", self._labels))
        if self._points:
            controls.append(("KeyPointLabels", "keypoint", list(self._points)))
        lines = ["<View>", '  <Image name="image" value="$image"/>']
        for tag, name, labels in controls:
            lines.append(f'  <{tag} name="{name}" toName="image">')
            lines += [f"    <Label value={quoteattr(label)}/>" for label in labels]
            lines.append(f"  </{tag}>")
        (self._folder / "label_config.xml").write_text("\n".join([*lines, "</View>", ""]), encoding="utf-8")

    def _results(self, selected: SelectedFrame) -> Iterator[dict[str, Any]]:
        """The regions of an image."""
        frame = selected.frame
        table = selected.frame.tables["objects"]
        size = np.array([frame.width, frame.height], np.float64)
        numbers = numbers_of(table, [frame])
        masks, corners, points = (table.extra.get(name) for name in ("mask", "corners", "keypoints"))
        ids = itertools.count(1)

        def region(kind: str, name: str, labels: Sequence[str], score: float, **value: Any) -> dict[str, Any]:
            return {
                "id": f"r{next(ids)}",
                "type": kind,
                "from_name": name,
                "to_name": "image",
                "image_rotation": 0,
                "original_width": frame.width,
                "original_height": frame.height,
                "score": score,
                "value": {**value, kind: list(labels)},
            }

        for row, label in enumerate(table.label):
            score = float(numbers[row, 4])
            polygons = [] if masks is None or masks[row] is None else outlines(masks[row])
            if not polygons and corners is not None and not np.isnan(corners[row]).any():
                polygons = [corners_of(corners[row].astype(np.float64))]
            for polygon in polygons:
                shares = np.clip(polygon / size * 100, 0, 100)
                yield region(
                    "polygonlabels", "polygon", [label], score, points=np.round(shares, 4).tolist(), closed=True
                )
            if not polygons:
                x, y = (numbers[row, :2] / size * 100).tolist()
                width, height = ((numbers[row, 2:4] - numbers[row, :2]) / size * 100).tolist()
                box = region("rectanglelabels", "box", [label], score, x=x, y=y, width=width, height=height, rotation=0)
                yield box
            if points is not None:
                names = self._point_names(selected, points.shape[1])
                for name, (x, y, sure) in zip(names, points_of(points[row].astype(np.float64)).tolist(), strict=True):
                    if sure > 0:  # not NaN
                        self._points.setdefault(name)
                        place = {"x": x / frame.width * 100, "y": y / frame.height * 100, "width": _SIZE}
                        yield region("keypointlabels", "keypoint", [name], sure, **place)

    def _point_names(self, selected: SelectedFrame, count: int) -> list[str]:
        skeleton = selected.frame.tables["objects"].skeleton
        names = list(skeleton.names) if skeleton is not None else []
        return names if len(names) == count else [f"point {number}" for number in range(1, count + 1)]
