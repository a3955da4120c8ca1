# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a run for people and programs: sources and stages as typed values, printed as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.runtime.ingest.source_counts import short
from streamkit.runtime.ingest.source_status import SourceState

if TYPE_CHECKING:
    from streamkit.runtime.run_thread import LoopRun

_LOOP_BUSY = "loop_busy"


@dataclass(frozen=True, slots=True)
class SourceStats:
    """Counts of one source.

    Attributes:
        state: connecting, running, reconnecting, paused, ended or failed.
        frames: frames that it has produced.
        out: its frames that reached the end of the graph.
        fps: frames per second that reach the end of the graph, over the last seconds; until two samples are there, the
            mean since the start.
        dropped: its dropped frames, by cause.
        failed: its frames on which a stage failed.
        reconnects: number of reconnections.
        counts: what else was counted, by name.
        error: why the source failed, or None.
    """

    state: str
    frames: int
    out: int
    fps: float
    dropped: Mapping[str, int]
    failed: int
    reconnects: int
    counts: Mapping[str, int]
    error: str | None


@dataclass(frozen=True, slots=True)
class StageStats:
    """Counts of one stage.

    Attributes:
        frames: frames that it has processed.
        seconds: time in the stage, summed over its instances.
        ms_per_frame: milliseconds per frame; None before the first frame.
        failed: frames on which it failed.
    """

    frames: int
    seconds: float
    ms_per_frame: float | None
    failed: int


@dataclass(frozen=True, slots=True, repr=False)
class PipelineStats:
    """A snapshot of a pipeline. Its text is a table.

    Attributes:
        frames: frames that reached the end of the graph.
        seconds: since the first frame was awaited.
        fps: frames per second over that time.
        sources: counts of each source, by id.
        stages: counts of each stage, by id; `(loop)` is the hand-over to the Python loop, waits included.
        counts: further counters by name: copies, fallbacks, failures.
    """

    frames: int
    seconds: float
    fps: float
    sources: Mapping[str, SourceStats]
    stages: Mapping[str, StageStats]
    counts: Mapping[str, int]

    def __repr__(self) -> str:
        lines = [f"{self.frames:,} frames in {self.seconds:.1f} s, {self.fps:.1f} a second"]
        rows = [
            (
                id_,
                source.state,
                f"{source.frames:,}",
                f"{source.out:,}",
                f"{source.fps:.1f}",
                _drops(source.dropped),
                source.error or "",
            )
            for id_, source in self.sources.items()
        ]
        lines += _table(("source", "state", "frames", "out", "fps", "dropped", "error"), rows)
        times = [
            (
                id_,
                f"{stage.frames:,}",
                "" if stage.ms_per_frame is None else f"{stage.ms_per_frame:.2f}",
                f"{stage.failed or ''}",
            )
            for id_, stage in self.stages.items()
        ]
        lines += _table(("stage", "frames", "ms/frame", "failed"), times)
        return "\n".join(lines)


def snapshot(run: LoopRun) -> PipelineStats:
    """The counts of a run now; from any thread, at any time."""
    seconds = run.elapsed_s
    dropped = Counter[str]() if run.queue is None else run.queue.dropped
    counts = run.run_counts()
    return PipelineStats(
        frames=counts.frames,
        seconds=round(seconds, 3),
        fps=_rate(counts.frames, seconds),
        sources={id_: _source(state, dropped[id_], seconds) for id_, state in run.states.items()},
        stages={
            id_: StageStats(
                frames=meter["frames"],
                seconds=meter["seconds"],
                ms_per_frame=None if meter["us_per_frame"] is None else meter["us_per_frame"] / 1e3,
                failed=meter.get("failed", 0),
            )
            for id_, meter in counts.stages.items()
        },
        counts=counts.counts,
    )


def _source(state: SourceState, loop_busy: int, seconds: float) -> SourceStats:
    dropped = short(state.drops.values)
    if loop_busy:
        dropped[_LOOP_BUSY] = loop_busy
    running = state.rated and not state.done
    fps = round(state.fps_out, 2) if running else _rate(state.out, seconds)
    return SourceStats(
        state.state,
        state.frames,
        state.out,
        fps,
        dropped,
        state.failed,
        state.reconnects,
        state.further(SourceStats.__slots__),
        state.error,
    )


def _rate(frames: int, seconds: float) -> float:
    return round(frames / seconds, 2) if seconds else 0.0


def _drops(dropped: Mapping[str, int]) -> str:
    return ", ".join(f"{cause} {count:,}" for cause, count in dropped.items())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows in aligned columns; columns without any value are left out."""
    shown = [i for i in range(len(head)) if any(row[i] for row in rows)]
    cells = [[row[i] for i in shown] for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    number = [all(row[i][:1].isdigit() or not row[i] for row in cells[1:]) for i in range(len(widths))]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, number, strict=True)
        ).rstrip()
        for row in (cells if rows else [])
    ]
