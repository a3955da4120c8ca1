# SPDX-License-Identifier: Apache-2.0
"""The rows of `bench gpu`: a part of a pipeline or the whole, its speed, and its most used resource."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from streamkit.bench.trial import TrialResult

_FORM = "{:<20} {:<5} {:>7} {:>5} {:>5} {:>9} {:>8} {:>9} {:>5} {:>8} {:>9} {:>7} {:>7} {:>7}"


def _row(*cells: Any) -> str:
    """A row of the first columns."""
    return _FORM.format(*cells, *[""] * (_FORM.count("{") - len(cells))).rstrip()


_TITLES = "what,codec,sources,batch,procs,frames/s,of limit,lock free,cores,B to dev,B to host,dev MB,host MB,start s"
HEAD = f"{_row(*_TITLES.split(','))}  most used"


@dataclass(slots=True)
class Measurement:
    """One measurement.

    Attributes:
        what: `decode`, `preprocess`, `infer` or `postprocess` alone, `decode + preprocess`, `whole`, `paced`, or
            `one file, N decoders`.
        fps: frames per second.
        codec: the video's codec; empty if it does not matter.
        sources: number of sources; 0 for stages alone.
        batch: maximum frames per batch; 0 for decoding alone, and for the pipeline's default.
        of_limit: speed relative to the lesser of decoding alone and inference alone, each at its best.
        uses: utilization by resource, 0 to 1, the highest first, from `binding`.
        found: all measurements of a run; None for parts alone.
        processes: number of processes that shared the device.
    """

    what: str
    fps: float
    codec: str = ""
    sources: int = 0
    batch: int = 0
    of_limit: float | None = None
    uses: dict[str, float] = field(default_factory=dict)
    found: TrialResult | None = None
    processes: int = 1

    def __str__(self) -> str:
        figures = self.found
        processes = "" if self.found is None and self.processes == 1 else self.processes
        head = self.what, self.codec, self.sources or "", self.batch or "", processes
        if figures is not None and figures.error:
            return f"{_row(*head)}  failed: {figures.error}"
        speed = f"{self.fps:,.0f}", _percent(self.of_limit)
        if figures is None:
            return _row(*head, *speed)
        text = _row(
            *head,
            *speed,
            _percent(figures.lock_free),
            f"{figures.cores_used:.1f}",
            f"{figures.to_device:.0f}",
            f"{figures.to_host:.0f}",
            f"{figures.device_mb or 0:,.0f}",
            f"{figures.host_mb:,.0f}",
            f"{figures.start_s:.1f}",
        )
        for name, share in list(self.uses.items())[:1]:
            text += f"  {name} {share:.0%}"
        if figures.latency:
            late = ", ".join(f"{name[:-3]} {value:.0f} ms" for name, value in figures.latency.items())
            text += f"; {figures.dropped} dropped, {late}"
        return text


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def binding(figures: TrialResult, cores: int, **of: float | None) -> dict[str, float]:
    """Utilization by resource, the highest first, which is the bottleneck.

    Args:
        figures: the run's measurements.
        cores: number of CPU cores.
        of: the speed of a part alone in frames per second, such as `decoder=8000`, if known.
    """
    shares: dict[str, float | None] = {name: figures.fps / fps if fps else None for name, fps in of.items()}
    shares["lock"] = None if figures.lock_free is None else 1.0 - figures.lock_free
    return utilization(figures, cores, shares)


def utilization(figures: TrialResult, cores: int, shares: dict[str, float | None]) -> dict[str, float]:
    """Add the cores to the known ones of these shares, and sort them, the highest first."""
    measured = {name: share for name, share in shares.items() if share is not None}
    measured["cores"] = max(figures.cores_used / cores, figures.cores_busy or 0.0)
    return {name: round(share, 3) for name, share in sorted(measured.items(), key=lambda item: -item[1])}


def best(rows: Iterable[Measurement], **like: Any) -> Measurement | None:
    """The fastest of the rows with the given attributes; None if there is none."""
    fitting = [row for row in rows if all(getattr(row, name) == value for name, value in like.items())]
    return max(fitting, key=lambda row: row.fps, default=None)


def fps_of(rows: Iterable[Measurement], **like: Any) -> float | None:
    """The speed of the fastest of the rows with the given attributes; None if there is none."""
    fastest = best(rows, **like)
    return None if fastest is None else fastest.fps


def growth_per_source(rows: Iterable[Measurement], attribute: str, **like: Any) -> float | None:
    """How much an attribute of `TrialResult` grows with each source after the first; None if unknown."""
    seen = {
        row.sources: getattr(row.found, attribute)
        for row in rows
        if row.found is not None and not row.found.error and all(getattr(row, n) == v for n, v in like.items())
    }
    few = min(seen, default=0)
    many = max(seen, default=0)
    if few == many or seen[few] is None or seen[many] is None:
        return None
    return float(round((seen[many] - seen[few]) / (many - few), 2))


def summary_line(codec: str, summary: dict[str, Any]) -> str:
    """The summary of a codec in one line."""
    text = f"{codec}: {summary['whole_fps']:,.0f} frames/s ({summary['sources']} sources, batch {summary['batch']})"
    if summary["of_limit"] is not None:
        text += (
            f", {summary['of_limit']:.1%} of the lesser of decoding alone ({summary['decode_fps']:,.0f}) and inference "
            f"alone ({summary['infer_fps']:,.0f})"
        )
    text += f"; most used: {summary['binds']}"
    for kind in ("device", "host"):
        if summary[f"{kind}_mb_a_source"] is not None:
            text += f"; {summary[f'{kind}_mb_a_source']:,.0f} MB of {kind} memory for each additional source"
    return text
