# SPDX-License-Identifier: Apache-2.0
"""The command `run.py export`: writes selected frames and their annotations for labelling tools and training."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from streamkit.cli.query import DATASET, LIMIT, SQL, WHERE, opened_dataset, progress, report_missing, result_of
from streamkit.core.errors import ConfigError


@click.command(
    epilog="""\b
Examples:
  streamkit export out/archive --where "count_of('truck') >= 2" --format coco --out out/trucks
  streamkit export out/archive --where "count_of('person') > 0 AND frame % 50 = 0" --format yolo --out out/people
  streamkit export out/archive "SELECT key, frame FROM events WHERE kind = 'crossed'" --format cvat --out out/crossed
"""
)
@DATASET
@SQL
@WHERE
@click.option("--format", "form", type=click.Choice(["coco", "yolo", "cvat"]), required=True,
              help="coco: annotations.json; yolo: labels/ and data.yaml; cvat: annotations.xml")  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), required=True, metavar="FOLDER", help="a new folder"
)
@click.option("--images", "image_format", type=click.Choice(["jpg", "png"]), default="jpg", show_default=True,
              help="format of the images")  # fmt: skip
@LIMIT
def export(
    dataset: str, sql: str | None, where: str | None, form: str, out: Path, image_format: str, limit: int | None
) -> int:  # fmt: skip
    """Write selected frames and their objects for labelling tools and training.

    Frames are selected as in `query`: by --where, or by a SELECT with the columns key and frame. The images are decoded
    from the original videos.
    """
    from streamkit.query.export import export as export_frames
    from streamkit.query.image_folder import check_new
    from streamkit.query.selected_frames import SelectedFrames, frame_columns, skeleton_of

    if sql is None and where is None:
        raise ConfigError("give --where or a SELECT: they select the frames, such as --where \"count_of('car') > 0\"")
    check_new(out)
    with opened_dataset(dataset) as (location, database, display):
        rows = result_of(database, sql, where)
        key, frame = frame_columns(rows.columns)
        found = ((row[key], row[frame]) for row in itertools.islice(rows, limit or None))
        frames = SelectedFrames(database, database.labels, skeleton_of(location), found)
        count = export_frames(frames, database, out, form, image_format, progress(display, "frames"))
        display.log(f"{count:,} frames in {out}")
        return report_missing(display, frames.missing)
