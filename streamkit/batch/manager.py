"""Distributes the files of a run to its workers, the largest first, and commits their results.

A file of unknown size comes first, because it may be the largest.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from streamkit.batch.job import BatchJob, Outcome, VideoFile
from streamkit.batch.summary import RunCounts
from streamkit.batch.work_estimate import WorkEstimate
from streamkit.batch.worker_pool import WorkerDied, WorkerPool, WorkerState
from streamkit.core.errors import OutputError

_LOOK_S = 0.5


class Manager:
    """One run over many files.

    Args:
        crew: the workers.
        jobs: the files to process.
        commit: records the result of a file; only then is it done.
        retries: how often a failed file is retried, if a retry may help.
        skipped: number of files that were done before.
        failed_before: number of files that failed before.
        look: called about twice a second, to show progress.
        seconds: returns how much of a file is processed, by its header, to estimate the time left; None uses bytes.
    """

    def __init__(
        self,
        crew: WorkerPool,
        jobs: Iterable[BatchJob],
        commit: Callable[[Outcome], None],
        *,
        retries: int = 1,
        skipped: int = 0,
        failed_before: int = 0,
        look: Callable[[Manager], None] = lambda manager: None,
        seconds: Callable[[VideoFile], float] | None = None,
    ) -> None:
        self._crew, self._commit, self._retries, self._look = crew, commit, retries, look
        self._work = deque(sorted(jobs, key=_by_size, reverse=True))
        self._suspects: deque[BatchJob] = deque()
        self._alone: set[str] = set()
        self._in_hand: dict[str, BatchJob] = {}
        self._begun_s: float | None = None
        self._last_look_s = 0.0
        before = skipped + failed_before
        self.tally = RunCounts(files=len(self._work) + before, skipped=skipped, failed_before=failed_before)
        self._todo = len(self._work)
        self._lengths = WorkEstimate(self._work, seconds)
        self.stopping = False

    def run(self) -> RunCounts:
        """Process all files.

        Raises:
            OutputError: the output folder cannot be written.
            StreamkitError: no worker can be started.
        """
        begun = time.perf_counter()
        try:
            if self._work:
                self._crew.start()
            while self._in_hand or ((self._work or self._suspects) and not self.stopping):
                if self.stopping:
                    for job in self._crew.recall():
                        del self._in_hand[job.key]
                else:
                    self._give()
                for one in self._crew.wait(_LOOK_S):
                    self._take(one)
                self._show()
        finally:
            self.tally.seconds = time.perf_counter() - begun
            self.tally.left = self._todo - self.tally.done - self.tally.failed
            self._lengths.close()
            self._crew.close()
        return self.tally

    def stop(self) -> None:
        """Start no more files, and finish those in progress. On the second call, stop the workers at once."""
        if self.stopping:
            self._crew.abort()
        self.stopping = True

    def workers(self) -> list[WorkerState]:
        """The state of each worker."""
        return self._crew.workers()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first worker was ready."""
        return 0.0 if self._begun_s is None else time.monotonic() - self._begun_s

    @property
    def share(self) -> float:
        """Progress from 0 to 1: of the seconds of video, or of the bytes while those are unknown."""
        total = self._lengths.total
        under_way = sum(work * share for work, share in self._under_way())
        return (self._lengths.done + under_way) / total if total else 1.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds left; None while too little is done for an estimate.

        The longest file in progress is a lower bound: only one worker processes it.
        """
        share, under_way = self.share, self._under_way()
        if share < 0.01 or self.elapsed_s < 3.0:
            return None
        longest = max((work * (1.0 - done) for work, done in under_way), default=0.0)
        total = self._lengths.total
        return max((1.0 - share) * total, longest * len(under_way)) * self.elapsed_s / (share * total)

    # ------------------------------------------------------------------------------------------------------------

    def _under_way(self) -> list[tuple[float, float]]:
        """For each file in progress, its work, and how much of it is done, from 0 to 1."""
        shares = {one.key: one.share for worker in self.workers() for one in worker.doing}
        return [(self._lengths.of(self._in_hand[key]), share) for key, share in shares.items() if key in self._in_hand]

    def _give(self) -> None:
        while len(self._in_hand) < self._crew.slots and (self._suspects or self._work):
            alone = bool(self._suspects)
            job = (self._suspects or self._work).popleft()
            self._in_hand[job.key] = job
            self._crew.give(job, alone)

    def _take(self, one: Outcome | WorkerDied) -> None:
        if isinstance(one, WorkerDied):
            self.tally.workers_lost[one.how] += 1
            for job in one.jobs:
                self._suspect(self._in_hand.pop(job.key), one)
            return
        job = self._in_hand.pop(one.job.key)
        self._alone.discard(job.key)
        if one.status == "failed" and one.cause_kind == "output":
            raise OutputError(one.cause)
        if one.status == "failed" and one.again and job.attempt <= self._retries:
            self.tally.retries += 1
            self._work.append(replace(job, attempt=job.attempt + 1))
            return
        self._settle(one)

    def _suspect(self, job: BatchJob, died: WorkerDied) -> None:
        """Retry a file of a lost worker once, alone in its worker; if that is lost too, the file fails."""
        if job.key not in self._alone:
            self._alone.add(job.key)
            self.tally.retries += 1
            self._suspects.append(replace(job, attempt=job.attempt + 1))
            return
        self._settle(Outcome(job, "failed", f"{died.how}, and so it did before", died.kind))

    def _settle(self, outcome: Outcome) -> None:
        self._commit(outcome)
        self.tally.add(outcome)
        self._lengths.add(outcome.job)

    def _show(self) -> None:
        now_s = time.monotonic()
        if self._begun_s is None and any(worker.ready for worker in self.workers()):
            self._begun_s = now_s
        if now_s - self._last_look_s >= _LOOK_S:
            self._last_look_s = now_s
            self._look(self)


def _by_size(job: BatchJob) -> float:
    return math.inf if job.file.size is None else job.file.size
