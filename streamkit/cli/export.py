# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit export`: writes selected frames and their annotations for labeling tools and training."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from streamkit.cli.query import (
    DATASET,
    LIMIT,
    SQL,
    TIMEOUT,
    WHERE,
    opened_dataset,
    progress,
    report_missing,
    result_of,
)
from streamkit.core.errors import ConfigError
from streamkit.media.uris import is_path, local_path


@click.command(
    epilog="""\b
Examples:
  streamkit export out/archive --where "count_of('truck') >= 2" --format coco --out out/trucks
  streamkit export out/archive --where "count_of('person') > 0 AND frame % 50 = 0" --format yolo --out out/people
  streamkit export out/archive "SELECT key, frame FROM events WHERE kind = 'crossed'" --format cvat --out out/crossed
  streamkit export out/collected --where "reason = 'low_score'" --format label-studio --out out/tasks
"""
)
@DATASET
@SQL
@WHERE
@click.option(
    "--format",
    "form",
    type=click.Choice(["coco", "yolo", "cvat", "label-studio"]),
    required=True,
    help="coco: annotations/; yolo: labels/ and data.yaml; cvat: annotations.xml; "
    "label-studio: tasks.json and label_config.xml",
)
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, metavar="FOLDER", help="a new folder"
)
@click.option(
    "--images",
    "image_format",
    type=click.Choice(["jpg", "png"]),
    default="jpg",
    show_default=True,
    help="format of the images",
)
@click.option("--of", metavar="STAGE", help="objects of this detector only; for a folder of collect")
@LIMIT
@TIMEOUT
def export(
    dataset: str,
    sql: str | None,
    where: str | None,
    form: str,
    out: Path,
    image_format: str,
    of: str | None,
    limit: int | None,
    timeout: str,
) -> int:
    """Write selected frames and their objects for labeling tools and training.

    DATASET is the --out of `batch`, or a folder of the stage `collect`.

    Frames of a data set are selected as in `query`: by --where, or by a SELECT with the columns key and frame. The
    images are decoded from the original videos.

    Of a folder of `collect`, all images are exported, or those for which --where holds: a condition over the columns
    source, reason, collected, time, frame, pts_s, width, height and objects.
    """
    from streamkit.io.collected_folder import is_collected

    if is_path(dataset) and is_collected(folder := Path(local_path(dataset)).expanduser()):
        if sql is not None or image_format != "jpg":
            raise ConfigError(
                "a folder of collect is exported by --where, as the JPEG that it has; leave out "
                + ("the SELECT" if sql is not None else "--images png")
            )
        return _export_collected(folder, where, of, form, out, limit)
    if of is not None:
        raise ConfigError("--of is for a folder of the stage collect; select the objects of a data set by SQL")
    from streamkit.query.export import export as export_frames
    from streamkit.query.image_folder import check_new
    from streamkit.query.selected_frames import SelectedFrames, frame_columns, skeleton_of

    check_new(out)
    with opened_dataset(dataset, timeout) as (location, database, display):
        if sql is None and where is None:
            raise ConfigError(
                "give --where or a SELECT: they select the frames, such as --where \"count_of('car') > 0\""
            )
        rows = result_of(database, sql, where)
        key, frame = frame_columns(rows.columns)
        selected = ((row[key], row[frame]) for row in itertools.islice(rows, limit or None))
        frames = SelectedFrames(database, database.labels, skeleton_of(location), selected)
        count = export_frames(frames, database, out, form, image_format, progress(display, "frames"))
        display.log(f"{count:,} frames in {out}")
        return report_missing(display, frames.missing)


def _export_collected(folder: Path, where: str | None, of: str | None, form: str, out: Path, limit: int | None) -> int:
    """Write the images of a folder of `collect`."""
    from streamkit.cli.progress import open_display
    from streamkit.query.collected import CollectedImages, export_collected
    from streamkit.query.image_folder import check_new

    check_new(out)
    images = CollectedImages(folder, of)
    if where is not None:
        images.keep(where)
    images.lines = images.lines[: limit or None]
    display = open_display()
    count = export_collected(images, out, form, progress(display, "images"))
    display.log(f"{count:,} images in {out}")
    if images.left_out.images:
        display.log(f"{images.left_out.images:,} images are no longer in {folder} and are left out")
    if images.left_out.objects:
        many = f"{images.left_out.objects:,} objects that two detectors have found are exported once"
        display.log(f"{many}; --of {images.stages()[0]} exports those of one")
    return 0
