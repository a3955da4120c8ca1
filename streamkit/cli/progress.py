# SPDX-License-Identifier: Apache-2.0
"""Messages of a run on stderr: progress bars on a terminal, plain lines elsewhere, a summary at the end.

With `--log-format json` every line is a JSON object, and there are no progress bars.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from streamkit.cli.findings import findings, mostly_unsure
from streamkit.core.logs import (
    OncePerText,
    command_record,
    inherited_levels,
    json_line,
    logs_json,
    messages_to,
    text_lines,
)
from streamkit.core.text import nothing_detected, printable

if TYPE_CHECKING:
    from streamkit.runtime.run import Run

_EVERY_S = 5.0
_NAMED = 10  # outputs that the summary names
_OF_THRESHOLDS = "boxes removed: "  # normal: every network removes thousands


def open_display() -> Display:
    """Create the display of a command; until the command ends, it shows each message of the package once."""
    display = Display()
    messages = messages_to(display.show, inherited_levels())
    display.once = click.get_current_context().with_resource(messages)
    return display


class Display:
    """The user's view of one run.

    Attributes:
        console: rich's, on stderr.
        once: drops messages that were shown before; see `open_display`.
    """

    def __init__(self) -> None:
        from rich.console import Console

        self._json = logs_json()
        bars = False if self._json else None
        self.console = Console(stderr=True, highlight=False, soft_wrap=True, force_terminal=bars)
        self.once = OncePerText()

    def show(self, record: logging.LogRecord) -> None:
        """Show a message of the package."""
        self._print(json_line(record) if self._json else printable(text_lines(record)))

    def log(self, text: str, level: int = logging.INFO) -> None:
        """Show a message of the command, with control characters as escapes; the level is that of `streamkit.cli`."""
        if not logging.getLogger("streamkit.cli").isEnabledFor(level):
            return
        if self._json:
            self.show(command_record(text, level))
            return
        self._print(printable(text))

    def _print(self, text: str) -> None:
        if self.console.is_terminal:
            self.console.print(text, markup=False)
        else:
            sys.stderr.write(f"{text}\n")  # in one call: other threads write, too
            sys.stderr.flush()

    @contextlib.contextmanager
    def watching(self, running: Run) -> Iterator[None]:
        """Show the progress of `running` while it runs."""
        from streamkit.runtime.execution.future import PeriodicTimer

        if not self.console.is_terminal:
            with PeriodicTimer(_EVERY_S, lambda: self.log(_line(running))):
                yield
            return
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(pulse_style="cyan"),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[rate]:.0f}/s"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as bars:
            tasks: dict[str, Any] = {}
            started_s = time.monotonic()
            opening = bars.add_task("", total=None, visible=False, rate=0.0, count="")

            def tick() -> None:
                text = _opening(running)
                bars.update(opening, description=text, visible=bool(text))
                shown = dict(list(running.states.items())[:20])
                for name in tasks.keys() - shown.keys():
                    bars.remove_task(tasks.pop(name))
                for name, state in shown.items():
                    if name not in tasks:
                        tasks[name] = bars.add_task(printable(name, one_line=True), total=None, rate=0.0, count="")
                    task = tasks[name]
                    rate = state.frames / max(1e-6, time.monotonic() - started_s)
                    total = _total(state, running.limit)
                    bars.update(task, completed=state.frames, rate=rate, total=total, count=_count(state.frames, total))

            with PeriodicTimer(0.2, tick):
                yield

    def summary(self, report: dict[str, Any], verbose: bool = False) -> None:
        """Show what the run did; `verbose` adds how many boxes each threshold removed."""
        for text in _summary(report, verbose):
            self.log(text)
        without_objects = [_name(table) for table, count in report["detections"].items() if not count]
        unsure = {_name(table): count for table, count in report.get("unsure", {}).items()}
        objects = {_name(table): count for table, count in report["detections"].items()}
        for hint in (nothing_detected(without_objects, report["frames"]), mostly_unsure(unsure, objects)):
            if hint:
                self.log(hint, logging.WARNING)


def _total(state: Any, limit: int | None) -> int | None:
    """The number of frames the source will deliver, if known; an estimate that was too low counts as unknown."""
    if state.done:
        return int(state.frames)
    limits = [n for n in (getattr(state, "facts", {}).get("expected_frames"), limit) if n is not None]
    return min(limits) if limits and min(limits) >= state.frames else None


def _count(frames: int, total: int | None) -> str:
    return f"{frames:,} frames" if total is None else f"{frames:,} of {total:,} frames"


def _line(running: Run) -> str:
    states = running.states.values()
    done = sum(state.done for state in states)
    totals = [_total(state, running.limit) for state in states]
    whole = None if None in totals else sum(totals)  # type: ignore[arg-type]
    count = _count(running.frames, whole if whole is not None and whole >= running.frames else None)
    opening = _opening(running)
    return f"{count} done, {done} of {len(states)} sources ended" + (f"; {opening}" if opening else "")


def _opening(running: Run) -> str:
    """The stages that are opening: loading or compiling a network takes up to half a minute."""
    ids = running.opening
    return f"opening {', '.join(ids)}" if ids else ""


def _summary(report: dict[str, Any], verbose: bool) -> Iterator[str]:
    rate = report["frames_per_s"]
    yield (
        f"{report['frames']} frames in {report['seconds']:.1f} s"
        + (f", {rate:.1f} a second" if rate else "")
        + (f", on {report['device']}")
    )
    for title in ("detections", "events", "counts"):
        shown = {name: n for name, n in report[title].items() if verbose or not name.startswith(_OF_THRESHOLDS)}
        if shown:
            yield f"{title}: " + ", ".join(f"{_name(name)} {n:,}" for name, n in shown.items())
    spent = {name: stage["seconds"] for name, stage in report["stages"].items() if stage["frames"]}
    if spent:
        yield "seconds by stage, of all threads: " + ", ".join(
            f"{_name(name)} {seconds:.2f}" for name, seconds in spent.items()
        )
    for name, percentiles in report["latency"].items():
        yield f"latency at {_name(name)}: " + ", ".join(
            f"{k.removesuffix('_ms')} {v:.0f} ms" for k, v in percentiles.items()
        )
    failed = {name: source["error"] for name, source in report["sources"].items() if "error" in source}
    if failed:
        yield f"{len(failed)} of {len(report['sources'])} sources failed: {', '.join(map(_name, failed))}"

    outputs = [_name(path) for path in report.get("outputs", [])]
    if outputs:
        more = f" and {len(outputs) - _NAMED} more" if len(outputs) > _NAMED else ""
        yield f"outputs: {', '.join(outputs[:_NAMED])}{more}"
    if text := findings(report):
        yield f"found {_name(text)}"


def _name(text: str) -> str:
    return printable(text, one_line=True)
