# SPDX-License-Identifier: Apache-2.0
"""Exports what the stage `collect` has collected, for labeling tools and training."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from streamkit.core.data import Detections, Frame, Skeleton
from streamkit.core.errors import ConfigError
from streamkit.io.collected_folder import LINES, read_classes, read_lines
from streamkit.ops.boxes import iou_matrix
from streamkit.query.annotations import IMAGES
from streamkit.query.export import DatasetFacts, annotation_writer
from streamkit.query.image_folder import new_folder
from streamkit.query.selected_frames import SelectedFrame, detections_of

_SAME_IOU = 0.5
_TEXT = ("image", "source", "reason", "collected", "time")
_NUMBERS = ("frame", "pts_s", "width", "height")


@dataclass(slots=True)
class LeftOut:
    """What an export leaves out.

    Attributes:
        images: lines whose image is no longer there.
        objects: objects that another detector has found as well.
    """

    images: int = 0
    objects: int = 0


@dataclass(slots=True)
class CollectedImages:
    """The images of a folder, with the objects that the pipeline found.

    Args:
        folder: the folder.
        of: the detector whose objects are exported; None for all, each object once.

    Attributes:
        lines: the lines of the images.
        left_out: what was left out so far.

    Raises:
        ConfigError: a line is damaged, nothing is collected yet, or there is no such detector.
    """

    folder: Path
    of: str | None = None
    lines: list[dict[str, Any]] = field(init=False)
    left_out: LeftOut = field(default_factory=LeftOut, init=False)

    def __post_init__(self) -> None:
        self.lines = []
        for number, line in read_lines(self.folder):
            if line is None:
                text = "is not a line of collect; restore or remove it"
                raise ConfigError(f"{self.folder / LINES}: line {number} {text}")
            self.lines.append(line)
        if not self.lines:
            raise ConfigError(f"{self.folder} has no images yet: nothing was collected")
        stages = self.stages()
        if self.of is not None and self.of not in stages:
            raise ConfigError(f"--of {self.of}: no objects come from it; there are {', '.join(stages) or 'none'}")

    def stages(self) -> list[str]:
        """The detectors whose objects are in the folder."""
        object_stages = (detection["stage"] for line in self.lines for detection in line["objects"])
        return list(dict.fromkeys([*read_classes(self.folder), *object_stages]))

    def keep(self, condition: str) -> None:
        """Leave out images for which a condition in SQL does not hold. Raises ConfigError."""
        chosen = _selected(self.lines, condition)
        self.lines = [line for line in self.lines if line["image"] in chosen]
        if not self.lines:
            raise ConfigError(f"--where {condition!r} selects none of the images in {self.folder}")

    def facts(self) -> DatasetFacts:
        """What annotation files say about all images."""
        objects = [
            detection for line in self.lines for detection in line["objects"] if self.of in (None, detection["stage"])
        ]
        points = max((len(detection["keypoints"]) for detection in objects if detection.get("keypoints")), default=0)
        labels = dict.fromkeys(
            [*self._labels(), *(detection.get("label") or str(detection["class_id"]) for detection in objects)]
        )
        return DatasetFacts(
            list(labels), {name for detection in objects for name in detection}, points, len(self.lines)
        )

    def __iter__(self) -> Iterator[SelectedFrame]:
        """Yield the images that are there: name with suffix, source, and a frame without pixels."""
        labels = self.facts().labels
        skeleton = self._skeleton()
        for line in self.lines:
            if not (self.folder / line["image"]).is_file():
                self.left_out.images += 1
                continue
            frame = Frame(line["source"], line["frame"], line["pts_s"], line["width"], line["height"])
            frame.facts = {name: line[name] for name in ("reason", "collected", "time") if name in line}
            frame.tables = {"objects": self._objects(line["objects"], labels, skeleton)}
            yield SelectedFrame(line["image"], line["source"], frame)

    def _labels(self) -> list[str]:
        classes_by_stage = read_classes(self.folder)
        return [
            label
            for stage, classes in classes_by_stage.items()
            if self.of in (None, stage)
            for label in classes["labels"]
        ]

    def _skeleton(self) -> Skeleton | None:
        for stage, classes in read_classes(self.folder).items():
            if self.of in (None, stage) and (skeleton := classes.get("skeleton")):
                return Skeleton(tuple(skeleton["names"]), tuple((a, b) for a, b in skeleton["edges"]))
        return None

    def _objects(
        self, objects: Sequence[Mapping[str, Any]], labels: Sequence[str], skeleton: Skeleton | None
    ) -> Detections:
        """The table of an image's objects."""
        selected = [detection for detection in objects if self.of in (None, detection["stage"])]
        columns: dict[str, list[Any]] = {
            name: [detection.get(name) for detection in selected]
            for name in ("score", "class_id", "label", "track_id", "keypoints", "corners", "mask")
        }
        columns |= {
            name: [detection["box"][i] for detection in selected] for i, name in enumerate(("x1", "y1", "x2", "y2"))
        }
        table = detections_of(columns, len(selected), labels, skeleton)
        first_rows = _first_of_each(table, [detection["stage"] for detection in selected])
        self.left_out.objects += len(table) - len(first_rows)
        return table[first_rows]


def export_collected(
    images: CollectedImages, folder: Path, form: str, on_progress: Callable[[int, int], None] = lambda done, all_: None
) -> int:
    """Write the images and their annotations into a new folder; return the number of images.

    Args:
        images: the images.
        folder: the folder, which appears when it is complete.
        form: one of `EXPORT_FORMATS`.
        on_progress: called with the number of images so far, and of all.

    Raises:
        ConfigError: the folder has something in it, or no image is left.
        OutputError: it cannot be written.
    """
    about = images.facts()
    with new_folder(folder) as part:
        (part / IMAGES).mkdir()
        writer = annotation_writer(form, part, folder.name, about)
        done = 0
        for selected in images:
            name = Path(selected.name).name
            shutil.copyfile(images.folder / selected.name, part / IMAGES / name)
            writer.add(name, selected)
            done += 1
            on_progress(done, about.images)
        if not done:
            raise ConfigError(f"none of the {about.images} images of {images.folder} is there any more")
        writer.finish()
    return done


def _first_of_each(table: Detections, stages: Sequence[str]) -> np.ndarray:
    """Return the rows without those that an earlier detector has, too: the same label, and an IoU of at least 0.5."""
    order = {stage: number for number, stage in enumerate(dict.fromkeys(stages))}
    rank = np.array([order[stage] for stage in stages], np.intp)
    same = np.array(table.class_id)[:, None] == table.class_id
    covered = (iou_matrix(table.xyxy, table.xyxy) >= _SAME_IOU) & same & (rank[None, :] < rank[:, None])
    return np.flatnonzero(~covered.any(axis=1))


def _selected(lines: Sequence[Mapping[str, Any]], condition: str) -> set[str]:
    """The images for which a condition holds. Raises ConfigError."""
    from streamkit.io.parquet_file import arrow
    from streamkit.query.index import duckdb

    duck = duckdb()
    pa = arrow()  # in the same extra as duckdb
    columns = {name: pa.array([line.get(name) for line in lines], pa.string()) for name in _TEXT}
    columns |= {name: pa.array([line[name] for line in lines], pa.float64()) for name in _NUMBERS}
    columns["objects"] = pa.array([len(line["objects"]) for line in lines], pa.int32())
    with duck.connect(config={"enable_external_access": "false"}) as database:
        database.register("images", pa.table(columns))
        try:
            rows = database.execute(f"SELECT image FROM images WHERE (\n{condition}\n)").fetchall()
        except duck.Error as error:
            text = " ".join(str(error).partition("\n\nLINE ")[0].split())
            column_names = ", ".join(columns)
            raise ConfigError(f"--where is wrong: {text}; the columns are {column_names}") from error
    return {image for (image,) in rows}
