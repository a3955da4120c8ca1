"""Spans of work on a CUDA stream by the host's clock, without waiting for the stream.

An event on the stream marks each end of a span. Once the second event has passed, the length of the span is the time
between the two events, and its start is measured from an event whose host time is known.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from streamkit.core.data import Device

Take = Callable[[str, float, float, Mapping[str, Any] | None], None]

_ANCHOR_S = 1.0  # CUDA tells milliseconds in 32 bits: over one second that is exact, over an hour it is not


class GpuSpans:
    """Spans of the stream that is current on this thread.

    A span begins when the stream reaches it and ends when its last work is done. Gaps where the host is slow to launch
    work are part of the span.

    Args:
        device: a CUDA device.
        take: receives name, begin and end in seconds of `time.perf_counter`, and the attributes of the span.
    """

    def __init__(self, device: Device, take: Take) -> None:
        self._cuda, self._take = device.xp.cuda, take
        self._stream = self._cuda.get_current_stream()
        self._spare: list[Any] = []
        self._open: list[tuple[str, Mapping[str, Any] | None, float, Any]] = []
        self._pending: deque[tuple[str, Mapping[str, Any] | None, float, Any, Any]] = deque()
        self._last_s = 0.0
        for _ in range(2):  # the first event of a stream takes longer
            self._anchor = self._mark()
            self._anchor.synchronize()
            self._anchor_s = time.perf_counter()

    def begin(self, name: str, about: Mapping[str, Any] | None) -> None:
        """Begin a span: it contains the work that is launched from now on."""
        launched_s = time.perf_counter()
        self._open.append((name, about, launched_s, self._mark()))

    def end(self) -> None:
        """End the newest span: its work has been launched."""
        self._pending.append((*self._open.pop(), self._mark()))
        self.collect()

    def collect(self, *, over: bool = False) -> None:
        """Report the spans that the stream has completed; all of them if its work is `over`."""
        while self._pending and (over or self._pending[0][-1].done):
            name, about, launched_s, first, second = self._pending.popleft()
            begun_s, ended_s = self._placed(launched_s, first, second)
            self._take(name, begun_s, ended_s, about)
            self._spare.append(second)
            if first is not self._anchor:
                self._spare.append(first)

    def _placed(self, launched_s: float, first: Any, second: Any) -> tuple[float, float]:
        """Host times of two events, clamped: no span begins before its launch or ends after it was seen to be done."""
        took_s = self._between_s(first, second)
        begun_s = self._anchor_s + self._between_s(self._anchor, first)
        seen_s = time.perf_counter()
        mended_s = max(min(begun_s, seen_s - took_s), launched_s)  # the two clocks drift apart over hours
        self._anchor_s += mended_s - begun_s
        if mended_s - self._anchor_s > _ANCHOR_S:
            self._spare.append(self._anchor)
            self._anchor, self._anchor_s = first, mended_s
        begun_s = max(mended_s, self._last_s)
        self._last_s = max(begun_s, mended_s + took_s)
        return begun_s, self._last_s

    def _between_s(self, first: Any, second: Any) -> float:
        return float(self._cuda.get_elapsed_time(first, second)) / 1e3

    def _mark(self) -> Any:
        event = self._spare.pop() if self._spare else self._cuda.Event()
        event.record(self._stream)
        return event
