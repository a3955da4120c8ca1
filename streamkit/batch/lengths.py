"""How much work each file is, judged before it is done: by its bytes at once, by seconds of video a moment later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from streamkit.batch.job import Job, VideoFile
from streamkit.runtime.background import Beside, Stopped

_PROBED = 100
"""Headers that are read, some 3 ms each: of files of all sizes, and the others are judged by those of their size."""

_CLOSE_S = 2.0
"""A file system that does not answer is not waited for."""


class Lengths:
    """The work that files are, and how much of it is done.

    Bytes alone mislead: a second of MJPEG has thirty times as many as one of AV1, and takes as long.

    Args:
        jobs: all that is to be done, the largest first.
        seconds: how much of a file is looked at, by its header, in seconds; 0 where that is not known.
    """

    def __init__(self, jobs: Sequence[Job], seconds: Callable[[VideoFile], float] | None) -> None:
        self._jobs, self._done = list(jobs), list[Job]()
        sizes = [job.file.size for job in self._jobs if job.file.size is not None]
        usual = sum(sizes) / max(1, len(sizes))  # what a file counts for whose server does not tell its size
        self._known = {
            job.key: float(max(1, usual if job.file.size is None else job.file.size)) for job in self._jobs
        }  # fmt: skip
        self._total, self._sum = sum(self._known.values()), 0.0
        self._later = None if seconds is None or not jobs else Beside(lambda stop: self._probed(seconds, stop))

    def of(self, job: Job) -> float:
        """The work that a file is, in a unit of its own."""
        return self._known.get(job.key, 0.0)

    @property
    def total(self) -> float:
        """All of it."""
        if self._later is not None and self._later.ready:
            self._known, self._later = self._later.result(), None
            self._total, self._sum = sum(self._known.values()), sum(map(self.of, self._done))
        return self._total

    @property
    def done(self) -> float:
        """What is done of it."""
        return self._sum

    def add(self, job: Job) -> None:
        """A file is done."""
        self._done.append(job)
        self._sum += self.of(job)

    def close(self) -> None:
        """Read no more headers."""
        if self._later is not None:
            self._later.leave(_CLOSE_S)

    def _probed(self, seconds: Callable[[VideoFile], float], stop: Stopped) -> dict[str, float]:
        """Seconds of every file: its own, or in proportion those of the next one in size whose header was read."""
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
