"""Statistics of a run over many files: counted during the run, shown at its end, written as a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from streamkit.batch.job import Outcome
from streamkit.core.text import printable

_SHOWN = 20
_COUNTS = (
    "files", "done", "failed", "skipped", "failed_before", "left", "retries", "frames", "objects", "failed_frames",
    "damaged_files", "damaged_frames",
)  # fmt: skip


@dataclass(slots=True)
class RunCounts:
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


def lines(tally: RunCounts) -> Iterator[str]:
    """The lines of the final summary."""
    yield f"done    {tally.done:7,} files   {hours(tally.video_s)} of video in {duration(tally.seconds)}, " + (
        f"{tally.speed:,.1f} times real time; {tally.frames:,} frames, {tally.objects:,} objects"
    )
    causes = ", ".join(f"{cause} {count:,}" for cause, count in tally.causes.most_common())
    yield f"failed  {tally.failed:7,} files" + (f"   {causes}" if causes else "")
    yield f"skipped {tally.skipped:7,} files" + ("   had been done before" if tally.skipped else "")
    if tally.failed_before:
        yield f"failed  {tally.failed_before:7,} files   before; --retry-failed tries them again"
    if tally.left:
        yield f"left    {tally.left:7,} files   the same command goes on with them"
    if tally.retries:
        yield f"tries beyond the first: {tally.retries:,}"
    if tally.failed_frames:
        yield f"frames on which a stage failed, in files that are done: {tally.failed_frames:,}"
    if tally.damaged_files:
        yield f"damaged frames: {tally.damaged_frames:,}, in {tally.damaged_files:,} of the files that are done; " + (
            "--strict fails such files"
        )
    for how, count in tally.workers_lost.most_common():
        yield f"workers lost: {count:,}, {how}"
    for outcome in tally.failures[:_SHOWN]:
        yield printable(f"  {outcome.job.file.name}: {outcome.cause_kind}: {outcome.cause}", one_line=True)
    if tally.failed > _SHOWN:
        yield f"  and {tally.failed - _SHOWN:,} more; the table of files lists them all"


def report(tally: RunCounts, exit_code: int) -> dict[str, Any]:
    """The report of the run, for `--report`."""
    return {
        "schema": "streamkit-batch-report/1",
        "exit_code": exit_code,
        **{name: getattr(tally, name) for name in _COUNTS},
        "video_s": round(tally.video_s, 3),
        "seconds": round(tally.seconds, 3),
        "times_real_time": round(tally.speed, 2),
        "causes": dict(tally.causes),
        "workers_lost": dict(tally.workers_lost),
        "failures": [
            {"file": one.job.file.name, "cause_kind": one.cause_kind, "cause": one.cause, "attempts": one.job.attempt}
            for one in tally.failures
        ],
    }


def hours(seconds: float) -> str:
    """Format seconds of video: `3.2 h`, `12.5 min` or `48.1 s`."""
    if seconds >= 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"


def duration(seconds: float) -> str:
    """Format a duration: `2:03:10`, `12:05 min` or `4.2 s`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02} min"
