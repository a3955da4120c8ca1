"""What is known of one source while it runs: what it is doing, what it has given, and how fast."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.counters import Counters
from streamkit.runtime.metrics import Histogram

STATES = ("connecting", "running", "reconnecting", "paused", "ended", "failed")
_SPAN = 6  # snapshots that a rate is taken over


class Rate:
    """Events a second over the last few seconds, from a count that only rises."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=_SPAN)

    def see(self, now_s: float, count: int) -> None:
        """Note the count at a time, in seconds on the monotonic clock; once a second is often enough."""
        self._seen.append((now_s, count))

    @property
    def known(self) -> bool:
        """Whether there is a rate yet."""
        return len(self._seen) > 1

    @property
    def per_s(self) -> float:
        """The rate; 0 until it is known."""
        if len(self._seen) < 2:
            return 0.0
        (begun_s, first), (ended_s, last) = self._seen[0], self._seen[-1]
        return (last - first) / (ended_s - begun_s) if ended_s > begun_s else 0.0


@dataclass(slots=True)
class SourceState:
    """What became of one source.

    `frames == out + dropped`, but for those under way, once the source has ended.

    Attributes:
        frames: frames it has handed over.
        out: frames of it that came to the end of the graph.
        drops: frames dropped, by cause.
        failed: frames of it that came to the first end of the graph and had failed on the way.
        failures: how often a stage failed on a frame of it, on any branch.
        first_failure: why, the first time.
        objects: found on its frames; counted where the run is asked to.
        pts_s: of the last frame of it that came to the end of the graph.
        facts: what it says of itself: codec, size and so on; see `Context.facts`.
        error: why it failed, or None.
        raised: the same as it was raised.
        begun: whether its turn has come; files may have to wait for it.
        done: whether it has ended.
        state: one of `STATES`.
        cause: why it is in that state, in one word, such as `auth` or `lost`; or None.
        words: the same in a sentence, for people.
        since_s: since when it is in that state, in seconds since 1970.
        reconnects: how often it has come back after it was lost.
        live: whether its frames come at times of their own.
        latency: from a frame's arrival, or the time it was due, to the end of the graph; live and paced sources only.
        removed: whether it has been taken out while the pipeline ran.
        counted: whether it is in the sums of those, which are kept when it is forgotten.
    """

    frames: int = 0
    out: int = 0
    drops: Counters = field(default_factory=Counters)
    failed: int = 0
    failures: int = 0
    first_failure: str = ""
    objects: int = 0
    pts_s: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    raised: Exception | None = None
    begun: bool = False
    done: bool = False
    counters: Counters = field(default_factory=Counters)
    state: str = "connecting"
    cause: str | None = None
    words: str = ""
    since_s: float = field(default_factory=time.time)
    reconnects: int = 0
    live: bool = False
    latency: Histogram | None = None
    removed: bool = False
    counted: bool = False
    _in: Rate = field(default_factory=Rate)
    _out: Rate = field(default_factory=Rate)
    _lost: bool = False

    def tell(self, state: str, cause: str | None = None, words: str = "") -> None:
        """Note what the source is doing now; see `Context.status`."""
        if state != self.state:
            self.since_s = time.time()
        self._lost = self._lost or state == "reconnecting"
        if state == "running" and self._lost:
            self.reconnects, self._lost = self.reconnects + 1, False
        self.state, self.cause, self.words = state, cause, words

    def see(self, now_s: float) -> None:
        """Note how far it is, for the rates."""
        self._in.see(now_s, self.frames)
        self._out.see(now_s, self.out)

    @property
    def dropped(self) -> int:
        """How many of its frames were dropped."""
        return self.drops.values.total()

    @property
    def settled(self) -> bool:
        """Whether it has ended and every frame that it handed over is accounted for."""
        return self.done and self.out + self.dropped >= self.frames

    @property
    def rated(self) -> bool:
        """Whether its rates are known."""
        return self._in.known

    @property
    def fps_in(self) -> float:
        """Frames a second that it hands over, over the last seconds."""
        return self._in.per_s

    @property
    def fps_out(self) -> float:
        """Frames a second of it that come to the end of the graph, over the last seconds."""
        return self._out.per_s

    def report(self) -> dict[str, Any]:
        """Its part of a run's report; keys without a value are left out."""
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
class Removed:
    """The sums of the sources that were removed while the pipeline ran: bounded, however many they are."""

    sources: int = 0
    frames: int = 0
    out: int = 0
    failed: int = 0
    counters: Counters = field(default_factory=Counters)
    drops: Counters = field(default_factory=Counters)

    def add(self, state: SourceState) -> None:
        """A source that was removed is through."""
        self.sources, self.frames, self.out = self.sources + 1, self.frames + state.frames, self.out + state.out
        self.failed += state.error is not None
        self.counters.values.update(dict(state.counters.values))
        self.drops.values.update(dict(state.drops.values))

    def report(self) -> dict[str, Any]:
        """The part of a run's report that speaks of them."""
        found: dict[str, Any] = {"sources": self.sources, "frames": self.frames, "out": self.out}
        return {**found, "dropped": short(self.drops.values), **({"failed": self.failed} if self.failed else {})}


def short(drops: Mapping[str, int]) -> dict[str, int]:
    """Counts of drops by their cause alone: `dropped: too old` is `too old`."""
    return {name.removeprefix("dropped: "): n for name, n in sorted(dict(drops).items())}
