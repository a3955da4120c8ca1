"""Progress of a run over many files: bars on a terminal, periodic lines elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from streamkit.batch.manager import Manager
from streamkit.batch.summary import duration, hours
from streamkit.batch.worker_pool import WorkerState
from streamkit.core.text import printable

_EVERY_S = 5.0


def line(manager: Manager) -> str:
    """The progress in one line."""
    tally = manager.tally
    todo = tally.files - tally.skipped - tally.failed_before
    parts = [f"{tally.done + tally.failed:,} of {todo:,} files"]
    if tally.failed:
        parts.append(f"{tally.failed:,} failed")
    if tally.done and (elapsed_s := manager.elapsed_s):
        parts.append(f"{hours(tally.video_s)} of video, {tally.video_s / elapsed_s:,.1f} times real time")
    left_s = manager.left_s
    parts.append("time left not known yet" if left_s is None else f"about {duration(left_s)} left")
    return ", ".join(parts)


def worker_line(worker: WorkerState) -> str:
    """The state of one worker in one line."""
    if not worker.ready:
        return f"{worker.name}: opening the pipeline"
    shown = ", ".join(f"{printable(one.name, one_line=True)} {one.share:.0%}" for one in worker.doing[:2])
    more = f" and {len(worker.doing) - 2} more" if len(worker.doing) > 2 else ""
    return f"{worker.name}: {worker.done:,} done" + (f", now {shown}{more}" if shown else "")


@contextlib.contextmanager
def watching(display: Any) -> Iterator[Callable[[Manager], None]]:
    """Show progress on a `streamkit.cli.progress.Display` while the block runs.

    Yields:
        A callback for the manager, to be called periodically.
    """
    console = display.console
    if not console.is_terminal:
        yield _plain(display.say)
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


def _plain(say: Callable[[str], None]) -> Callable[[Manager], None]:
    last_s = time.monotonic()

    def show(manager: Manager) -> None:
        nonlocal last_s
        if time.monotonic() - last_s >= _EVERY_S:
            last_s = time.monotonic()
            say(line(manager))

    return show
