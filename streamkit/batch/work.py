"""What is to be done: the files that were found, less what the folder says is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.batch.job import Job, Outcome, Settings, VideoFile, printable
from streamkit.batch.parts import TOGETHER
from streamkit.media.uris import is_path, local_path

if TYPE_CHECKING:
    from streamkit.plan import Graph


@dataclass(frozen=True, slots=True)
class Work:
    """What a run is to do in its folder, which is locked meanwhile.

    Attributes:
        jobs: the files that are left.
        done: how many had been done before.
        failed: how many had been put aside before.
        broken: how many had been done before and count as not done, since their parts are no longer whole.
        commit: writes down how a file went.
        finish: makes what is made of all files together.
    """

    jobs: list[Job]
    done: int
    failed: int
    broken: int
    commit: Callable[[Outcome], None]
    finish: Callable[[], None]


@contextmanager
def opened(
    graph: Graph, settings: Settings, files: Sequence[VideoFile], *, again: bool = False, retry_failed: bool = False
) -> Iterator[Work]:
    """Open the folder of a run, and see what is left to do; at the end of the block the folder is free.

    Args:
        graph: the pipeline's own.
        settings: where to, and what.
        files: that were found.
        again: do everything anew where another pipeline filled the folder.
        retry_failed: also do the files again that were put aside.

    Raises:
        ConfigError: the folder belongs to another pipeline or to something else, or another run is at it.
        OutputError: it cannot be written.
    """
    from streamkit.batch.books import commit, open_folder
    from streamkit.batch.fetch import sweep

    with closing(open_folder(graph, settings, again=again)) as folder:
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


def _jobs(pipeline: str, paths: Mapping[str, str], files: Sequence[VideoFile], done: set[str]) -> list[Job]:
    """A job for each file, with the key that the folder has of it."""
    from streamkit.batch.identity import file_key

    done_at = {paths[key]: key for key in done}
    jobs = []
    for file in files:
        key, own = (file_key(file, pipeline, path=path) for path in (False, True))
        if file.gone:  # says nothing of its content: what is done stays done
            key = done_at.get(printable(file.uri), key)
        elif own in paths or (key in paths and _another(file, paths[key])):
            key = own
        jobs.append(Job(file, key))
    return jobs


def _another(file: VideoFile, path: str) -> bool:
    """Whether a row is of another file of the same name, size and time; one whose file is gone was moved here."""
    if path in ("", printable(file.uri)) or not is_path(file.uri):
        return False
    try:
        return not os.path.samefile(local_path(file.uri), path)
    except OSError:
        return False


def _outdated(paths: Mapping[str, str], jobs: Sequence[Job], done: set[str]) -> list[str]:
    """The keys of files that the folder has in another version or under another name, and of folders that fail no more.

    What is done of a file that is not there now is not outdated: its job has its key.
    """
    now = {job.key for job in jobs}
    files = {printable(job.file.uri) for job in jobs}
    above = {str(parent) for file in files if is_path(file) for parent in Path(file).parents}
    return sorted(
        key for key, path in paths.items()
        if key not in now and (path in files or (path in above and key not in done))
    )  # fmt: skip


def _finish(settings: Settings) -> None:
    """COCO's readers want one file."""
    if "coco" in settings.formats:
        from streamkit.batch.coco import merge

        merge(sorted((settings.out / "coco").glob("*.json")), settings.out / TOGETHER)
