# SPDX-License-Identifier: Apache-2.0
"""State of one source while it runs: what it is doing, its frame counts, and its rates."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamkit.core.counters import Counters, slug
from streamkit.runtime.execution.meters import Histogram

STATES = ("connecting", "running", "reconnecting", "paused", "ended", "failed")
_RECONNECTS = "reconnects: "
_SAMPLES = 6  # counts over which a rate is computed


class LastFrame(NamedTuple):
    """Where a source was when its last frame was read.

    Attributes:
        number: index of the frame.
        pts_s: its presentation time in seconds.
        read_s: when it was read, on the monotonic clock in seconds.
        shape_size: width and height of the source's first frame, which shapes in pixels refer to.
    """

    number: int
    pts_s: float
    read_s: float
    shape_size: tuple[int, int] | None = None


@dataclass(slots=True)
class SourceState:
    """State and counts of one source.

    Once the source has ended, `frames == out + dropped`, except for frames that are still in flight.

    Attributes:
        frames: frames that the source has produced.
        last: the last of them; None if there is none.
        out: its frames that reached the end of the graph.
        drops: dropped frames, by cause.
        failed: its frames that reached the first end of the graph as failed.
        failures: number of times a stage failed on one of its frames, on any branch.
        first_failure: text of the first failure.
        objects: objects detected on its frames; counted only if the run asks for it.
        pts_s: PTS in seconds of its latest frame that reached the end of the graph.
        facts: properties that the source reports: codec, size, and so on; see `Context.facts`.
        size: width and height of its last frame at the end of the graph, in pixels; None before the first.
        shape_size: width and height of its first frame, which shapes in pixels refer to; None before it.
        error: why the source failed, or None.
        raised: the exception for `error`.
        begun: whether its turn has come; files may have to wait for it.
        done: whether it has ended.
        state: one of `STATES`.
        cause: why it is in that state, in one word, such as `auth` or `lost`; or None.
        message: the same as a sentence for people.
        since_s: when it entered that state, in seconds since 1970.
        reconnects: number of reconnections.
        live: whether its frames arrive in real time.
        latency: from a frame's arrival, or due time, to the end of the graph; live and paced sources only.
        removed: whether it was removed while the pipeline ran.
    """

    frames: int = 0
    last: LastFrame | None = None
    out: int = 0
    drops: Counters = field(default_factory=Counters)
    failed: int = 0
    failures: int = 0
    first_failure: str = ""
    objects: int = 0
    pts_s: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    size: tuple[int, int] | None = None
    shape_size: tuple[int, int] | None = None
    error: str | None = None
    raised: Exception | None = None
    begun: bool = False
    done: bool = False
    counters: Counters = field(default_factory=Counters)
    state: str = "connecting"
    cause: str | None = None
    message: str = ""
    since_s: float = field(default_factory=time.time)
    reconnects: int = 0
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
            self.reconnects, self._lost = self.reconnects + 1, False
        self.state, self.cause, self.message = state, cause, message

    def sample(self, now_s: float) -> None:
        """Add a sample of the counts at a monotonic time in seconds, for the rates; call it about once a second."""
        self._samples.append((now_s, self.frames, self.out))

    def add_earlier(self, earlier: SourceState) -> None:
        """Add the counts of the same source in a process that has ended."""
        self.frames += earlier.frames
        self.last = self.last or earlier.last
        self.out += earlier.out
        self.failed += earlier.failed
        self.failures += earlier.failures
        self.first_failure = earlier.first_failure or self.first_failure
        self.objects += earlier.objects
        self.reconnects += earlier.reconnects
        self.drops.values.update(earlier.drops.values)
        self.counters.values.update(earlier.counters.values)
        if earlier.latency is not None:
            self.latency = self.latency or Histogram()
            self.latency.counts += earlier.latency.counts

    @property
    def dropped(self) -> int:
        """Number of its frames that were dropped."""
        return self.drops.values.total()

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
        first, last = self._samples[0], self._samples[-1]
        return (last[column] - first[column]) / (last[0] - first[0]) if last[0] > first[0] else 0.0

    def report(self) -> dict[str, Any]:
        """The source's part of the report; keys without a value are omitted."""
        found: dict[str, Any] = {"frames": self.frames}
        if self.live or self.drops.values:
            found["out"] = self.out
            found["dropped"] = short(self.drops.values)
        if self.latency is not None:
            found["latency"] = self.latency.summary()
        if self.reconnects:
            found["reconnects"] = self.reconnects
        return {**found, "error": self.error} if self.error else found


@dataclass(slots=True)
class RemovedSources:
    """Totals of the sources that were removed while the pipeline ran; their size does not grow with the sources."""

    sources: int = 0
    frames: int = 0
    out: int = 0
    failed: int = 0
    counters: Counters = field(default_factory=Counters)
    drops: Counters = field(default_factory=Counters)

    def add(self, state: SourceState) -> None:
        """Add the counts of a removed source that has ended."""
        self.sources, self.frames, self.out = self.sources + 1, self.frames + state.frames, self.out + state.out
        self.failed += state.error is not None
        self.counters.values.update(dict(state.counters.values))
        self.drops.values.update(dict(state.drops.values))

    def merge(self, other: RemovedSources) -> None:
        """Add the totals of another process."""
        self.sources, self.frames, self.out = (
            self.sources + other.sources, self.frames + other.frames, self.out + other.out,
        )  # fmt: skip
        self.failed += other.failed
        self.counters.values.update(other.counters.values)
        self.drops.values.update(other.drops.values)

    def report(self) -> dict[str, Any]:
        """The `removed` part of the report."""
        found: dict[str, Any] = {"sources": self.sources, "frames": self.frames, "out": self.out}
        return {**found, "dropped": short(self.drops.values), **({"failed": self.failed} if self.failed else {})}


def reconnects(state: SourceState) -> dict[str, int]:
    """How often a source has reconnected, by the cause of the loss."""
    counts = sorted(dict(state.counters.values).items())
    found = {name.removeprefix(_RECONNECTS): n for name, n in counts if name.startswith(_RECONNECTS)}
    return found or ({"unknown": state.reconnects} if state.reconnects else {})


def short(drops: Mapping[str, int]) -> dict[str, int]:
    """Drop counts with the bare cause as key: `dropped: too old` becomes `too old`."""
    return {slug(name.removeprefix("frames dropped: ")): n for name, n in sorted(dict(drops).items())}
