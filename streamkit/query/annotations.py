# SPDX-License-Identifier: Apache-2.0
"""Annotation files of selected frames: COCO, YOLO, and CVAT for images."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from xml.etree import ElementTree

import numpy as np
import orjson
import yaml

from streamkit.batch.coco import CocoInstances
from streamkit.core.data import Detections
from streamkit.core.records import corners_of, numbers_of, points_of
from streamkit.ops import rle
from streamkit.query.selected_frames import SelectedFrame

IMAGES = "images"


class AnnotationWriter(Protocol):
    """Writes the annotations of a folder of images."""

    def add(self, image: str, selected: SelectedFrame) -> None:
        """Add an image: the name of its file in `images/`, and its frame with the table `objects`."""

    def finish(self) -> None:
        """Complete the files; there are no more images."""


class CocoAnnotations:
    """`annotations/instances_default.json`: COCO's instances, with masks, keypoints and rotated boxes as polygons.

    Args:
        folder: the export's folder.
        labels: the classes in the order of their ids, from 1.
    """

    def __init__(self, folder: Path, labels: Sequence[str]) -> None:
        self._path = folder / "annotations" / "instances_default.json"
        self._instances = CocoInstances(labels)
        self._images: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []

    def add(self, image: str, selected: SelectedFrame) -> None:
        """Add an image."""
        frame = selected.frame
        number = len(self._images) + 1
        self._images.append(
            {
                "id": number,
                "file_name": image,
                "width": frame.width,
                "height": frame.height,
                "video": selected.video,
                "frame_id": frame.index,
                "pts_s": round(frame.pts_s, 6),
                **frame.facts,
            }
        )
        self._annotations += self._instances.annotations(frame, number)

    def finish(self) -> None:
        """Write the file."""
        whole = {"images": self._images, "annotations": self._annotations, "categories": self._instances.categories()}
        self._path.parent.mkdir()
        self._path.write_bytes(orjson.dumps(whole) + b"\n")


class YoloAnnotations:
    """`labels/*.txt` and `data.yaml`, for one task: the most detailed that the data set has values for.

    Rotated boxes (obb) come before masks (segment), keypoints (pose) and boxes (detect). An object without a mask is
    written as the polygon of its box, one without keypoints with points that are not labeled.

    Args:
        folder: the export's folder.
        labels: the classes in the order of their ids, from 0.
        columns: the columns of the table of objects.
        points: number of keypoints of an object.
    """

    def __init__(self, folder: Path, labels: Sequence[str], columns: Collection[str], points: int) -> None:
        self._folder = folder
        self._labels = labels
        self._points = points
        tasks = {"corners": _rotated_box, "mask": _outline, "keypoints": self._pose}
        self._shape = next((shape for column, shape in tasks.items() if column in columns), _box)
        self._is_pose = self._shape == self._pose
        (folder / "labels").mkdir()

    def add(self, image: str, selected: SelectedFrame) -> None:
        """Write the label file of an image."""
        frame = selected.frame
        table = selected.frame.tables["objects"]
        size = np.array([frame.width, frame.height], np.float64)
        lines = []
        boxes = numbers_of(table, [frame])[:, :4]
        for row, number in enumerate(table.class_id.tolist()):
            values = self._shape(table, row, boxes[row], size)
            lines.append(" ".join([str(number), *(f"{value:.6f}".rstrip("0").rstrip(".") for value in values)]) + "\n")
        (self._folder / "labels" / f"{Path(image).stem}.txt").write_text("".join(lines), encoding="ascii")

    def finish(self) -> None:
        """Write data.yaml."""
        about: dict[str, Any] = {"path": ".", "train": IMAGES, "val": IMAGES, "names": dict(enumerate(self._labels))}
        if self._is_pose:
            about["kpt_shape"] = [self._points, 3]
        text = yaml.safe_dump(about, sort_keys=False, allow_unicode=True)
        (self._folder / "data.yaml").write_text(text, encoding="utf-8")

    def _pose(self, table: Detections, row: int, box: np.ndarray, size: np.ndarray) -> list[float]:
        """The box, and x, y and visibility (0, or 2) of each keypoint."""
        points = np.zeros((self._points, 3))
        column = table.extra.get("keypoints")
        if column is not None:
            keypoints = column[row].astype(np.float64)
            seen = np.flatnonzero(keypoints[:, 2] > 0)  # not NaN
            points[seen] = np.hstack([np.clip(keypoints[seen, :2] / size, 0, 1), np.full((len(seen), 1), 2.0)])
        return [*_box(table, row, box, size), *points.ravel().tolist()]


def _box(table: Detections, row: int, box: np.ndarray, size: np.ndarray) -> list[float]:
    """The center, width and height of a box as shares of the frame."""
    low = box[:2] / size
    high = box[2:] / size
    return [*((low + high) / 2).tolist(), *(high - low).tolist()]


def _rotated_box(table: Detections, row: int, box: np.ndarray, size: np.ndarray) -> list[float]:
    """The four corners."""
    corners = table.extra.get("corners")
    if corners is None or np.isnan(corners[row]).any():
        return _corners_of_box(box, size)
    return _shares(corners[row].astype(np.float64), size)


def _outline(table: Detections, row: int, box: np.ndarray, size: np.ndarray) -> list[float]:
    """The outline of the largest part of a mask."""
    masks = table.extra.get("mask")
    mask = None if masks is None else masks[row]
    longest = max(outlines(mask), key=_polygon_area, default=None) if mask is not None else None
    return _corners_of_box(box, size) if longest is None else _shares(longest, size)


def outlines(mask: rle.Rle) -> list[np.ndarray]:
    """The outlines of the parts of a mask, each (n, 2) x and y in pixels; parts of a few pixels are left out."""
    import cv2

    part, left, top = rle.crop(mask)
    contours, _ = cv2.findContours(part.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return [contour[:, 0] + (left + 0.5, top + 0.5) for contour in contours if len(contour) >= 3]


def _polygon_area(points: np.ndarray) -> float:
    import cv2

    return float(cv2.contourArea(points.astype(np.float32)))


def _shares(points: np.ndarray, size: np.ndarray) -> list[float]:
    shares: list[float] = np.clip(points / size, 0, 1).ravel().tolist()
    return shares


def _corners_of_box(box: np.ndarray, size: np.ndarray) -> list[float]:
    x1, y1, x2, y2 = (box.reshape(2, 2) / size).ravel().tolist()
    return [x1, y1, x2, y1, x2, y2, x1, y2]


_END = "</annotations>"


class CvatAnnotations:
    """`annotations.xml`: CVAT for images 1.1.

    An object is a mask, a rotated box as a polygon, or a box; its keypoints are points of the same label. Score and
    track are attributes.

    Args:
        folder: the export's folder.
        labels: the classes.
        count: number of frames that are selected.
    """

    def __init__(self, folder: Path, labels: Sequence[str], count: int) -> None:
        self._path = folder / "annotations.xml"
        attribute = [("mutable", "False"), ("input_type", "text"), ("default_value", ""), ("values", "")]
        attributes = [
            _element("attribute", _element("name", name), *(_element(key, text) for key, text in attribute))
            for name in ("score", "track_id")
        ]
        classes = [_element("label", _element("name", label), _element("attributes", *attributes)) for label in labels]
        task = [_element("name", "streamkit"), _element("size", str(count)), _element("mode", "annotation")]
        meta = _element("meta", _element("task", *task, _element("labels", *classes)))
        self._head = _xml(_element("annotations", _element("version", "1.1"), meta)).removesuffix(_END)
        self._images: list[str] = []

    def add(self, image: str, selected: SelectedFrame) -> None:
        """Add an image's element."""
        frame = selected.frame
        table = frame.tables["objects"]
        numbers = numbers_of(table, [frame])
        shapes = [shape for row, label in enumerate(table.label) for shape in _cvat_shapes(table, row, label, numbers)]
        size = {"width": frame.width, "height": frame.height}
        self._images.append(_xml(_element("image", *shapes, id=len(self._images), name=image, **size)))

    def finish(self) -> None:
        """Write the file."""
        lines = ['<?xml version="1.0" encoding="utf-8"?>', self._head.rstrip(), *self._images, _END, ""]
        self._path.write_text("\n".join(lines), encoding="utf-8")


def _element(tag: str, *content: ElementTree.Element | str, **attributes: object) -> ElementTree.Element:
    """An XML element with a text, or with elements in it."""
    element = ElementTree.Element(tag, {name: str(attribute) for name, attribute in attributes.items()})
    element.text = "".join(text for text in content if isinstance(text, str))
    element.extend(child for child in content if not isinstance(child, str))
    return element


def _xml(element: ElementTree.Element) -> str:
    """An element as text, a line for each element in it."""
    ElementTree.indent(element, "")
    return ElementTree.tostring(element, "unicode")


def _cvat_shapes(table: Detections, row: int, label: str, numbers: np.ndarray) -> Iterator[ElementTree.Element]:
    """The shape of an object, and its keypoints."""
    masks, corners, points = (table.extra.get(name) for name in ("mask", "corners", "keypoints"))
    attributes = [_element("attribute", f"{numbers[row, 4]:.4g}", name="score")]
    if table.track_id is not None and table.track_id[row] != -1:
        attributes.append(_element("attribute", str(int(table.track_id[row])), name="track_id"))

    def shape(kind: str, **geometry: Any) -> ElementTree.Element:
        return _element(kind, *attributes, label=label, source="auto", occluded=0, **geometry, z_order=0)

    if masks is not None and masks[row] is not None and rle.area(masks[row]):
        yield shape("mask", **_cvat_mask(masks[row]))
    elif corners is not None and not np.isnan(corners[row]).any():
        yield shape("polygon", points=_cvat_points(corners_of(corners[row].astype(np.float64))))
    else:
        sides = (f"{side:.2f}" for side in numbers[row, :4])
        yield shape("box", **dict(zip(("xtl", "ytl", "xbr", "ybr"), sides, strict=True)))
    if points is not None:
        keypoints = points_of(points[row].astype(np.float64))
        visible = keypoints[keypoints[:, 2] > 0]
        if len(visible):
            yield shape("points", points=_cvat_points(visible[:, :2]))


def _cvat_points(points: np.ndarray) -> str:
    return ";".join(f"{x:.2f},{y:.2f}" for x, y in points.tolist())


def _cvat_mask(mask: rle.Rle) -> dict[str, Any]:
    """CVAT's mask: the lengths of runs of 0 and 1, row by row, within the part that it covers; the first is of 0."""
    part, left, top = rle.crop(mask)
    flat = np.concatenate([[False], part.ravel(), [not part.ravel()[-1]]]) if part.size else np.array([False, True])
    edges = np.flatnonzero(flat[1:] != flat[:-1])
    counts = np.diff(np.concatenate([[0], edges]))
    height, width = part.shape
    return {"rle": ", ".join(map(str, counts.tolist())), "left": left, "top": top, "width": width, "height": height}
