# SPDX-License-Identifier: Apache-2.0
"""Determines the files to process, and commits their results to the data set's folder.

A file's row in `files` is written last: a file is done when its row exists. Parts without a row, left by a crash, are
removed.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from streamkit.batch.coco import merge
from streamkit.batch.folder import Folder, manifest
from streamkit.batch.identity import file_key, pipeline_identity
from streamkit.batch.job import BatchJob, BatchSettings, Outcome, VideoFile, printable
from streamkit.batch.parts import FILES, MERGED, existing_parts, parts, row_path, unlink
from streamkit.batch.pipeline import recorded
from streamkit.batch.remote import sweep
from streamkit.batch.tables import files_schema, tables_of
from streamkit.config.plan import Graph
from streamkit.core.errors import OutputError
from streamkit.io.outputs import fsync_folders, writing
from streamkit.io.parquet_file import TableFile, arrow
from streamkit.media.uris import is_path, local_path


@dataclass(frozen=True, slots=True)
class Work:
    """What a run is to do in its folder, which is locked meanwhile.

    Attributes:
        jobs: the remaining files.
        done: number of files that were done before.
        failed: number of files that failed before.
        broken: number of files that were done before, but whose parts are no longer whole; they count as not done.
        commit: records the result of a file.
        finish: writes the file that is made from all files.
    """

    jobs: list[BatchJob]
    done: int
    failed: int
    broken: int
    commit: Callable[[Outcome], None]
    finish: Callable[[], None]


@contextmanager
def opened(
    graph: Graph,
    settings: BatchSettings,
    files: Sequence[VideoFile],
    *,
    overwrite: bool = False,
    retry_failed: bool = False,
) -> Iterator[Work]:
    """Open and lock the folder of a run for the duration of the block, and determine the remaining files.

    Args:
        graph: the pipeline's own graph.
        settings: the output folder and formats.
        files: the files found.
        overwrite: start over if another pipeline filled the folder.
        retry_failed: also process files again that failed before.

    Raises:
        ConfigError: the folder belongs to another pipeline or is no data set, or another run uses it.
        OutputError: it cannot be written.
    """
    with open_folder(graph, settings, overwrite=overwrite) as folder:
        sweep(settings.out)
        done = folder.done()
        failed = folder.failed()
        paths = folder.paths()
        jobs = _jobs(folder.pipeline, paths, files, done)
        for key in _outdated(paths, jobs, done):
            folder.clear(key)
        if retry_failed:
            failed = set()
        left = [job for job in jobs if job.key not in done and job.key not in failed]
        yield Work(
            left,
            sum(job.key in done for job in jobs),
            sum(job.key in failed for job in jobs),
            len(folder.broken),
            partial(commit, settings),
            partial(_finish, settings),
        )


def _jobs(pipeline: str, paths: Mapping[str, str], files: Sequence[VideoFile], done: set[str]) -> list[BatchJob]:
    """A job for each file, with the key that the folder has for it."""
    done_at = {paths[key]: key for key in done}
    jobs = []
    for file in files:
        key, path_key = (file_key(file, pipeline, path=path) for path in (False, True))
        if file.missing:  # its content is unknown: a done file stays done
            key = done_at.get(printable(file.uri), key)
        elif path_key in paths or (key in paths and _another(file, paths[key])):
            key = path_key
        jobs.append(BatchJob(file, key))
    return jobs


def _another(file: VideoFile, path: str) -> bool:
    """Whether a row belongs to another file with the same name, size and time; if that is gone, it was moved here."""
    if path in ("", printable(file.uri)) or not is_path(file.uri):
        return False
    try:
        return not os.path.samefile(local_path(file.uri), path)
    except OSError:
        return False


def _outdated(paths: Mapping[str, str], jobs: Sequence[BatchJob], done: set[str]) -> list[str]:
    """Keys of files that the folder has in another version or under another name, and of folders that no longer fail.

    A done file that is missing now is not outdated: its job has its key.
    """
    now = {job.key for job in jobs}
    files = {printable(job.file.uri) for job in jobs}
    above = {str(parent) for file in files if is_path(file) for parent in Path(file).parents}
    return sorted(
        key for key, path in paths.items() if key not in now and (path in files or (path in above and key not in done))
    )


def _finish(settings: BatchSettings) -> None:
    """Write one COCO file for all videos, as COCO's readers expect."""
    if "coco" in settings.formats:
        merge(sorted((settings.out / "coco").glob("*.json")), settings.out / MERGED)


# ------------------------------------------------------------------------------------------------------------ commit


def open_folder(graph: Graph, settings: BatchSettings, *, overwrite: bool = False) -> Folder:
    """Lock the folder of a pipeline's data set until it is closed, and make every table readable in it.

    Raises:
        ConfigError: the folder belongs to another pipeline or is no data set, or another run uses it.
        OutputError: it cannot be written.
    """
    arrow()
    folder = Folder(settings.out, pipeline_identity(graph, settings), overwrite=overwrite)
    empty = {FILES: files_schema()}
    if "parquet" in settings.formats:
        empty.update(tables_of(recorded(graph)).schemas())
    try:
        for name, schema in empty.items():
            with TableFile(settings.out / name / "empty.parquet", schema) as file:
                file.write(schema.empty_table())
    except OutputError:
        folder.close()
        raise
    return folder


def commit(settings: BatchSettings, outcome: Outcome) -> None:
    """Write a file's row, which makes it done or failed for good; nothing else of a failed file is kept.

    The parts are synced to disk before the row, so that this holds after a power failure too.

    Raises:
        OutputError: the row cannot be written.
    """
    if outcome.status == "failed":
        unlink(existing_parts(settings, outcome.job.key))
    else:
        fsync_folders(dict.fromkeys(path.parent for path in parts(settings, outcome.job.key) if path.parent.is_dir()))
    schema = files_schema()
    with TableFile(row_path(settings.out, outcome.job.key), schema) as file:
        file.write(arrow().Table.from_pylist([_row(settings, outcome)], schema))


def _row(settings: BatchSettings, outcome: Outcome) -> dict[str, Any]:
    job = outcome.job
    facts = outcome.facts
    description = manifest(settings.out)
    models = description["identity"]["models"]
    with writing(settings.out):
        parts_bytes = sum(path.stat().st_size for path in existing_parts(settings, job.key))
    return {
        "key": job.key,
        "source": job.file.name,
        "path": printable(job.file.uri),
        "size": job.file.size,
        "version": job.file.version,
        "status": outcome.status,
        "cause": outcome.cause or None,
        "cause_kind": outcome.cause_kind or None,
        "frames": outcome.frames,
        "objects": outcome.objects,
        "processed_s": outcome.duration_s,
        **{name: facts.get(name) for name in ("codec", "width", "height", "duration_s")},
        "fps": None if facts.get("fps") is None else float(facts["fps"]),
        "frames_in_file": facts.get("frames"),
        "frames_failed": facts.get("failed_frames"),
        "frames_damaged": facts.get("damaged_frames"),
        "concealed_errors": facts.get("concealed_errors"),
        "parts_bytes": parts_bytes,
        "pipeline": description["pipeline"],
        "models": [{"name": name, "sha256": model["sha256"]} for name, model in models.items()],
        "streamkit": description["identity"]["streamkit"],
        "attempts": job.attempt,
        "seconds": outcome.seconds,
        "finished_at": datetime.datetime.now(datetime.UTC),
    }
