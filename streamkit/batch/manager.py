# SPDX-License-Identifier: Apache-2.0
"""Distributes the files of a run to its workers, the largest first, and commits their results.

A file of unknown size comes first, because it may be the largest.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from streamkit.batch.job import BatchJob, Outcome, VideoFile
from streamkit.batch.worker_pool import WorkerDied, WorkerPool, WorkerState
from streamkit.core.errors import OutputError
from streamkit.runtime.execution.future import Stopped, ThreadFuture

_POLL_S = 0.5
_PROBED = 100
"""Headers that are read, about 3 ms each, of files of all sizes; the others are estimated from those of their size."""
_CLOSE_S = 2.0
"""How long to wait for a file system that does not respond."""


@dataclass(slots=True)
class BatchCounts:
    """Counts of a run.

    Attributes:
        files: all files found.
        done: files finished in this run.
        failed: files that failed in this run.
        skipped: files that an earlier run had done.
        failed_before: files that failed in an earlier run.
        left: files that a stopped run did not reach.
        retries: tries after the first.
        video_s: seconds of processed video.
        frames: number of processed frames.
        objects: number of detected objects.
        failed_frames: frames on which a stage failed, in files that are done.
        damaged_files: files that are done and have damaged frames.
        damaged_frames: number of damaged frames in those.
        copied: remote files that were copied first, because their server sends only whole files.
        seconds: duration of the run.
        causes: failed files by category.
        failures: outcomes of the failed files.
        workers_lost: lost workers by how they ended.
    """

    files: int = 0
    done: int = 0
    failed: int = 0
    skipped: int = 0
    failed_before: int = 0
    left: int = 0
    retries: int = 0
    video_s: float = 0.0
    frames: int = 0
    objects: int = 0
    failed_frames: int = 0
    damaged_files: int = 0
    damaged_frames: int = 0
    copied: int = 0
    seconds: float = 0.0
    causes: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    workers_lost: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count a finished file."""
        if outcome.status == "failed":
            self.failed += 1
            self.causes[outcome.cause_kind] += 1
            self.failures.append(outcome)
            return
        self.done += 1
        self.copied += outcome.facts.get("copied", False)
        self.video_s += outcome.duration_s
        self.frames += outcome.frames
        self.objects += outcome.objects
        self.failed_frames += outcome.facts.get("failed_frames", 0)
        damaged = outcome.facts.get("damaged_frames", 0)
        self.damaged_files += damaged > 0
        self.damaged_frames += damaged

    @property
    def exit_code(self) -> int:
        """1 if a file or frame failed, now or before; otherwise 0."""
        return int(bool(self.failed or self.failed_before or self.failed_frames))

    @property
    def speed(self) -> float:
        """Seconds of video per second."""
        return self.video_s / self.seconds if self.seconds else 0.0


class WorkEstimate:
    """The work of the files, and how much of it is done.

    Bytes alone are misleading: a second of MJPEG has thirty times as many as one of AV1, but takes as long.

    Args:
        jobs: all jobs, the largest first.
        seconds: returns how much of a file is processed, by its header, in seconds; 0 if that is unknown.
    """

    def __init__(self, jobs: Sequence[BatchJob], seconds: Callable[[VideoFile], float] | None) -> None:
        self._jobs = jobs
        self._done = list[str]()
        sizes = [job.file.size for job in self._jobs if job.file.size is not None]
        usual = sum(sizes) / max(1, len(sizes))  # for files of unknown size
        self._work = {job.key: float(max(1, usual if job.file.size is None else job.file.size)) for job in self._jobs}
        self._total = sum(self._work.values())
        self._sum = 0.0
        self._later = None if seconds is None or not jobs else ThreadFuture(lambda stop: self._probed(seconds, stop))

    def of(self, key: str) -> float:
        """The work of a job's file: bytes, or seconds once headers are read."""
        return self._work.get(key, 0.0)

    @property
    def total(self) -> float:
        """The work of all files."""
        if self._later is not None and self._later.ready:
            self._work = self._later.result()
            self._later = None
            self._total = sum(self._work.values())
            self._sum = sum(map(self.of, self._done))
        return self._total

    @property
    def done(self) -> float:
        """The work of the finished files."""
        return self._sum

    def add(self, job: BatchJob) -> None:
        """Count a file as finished."""
        self._done.append(job.key)
        self._sum += self.of(job.key)

    def close(self) -> None:
        """Stop reading headers."""
        if self._later is not None:
            self._later.leave(_CLOSE_S)

    def _probed(self, seconds: Callable[[VideoFile], float], stop: Stopped) -> dict[str, float]:
        """Seconds of every file, scaled from the sampled file that is next in size."""
        step = max(1, -(-len(self._jobs) // _PROBED))
        seconds_by_key: dict[str, float] = {}
        for first in range(0, len(self._jobs), step):
            if stop():
                return self._work
            like = self._jobs[min(first + step // 2, len(self._jobs) - 1)]
            per_byte = seconds(like.file) / self._work[like.key]
            for job in self._jobs[first : first + step]:
                seconds_by_key[job.key] = per_byte * self._work[job.key]
        return seconds_by_key if any(seconds_by_key.values()) else self._work


class Manager:
    """One run over many files.

    Args:
        pool: the workers.
        jobs: the files to process.
        commit: records the result of a file; only then is it done.
        retries: how often a failed file is retried, if a retry may help.
        skipped: number of files that were done before.
        failed_before: number of files that failed before.
        on_progress: called about twice a second, to show progress.
        seconds: returns how much of a file is processed, by its header, to estimate the time left; None uses bytes.
    """

    def __init__(
        self,
        pool: WorkerPool,
        jobs: Iterable[BatchJob],
        commit: Callable[[Outcome], None],
        *,
        retries: int = 1,
        skipped: int = 0,
        failed_before: int = 0,
        on_progress: Callable[[Manager], None] = lambda manager: None,
        seconds: Callable[[VideoFile], float] | None = None,
    ) -> None:
        self._pool = pool
        self._commit = commit
        self._retries = retries
        self._on_progress = on_progress
        self._jobs = sorted(jobs, key=lambda job: math.inf if job.file.size is None else job.file.size, reverse=True)
        self._unfinished = len(self._jobs)
        self._alone: set[str] = set()
        self._started_s: float | None = None
        self._last_shown_s = 0.0
        file_count = len(self._jobs) + skipped + failed_before
        self.counts = BatchCounts(files=file_count, skipped=skipped, failed_before=failed_before)
        self._estimate = WorkEstimate(self._jobs, seconds)

    def run(self) -> BatchCounts:
        """Process all files.

        Raises:
            OutputError: the output folder cannot be written.
            StreamkitError: no worker can be started.
        """
        start_s = time.perf_counter()
        try:
            if self._jobs:
                self._pool.start()
                self._pool.submit(*self._jobs)
            while self._unfinished:
                if self.stopping:
                    self._unfinished -= len(self._pool.recall())
                for outcome in self._pool.wait(_POLL_S):
                    self._handle(outcome)
                self._show()
        finally:
            self.counts.seconds = time.perf_counter() - start_s
            self.counts.left = len(self._jobs) - self.counts.done - self.counts.failed
            self._estimate.close()
            self._pool.close()
        return self.counts

    def stop(self) -> None:
        """Start no more files, and finish those in progress. On the second call, stop the workers at once."""
        if self.stopping:
            self._pool.abort()
        self._pool.stopping = True

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._pool.stopping

    def workers(self) -> list[WorkerState]:
        """The state of each worker."""
        return self._pool.workers()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the first worker was ready."""
        return 0.0 if self._started_s is None else time.monotonic() - self._started_s

    @property
    def share(self) -> float:
        """Progress from 0 to 1: of the seconds of video, or of the bytes while those are unknown."""
        total = self._estimate.total
        in_progress = sum(work * share for work, share in self._in_progress())
        return (self._estimate.done + in_progress) / total if total else 1.0

    @property
    def left_s(self) -> float | None:
        """Estimated seconds left; None while too little is done for an estimate.

        The longest file in progress is a lower bound: only one worker processes it.
        """
        share = self.share
        in_progress = self._in_progress()
        if share < 0.01 or self.elapsed_s < 3.0:
            return None
        longest = max((work * (1.0 - done) for work, done in in_progress), default=0.0)
        total = self._estimate.total
        return max((1.0 - share) * total, longest * len(in_progress)) * self.elapsed_s / (share * total)

    # ------------------------------------------------------------------------------------------------------------

    def _in_progress(self) -> list[tuple[float, float]]:
        """For each file in progress, its work, and how much of it is done, from 0 to 1."""
        return [(self._estimate.of(file.key), file.share) for worker in self.workers() for file in worker.files]

    def _handle(self, outcome: Outcome | WorkerDied) -> None:
        if isinstance(outcome, WorkerDied):
            self.counts.workers_lost[outcome.how] += 1
            for job in outcome.jobs:  # each is retried once, alone in its worker; if that is lost too, the file fails
                if job.key in self._alone:
                    self._finish(Outcome(job, "failed", f"{outcome.how}, also when processed alone", outcome.kind))
                else:
                    self._alone.add(job.key)
                    self._retry(job, alone=True)
            return
        self._alone.discard(outcome.job.key)
        if outcome.status == "failed" and outcome.cause_kind == "output":
            raise OutputError(outcome.cause)
        if outcome.status == "failed" and outcome.again and outcome.job.attempt <= self._retries:
            self._retry(outcome.job)
        else:
            self._finish(outcome)

    def _retry(self, job: BatchJob, alone: bool = False) -> None:
        self.counts.retries += 1
        if self.stopping:
            self._unfinished -= 1
        else:
            self._pool.submit(replace(job, attempt=job.attempt + 1), alone=alone)

    def _finish(self, outcome: Outcome) -> None:
        self._unfinished -= 1
        self._commit(outcome)
        self.counts.add(outcome)
        self._estimate.add(outcome.job)

    def _show(self) -> None:
        now_s = time.monotonic()
        if self._started_s is None and any(worker.ready for worker in self.workers()):
            self._started_s = now_s
        if now_s - self._last_shown_s >= _POLL_S:
            self._last_shown_s = now_s
            self._on_progress(self)
