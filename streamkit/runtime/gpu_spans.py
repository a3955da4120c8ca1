"""What a CUDA stream is at and when, by the host's clock, without waiting for it.

An event on the stream marks each end of a span. Once the second has passed, which is looked at later, the span's length
is the time between the two, and its place the time since an event whose host time is known.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from streamkit.data import Device

Take = Callable[[str, float, float, Mapping[str, Any] | None], None]

_ANCHOR_S = 1.0  # CUDA tells milliseconds in 32 bits: over one second that is exact, over an hour it is not


class GpuSpans:
    """The spans of the stream that is current on this thread.

    A span begins when the stream comes to it, and ends when its last work is done: where the host is slow to launch
    work, the gaps within are part of it.

    Args:
        device: a CUDA device.
        take: gets name, begin and end in seconds of `time.perf_counter`, and what was given with the span.
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
        """Work that is launched from now on is of this span."""
        launched_s = time.perf_counter()
        self._open.append((name, about, launched_s, self._mark()))

    def end(self) -> None:
        """The newest span's work is launched."""
        self._pending.append((*self._open.pop(), self._mark()))
        self.collect()

    def collect(self, *, over: bool = False) -> None:
        """Take in the spans that the stream has left behind; all of them where its work is `over`."""
        while self._pending and (over or self._pending[0][-1].done):
            name, about, launched_s, first, second = self._pending.popleft()
            begun_s, ended_s = self._placed(launched_s, first, second)
            self._take(name, begun_s, ended_s, about)
            self._spare.append(second)
            if first is not self._anchor:
                self._spare.append(first)

    def _placed(self, launched_s: float, first: Any, second: Any) -> tuple[float, float]:
        """The host's time of two events. Nothing ends after it is seen to be over, or begins before it is launched."""
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
