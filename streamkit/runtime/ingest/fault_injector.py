# SPDX-License-Identifier: Apache-2.0
"""Injects the faults that `fault:` of a source configures."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from streamkit.config.plan import SourceConfig
from streamkit.core.counters import Counters
from streamkit.core.data import Frame, Surface
from streamkit.core.errors import SourceError
from streamkit.core.fault_schedule import Fault
from streamkit.core.retry import Retry
from streamkit.core.stage import Source
from streamkit.runtime.execution.iterators import closing_iterator

_NAP_S = 0.05


class FaultInjector:
    """Fault schedule of one source; it survives when the source is opened again.

    Time is in seconds since the first opening. Live and paced sources use the monotonic clock: their frames have due
    times. Other sources use the timestamps of frames or packets.

    Args:
        fault: the faults to inject.
        source: the source's id.

    Attributes:
        realtime: whether its frames have due times: frames that a fault holds back are missed.
    """

    def __init__(self, fault: Fault, source: str) -> None:
        self.fault = fault
        self.fail, self.freeze, self.still, self.corrupt, self.away = (
            fault.schedule(kind, source) for kind in ("fail", "freeze", "still", "corrupt", "away")
        )
        self.chance = fault.chance("bytes", source)
        self._numbers = fault.frame_numbers
        self.realtime = False
        self._opened_s: float | None = None
        self._back_s = 0.0  # on the monotonic clock
        self._frames = _Passed()
        self._packets = _Passed()

    def begin(self) -> None:
        """Prepare for an opening of the source. Faults that were due while it was closed are skipped."""
        if self._opened_s is None:
            self._opened_s = time.monotonic()
        elif self.realtime:
            for schedule in (self.fail, self.freeze, self.still, self.corrupt):
                schedule(self.time_s)

    def advance(self, frame: Frame) -> None:
        """Advance the clock to a frame."""
        self.realtime = frame.due_s is not None
        self._frames(frame.pts_s)

    @property
    def time_s(self) -> float:
        """Seconds since the first opening."""
        assert self._opened_s is not None, "call begin first"
        return time.monotonic() - self._opened_s if self.realtime else self._frames.time_s

    def packet_s(self, packet: Any) -> float:
        """Seconds since the first opening, from the timestamps of a packet."""
        ticks = packet.pts if packet.dts is None else packet.dts
        if ticks is not None and packet.time_base:
            self._packets(float(ticks * packet.time_base))
        return self.time_s if self.realtime or ticks is None else self._packets.time_s

    def fails(self, index: int) -> bool:
        """Whether the source fails before frame `index`."""
        failed = self.fail(self.time_s)
        while self._numbers and index >= self._numbers[0]:
            self._numbers.pop(0)
            failed = True
        return failed

    def outage_left_s(self, counters: Counters) -> float:
        """Seconds until the peer is back; 0 or less if it is there."""
        assert self._opened_s is not None, "call begin first"
        spans_before = self.away.spans_started
        now_s = time.monotonic()
        self.away(self.time_s)
        if self.away.spans_started > spans_before:
            self._back_s = self._opened_s + self.away.end_s if self.realtime else now_s + self.away.for_s
            if self._back_s > now_s:
                counters.add("fault: times away")
        return self._back_s - now_s


class FaultySource(Source):
    """A source with injected faults. It may be opened again after a close, or created again with the same faults.

    Args:
        inner: the source.
        faults: the faults to inject.
    """

    def __init__(self, inner: Source, faults: FaultInjector) -> None:
        self._inner = inner
        self._faults = faults
        self._stopped = False

    @property
    def unbounded(self) -> bool:
        """See `Source.unbounded`."""
        return self._inner.unbounded

    @property
    def retry(self) -> Retry | None:
        """See `Source.retry`."""
        return self._inner.retry

    def open(self) -> None:
        """Open the source.

        Raises:
            SourceError: the peer is away, or the source cannot be opened.
        """
        from streamkit.media.corruption import SurfaceCopies

        self._inner.context = self.context
        if self._inner.spec.reads_packets and self._faults.fault.corrupt is not None:
            runtime = replace(self.context.runtime, on_packet=self._damage_packet)
            self._inner.context = replace(self.context, runtime=runtime)
        self._copy = SurfaceCopies(self.context.device)
        self._faults.begin()
        left_s = self._faults.outage_left_s(self.context.counters)
        if left_s > 0:
            self.context.counters.add("fault: openings refused")
            raise SourceError(
                f"connection refused: injected outage for another {left_s:.1f} s (fault: away)", cause="refused"
            )
        self._inner.open()

    def close(self) -> None:
        """Close the source."""
        self._inner.close()

    def stop(self) -> None:
        """See `Source.stop`."""
        self._stopped = True
        self._inner.stop()

    def frames(self) -> Iterator[Frame]:
        """Yield the frames that the faults let through.

        Raises:
            SourceError: a fault makes the source fail or disconnect, or the source itself fails.
        """
        counters = self.context.counters
        faults = self._faults
        held: Surface | None = None
        with closing_iterator(self._inner.frames()) as frames:
            for frame in frames:
                faults.advance(frame)
                if faults.fails(frame.index):
                    counters.add("fault: failures")
                    place = f"at {faults.time_s:.2f} s, frame {frame.index}"
                    raise SourceError(f"injected failure {place} (fault: fail)", cause="lost")
                left_s = faults.outage_left_s(counters)
                if left_s > 0:
                    raise SourceError(
                        f"connection lost: injected outage for {left_s:.1f} s (fault: away)", cause="lost"
                    )
                if self._frozen():
                    continue
                if self._stopped:
                    return
                held = self._hold(frame, held)
                if not self._inner.spec.reads_packets:
                    self._damage_frame(frame)
                yield frame

    def _frozen(self) -> bool:
        """Whether the frame falls into a freeze and is missed; a source without pace waits instead."""
        faults = self._faults
        spans_before = self._faults.freeze.spans_started
        frozen = faults.freeze(faults.time_s)
        new = faults.freeze.spans_started - spans_before
        if new:
            self.context.counters.add("fault: freezes", new)
        if frozen and faults.realtime:
            self.context.counters.add("fault: frames missed")
            return True
        until_s = time.monotonic() + new * faults.freeze.for_s
        while not self._stopped and (left_s := until_s - time.monotonic()) > 0:
            time.sleep(min(left_s, _NAP_S))
        return False

    def _hold(self, frame: Frame, held: Surface | None) -> Surface | None:
        """Replace the frame's surface by the held one; return the surface to hold from now on.

        Each frame gets its own copy: stages that draw may draw on the surface of a frame that has been passed on.
        """
        if not self._faults.still(self._faults.time_s) or frame.surface is None:
            return None
        if held is None or (held.width, held.height) != (frame.surface.width, frame.surface.height):
            return self._copy(frame.surface)
        frame.surface = self._copy(held)
        self.context.counters.add("fault: frames repeated")
        return held

    def _damage_frame(self, frame: Frame) -> None:
        from streamkit.media.corruption import add_noise_blocks

        faults = self._faults
        if faults.corrupt(faults.time_s) and frame.surface is not None:
            add_noise = partial(add_noise_blocks, share=faults.fault.share, rng=faults.chance)
            frame.surface = self._copy(frame.surface, add_noise)
            self.context.counters.add("fault: frames damaged")

    def _damage_packet(self, packet: Any) -> None:
        from streamkit.media.corruption import flip_bytes

        faults = self._faults
        if faults.corrupt(faults.packet_s(packet)):
            flip_bytes(packet, faults.fault.share, faults.chance)
            self.context.counters.add("fault: packets corrupted")


class _Passed:
    """Elapsed seconds from timestamps that may go back, as at the start of a loop: only increases count."""

    def __init__(self) -> None:
        self.time_s = self._ahead_s = 0.0
        self._last_s = math.inf

    def __call__(self, now_s: float) -> None:
        if now_s < self._last_s:
            self._ahead_s = self.time_s - now_s
        self._last_s = now_s
        self.time_s = now_s + self._ahead_s


def faults_of(sources: Iterable[SourceConfig]) -> dict[str, FaultInjector]:
    """Faults of the sources that configure any, by id."""
    return {source.id: FaultInjector(source.fault, source.id) for source in sources if source.fault is not None}


def faults_message(faults: dict[str, FaultInjector]) -> str:
    """The message that the run injects faults."""
    each = [f"{name} ({', '.join(injector.fault.kinds)})" for name, injector in faults.items()]
    more = f" and {len(each) - 5} more" if len(each) > 5 else ""
    return f"faults are injected, because the YAML sets `fault`, into {', '.join(each[:5])}{more}"
