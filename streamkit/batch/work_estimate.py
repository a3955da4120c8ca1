"""Estimates the work of each file: by its bytes at first, then by seconds of video from its header."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamkit.batch.job import BatchJob, VideoFile
from streamkit.runtime.execution.future import Stopped, ThreadFuture

_PROBED = 100
"""Headers that are read, some 3 ms each: of files of all sizes, and the others are judged by those of their size."""

_CLOSE_S = 2.0
"""A file system that does not answer is not waited for."""


class WorkEstimate:
    """The work of the files, and how much of it is done.

    Bytes alone are misleading: a second of MJPEG has thirty times as many as one of AV1, but takes as long.

    Args:
        jobs: all jobs, the largest first.
        seconds: returns how much of a file is processed, by its header, in seconds; 0 if that is unknown.
    """

    def __init__(self, jobs: Sequence[BatchJob], seconds: Callable[[VideoFile], float] | None) -> None:
        self._jobs, self._done = list(jobs), list[BatchJob]()
        sizes = [job.file.size for job in self._jobs if job.file.size is not None]
        usual = sum(sizes) / max(1, len(sizes))  # what a file counts for whose server does not tell its size
        self._known = {
            job.key: float(max(1, usual if job.file.size is None else job.file.size)) for job in self._jobs
        }  # fmt: skip
        self._total, self._sum = sum(self._known.values()), 0.0
        self._later = None if seconds is None or not jobs else ThreadFuture(lambda stop: self._probed(seconds, stop))

    def of(self, job: BatchJob) -> float:
        """The work of a file: bytes, or seconds once headers are read."""
        return self._known.get(job.key, 0.0)

    @property
    def total(self) -> float:
        """The work of all files."""
        if self._later is not None and self._later.ready:
            self._known, self._later = self._later.result(), None
            self._total, self._sum = sum(self._known.values()), sum(map(self.of, self._done))
        return self._total

    @property
    def done(self) -> float:
        """The work of the finished files."""
        return self._sum

    def add(self, job: BatchJob) -> None:
        """Count a file as finished."""
        self._done.append(job)
        self._sum += self.of(job)

    def close(self) -> None:
        """Stop reading headers."""
        if self._later is not None:
            self._later.leave(_CLOSE_S)

    def _probed(self, seconds: Callable[[VideoFile], float], stop: Stopped) -> dict[str, float]:
        """Seconds of every file, scaled from the sampled file that is next in size."""
        step = max(1, -(-len(self._jobs) // _PROBED))
        found: dict[str, float] = {}
        for first in range(0, len(self._jobs), step):
            if stop():
                return self._known
            like = self._jobs[min(first + step // 2, len(self._jobs) - 1)]
            per_byte = seconds(like.file) / self._known[like.key]
            for job in self._jobs[first : first + step]:
                found[job.key] = per_byte * self._known[job.key]
        return found if any(found.values()) else self._known
