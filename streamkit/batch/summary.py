# SPDX-License-Identifier: Apache-2.0
"""Progress of a run over many files, the summary at its end, and its report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

from streamkit.batch.manager import BatchCounts, Manager
from streamkit.batch.worker_pool import WorkerState
from streamkit.core.text import printable

_EVERY_S = 5.0
_SHOWN = 20
_COUNTS = tuple(field.name for field in fields(BatchCounts) if field.type == "int")


def lines(counts: BatchCounts) -> Iterator[str]:
    """The lines of the final summary."""
    yield f"done    {counts.done:7,} files   {hours(counts.video_s)} of video in {duration(counts.seconds)}, " + (
        f"{counts.speed:,.1f} times real time; {counts.frames:,} frames, {counts.objects:,} objects"
    )
    causes = ", ".join(f"{cause} {count:,}" for cause, count in counts.causes.most_common())
    yield f"failed  {counts.failed:7,} files" + (f"   {causes}" if causes else "")
    yield f"skipped {counts.skipped:7,} files" + ("   already done" if counts.skipped else "")
    if counts.failed_before:
        yield f"failed  {counts.failed_before:7,} files   before; --retry-failed retries them"
    if counts.left:
        yield f"left    {counts.left:7,} files   run the same command again to process them"
    if counts.retries:
        yield f"retries: {counts.retries:,}"
    if counts.failed_frames:
        yield f"frames on which a stage failed, in done files: {counts.failed_frames:,}"
    if counts.damaged_files:
        text = f"{counts.damaged_frames:,}, in {counts.damaged_files:,} done files"
        yield f"damaged frames: {text}; --strict fails these files"
    if counts.copied:
        yield f"copied before they were read, because their server sends only whole files: {counts.copied:,} files"
    for how, count in counts.workers_lost.most_common():
        yield f"workers lost: {count:,}, {how}"
    for outcome in counts.failures[:_SHOWN]:
        yield printable(f"  {outcome.job.file.name}: {outcome.cause_kind}: {outcome.cause}", one_line=True)
    if counts.failed > _SHOWN:
        yield f"  and {counts.failed - _SHOWN:,} more; the table of files lists them all"


def report(counts: BatchCounts, exit_code: int) -> dict[str, Any]:
    """The report of the run, for `--report`."""
    return {
        "schema": "streamkit-batch-report/1",
        "exit_code": exit_code,
        **{name: getattr(counts, name) for name in _COUNTS},
        "video_s": round(counts.video_s, 3),
        "seconds": round(counts.seconds, 3),
        "times_real_time": round(counts.speed, 2),
        "causes": dict(counts.causes),
        "workers_lost": dict(counts.workers_lost),
        "failures": [
            {
                "file": outcome.job.file.name,
                "cause_kind": outcome.cause_kind,
                "cause": outcome.cause,
                "attempts": outcome.job.attempt,
            }
            for outcome in counts.failures
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


# ---------------------------------------------------------------------------------------------------------- progress


def line(manager: Manager) -> str:
    """The progress in one line."""
    counts = manager.counts
    todo = counts.files - counts.skipped - counts.failed_before
    parts = [f"{counts.done + counts.failed:,} of {todo:,} files"]
    if counts.failed:
        parts.append(f"{counts.failed:,} failed")
    if counts.done and (elapsed_s := manager.elapsed_s):
        parts.append(f"{hours(counts.video_s)} of video, {counts.video_s / elapsed_s:,.1f} times real time")
    left_s = manager.left_s
    parts.append("time left unknown" if left_s is None else f"about {duration(left_s)} left")
    return ", ".join(parts)


def worker_line(worker: WorkerState) -> str:
    """The state of one worker in one line."""
    if not worker.ready:
        return f"{worker.name}: opening the pipeline"
    shown = ", ".join(f"{printable(file.name, one_line=True)} {file.share:.0%}" for file in worker.files[:2])
    more = f" and {len(worker.files) - 2} more" if len(worker.files) > 2 else ""
    return f"{worker.name}: {worker.done:,} done" + (f", now {shown}{more}" if shown else "")


@contextlib.contextmanager
def watching(display: Any) -> Iterator[Callable[[Manager], None]]:
    """Show progress on a `streamkit.cli.progress.Display` while the block runs.

    Yields:
        A callback for the manager, to be called periodically.
    """
    console = display.console
    if not console.is_terminal:
        yield _plain(display.log)
        return
    from rich.console import Group
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    with Live(console=console, transient=True, auto_refresh=False) as live:

        def show(manager: Manager) -> None:
            whole = Table.grid(padding=(0, 2))
            whole.add_row(ProgressBar(1.0, manager.share, width=30), line(manager))
            rows = [Text(worker_line(worker), overflow="ellipsis", no_wrap=True) for worker in manager.workers()[:32]]
            live.update(Group(whole, *rows), refresh=True)

        yield show


def _plain(echo: Callable[[str], None]) -> Callable[[Manager], None]:
    last_s = time.monotonic()

    def show(manager: Manager) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= _EVERY_S:
            last_s = time.monotonic()
            echo(line(manager))

    return show
