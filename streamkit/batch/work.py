"""What is to be done: the files that were found, less what the folder says is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.batch.job import Job, Outcome, Settings, VideoFile

if TYPE_CHECKING:
    from streamkit.graph import Graph


@dataclass(frozen=True, slots=True)
class Work:
    """What a run is to do in its folder, which is locked meanwhile.

    Attributes:
        jobs: the files that are left.
        done: how many had been done before.
        failed: how many had been put aside before.
        commit: writes down how a file went.
        finish: makes what is made of all files together.
    """

    jobs: list[Job]
    done: int
    failed: int
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
    from streamkit.batch.dataset import commit, open_folder
    from streamkit.batch.fetch import sweep
    from streamkit.batch.identity import file_key

    with closing(open_folder(graph, settings, again=again)) as folder:
        sweep(settings.out)
        done, failed = folder.done(), folder.failed()
        jobs = [Job(file, file_key(file, folder.pipeline)) for file in files]
        for key in folder.outdated({job.file.uri: job.key for job in jobs}):
            folder.clear(key)  # the file has another content now
        if retry_failed:
            failed = set()
        left = [job for job in jobs if job.key not in done and job.key not in failed]
        yield Work(
            left, sum(job.key in done for job in jobs), sum(job.key in failed for job in jobs),
            lambda outcome: commit(settings, outcome), lambda: _finish(settings),
        )  # fmt: skip


def _finish(settings: Settings) -> None:
    """COCO's readers want one file."""
    if "coco" in settings.formats:
        from streamkit.batch.coco import merge

        merge(sorted((settings.out / "coco").glob("*.json")), settings.out / "coco.json")
