# SPDX-License-Identifier: Apache-2.0
"""The format coco: one file of instances for each video, and a merged file of all."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import orjson

from streamkit.batch.formats import TextPart
from streamkit.core.data import Detections, Frame
from streamkit.core.errors import OutputError
from streamkit.core.records import corners_of, numbers_of, points_of
from streamkit.io.outputs import AtomicWriter
from streamkit.ops import rle

_HELD = 1 << 23  # bytes of images held in memory; more wait in a file


@dataclass(eq=False)
class CocoPart(TextPart):
    """COCO instances of one video; every processed frame is an image, with or without objects.

    Beside COCO's fields, an image has `video`, `frame_id` and `pts_s`, an annotation `score`, and `track_id` if it has
    one. Class ids follow the names: they are the same in all files of a data set.

    Attributes:
        path: the file, such as "out/coco/{source}.json".
        names: the name of each file, by its key.
        labels: the classes of the pipeline's models, in the order of the ids, from 1.
    """

    name: ClassVar[str] = "coco"

    labels: Sequence[str] = ()

    def begin(self) -> None:
        """Start the annotations; the images follow them."""
        self._instances = CocoInstances(self.labels)
        self._frames = 0
        self._images = tempfile.SpooledTemporaryFile(_HELD, dir=str(Path(self.path).parent))  # noqa: SIM115  # closed in close
        self.put(b'{"annotations":[')

    def write(self, frame: Frame) -> None:
        """Write the frame's image and annotations."""
        self._frames += 1
        image = {
            "id": self._frames,
            "file_name": f"{self._source}#{frame.index}",
            "width": frame.width,
            "height": frame.height,
            "video": self._source,
            "frame_id": frame.index,
            "pts_s": round(frame.pts_s, 6),
        }
        with self._file.out():
            self._images.write((b"," if self._frames > 1 else b"") + orjson.dumps(image))
        for annotation in self._instances.annotations(frame, self._frames):
            self.put((b"," if annotation["id"] > 1 else b"") + orjson.dumps(annotation))

    def finish(self) -> None:
        """Write the images and the categories."""
        self.put(b'],"images":[')
        self._images.seek(0)
        while block := self._images.read(1 << 16):
            self.put(block)
        self.put(b'],"categories":' + orjson.dumps(self._instances.categories()) + b"}\n")

    def close(self) -> None:
        """Discard an incomplete file."""
        super().close()
        self._images.close()


class CocoInstances:
    """The annotations and categories of a COCO file.

    Args:
        labels: the classes in the order of their ids, from 1; others are added as they occur.
    """

    def __init__(self, labels: Sequence[str]) -> None:
        self._ids = {label: number for number, label in enumerate(labels, 1)}
        self._points: dict[str, Any] = {}
        self._count = 0

    def categories(self) -> list[dict[str, Any]]:
        """The categories so far, with the names of keypoints if objects have some."""
        return [{"id": i, "name": name, **self._points.get(name, {})} for name, i in self._ids.items()]

    def annotations(self, frame: Frame, image: int) -> Iterator[dict[str, Any]]:
        """The objects of a frame, which is the image with this id."""
        for table in frame.tables.values():
            if len(table):
                yield from self._annotations(table, frame, image)

    def _annotations(self, table: Detections, frame: Frame, image: int) -> Iterator[dict[str, Any]]:
        numbers = numbers_of(table, [frame])
        sides = np.rint((numbers[:, 2:4] - numbers[:, :2]) * 100) / 100
        areas = np.rint(sides[:, 0] * sides[:, 1] * 100) / 100
        masks, points, corners = (table.extra.get(name) for name in ("mask", "keypoints", "corners"))
        tracks = None if table.track_id is None else table.track_id.tolist()
        for i, label in enumerate(table.label):
            self._count += 1
            mask = None if masks is None else masks[i]
            annotation = {
                "id": self._count,
                "image_id": image,
                "category_id": self._ids.setdefault(label, len(self._ids) + 1),
                "bbox": [*numbers[i, :2].tolist(), *sides[i].tolist()],
                "area": rle.area(mask) if mask is not None else float(areas[i]),
                "iscrowd": 0,
                "score": float(numbers[i, 4]),
            }
            if mask is not None:
                annotation["segmentation"] = mask
            elif corners is not None and not np.isnan(corners[i]).any():
                polygon = corners_of(corners[i].astype(np.float64))
                annotation["segmentation"] = [polygon.ravel().tolist()]
                annotation["area"] = _polygon_area(polygon)
            if points is not None and not np.isnan(points[i]).all():
                annotation.update(self._pose(points[i], label, table))
            if tracks is not None and tracks[i] != -1:
                annotation["track_id"] = tracks[i]
            yield annotation

    def _pose(self, points: np.ndarray, label: str, table: Detections) -> dict[str, Any]:
        """COCO's x, y and visibility of each point (2 if it was found), and separate scores."""
        if label not in self._points and table.skeleton is not None:
            edges = [[a + 1, b + 1] for a, b in table.skeleton.edges]
            self._points[label] = {"keypoints": list(table.skeleton.names), "skeleton": edges}
        seen = ~np.isnan(points).any(axis=1)
        rounded = np.where(seen[:, None], points_of(points.astype(np.float64)), 0.0)
        flat = [number for x, y, score in rounded.tolist() for number in (x, y, 2 if score > 0 else 0)]
        return {
            "keypoints": flat,
            "num_keypoints": sum(v > 0 for v in flat[2::3]),
            "keypoint_scores": rounded[:, 2].tolist(),
        }


def _polygon_area(corners: np.ndarray) -> float:
    """Return the area of a parallelogram of (4, 2) corners, rounded to 1/100."""
    ax, ay = corners[1] - corners[0]
    bx, by = corners[3] - corners[0]
    return round(abs(float(ax * by - ay * bx)), 2)


def merge(files: Sequence[Path], path: Path) -> None:
    """Merge the files of several videos: ids are renumbered, classes matched by name.

    One file is in memory at a time.

    Args:
        files: in the order of the result.
        path: the merged file, which appears when it is complete.

    Raises:
        OutputError: it cannot be written, or one of the files cannot be read.
    """
    classes: dict[str, dict[str, Any]] = {}
    for file in files:
        for category in _read(file)["categories"]:
            merged_category = classes.setdefault(category["name"], {**category, "id": len(classes) + 1})
            merged_category.update({key: value for key, value in category.items() if key != "id"})
    with AtomicWriter(path, lambda part: part.open("wb")) as merged, merged.out() as out:
        out.write(b'{"images":[')
        _write(out, _images(files))
        out.write(b'],"annotations":[')
        _write(out, _annotations(files, classes))
        out.write(b'],"categories":' + orjson.dumps(list(classes.values())) + b"}\n")


def _write(out: Any, values: Iterator[dict[str, Any]]) -> None:
    for number, value in enumerate(values):
        out.write((b",\n" if number else b"\n") + orjson.dumps(value))


def _images(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    before = 0
    for file in files:
        images = _read(file)["images"]
        for image in images:
            yield {**image, "id": image["id"] + before}
        before += len(images)


def _annotations(files: Sequence[Path], classes: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    images = count = 0
    for file in files:
        whole = _read(file)
        new = {category["id"]: classes[category["name"]]["id"] for category in whole["categories"]}
        for annotation in whole["annotations"]:
            count += 1
            yield {
                **annotation,
                "id": count,
                "image_id": annotation["image_id"] + images,
                "category_id": new[annotation["category_id"]],
            }
        images += len(whole["images"])


def _read(file: Path) -> dict[str, Any]:
    try:
        instances: dict[str, Any] = orjson.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise OutputError(f"cannot read {file}: {error}") from error
    return instances
