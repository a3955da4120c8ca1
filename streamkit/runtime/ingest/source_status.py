# SPDX-License-Identifier: Apache-2.0
"""State of one source while it runs: what it is doing, its frame counts, and its rates."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from streamkit.core.timeline import LastFrame
from streamkit.runtime.execution.meters import Histogram
from streamkit.runtime.ingest.source_counts import SourceCounts, short

STATES = ("connecting", "running", "reconnecting", "paused", "ended", "failed")
_SAMPLES = 6  # counts over which a rate is computed


@dataclass(slots=True)
class SourceState(SourceCounts):
    """State and counts of one source; see `SourceCounts` for the numbers.

    Once the source has ended, `frames == out + dropped`, except for frames that are still in flight.

    Attributes:
        last: the last frame that the source has produced; None if there is none.
        first_failure: text of the first failure of a stage.
        pts_s: PTS in seconds of its latest frame that reached the end of the graph.
        facts: properties that the source reports: codec, size, and so on; see `Context.facts`.
        size: width and height of its last frame at the end of the graph, in pixels; None before the first.
        shape_size: width and height of its first frame, which shapes in pixels refer to; None before it.
        error: why the source failed, or None.
        raised: the exception for `error`.
        started: whether it has started; files may wait for their turn.
        done: whether it has ended.
        state: one of `STATES`.
        cause: why it is in that state, in one word, such as `auth` or `lost`; or None.
        message: the same as a sentence for people.
        since_s: when it entered that state, in seconds since 1970.
        live: whether its frames arrive in real time.
        latency: from a frame's arrival, or due time, to the end of the graph; live and paced sources only.
        removed: whether it was removed while the pipeline ran.
    """

    last: LastFrame | None = None
    first_failure: str = ""
    pts_s: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    shape_size: tuple[int, int] | None = None
    error: str | None = None
    raised: Exception | None = None
    started: bool = False
    done: bool = False
    state: str = "connecting"
    cause: str | None = None
    message: str = ""
    since_s: float = field(default_factory=time.time)
    live: bool = False
    latency: Histogram | None = None
    removed: bool = False
    _samples: deque[tuple[float, int, int]] = field(default_factory=lambda: deque(maxlen=_SAMPLES))
    _lost: bool = False

    def set_state(self, state: str, cause: str | None = None, message: str = "") -> None:
        """Set the state of the source; see `Context.status`."""
        if state != self.state:
            self.since_s = time.time()
        self._lost = self._lost or state == "reconnecting"
        if state == "running" and self._lost:
            self.reconnects += 1
            self._lost = False
        self.state = state
        self.cause = cause
        self.message = message

    def sample(self, now_s: float) -> None:
        """Add a sample of the counts at a monotonic time in seconds, for the rates; call it about once a second."""
        self._samples.append((now_s, self.frames, self.out))

    def merge_previous(self, earlier: SourceState) -> None:
        """Merge the counts and the history of the same source in an earlier process, which has ended."""
        self.merge(earlier)
        self.last = self.last or earlier.last
        self.first_failure = earlier.first_failure or self.first_failure
        if earlier.latency is not None:
            self.latency = self.latency or Histogram()
            self.latency.counts += earlier.latency.counts

    @property
    def complete(self) -> bool:
        """Whether it has ended and every frame that it produced is accounted for."""
        return self.done and self.out + self.dropped >= self.frames

    @property
    def rated(self) -> bool:
        """Whether its rates are known."""
        return len(self._samples) > 1

    @property
    def fps_in(self) -> float:
        """Frames per second that it produces, over the last seconds."""
        return self._rate(1)

    @property
    def fps_out(self) -> float:
        """Frames per second that reach the end of the graph, over the last seconds."""
        return self._rate(2)

    def _rate(self, column: int) -> float:
        """Increase per second of a column of the samples; 0 until there are two."""
        if not self.rated:
            return 0.0
        first = self._samples[0]
        last = self._samples[-1]
        return (last[column] - first[column]) / (last[0] - first[0]) if last[0] > first[0] else 0.0

    def report(self) -> dict[str, Any]:
        """The source's part of the report; keys without a value are omitted."""
        report: dict[str, Any] = {"frames": self.frames}
        if self.live or self.drops.values:
            report["out"] = self.out
            report["dropped"] = short(self.drops.values)
        if self.latency is not None:
            report["latency"] = self.latency.summary()
        report |= self.shown()
        return {**report, "error": self.error} if self.error else report


@dataclass(slots=True)
class RemovedSources(SourceCounts):
    """Totals of the sources that were removed while the pipeline ran; their size does not grow with the sources.

    Attributes:
        sources: their number.
        failed_sources: number of those that had failed.
    """

    sources: int = 0
    failed_sources: int = 0

    def add(self, state: SourceState) -> None:
        """Add the counts of a removed source that has ended."""
        self.merge(state)
        self.sources += 1
        self.failed_sources += state.error is not None

    def add_totals(self, other: RemovedSources) -> None:
        """Add the totals of another process."""
        self.merge(other)
        self.sources += other.sources
        self.failed_sources += other.failed_sources

    def report(self) -> dict[str, Any]:
        """The `removed` part of the report."""
        report: dict[str, Any] = {"sources": self.sources, "frames": self.frames, "out": self.out}
        report["dropped"] = short(self.drops.values)
        return report | ({"failed": self.failed_sources} if self.failed_sources else {})
