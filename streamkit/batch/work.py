"""Determines the files to process: those that were found, without those that the folder has as done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.batch.job import BatchJob, BatchSettings, Outcome, VideoFile, printable
from streamkit.batch.parts import TOGETHER
from streamkit.media.uris import is_path, local_path

if TYPE_CHECKING:
    from streamkit.config.plan import Graph


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
    from streamkit.batch.dataset_commit import commit, open_folder
    from streamkit.batch.fetch import sweep

    with closing(open_folder(graph, settings, overwrite=overwrite)) as folder:
        sweep(settings.out)
        done, failed = folder.done(), folder.failed()
        paths = folder.paths()
        jobs = _jobs(folder.pipeline, paths, files, done)
        for key in _outdated(paths, jobs, done):
            folder.clear(key)
        if retry_failed:
            failed = set()
        left = [job for job in jobs if job.key not in done and job.key not in failed]
        yield Work(
            left, sum(job.key in done for job in jobs), sum(job.key in failed for job in jobs),
            len(folder.broken),
            lambda outcome: commit(settings, outcome), lambda: _finish(settings),
        )  # fmt: skip


def _jobs(pipeline: str, paths: Mapping[str, str], files: Sequence[VideoFile], done: set[str]) -> list[BatchJob]:
    """A job for each file, with the key that the folder has for it."""
    from streamkit.batch.identity import file_key

    done_at = {paths[key]: key for key in done}
    jobs = []
    for file in files:
        key, own = (file_key(file, pipeline, path=path) for path in (False, True))
        if file.gone:  # says nothing of its content: what is done stays done
            key = done_at.get(printable(file.uri), key)
        elif own in paths or (key in paths and _another(file, paths[key])):
            key = own
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
        key for key, path in paths.items()
        if key not in now and (path in files or (path in above and key not in done))
    )  # fmt: skip


def _finish(settings: BatchSettings) -> None:
    """Write one COCO file for all videos, as COCO's readers expect."""
    if "coco" in settings.formats:
        from streamkit.batch.coco import merge

        merge(sorted((settings.out / "coco").glob("*.json")), settings.out / TOGETHER)
