# SPDX-License-Identifier: Apache-2.0
"""The command `streamkit query`: asks questions of the data set that `batch` writes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from streamkit.cli.common import echo
from streamkit.core.errors import ConfigError
from streamkit.core.units import seconds

if TYPE_CHECKING:
    from streamkit.cli.progress import Display
    from streamkit.query.database import Database, Rows
    from streamkit.query.dataset_location import DatasetLocation
    from streamkit.query.selected_frames import MissingFrames

_EVERY_S = 5.0

DATASET = click.argument("dataset")
SQL = click.argument("sql", required=False)
WHERE = click.option(
    "--where", metavar="CONDITION", help="a condition for frames in place of SQL, such as \"count_of('truck') >= 2\""
)
TIMEOUT = click.option(
    "--timeout", default="10min", show_default=True, metavar="DURATION", help="how long the query may take"
)
LIMIT = click.option(
    "--limit", type=click.IntRange(min=0), metavar="N", help="rows at most; by default a table shows 50"
)


@click.command(
    epilog="""\b
Examples:
  streamkit query out/archive
  streamkit query out/archive --where "count_of('truck') >= 2 AND count_of('person') = 0"
  streamkit query out/archive "SELECT label, count(*) FROM objects GROUP BY label"
  streamkit query out/archive --where "count_of('car', 0.8) > 5" --pictures out/found --draw
  streamkit query out/archive --like "red van" --pictures out/found
  streamkit query out/archive "SELECT * FROM events WHERE kind = 'crossed'" --out crossed.csv
"""
)
@DATASET
@SQL
@WHERE
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    help="of the result; by default that of --out, or a table",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="write the result to a file")
@LIMIT
@click.option(
    "--like", metavar="TEXT|IMAGE", help="rank tracks by how well a text, or an image file, describes their best view"
)
@click.option("--model", metavar="CARD", help="the card for --like; by default the one that embedded the data set")
@click.option(
    "--pictures",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="also write the image of each frame of the result into a new folder",
)
@click.option("--draw", is_flag=True, help="draw the objects on the images of --pictures")
@TIMEOUT
def query(
    dataset: str,
    sql: str | None,
    where: str | None,
    form: str | None,
    out: Path | None,
    limit: int | None,
    like: str | None,
    model: str | None,
    pictures: Path | None,
    draw: bool,
    timeout: str,
) -> int:
    """Ask questions of the data set that `batch` writes.

    DATASET is its folder or address. SQL is a SELECT over the tables files, frames, objects and events; --where is a
    short form for frames. Without both, the tables, their columns and the labels are shown.

    --like ranks the tracks of a pipeline with embed and record: best; with --where, those whose best view is on such a
    frame; with a SELECT, the table tracks has the column likeness.

    count_of('truck') is the number of trucks on a frame, count_of('truck', 0.6) of those with at least this score. The
    first query makes an index, which later ones keep up to date.
    """
    from streamkit.query import result_files
    from streamkit.query.image_folder import check_new

    if draw and pictures is None:
        raise ConfigError("--draw needs --pictures FOLDER")
    if model is not None and like is None:
        raise ConfigError("--model is for --like: add --like TEXT")
    if sql is None and where is None and like is None:
        if pictures or out or form:
            raise ConfigError("give a SELECT, --where or --like: without them the tables are shown")
        return _overview(dataset)
    chosen = result_files.format_of(form, out)
    if pictures is not None:
        check_new(pictures)
    with opened_dataset(dataset, timeout) as (location, database, display):
        rows = (
            result_of(database, sql, where)
            if like is None
            else _like(location, database, sql, where, limit, like, model)
        )
        places = _places(rows, pictures)
        frames: list[tuple[str, int]] = []
        with result_files.opened(chosen, out, rows.schema, limit) as file:
            for row in itertools.islice(rows, limit or None):
                file.add(row)
                if places is not None:
                    frames.append((row[places[0]], row[places[1]]))
        if pictures is None:
            return 0
        return _pictures(location, database, display, frames, pictures, draw)


def result_of(database: Database, sql: str | None, where: str | None) -> Rows:
    """The result of the command's SQL or condition. Raises ConfigError."""
    if sql is not None and where is not None:
        raise ConfigError("give a SELECT or --where, not both; a SELECT has its own WHERE")
    return database.where(where or "") if sql is None else database.query(sql)


def _like(
    location: DatasetLocation,
    database: Database,
    sql: str | None,
    where: str | None,
    limit: int | None,
    like: str,
    model: str | None,
) -> Rows:
    """The tracks that are like a text or an image. Raises ConfigError."""
    from streamkit.query.likeness import LIKE_ROWS, vector_of

    if sql is not None and where is not None:
        raise ConfigError("give a SELECT or --where, not both; a SELECT has its own WHERE")
    return database.like(vector_of(location, like, model), sql, where, LIKE_ROWS if limit is None else limit)


@contextmanager
def opened_dataset(dataset: str, timeout: str = "0s") -> Iterator[tuple[DatasetLocation, Database, Display]]:
    """A data set, its tables, and the display for messages.

    Args:
        dataset: its folder or address.
        timeout: how long a query may take; 0s for no limit.

    Raises:
        ConfigError: it is no data set, or the timeout is no duration.
    """
    from streamkit.cli.progress import open_display
    from streamkit.query.database import FRAMES_WITHOUT_ROWS, Database
    from streamkit.query.dataset_location import DatasetLocation
    from streamkit.query.index import duckdb, index_of
    from streamkit.query.selected_frames import labels_of

    duckdb()  # its extra has everything else, too
    try:
        timeout_s = seconds(timeout) or math.inf
    except ValueError as error:
        raise ConfigError(f"--timeout {error}") from None
    display = open_display()
    location = DatasetLocation(dataset)
    index = index_of(location, progress(display, "files added to the index"))
    with Database(index, labels_of(location), timeout_s) as database:
        (short,) = database.fetch(FRAMES_WITHOUT_ROWS)[0]
        if short:
            display.log(
                f"files whose processing kept no table of frames: {short:,}; only their frames with objects or events "
                "are found, and batch --overwrite processes them again"
            )
        yield location, database, display


def progress(display: Display, what: str) -> Callable[[int, int], None]:
    """A callback that shows `done of all` every five seconds."""
    import time

    last_s = time.monotonic()

    def show(done: int, all_: int) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= _EVERY_S:
            last_s = time.monotonic()
            display.log(f"{done:,} of {all_:,} {what}")

    return show


def report_missing(display: Display, missing: MissingFrames) -> int:
    """Name the videos whose frames could not be read; return the exit code."""
    if not missing.frames:
        return 0
    display.log(f"{missing.frames:,} frames of {len(missing.causes):,} videos could not be read:")
    for video, cause in missing.causes.items():
        display.log(f"  {video}: {cause}")
    return 1


def _places(rows: Rows, pictures: Path | None) -> tuple[int, int] | None:
    from streamkit.query.selected_frames import frame_columns

    return None if pictures is None else frame_columns(rows.columns)


def _pictures(
    location: DatasetLocation,
    database: Database,
    display: Display,
    selected: list[tuple[str, int]],
    folder: Path,
    draw: bool,
) -> int:
    from streamkit.query.export import write_images
    from streamkit.query.selected_frames import SelectedFrames, skeleton_of

    frames = SelectedFrames(database, database.labels, skeleton_of(location), selected)
    count = write_images(frames, folder, "jpg", draw=draw, on_progress=progress(display, "images"))
    display.log(f"{count:,} images in {folder}")
    return report_missing(display, frames.missing)


def _overview(dataset: str) -> int:
    """Show the tables with their columns, and the labels."""
    from streamkit.query.dataset_location import TABLES

    with opened_dataset(dataset) as (_, database, _):
        tracks = database.fetch("SELECT table_name FROM duckdb_tables() WHERE table_name = 'tracks'")
        for table in (*TABLES, *(name for (name,) in tracks)):
            (count,) = database.fetch(f"SELECT count(*) FROM {table}")[0]
            columns = database.fetch("SELECT column_name FROM duckdb_columns() WHERE table_name = ?", table)
            echo(f"{table:8} {count:12,} rows   {', '.join(name for (name,) in columns)}")
        counts = dict(database.fetch("SELECT coalesce(label, class_id::TEXT), count(*) FROM objects GROUP BY ALL"))
        by_count = sorted(counts, key=lambda label: -counts[label])
        shown = ", ".join(f"{label} {counts[label]:,}" for label in by_count)
        echo(f"labels   {shown or 'no object was found'}")
    return 0
