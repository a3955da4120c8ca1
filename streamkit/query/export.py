# SPDX-License-Identifier: Apache-2.0
"""Exports selected frames with their annotations, for labeling tools and training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from streamkit.core.errors import ConfigError
from streamkit.query.annotations import IMAGES, AnnotationWriter, CocoAnnotations, CvatAnnotations, YoloAnnotations
from streamkit.query.database import Database
from streamkit.query.image_folder import Drawer, encode, new_folder
from streamkit.query.label_studio import LabelStudioAnnotations
from streamkit.query.selected_frames import SelectedFrames

EXPORT_FORMATS = ("coco", "yolo", "cvat", "label-studio")


def write_images(
    frames: SelectedFrames,
    folder: Path,
    image_format: str,
    *,
    draw: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, all_: None,
) -> int:
    """Write the images of frames into a new folder; return their number.

    Args:
        frames: the frames.
        folder: the folder, which appears when it is complete; not at all if no frame has pixels.
        image_format: one of `IMAGE_FORMATS`.
        draw: draw the objects.
        on_progress: called with the number of images so far, and of all frames.

    Raises:
        ConfigError: the folder has something in it, or no frame has pixels.
        OutputError: it cannot be written.
    """
    drawer = Drawer() if draw else None
    with new_folder(folder) as part:
        done = 0
        for selected in frames:
            if drawer is not None:
                drawer(selected.frame)
            (part / f"{selected.name}.{image_format}").write_bytes(encode(selected.frame, image_format))
            done += 1
            on_progress(done, frames.count)
        _check_some(done, frames)
    return done


def export(
    frames: SelectedFrames,
    database: Database,
    folder: Path,
    form: str,
    image_format: str,
    on_progress: Callable[[int, int], None] = lambda done, all_: None,
) -> int:
    """Write frames and their annotations into a new folder; return the number of frames.

    Args:
        frames: the frames.
        database: the data set's tables.
        folder: as for `write_images`, which also has the errors.
        form: one of `EXPORT_FORMATS`.
        image_format: one of `IMAGE_FORMATS`.
        on_progress: as for `write_images`.
    """
    columns = database.table("SELECT * FROM objects LIMIT 0").schema.names
    points = database.fetch("SELECT max(len(keypoints)) FROM objects")[0][0] if "keypoints" in columns else 0
    about = DatasetFacts(database.labels, columns, points or 0, frames.count)
    with new_folder(folder) as part:
        (part / IMAGES).mkdir()
        writer = annotation_writer(form, part, folder.name, about)
        done = 0
        for selected in frames:
            name = f"{selected.name}.{image_format}"
            (part / IMAGES / name).write_bytes(encode(selected.frame, image_format))
            writer.add(name, selected)
            done += 1
            on_progress(done, frames.count)
        writer.finish()
        _check_some(done, frames)
    return done


class DatasetFacts(NamedTuple):
    """What annotation files say about all images.

    Attributes:
        labels: the classes in the order of their ids.
        columns: the columns of the objects.
        points: number of keypoints of an object.
        images: number of images.
    """

    labels: Sequence[str]
    columns: Collection[str]
    points: int
    images: int


def annotation_writer(form: str, folder: Path, name: str, about: DatasetFacts) -> AnnotationWriter:
    """The writer of a format.

    Args:
        form: one of `EXPORT_FORMATS`.
        folder: where it writes.
        name: the name that the folder will have.
        about: the images.
    """
    if form == "coco":
        return CocoAnnotations(folder, about.labels)
    if form == "cvat":
        return CvatAnnotations(folder, about.labels, about.images)
    if form == "label-studio":
        return LabelStudioAnnotations(folder, name, about.labels, about.columns)
    return YoloAnnotations(folder, about.labels, about.columns, about.points)


def _check_some(done: int, frames: SelectedFrames) -> None:
    if done:
        return
    if not frames.count:
        raise ConfigError("the query selects no frame")
    video, cause = next(iter(frames.missing.causes.items()), ("", "its files are not in the data set"))
    raise ConfigError(f"none of the {frames.count:,} selected frames has an image: {video}: {cause}")
